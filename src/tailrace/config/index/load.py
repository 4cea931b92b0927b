"""Reading an index schema: text, tree, models, one error for everything that is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.config import lines
from tailrace.config.files import read_text
from tailrace.config.index.fields import MODELS
from tailrace.config.index.models import IndexSchema
from tailrace.config.index.places import IndexPlaces, field_names
from tailrace.config.index.problems import from_validation
from tailrace.config.index.tree import read_tree
from tailrace.config.problems import as_error
from tailrace.model.errors import ConfigError


def load_index(path: str | os.PathLike[str]) -> IndexSchema:
    """The index schema in a file.

    Every problem of the file is in the one ConfigError that is raised; its place is `file:line (field …)`.
    """
    file = Path(path)
    return parse_index(read_text(file, "an index schema"), str(file))


def parse_index(text: str, name: str) -> IndexSchema:
    """The index schema in a text; `name` is what errors call it."""
    tree = read_tree(text, name)
    if tree.value is None and not tree.problems:
        raise ConfigError("is empty", place=name, remedy="begin with `version: 1`, `table: …` and `fields:`")
    if not isinstance(tree.value, dict):
        raise ConfigError(
            "is no index schema: it begins with no key", place=f"{name}:1", remedy="begin with `version: 1`"
        )
    places = IndexPlaces(name, tree.lines, {}, field_names(tree.value, MODELS))
    return _validated(tree.value, places, tree.problems)


def index_from(body: dict[str, Any], name: str) -> IndexSchema:
    """The index schema that its `written` gave; `name` is what errors call it."""
    return _validated(body, IndexPlaces(name, lines.Lines({}), {}, field_names(body, MODELS)), [])


def _validated(body: dict[str, Any], places: IndexPlaces, problems: list[Any]) -> IndexSchema:
    try:
        schema = IndexSchema.model_validate(body)
    except ValidationError as error:
        told = [problem.path for problem in problems]
        found = from_validation(error, body)
        problems = problems + [problem for problem in found if not _within(problem.path, told)]
    if problems:
        raise as_error(problems, places)
    schema._places = places
    return schema


def _within(path: lines.Path, places: list[lines.Path]) -> bool:
    return any(path[: len(place)] == place for place in places)
