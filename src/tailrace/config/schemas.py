"""The schemas that the indexes of a configuration name, each read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.config.checks import entries, uncaptured_by
from tailrace.config.files import read_content
from tailrace.config.problems import Problem, as_error
from tailrace.config.values import local_path
from tailrace.model.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.config.index import IndexSchema


class SchemaSource(Protocol):
    """Where schemas come from."""

    def place(self, written: Any) -> Path:
        """What the key `schema` means; ValueError where it can be no schema."""
        ...

    def absent(self, place: Path) -> tuple[str, str] | None:
        """What is wrong where there is no such schema, and the remedy."""
        ...

    def read(self, place: Path) -> IndexSchema:
        """The schema; ConfigError for what is wrong in it."""
        ...


class SchemaFiles:
    """Schemas in files; paths start at a directory. `digests` are those of the files that were read."""

    def __init__(self, directory: Path) -> None:
        self.digests: dict[Path, str] = {}
        self._directory = directory

    def place(self, written: Any) -> Path:
        """The file."""
        return local_path(written, self._directory)

    def absent(self, place: Path) -> tuple[str, str] | None:
        """The text where there is no such file."""
        if os.path.exists(place):  # noqa: PTH110 - a Path's own raises
            return None
        return f"there is no file {place}", "correct the path"

    def read(self, place: Path) -> IndexSchema:
        """The schema in a file."""
        from tailrace.config.index import parse_index

        content = read_content(place, "an index schema")
        self.digests[place] = content.digest
        return parse_index(content.text, str(place))


class SchemaBodies:
    """Schemas that a lock file holds, by what the key `schema` says."""

    def __init__(self, bodies: Mapping[str, Any]) -> None:
        self._bodies = bodies

    def place(self, written: Any) -> Path:
        """The name."""
        if not isinstance(written, str):
            raise ValueError("must be a path")
        return Path(written)

    def absent(self, place: Path) -> tuple[str, str] | None:
        """The text where the lock file has no such schema."""
        if str(place) in self._bodies:
            return None
        return f"the lock file holds no schema {place}", "tailrace build, with this file"

    def read(self, place: Path) -> IndexSchema:
        """The schema of that name."""
        from tailrace.config.index import index_from

        return index_from(self._bodies[str(place)], str(place))


@dataclass
class Schemas:
    """Schemas by the number of their index; what is wrong in the configuration, and what in their files."""

    found: dict[int, IndexSchema] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)


def read_schemas(tree: dict[str, Any], source: SchemaSource) -> Schemas:
    """Read the schemas of all indexes of a tree, also of those that are not enabled."""
    result = Schemas()
    read: dict[Path, IndexSchema | None] = {}
    for at, index in entries(tree, "index"):
        try:
            place = source.place(index.get("schema"))
        except ValueError:
            # The models tell it.
            continue
        if (absent := source.absent(place)) is not None:
            result.problems.append(Problem(("index", at, "schema"), *absent))
            continue
        if place not in read:
            try:
                read[place] = source.read(place)
            except ConfigError as error:
                result.errors.append(error)
                read[place] = None
        schema = read[place]
        if schema is None:
            continue
        result.found[at] = schema
        if missing := list(uncaptured_by(tree, index, schema)):
            result.errors.append(as_error(missing, schema.places))
    return result
