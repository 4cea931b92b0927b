"""Filters as PostgreSQL's SQL, where its answer is Spark's or lets more rows pass.

By type, as the catalog has it; whatever is not listed is left to Spark, as is a column whose type was
overridden.

- Integers, booleans, dates, times, `numeric`, `bytea` and `uuid` are ordered alike on both sides. A value
  that the column's type cannot hold (`infinity`, NaN in a `numeric`) is an error where it is read, so it is
  no matter whether it passes.
- Reals: NaN equals itself and is the greatest on both sides.
- Text: two equal texts are equal in every collation. All else is asked under "C", whose order is that of the
  bytes, and only in a database of UTF-8. `char(n)` ignores spaces that Spark sees: left to Spark.
- NULL: a composite value is asked for by IS DISTINCT FROM, because IS NULL looks into it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tailrace.capture.postgres.catalog import TYPES
from tailrace.model.filters import Condition, Filter, Rendered, compared, conjunction, null_test
from tailrace.model.table import TableSchema, quote

Literal = Callable[[Any], str | None]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TEXT = (25, 1043)
_NUMERIC = 1700
_LONG = 1 << 63


def condition(table: TableSchema, filters: Sequence[Filter], encoding: str) -> Condition:
    """The SQL of the filters; `encoding` is the server's. `table` comes fresh from the catalog."""
    types = {name: (oid, kind) for name, oid, _, kind in table.extra.get(TYPES, ())}
    kinds = {column.name: column.type.name for column in table.columns}

    def render(one: Filter) -> Rendered | None:
        if one.column not in types or one.column not in kinds:
            return None
        name = quote(one.column)
        if (asked := null_test(one)) is not None:
            return f"{name} IS {'NOT ' if asked else ''}DISTINCT FROM NULL", True
        oid, kind = types[one.column]
        if kind != kinds[one.column]:
            return None
        if oid in _TEXT:
            found = _text(name, one) if encoding == "UTF8" else None
            return None if found is None else (found, False)
        if oid == _NUMERIC and kind == "string":
            return None
        literal = _LITERALS.get(oid)
        found = None if literal is None else compared(name, one, literal)
        return None if found is None else (found, oid not in _REALS)

    return conjunction(filters, render)


def _text(name: str, one: Filter) -> str | None:
    if one.test in ("prefix", "suffix", "contains"):
        if type(one.value) is not str or "\0" in one.value:
            return None
        escaped = re.sub("([!%_])", r"!\1", one.value)
        before, after = "" if one.test == "prefix" else "%", "" if one.test == "suffix" else "%"
        pattern = _quoted(before + escaped + after)
        return f"""{name} COLLATE "C" {"NOT " if one.negated else ""}LIKE {pattern} ESCAPE '!'"""
    if one.test in ("=", "<=>", "in") and not one.negated:
        # Without a collation of ours, so that the column's indexes serve.
        return compared(name, one, _string)
    return compared(f'{name} COLLATE "C"', one, _string)


def _quoted(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def _string(value: Any) -> str | None:
    return _quoted(value) if type(value) is str and "\0" not in value else None


def _boolean(value: Any) -> str | None:
    return str(value).upper() if type(value) is bool else None


def _integer(value: Any) -> str | None:
    return f"'{value}'::int8" if type(value) is int and -_LONG <= value < _LONG else None


def _real(value: Any) -> str | None:
    # Of a real, to the last bit: the server reads the shortest text back as the same number.
    return f"'{value!r}'::float8" if type(value) is float else None


def _decimal(value: Any) -> str | None:
    if type(value) is int or (type(value) is Decimal and value.is_finite()):
        return f"'{value:f}'::numeric" if type(value) is Decimal else f"'{value}'::numeric"
    return None


def _date(value: Any) -> str | None:
    return f"'{value.isoformat()}'::date" if type(value) is date else None


def _moment(value: Any) -> str | None:
    if type(value) is not datetime or value.tzinfo is None:
        return None
    try:
        plain = value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        return None
    return f"'{plain.isoformat(sep=' ')}+00'::timestamptz"


def _clock(value: Any) -> str | None:
    if type(value) is not datetime or value.tzinfo is not None:
        return None
    return f"'{value.isoformat(sep=' ')}'::timestamp"


def _bytes(value: Any) -> str | None:
    return f"decode('{bytes(value).hex()}', 'hex')" if isinstance(value, bytes | bytearray) else None


def _uuid(value: Any) -> str | None:
    # Only as the server writes it: then the texts are ordered as the values are.
    return f"'{value}'::uuid" if type(value) is str and _UUID.fullmatch(value) else None


_REALS = (700, 701)
_LITERALS: Mapping[int, Literal] = {
    16: _boolean,
    17: _bytes,
    20: _integer,
    21: _integer,
    23: _integer,
    700: _real,
    701: _real,
    1082: _date,
    1114: _clock,
    1184: _moment,
    1700: _decimal,
    2950: _uuid,
}
