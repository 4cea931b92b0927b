"""Reading a configuration file: text, tree, overrides, models, one error for everything that is wrong."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.config import lines, references
from tailrace.config.checks import complete
from tailrace.config.files import read_content
from tailrace.config.hints import nearest
from tailrace.config.lines import Lines, find_lines
from tailrace.config.models import Config
from tailrace.config.outline import children, has_free_keys, takes_list
from tailrace.config.overrides import Overrides
from tailrace.config.problems import Places, Problem, as_error, combined, from_validation
from tailrace.config.schemas import SchemaFiles, Schemas, SchemaSource, read_schemas
from tailrace.config.values import flatten
from tailrace.model.errors import ConfigError

MAX_DEPTH = 16
_SYNTAX = re.compile(
    r"^(?P<what>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$", re.DOTALL
)
# Tables whose keys may be dotted: what TOML reads as a table in a table is one key there.
_DOTTED: tuple[lines.Path, ...] = (("spark",), ("source", "types"))


@dataclass(frozen=True)
class Written:
    """A configuration as it is written: references stand, nothing is filled in."""

    file: Path
    tree: dict[str, Any]
    lines: Lines
    schemas: SchemaSource
    digest: str = ""


@dataclass
class Understood:
    """What a written configuration means. `config` is None only where a variable is not set and may be."""

    config: Config | None
    tree: dict[str, Any]
    schemas: Schemas


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
    return configured(read_written(Path(path)), overrides=overrides, environ=environ)


def read_written(file: Path) -> Written:
    """Read a file without making sense of it."""
    text, digest = read_content(file, "a configuration", missing=_init(file))
    tree = _parse(text, str(file))
    # Without a key the first line is the place of everything.
    found = find_lines(text).found or {(): 1}
    return Written(file, tree, Lines(found), SchemaFiles(file.parent), digest)


def configured(
    written: Written, *, overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """The configuration that was written, by this environment."""
    environ = os.environ if environ is None else environ
    config = understood(written, environ, variables=environ, overrides=overrides or {}).config
    assert config is not None  # noqa: S101 (where it is, something was raised)
    return config


def understood(
    written: Written,
    environ: Mapping[str, str],
    *,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    may_be_unset: bool = False,
) -> Understood:
    """Resolve references by `environ`, lay `variables` and `overrides` over it, check and complete it all.

    With `may_be_unset` a variable that is not set is no problem, unless it says where a schema is; what
    depends on its value is not checked then.
    """
    file = written.file
    resolved = references.resolve(written.tree, environ, is_table=has_free_keys)
    tree = resolved.tree
    _join_dotted_keys(tree)
    layers = Overrides(tree)
    layers.take_variables(variables, referenced=resolved.names)
    layers.take_flags(overrides)
    failures = [failure for failure in resolved.failures if not layers.covers(_joined(failure.path))]
    unresolved = {_joined(failure.path) for failure in failures}
    unset = [
        Problem(failure.path, failure.text, failure.remedy)
        for failure in failures
        if not (may_be_unset and failure.is_unset and not _is_schema(failure.path))
    ]
    absolute = file.absolute()
    _fill(tree, absolute)
    # A check must not complain about the empty text that stands for an unset variable.
    spanning = [problem for problem in complete(tree) if problem.path not in unresolved]
    schemas = read_schemas(tree, written.schemas)
    problems = [*unset, *layers.problems, *_unknown_settings(tree), *spanning, *schemas.problems]

    config: Config | None = None
    try:
        config = Config.model_validate(tree, context={"directory": str(absolute.parent)})
    except ValidationError as error:
        told = unresolved | {problem.path for problem in layers.problems}
        # What is judged as a whole cannot be while a part of it is not known.
        told |= {path for *parents, _ in unresolved if (path := tuple(parents)) and _is_judged_whole(path)}
        problems += [problem for problem in from_validation(error) if not _within(problem.path, told)]
    errors = [as_error(problems, places(written, layers.origins))] if problems else []
    if errors or schemas.errors:
        raise combined([*errors, *schemas.errors])
    if config is not None:
        config._path = absolute
        config._places = places(written, layers.origins)
        config._references = {
            _joined(at): text for at, text in resolved.references.items() if not layers.covers(_joined(at))
        }
        for at, index in enumerate(config.indexes):
            index._schema = schemas.found[at]
    return Understood(config, tree, schemas)


def _is_judged_whole(path: lines.Path) -> bool:
    return takes_list(path) or has_free_keys(path)


def _is_schema(path: lines.Path) -> bool:
    return path[:1] == ("index",) and path[2:] == ("schema",)


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


def default_name(file: Path) -> str:
    """The name of a pipeline whose file says none; the file's path is absolute."""
    name = file.parent.name if file.name == "tailrace.toml" else file.stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:63] or "tailrace"


def _fill(tree: dict[str, Any], file: Path) -> None:
    """Defaults that depend on where the file is."""
    if "name" not in tree:
        tree["name"] = default_name(file)
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


def places(written: Written, origins: Mapping[lines.Path, str]) -> Places:
    """Says where a key of a written configuration stands; `origins` are those of overrides."""
    found = written.lines.found
    joined = {_joined(path): line for path, line in reversed(found.items())}
    return Places(str(written.file), Lines({**joined, **found}), origins)
