"""The model of an index schema (`*.schema.yml`).

A field is written with its kind first, `- keyword: email`, and whatever else the kind takes beside it. The
models take that form and give it back (`written`), so that a schema can be kept as JSON.
What spans several keys is checked by `rules`, on the tree as it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from tailrace.config.index.fields import Aggregate, AnyField, Fields, Join, Object
from tailrace.config.index.names import as_resolved, readings, readings_in
from tailrace.config.index.parts import Filters, Part
from tailrace.config.index.places import IndexPlaces
from tailrace.config.index.rules import with_rules
from tailrace.config.index.values import Columns, FieldName, Identifier, value_of
from tailrace.config.lines import Path


class SoftDelete(Part):
    """Which rows count as deleted."""

    column: Identifier | None = Field(
        default=None, description="A row whose column is true, or not null if it is no boolean, is deleted."
    )
    field: FieldName | None = Field(
        default=None, description="The same by the name of a field of the document that shows the column."
    )
    when: Filters = Field(default=(), description="Only where all of these are true as well.")


def _version(value: Any) -> Any:
    value = value_of(value)
    # In Python `true` and 1.0 are 1 as well.
    return value if type(value) is int else str(value)


class IndexSchema(Part):
    """A whole index schema."""

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        description="The version of the language: 1."
    )
    table: Identifier = Field(
        description="The table whose rows become documents, `schema.table` where it is in another schema."
    )
    schema_: Identifier | None = Field(
        default=None, alias="schema", description="The schema of the tables. Default: the source's default."
    )
    primary_key: Columns | None = Field(
        default=None,
        description="The table's primary key, which makes the document's id; a list where it has several"
        " columns. Default: what it is.",
    )
    soft_delete: SoftDelete | None = Field(default=None, description="Which rows count as deleted.")
    filters: Filters = Field(
        default=(), description="Only rows for which all of these are true have a document."
    )
    fields_: Fields = Field(alias="fields", description="The fields of a document.")

    _places: IndexPlaces = PrivateAttr(default_factory=IndexPlaces.unknown)

    @property
    def places(self) -> IndexPlaces:
        """Where in the file a part of the schema stands."""
        return self._places

    def __eq__(self, other: object) -> bool:
        # Where it was read makes no difference; as JSON 1 and `true` do.
        return isinstance(other, IndexSchema) and json.dumps(self.written()) == json.dumps(other.written())

    __hash__ = None  # type: ignore[assignment]

    @model_validator(mode="wrap")
    @classmethod
    def _by_the_rules(cls, value: Any, handler: ModelWrapValidatorHandler[IndexSchema]) -> IndexSchema:
        if not isinstance(value, dict):
            return handler(value)
        try:
            schema: IndexSchema | None = handler(value)
            error = None
        except ValidationError as found:
            schema, error = None, found
        with_rules(value, error)
        assert schema is not None  # noqa: S101 (with_rules raises where there was an error)
        return schema

    def walk(self) -> Iterator[tuple[Path, AnyField]]:
        """Every field with its path in the file, from the top down."""
        yield from walk(self.fields_, ())

    def tables(self) -> Iterator[tuple[Path, str]]:
        """Every table, once for each place where the file names it, as a name that captures resolve."""
        root = readings(self.table, None) if self.schema_ is None else readings_in(self.schema_, self.table)
        yield ("table",), as_resolved(*next(root))
        for path, field in self.walk():
            if not isinstance(field, Join | Aggregate):
                continue
            yield (*path, "table"), self._resolved(field.table)
            if (through := getattr(field, "through", None)) is not None:
                yield (*path, "through", "table"), self._resolved(through.table)

    def _resolved(self, name: str) -> str:
        return as_resolved(*next(readings(name, self.schema_)))


def walk(fields: tuple[AnyField, ...], path: Path) -> Iterator[tuple[Path, AnyField]]:
    """Fields with their paths, each before those inside it."""
    for index, field in enumerate(fields):
        here = (*path, "fields", index)
        yield here, field
        if isinstance(field, Object | Join):
            yield from walk(field.fields_, here)
