"""Reading a configuration file: text, tree, overrides, models, one error for everything that is wrong."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.config import lines, references
from tailrace.config.checks import complete
from tailrace.config.files import read_text
from tailrace.config.hints import nearest
from tailrace.config.lines import Lines, find_lines
from tailrace.config.models import Config
from tailrace.config.outline import children, has_free_keys
from tailrace.config.overrides import Overrides
from tailrace.config.problems import Places, Problem, as_error, combined, from_validation
from tailrace.config.schemas import read_schemas
from tailrace.config.values import flatten
from tailrace.model.errors import ConfigError

MAX_DEPTH = 16
_SYNTAX = re.compile(
    r"^(?P<what>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$", re.DOTALL
)
# Tables whose keys may be dotted: what TOML reads as a table in a table is one key there.
_DOTTED: tuple[lines.Path, ...] = (("spark",), ("source", "types"))


def load_config(
    path: str | os.PathLike[str],
    *,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in a file; flags (`overrides`) win over `TAILRACE_*` variables, those over the file.

    `overrides` goes by dotted key (`source.url`); `environ` is the process's environment unless given. Every
    problem of the file is in the one ConfigError that is raised; its place is `file:line (key)`.
    """
    environ = os.environ if environ is None else environ
    file = Path(path)
    text = read_text(file, "a configuration", missing=_init(file))
    tree = _parse(text, str(file))
    found = find_lines(text)

    resolved = references.resolve(tree, environ, is_table=has_free_keys)
    tree = resolved.tree
    _join_dotted_keys(tree)
    layers = Overrides(tree)
    layers.take_variables(environ, referenced=resolved.names)
    layers.take_flags(overrides or {})
    failures = [
        Problem(at, what, remedy) for at, what, remedy in resolved.failures if not layers.covers(_joined(at))
    ]
    unresolved = {_joined(problem.path) for problem in failures}
    absolute = file.absolute()
    _fill(tree, absolute)
    # A check must not complain about the empty text that stands for an unset variable.
    spanning = [problem for problem in complete(tree) if problem.path not in unresolved]
    schemas = read_schemas(tree, file.parent)
    problems = [*failures, *layers.problems, *_unknown_settings(tree), *spanning, *schemas.problems]

    config: Config | None = None
    try:
        config = Config.model_validate(tree, context={"directory": str(absolute.parent)})
    except ValidationError as error:
        told = unresolved | {problem.path for problem in layers.problems}
        problems += [problem for problem in from_validation(error) if not _within(problem.path, told)]
    errors = [as_error(problems, _places(file, found, layers))] if problems else []
    if errors or schemas.errors or config is None:
        raise combined([*errors, *schemas.errors])
    config._path = absolute
    for at, index in enumerate(config.indexes):
        index._schema = schemas.found[at]
    config._references = {
        _joined(at): text for at, text in resolved.references.items() if not layers.covers(_joined(at))
    }
    return config


def _init(file: Path) -> str:
    output = "" if str(file) == "tailrace.toml" else f" --output {shlex.quote(str(file))}"
    return f"tailrace init sqlite:shop.db{output}"


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ConfigError("is nested too deeply", place=f"{file}:1") from None
    except ValueError as error:
        raise _syntax_error(str(error), text, file) from None
    level: list[Any] = [tree]
    for _ in range(MAX_DEPTH):
        level = [inner for node in level for inner in _inside(node)]
    if level:
        raise ConfigError("is nested too deeply", place=f"{file}:1")
    return tree


def _inside(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _syntax_error(message: str, text: str, file: str) -> ConfigError:
    match = _SYNTAX.match(message)
    if match is None:
        return ConfigError("is not TOML", place=f"{file}:1")
    line = int(match["line"]) if match["line"] else text.rstrip("\n").count("\n") + 1
    column = f", column {match['column']}" if match["column"] else ""
    what = match["what"][:1].lower() + match["what"][1:]
    return ConfigError(f"is not TOML: {what}{column}", place=f"{file}:{line}")


def _joined(path: lines.Path) -> lines.Path:
    for start in _DOTTED:
        if path[: len(start)] == start and len(path) > len(start) + 1:
            return (*start, ".".join(map(str, path[len(start) :])))
    return path


def _join_dotted_keys(tree: dict[str, Any]) -> None:
    for *parents, last in _DOTTED:
        node: Any = tree
        for step in parents:
            node = node.get(step) if isinstance(node, dict) else None
        if isinstance(node, dict) and isinstance(node.get(last), dict):
            node[last] = flatten(node[last])


def _fill(tree: dict[str, Any], file: Path) -> None:
    """Defaults that depend on where the file is."""
    if "name" not in tree:
        name = file.parent.name if file.name == "tailrace.toml" else file.stem
        tree["name"] = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:63] or "tailrace"
    state = tree.setdefault("state", {})
    if isinstance(state, dict):
        state.setdefault("directory", ".tailrace")


def _unknown_settings(tree: dict[str, Any]) -> list[Problem]:
    spark = tree.get("spark")
    if not isinstance(spark, dict):
        return []
    known = children(("spark",))
    return [
        Problem(
            ("spark", key),
            f"unknown key `{key}`{nearest(key, known)}",
            "a setting of Spark is written with its whole name, which begins with `spark.`",
        )
        for key in spark
        if key not in known and not key.startswith("spark.")
    ]


def _within(path: lines.Path, places: set[lines.Path]) -> bool:
    return any(path[: len(place)] == place for place in places)


def _places(file: Path, found: Lines, layers: Overrides) -> Places:
    joined = {_joined(path): line for path, line in reversed(found.found.items())}
    return Places(str(file), Lines({**joined, **found.found}), layers.origins)
