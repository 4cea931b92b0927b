"""Values of keys as a statement takes them: whole columns become one parameter, with no Python per value.

PostgreSQL gets an array of texts a column, as its literal. SQLite gets one JSON array; what JSON has no value
for is an object there: bytes as `{"b": hex}`, text that is not UTF-8 as `{"x": hex}`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.text import exact_values, json_values, quoted, split_tags

# Beside a key's column: the text that documents show, and the tagged values that its type cannot hold.
TEXT, EXACT = ":text", ":exact"
_STRING = pa.string()


@dataclass(frozen=True)
class Values:
    """A column of some rows: of its type, and the tagged texts of what that cannot hold (or None)."""

    typed: pa.Array
    exact: pa.Array | None = None

    @property
    def known(self) -> pa.Array:
        """Where there is a value."""
        there = self.typed.is_valid()
        return there if self.exact is None else pc.or_(there, self.exact.is_valid())

    def filter(self, mask: pa.Array) -> Values:
        """Some of the rows."""
        return Values(self.typed.filter(mask), None if self.exact is None else self.exact.filter(mask))


Row = Sequence[Values]


def known(row: Row) -> Row:
    """The rows that have a value in every column."""
    mask = row[0].known
    for values in row[1:]:
        mask = pc.and_(mask, values.known)
    return row if mask.true_count == len(mask) else [values.filter(mask) for values in row]


def of_table(keys: pa.Table, name: str) -> Values:
    """A column of keys; what is odd is tagged, or at least has its text."""
    typed = keys.column(name).combine_chunks()
    exact = None
    if typed.null_count and name + EXACT in keys.column_names:
        exact = keys.column(name + EXACT).combine_chunks()
    elif typed.null_count and name + TEXT in keys.column_names:
        texts = pc.binary_join_element_wise("v:", keys.column(name + TEXT).combine_chunks(), "")
        exact = pc.if_else(typed.is_null(), texts, pa.scalar(None, _STRING))
    return Values(typed, exact)


def plain_texts(values: pa.Array) -> pa.StringArray:
    """Each value's text: one for one with the value."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_floating(values.type):
        return values.cast(_STRING)
    texts, _ = json_values(values)
    return texts


def sent_texts(values: Values) -> pa.StringArray:
    """Each value as text that PostgreSQL reads as the same value."""
    binary = pa.types.is_binary(values.typed.type)
    texts = _hex(values.typed, "\\x") if binary else plain_texts(values.typed)
    if values.exact is None:
        return texts
    _, body = split_tags(values.exact)
    return pc.coalesce(texts, body)


def sent_json(values: Values) -> pa.StringArray:
    """Each value as JSON for SQLite."""
    kind = values.typed.type
    if pa.types.is_binary(kind):
        texts = pc.binary_join_element_wise(_hex(values.typed, '{"b":"'), '"}', "")
    else:
        texts, is_text = json_values(values.typed)
        texts = quoted(texts) if is_text else _endless(texts) if pa.types.is_floating(kind) else texts
    if pa.types.is_string(kind) and pc.any(ends := pc.match_substring(values.typed, "\0")).as_py():
        # SQLite's JSON ends a text there.
        rare = [f'{{"x":"{text.encode().hex()}"}}' for text in values.typed.filter(ends).to_pylist()]
        texts = pc.replace_with_mask(texts, ends.fill_null(False), pa.array(rare, _STRING))
    if values.exact is None or values.exact.null_count == len(values.exact):
        return texts
    tags, body = split_tags(values.exact)
    odd = pc.fill_null(pc.is_in(tags, value_set=pa.array(["b", "x"])), False)
    plain = pc.and_(values.exact.is_valid(), pc.invert(odd))
    if pc.any(plain).as_py():
        made = _endless(exact_values(values.exact.filter(plain)))
        texts = pc.replace_with_mask(texts, plain, made)
    if pc.any(odd).as_py():
        pairs = zip(tags.filter(odd).to_pylist(), body.filter(odd).to_pylist(), strict=True)
        rare = [f'{{"{tag}":"{base64.b64decode(text).hex()}"}}' for tag, text in pairs]
        texts = pc.replace_with_mask(texts, odd, pa.array(rare, _STRING))
    return texts


def json_value(value: str, kind: str, part: str = "") -> str:
    """SQLite's SQL for a value that `sent_json` made: `value` is SQL for it, `part` a path into that.

    `kind` is SQL for what JSON type the value has.
    """
    raw = [f"unhex(json_extract({value}, '${part}.{tag}'))" for tag in "bx"]
    plain = f"json_extract({value}, '${part}')" if part else value
    odd = f"coalesce({raw[0]}, CAST({raw[1]} AS TEXT))"
    return f"CASE {kind} WHEN 'object' THEN {odd} ELSE {plain} END"


def array_literal(texts: pa.StringArray) -> str:
    """PostgreSQL's literal of an array of texts, none of which is null."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return '{"' + _joined(escaped, '","') + '"}' if len(texts) else "{}"


def json_rows(columns: Sequence[pa.StringArray]) -> str:
    """Columns of JSON texts as one JSON array of rows, each an array."""
    rows = pc.binary_join_element_wise(*columns, ",") if len(columns) > 1 else columns[0]
    return "[[" + _joined(rows, "],[") + "]]" if len(rows) else "[]"


def json_list(texts: pa.StringArray) -> str:
    """JSON texts as one JSON array."""
    return "[" + _joined(texts, ",") + "]" if len(texts) else "[]"


def _joined(texts: pa.Array, separator: str) -> str:
    whole = pa.LargeListArray.from_arrays(
        pa.array([0, len(texts)], pa.int64()), texts.cast(pa.large_string())
    )
    return str(pc.binary_join(whole, pa.scalar(separator, pa.large_string()))[0].as_py())


def _endless(texts: pa.StringArray) -> pa.StringArray:
    """JSON has no infinities, but SQLite reads a number beyond all as one."""
    for name, number in (('"Infinity"', "9e999"), ('"-Infinity"', "-9e999")):
        texts = pc.if_else(pc.equal(texts, name), number, texts)
    return texts


def _hex(values: pa.Array, lead: str) -> pa.StringArray:
    """Bytes in hexadecimal digits, all of them in one go."""
    if not len(values):
        return pa.nulls(0, _STRING)
    filled = pc.fill_null(values, b"") if values.null_count else values
    ends = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1]
    data = filled.buffers()[2]
    raw = b"" if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    bounds = pa.py_buffer(((ends - ends[0]) * 2).astype(np.int32))
    texts = pa.StringArray.from_buffers(len(values), bounds, pa.py_buffer(raw.hex().encode()))
    texts = pc.binary_join_element_wise(lead, texts, "")
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _STRING)) if values.null_count else texts
