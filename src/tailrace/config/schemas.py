"""The schema files that the indexes of a configuration name, each read once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.config.checks import entries, uncaptured_by
from tailrace.config.problems import Problem, as_error
from tailrace.config.values import local_path
from tailrace.model.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.config.index import IndexSchema


@dataclass
class Schemas:
    """Schemas by the number of their index; what is wrong in the configuration, and what in their files."""

    found: dict[int, IndexSchema] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)


def read_schemas(tree: dict[str, Any], directory: Path) -> Schemas:
    """Read the schemas of all indexes of a tree, also of those that are not enabled."""
    result = Schemas()
    read: dict[Path, IndexSchema | None] = {}
    for at, index in entries(tree, "index"):
        try:
            file = local_path(index.get("schema"), directory)
        except ValueError:
            # The models tell it.
            continue
        if not os.path.exists(file):  # noqa: PTH110 - a Path's own raises
            problem = Problem(("index", at, "schema"), f"there is no file {file}", "correct the path")
            result.problems.append(problem)
            continue
        if file not in read:
            read[file] = _read(file, result.errors)
        schema = read[file]
        if schema is None:
            continue
        result.found[at] = schema
        if missing := list(uncaptured_by(tree, index, schema)):
            result.errors.append(as_error(missing, schema.places))
    return result


def _read(file: Path, errors: list[ConfigError]) -> IndexSchema | None:
    from tailrace.config.index import load_index

    try:
        return load_index(file)
    except ConfigError as error:
        errors.append(error)
        return None
