"""Tables as a capture describes them: names, columns, types, keys."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.model.errors import ConfigError, StateUnreadable


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """A table by schema and name, as the source spells them."""

    schema: str
    name: str

    def __str__(self) -> str:
        """`schema.name`; a part with a dot or quote in it is quoted, so that two never read alike."""
        return ".".join(
            quote(part) if "." in part or '"' in part else part for part in (self.schema, self.name)
        )


def quote(identifier: str) -> str:
    """An SQL identifier in double quotes; NUL and the empty name are refused."""
    if not identifier or "\0" in identifier:
        raise ConfigError("an identifier must not be empty or contain NUL")
    return '"' + identifier.replace('"', '""') + '"'


_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
SIMPLE_TYPES = tuple(_SIMPLE)
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type by Spark's name: `long`, `string`, `decimal(10,2)`, …"""

    name: str

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type whose values Spark takes for this type."""
        if (simple := _SIMPLE.get(self.name)) is not None:
            return simple
        if match := _DECIMAL.fullmatch(self.name):
            precision, scale = int(match[1]), int(match[2])
            if 1 <= precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
        raise StateUnreadable(f"unknown column type {self.name!r}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `native` is the type as the source declares it."""

    name: str
    type: ColumnType
    native: str = ""
    nullable: bool = True
    generated: bool = False


@dataclass(frozen=True)
class TableSchema:
    """A table at one moment of its life: its columns in order, and its key.

    `key` names the catalog's primary key columns in key order; it is empty where a table has none.
    `row_id` names the pseudo column that identifies rows where there is no primary key (SQLite's rowid); it
    then is a column of every image too. `generation` changes whenever capture of the table starts anew, and
    the changes between two generations were not captured.
    """

    ref: TableRef
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    row_id: str | None = None
    generation: str = ""
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell rows apart: the primary key, else the row id."""
        return self.key or ((self.row_id,) if self.row_id else ())

    @cached_property
    def struct(self) -> pa.StructType:
        """The Arrow type of a row image."""
        return pa.struct([pa.field(c.name, c.type.arrow) for c in self.columns])

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything that decides how rows look."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def column(self, name: str) -> Column:
        """The column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "schema": self.ref.schema,
            "name": self.ref.name,
            "columns": [[c.name, c.type.name, c.native, c.nullable, c.generated] for c in self.columns],
            "key": list(self.key),
            "row_id": self.row_id,
            "generation": self.generation,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> TableSchema:
        """The schema that `to_json` wrote."""
        try:
            return cls(
                TableRef(body["schema"], body["name"]),
                tuple(
                    Column(n, ColumnType(t), native, nul, gen) for n, t, native, nul, gen in body["columns"]
                ),
                tuple(body["key"]),
                body["row_id"],
                body["generation"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StateUnreadable("a table schema in the state cannot be read") from error
