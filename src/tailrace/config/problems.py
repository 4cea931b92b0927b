"""What is wrong with a configuration, and one ConfigError for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailrace.config.hints import listed, nearest
from tailrace.config.lines import Lines, Path
from tailrace.config.outline import children
from tailrace.model.errors import ConfigError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, at a key."""

    path: Path
    text: str
    remedy: str | None = None


@dataclass(frozen=True)
class Places:
    """Says where a key got its value: in the file, by a variable, or by a flag.

    What stands elsewhere now, and says the same, is no other configuration.
    """

    file: str = field(compare=False)
    lines: Lines = field(compare=False)
    overridden: Mapping[Path, str] = field(compare=False)

    def place(self, path: Path) -> str:
        """`tailrace.toml:12 (source.url)`, or the name of the variable or flag."""
        for length in range(len(path), 0, -1):
            if (origin := self.overridden.get(path[:length])) is not None:
                return origin
        key = self.described(path)
        # A lock file has no lines that would help a person.
        line = f":{self.lines.line(path)}" if self.lines.found else ""
        return f"{self.file}{line}" + (f" ({key})" if key else "")

    def described(self, path: Path) -> str:
        """The key as people write it."""
        return dotted(path)

    def order(self, problem: Problem) -> int:
        """Problems are told in the order of the file."""
        return self.lines.line(problem.path)


def dotted(path: Path) -> str:
    """A path as people write it: `table[0].sink`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if "." not in step else f'"{step}"')
    return text


def as_error(problems: Sequence[Problem], places: Places) -> ConfigError:
    """All problems in one error; the place is the first one's, the others stand a line each."""
    first, *others = sorted(problems, key=places.order)
    if not others:
        return ConfigError(first.text, remedy=first.remedy, place=places.place(first.path))
    # A remedy under several lines would seem to mend them all, so each stands with its own.
    lines = [_with_remedy(first), *(f"{places.place(other.path)}: {_with_remedy(other)}" for other in others)]
    return ConfigError("\n".join(lines), place=places.place(first.path))


def combined(errors: Sequence[ConfigError]) -> ConfigError:
    """The errors of several files in one, in this order."""
    first, *others = errors
    if not others:
        return first
    lines = [_with_remedy(first), *(f"{other.place}: {_with_remedy(other)}" for other in others)]
    return ConfigError("\n".join(lines), place=first.place)


def _with_remedy(problem: Problem | ConfigError) -> str:
    text = problem.text if isinstance(problem, Problem) else problem.message
    return f"{text} (remedy: {problem.remedy})" if problem.remedy else text


def from_validation(error: ValidationError) -> list[Problem]:
    """Pydantic's findings in our words. None of them holds a value of the file."""
    return [_problem(details) for details in error.errors(include_url=False, include_input=False)]


def _problem(details: ErrorDetails) -> Problem:
    path = _without_tag(details["loc"])
    kind, context = details["type"], details.get("ctx", {})
    last = str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        return Problem(
            path, f"unknown key `{last}`{nearest(last, list(children(path[:-1], details['loc'])))}"
        )
    if kind in ("missing", "union_tag_not_found"):
        name = "type" if kind == "union_tag_not_found" else last
        return Problem(path if kind == "missing" else (*path, "type"), f"the key `{name}` is missing")
    if kind == "union_tag_invalid":
        given, known = (
            str(context["tag"]),
            [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")],
        )
        return Problem(
            (*path, "type"), f"must be one of {listed(known)}, not `{given[:40]}`{nearest(given, known)}"
        )
    if kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "`")
        return Problem(path, f"must be {expected}")
    if kind == "tuple_type" and len(path) == 1:
        return Problem(path, "must be an array of tables", f"write `[[{last}]]`")
    if kind == "value_error":
        return Problem(path, str(context["error"]), getattr(context["error"], "remedy", None))
    return Problem(path, _SENTENCES.get(kind) or _lowered(details["msg"]))


def _without_tag(loc: tuple[int | str, ...]) -> Path:
    """Where a sink is concerned pydantic puts its type into the path, and `[key]` for a name."""
    if len(loc) >= 3 and loc[0] == "sinks":
        return (*loc[:2], *loc[3:])
    return tuple(loc)


def _lowered(message: str) -> str:
    message = message.removeprefix("Input should be ")
    return f"must be {message}" if message[:1].islower() else message


_SENTENCES = {
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be an array",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_too_short": "must not be empty",
}
