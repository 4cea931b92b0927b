"""Filters as SQLite's SQL, where its answer is Spark's or lets more rows pass.

Any column may hold any value, so each test is thought through for values of every storage class. A value
that does not fit its column's type is an error where it is read, so it matters only that what fits is not
lost. A column whose type was overridden is left to Spark, but for NULL.

- `long`, `boolean`: numbers, compared exactly, a real with an integer too.
- `double`: SQLite may read a decimal literal wrong in its last bit, so a real is written as a quotient of two
  integers, which is exact.
- `decimal`: rows hold the shortest text of a double. A literal that is the shortest text of its own double is
  ordered among them as the doubles are; others are left to Spark.
- `binary`: bytes in order.
- `string`: by the bytes of UTF-8, whatever the column's collation. In a column that is not declared as text
  there may be numbers, which Spark sees as their text: those always pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tailrace.capture.sqlite.types import column_type
from tailrace.model.filters import Condition, Filter, Rendered, compared, conjunction, null_test
from tailrace.model.table import Column, TableSchema, quote

_LONG = 1 << 63
_WHOLE = 1 << 53
_POWER = 62
_TEXTS = ("CHAR", "CLOB", "TEXT")


def condition(table: TableSchema, filters: Sequence[Filter], encoding: str) -> Condition:
    """The SQL of the filters; `encoding` is that of the database."""
    columns = {column.name: column for column in table.columns}

    def render(one: Filter) -> Rendered | None:
        column = columns.get(one.column)
        if column is None:
            return None
        name = quote(column.name)
        if (asked := null_test(one)) is not None:
            return f"{name} IS {'' if asked else 'NOT '}NULL", True
        if column.type != column_type(column.native):
            return None
        if column.type.name == "string":
            found = _text(name, column, one) if encoding == "UTF-8" else None
            return None if found is None else (found, False)
        kind = column.type.name.partition("(")[0]
        literal = _LITERALS.get(kind)
        found = None if literal is None else compared(name, one, literal)
        return None if found is None else (found, kind in _EXACT)

    return conjunction(filters, render)


def _text(name: str, column: Column, one: Filter) -> str | None:
    if any(word in column.native.upper() for word in _TEXTS):
        return _texts(name, one)
    # Without its affinity, which would turn the literal into a number.
    found = _texts(f"+{name}", one)
    return None if found is None else f"typeof({name}) <> 'text' OR ({found})"


def _texts(name: str, one: Filter) -> str | None:
    binary = f"{name} COLLATE BINARY"
    if one.test not in ("prefix", "suffix", "contains"):
        return compared(binary, one, _string)
    if one.negated or not one.value or (text := _string(one.value)) is None:
        return None
    if one.test == "prefix":
        return f"{binary} >= {text} AND substr({name}, 1, {len(one.value)}) = {text}"
    # A text may go on behind a NUL, where only instr looks.
    return f"instr({name}, {text}) > 0"


def _string(value: Any) -> str | None:
    if type(value) is not str or "\0" in value:
        return None
    return "'" + value.replace("'", "''") + "'"


def _integer(value: Any) -> str | None:
    # The least one has no literal: its digits alone are beyond the greatest.
    return str(value) if type(value) is int and -_LONG < value < _LONG else None


def _boolean(value: Any) -> str | None:
    return str(int(value)) if type(value) is bool else None


def _real(value: Any) -> str | None:
    if type(value) is not float or not math.isfinite(value):
        return None
    number, power = value.as_integer_ratio()
    shift = power.bit_length() - 1
    if abs(number) > _WHOLE or shift > 2 * _POWER:
        return None
    text = f"CAST({number} AS REAL)"
    for part in (min(shift, _POWER), shift - min(shift, _POWER)):
        if part:
            text += f" / CAST({1 << part} AS REAL)"
    return f"({text})"


def _decimal(value: Any) -> str | None:
    if type(value) is int:
        value = Decimal(value)
    if type(value) is not Decimal or not value.is_finite():
        return None
    if value == value.to_integral_value():
        return _integer(int(value)) if abs(value) <= _WHOLE else None
    double = float(value)
    return _real(double) if Decimal(repr(double)) == value else None


def _bytes(value: Any) -> str | None:
    return f"X'{bytes(value).hex()}'" if isinstance(value, bytes | bytearray) else None


_EXACT = ("long", "boolean", "binary")
_LITERALS: Mapping[str, Callable[[Any], str | None]] = {
    "long": _integer,
    "boolean": _boolean,
    "double": _real,
    "decimal": _decimal,
    "binary": _bytes,
}
