"""Tables as a capture describes them: names, columns, types, keys."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
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


def shell_name(ref: TableRef) -> str:
    """The table as a command line takes it: without the schema where that is the usual one."""
    return shlex.quote(ref.name if ref.schema in ("main", "public") else str(ref))


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
    """One column. `native` is the type as the source declares it.

    `filled` says that rows which were there before the column may have got a value in it that no change
    tells of (a default), or that nobody knows whether they did. `number` is the source's own number of the
    column, which one of the same name that is added later does not have again; 0 where there is none.
    """

    name: str
    type: ColumnType
    native: str = ""
    nullable: bool = True
    generated: bool = False
    filled: bool = False
    number: int = 0


@dataclass(frozen=True)
class TableSchema:
    """A table at one moment of its life: its columns in order, and its key.

    `key` names the catalog's primary key columns in key order; it is empty where a table has none.
    `row_id` names the pseudo column that identifies rows where there is no primary key (SQLite's rowid); it
    then is a column of every image too. `generation` changes whenever capture of the table starts anew, and
    the changes between two generations were not captured. `key_before` says whether the log has the key of a
    row as it was before an update or delete; without it nobody knows which row that was. `unchanged` are
    columns beside the key that an update without a before image did not change. `extra` is what the capture
    wants to know again of this schema after a restart: JSON only, kept by the schema history and nowhere
    else.
    """

    ref: TableRef
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    row_id: str | None = None
    generation: str = ""
    key_before: bool = True
    unchanged: tuple[str, ...] = ()
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
            "columns": [
                [c.name, c.type.name, c.native, c.nullable, c.generated, c.filled, c.number]
                for c in self.columns
            ],
            "key": list(self.key),
            "row_id": self.row_id,
            "generation": self.generation,
            # As a rule it is so, and schemas of older states are hashed without it.
            **({} if self.key_before else {"key_before": False}),
            **({"unchanged": list(self.unchanged)} if self.unchanged else {}),
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> TableSchema:
        """The schema that `to_json` wrote."""
        try:
            return cls(
                TableRef(body["schema"], body["name"]),
                # Older states do not have all that a column has now.
                tuple(Column(name, ColumnType(kind), *more) for name, kind, *more in body["columns"]),
                tuple(body["key"]),
                body["row_id"],
                body["generation"],
                body.get("key_before", True),
                tuple(body.get("unchanged", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StateUnreadable("a table schema in the state cannot be read") from error


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What became of a table's columns and key from one schema to the next.

    A log does not tell a column that was renamed from one that was dropped beside one that was added. One
    that was dropped and added again (`moved`) shows by its number, or by others that moved in front of it.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    key: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.retyped or self.moved or self.key)

    @property
    def followed(self) -> bool:
        """Whether rows from before it still tell everything about themselves, but for columns `filled`."""
        return not (self.retyped or self.moved or self.key or (self.added and self.dropped))

    def __str__(self) -> str:
        """A sentence's worth of it."""
        told = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("added", self.added),
                ("dropped", self.dropped),
                ("retyped", self.retyped),
                ("dropped and added again", self.moved),
            )
            if names
        ]
        return "; ".join([*told, *(["another key"] if self.key else [])])


def schema_change(old: TableSchema, new: TableSchema) -> SchemaChange:
    """What is different in `new`; false where rows look the same."""
    if old is new:
        return SchemaChange()
    before, after = ({column.name: column for column in table.columns} for table in (old, new))
    shared = [name for name in after if name in before]
    order = {name: place for place, name in enumerate(before)}
    # A column that was added again stands behind those that it once preceded.
    moved = [
        name
        for at, name in enumerate(shared)
        if any(order[other] > order[name] for other in shared[:at])
        or (before[name].number and after[name].number and before[name].number != after[name].number)
    ]
    return SchemaChange(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in shared if before[name].type != after[name].type),
        tuple(moved),
        sorted(old.identity) != sorted(new.identity),
    )
