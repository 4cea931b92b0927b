"""Values and keys as SQLite holds them, and back, by columns.

Whatever is a number inside is an integer, everything else is text, bytes are bytes. A key of one whole number
is itself; any other key is the JSON array of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import DataError
from tailrace.model.render import field_of
from tailrace.model.table import ColumnType, TableSchema
from tailrace.model.text import exact_values, json_values, quoted

# Whole numbers, which always fit their type; numbers inside; texts; bytes.
Kind = Literal["n", "i", "t", "b"]
_WHOLE = ("short", "integer", "long")
_COUNTED = ("boolean", "date", "timestamp", "timestamp_ntz")
_INT64, _STRING = pa.int64(), pa.string()


def kind_of(kind: ColumnType) -> Kind:
    """How values of a type are held."""
    if kind.name in _WHOLE:
        return "n"
    if kind.name in _COUNTED:
        return "i"
    return "b" if kind.name == "binary" else "t"


def arrow_of(kind: Kind) -> pa.DataType:
    """What held values are in Arrow."""
    return {"n": _INT64, "i": _INT64, "t": _STRING, "b": pa.binary()}[kind]


def whole_key(table: TableSchema) -> bool:
    """Whether the key is one whole number."""
    return len(table.identity) == 1 and table.column(table.identity[0]).type.name in _WHOLE


@dataclass(frozen=True)
class Column:
    """One column of some rows: values as they are held, and tagged texts of what the type cannot hold."""

    held: pa.Array
    exact: pa.Array

    def take(self, places: pa.Array) -> Column:
        """The values at these places, null for null."""
        return Column(self.held.take(places), self.exact.take(places))


def nothing(rows: int, kind: Kind) -> Column:
    """A column of nulls."""
    return Column(pa.nulls(rows, arrow_of(kind)), pa.nulls(rows, _STRING))


def together(columns: Sequence[Column]) -> Column:
    """Columns one after the other."""
    return Column(
        pa.concat_arrays([column.held for column in columns]),
        pa.concat_arrays([column.exact for column in columns]),
    )


def held(struct: pa.StructArray, exact: pa.StructArray | None, name: str) -> Column:
    """A column of row images."""
    values = field_of(struct, name)
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        values = values.cast(_INT64)
    elif pa.types.is_date(kind):
        values = values.cast(pa.int32()).cast(_INT64)
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        values = values.cast(_STRING)
    tagged = pa.nulls(len(values), _STRING)
    if exact is not None and exact.type.get_field_index(name) >= 0:
        tagged = field_of(exact, name)
        if pa.types.is_integer(kind) and tagged.null_count < len(tagged):
            raise DataError(f"column {name} has values that are no whole numbers, and relates rows")
    return Column(values, tagged)


def typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Held values as the column's own type."""
    if values.type == kind:
        return values
    return values.cast(pa.int32()).cast(kind) if pa.types.is_date(kind) else values.cast(kind)


def keys(struct: pa.StructArray, exact: pa.StructArray | None, table: TableSchema) -> pa.Array:
    """The keys of row images."""
    names = table.identity
    parts = []
    for name in names:
        values = field_of(struct, name)
        tagged = (
            field_of(exact, name) if exact is not None and exact.type.get_field_index(name) >= 0 else None
        )
        if tagged is not None and tagged.null_count == len(tagged):
            tagged = None
        missing = (
            values.null_count if tagged is None else pc.and_(values.is_null(), tagged.is_null()).true_count
        )
        if missing or (tagged is not None and whole_key(table)):
            raise DataError(
                f"table {table.ref}: {missing or 'some'} changes have no value in the key column {name}",
                remedy=f"declare the column {name} NOT NULL, or another primary key",
                place=str(table.ref),
            )
        if whole_key(table):
            return values.cast(_INT64)
        texts, is_text = json_values(values)
        texts = quoted(texts) if is_text else texts
        if tagged is not None:
            mask = tagged.is_valid()
            texts = pc.replace_with_mask(texts, mask, exact_values(tagged.filter(mask)))
        parts.append(texts)
    inner = pc.binary_join_element_wise(*parts, ",") if len(parts) > 1 else parts[0]
    return pc.binary_join_element_wise("[", inner, "]", "")


def listed(values: pa.Array) -> list[Any]:
    """The values as Python's, for a statement that takes many rows."""
    if pa.types.is_integer(values.type) and values.null_count == 0:
        found: list[Any] = values.to_numpy().tolist()
        return found
    return list(values.to_pylist())
