"""PostgreSQL's types as column types, and the server's text of a column as an Arrow array.

Stream and snapshot both carry the text of each type's output function and decode it here, so a value is the
same whichever way it came. `CANONICAL` are the settings under which that text is one for one with the value:
every session of ours has them, the replication connection too.

Text that a column's type cannot hold (NaN in a decimal, `infinity`, years before 1 or after 9999) leaves a
null in the array and stands in a second one, tagged as `model/change.py` describes. Arrow's own kernels read
whole columns; a column is looked at value by value only where they and the patterns below do not agree.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import Column, ColumnType, TableSchema

CANONICAL: Mapping[str, str] = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "client_encoding": "UTF8",
    "quote_all_identifiers": "off",
}

_BUILT_IN = {
    16: ColumnType("boolean"),
    17: ColumnType("binary"),
    20: ColumnType("long"),
    21: ColumnType("short"),
    23: ColumnType("integer"),
    700: ColumnType("float"),
    701: ColumnType("double"),
    1082: ColumnType("date"),
    1114: ColumnType("timestamp_ntz"),
    1184: ColumnType("timestamp"),
}
_NUMERIC = 1700
_TEXT = ColumnType("string")
_STRING = pa.string()

# What Arrow reads exactly as the server means it.
_CLOCK = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_USUAL = {
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp_ntz": rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_CLOCK}$",
    "timestamp": rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_CLOCK}[+-][0-9]{{2}}(:[0-9]{{2}})?$",
    "decimal": r"^-?[0-9]+(\.[0-9]+)?$",
    "boolean": r"^[tf]$",
    "binary": r"^\\x([0-9a-fA-F]{2})*$",
    "short": r"^-?[0-9]+$",
    "integer": r"^-?[0-9]+$",
    "long": r"^-?[0-9]+$",
    "float": r"^[-+.0-9eE]+$",
    "double": r"^[-+.0-9eE]+$",
}

Decoded = tuple[pa.Array, pa.Array | None]


def column_type(
    oid: int, typmod: int = -1, domains: Mapping[int, tuple[int, int]] | None = None
) -> ColumnType:
    """The column type of a catalog type.

    `domains` gives a domain's base type and modifier (`catalog.domains`); a domain's own modifier counts, for
    a column of a domain has none. Whatever is not known here is text.
    """
    while domains and oid in domains:
        oid, typmod = domains[oid]
    if oid == _NUMERIC:
        return _numeric(typmod)
    return _BUILT_IN.get(oid, _TEXT)


def overridden(schema: TableSchema, types: Mapping[str, str]) -> TableSchema:
    """The schema with the column types that the configuration names, by `table.column`."""

    def chosen(column: Column) -> Column:
        place = f"{schema.ref.name}.{column.name}"
        name = types.get(f"{schema.ref.schema}.{place}") or types.get(place)
        return replace(column, type=ColumnType(name)) if name else column

    return replace(schema, columns=tuple(map(chosen, schema.columns))) if types else schema


def _numeric(typmod: int) -> ColumnType:
    if typmod < 4:
        return _TEXT
    precision = (typmod - 4) >> 16 & 0xFFFF
    # A negative scale, which there is since 15, looks like one above a thousand.
    scale = typmod - 4 & 0x7FF
    if 1 <= precision <= 38 and scale <= precision:
        return ColumnType(f"decimal({precision},{scale})")
    return _TEXT


def from_text(values: pa.Array, kind: ColumnType) -> Decoded:
    """The server's text of a column as its type's array, and the tagged texts of what does not fit, or None.

    `values` is binary or string.
    """
    if kind == _TEXT:
        return _strings(values)
    try:
        return _typed(values, kind), None
    except ValueError:
        return _odd(values, kind)


def _typed(values: pa.Array, kind: ColumnType) -> pa.Array:
    """The typed array; ValueError (which Arrow's errors are) where a text does not fit."""
    # Unchecked: whatever is not ASCII is no number, date or digit.
    texts = values.view(_STRING) if pa.types.is_binary(values.type) else values
    if kind.name == "binary":
        return _bytes(texts)
    if kind.name == "boolean":
        return _booleans(texts)
    return texts.cast(kind.arrow)


def _odd(values: pa.Array, kind: ColumnType) -> Decoded:
    texts, undecodable = _strings(values)
    nothing = pa.scalar(None, _STRING)
    fits = pc.match_substring_regex(
        texts, _USUAL["decimal" if kind.name.startswith("decimal") else kind.name]
    )
    try:
        typed = _typed(pc.if_else(fits, texts, nothing), kind)
    except ValueError:
        typed = pa.concat_arrays([_one(texts.slice(row, 1), kind) for row in range(len(texts))])
    lost = pc.and_(texts.is_valid(), typed.is_null())
    tagged = pc.if_else(lost, pc.binary_join_element_wise(pa.scalar("v:"), texts, pa.scalar("")), nothing)
    return typed, tagged if undecodable is None else pc.coalesce(tagged, undecodable)


def _one(text: pa.Array, kind: ColumnType) -> pa.Array:
    try:
        return _typed(text, kind)
    except ValueError:
        return pa.nulls(1, kind.arrow)


def _strings(values: pa.Array) -> Decoded:
    if pa.types.is_string(values.type):
        return values, None
    try:
        return values.cast(_STRING), None
    except pa.ArrowInvalid:
        # A database of encoding SQL_ASCII holds any bytes.
        return _undecodable(values)


def _undecodable(values: pa.Array) -> Decoded:
    texts: list[str | None] = []
    tagged: list[str | None] = []
    for value in values.to_pylist():
        try:
            texts.append(None if value is None else value.decode())
            tagged.append(None)
        except UnicodeDecodeError:
            texts.append(None)
            tagged.append("x:" + base64.b64encode(value).decode())
    return pa.array(texts, _STRING), pa.array(tagged, _STRING)


def _booleans(texts: pa.Array) -> pa.Array:
    truth = pc.equal(texts, "t")
    if not pc.all(pc.or_(truth, pc.equal(texts, "f")), skip_nulls=True, min_count=0).as_py():
        raise ValueError
    return truth


def _bytes(texts: pa.Array) -> pa.Array:
    """`\\x` and two hexadecimal digits a byte, all texts in one go."""
    count = len(texts)
    if count == 0:
        return pa.nulls(0, pa.binary())
    # A null may have bytes under it.
    filled = pc.fill_null(texts, "\\x") if texts.null_count else texts
    _, ends, data = filled.buffers()
    offsets = np.frombuffer(ends, np.int32)[filled.offset : filled.offset + count + 1]
    text = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    sizes = np.diff(offsets)
    if sizes.min() < 2 or (text[starts] != 0x5C).any() or (text[starts + 1] != 0x78).any():
        raise ValueError
    digits = np.ones(len(text), np.bool_)
    digits[starts] = False
    digits[starts + 1] = False
    if (sizes % 2).any():
        raise ValueError
    raw = binascii.unhexlify(text[digits].data)
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(sizes // 2 - 1, out=bounds[1:])
    whole = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(raw)])
    return pc.if_else(texts.is_valid(), whole, pa.scalar(None, pa.binary())) if texts.null_count else whole
