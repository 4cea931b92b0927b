"""Columns of changed rows, old and new, out of whole batches; and their texts.

Nothing here is done row by row, but for values that no column of their type holds.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.documents.render.families import family
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import NeedsOperator
from tailrace.model.render import absent_masks, field_of, optional
from tailrace.model.table import Column, TableRef, TableSchema, quote
from tailrace.model.text import exact_values, json_values, quoted, split_tags

Bools = npt.NDArray[np.bool_]
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


def touched(batch: ChangeBatch, columns: Sequence[str], path: Sequence[str]) -> list[Row]:
    """The values of these columns before and after the changes, without those rows that have a NULL there.

    NeedsOperator where the log did not carry an old value, and nothing completed it.
    """
    table = batch.table
    if any(table.struct.get_field_index(name) < 0 for name in columns):
        # The rows are older than the column: it related them to nothing.
        return []
    _refuse_unknown(batch, columns, path)
    return [row for side in ("before", "after") if (row := _image(batch, side, columns)) is not None]


def _refuse_unknown(batch: ChangeBatch, columns: Sequence[str], path: Sequence[str]) -> None:
    data, table, rows = batch.data, batch.table, len(batch)
    ops = data.column("op")
    updates = pc.equal(ops, Op.UPDATE.value).to_numpy(zero_copy_only=False)
    deletes = pc.equal(ops, Op.DELETE.value).to_numpy(zero_copy_only=False)
    there = data.column("before").is_valid().to_numpy(zero_copy_only=False)
    missing = absent_masks(optional(batch, "before_absent"), rows)
    unchanged = {*(table.key if table.key_before else ()), *table.unchanged}
    for name in columns:
        told = there & ~missing[name] if name in missing else there
        if name in unchanged:
            told = told | (updates & ~there)
        if lost := int(np.count_nonzero((updates | deletes) & ~told)):
            raise NeedsOperator(
                f"table {table.ref}: {lost} changes do not tell what {name} was before them, which "
                f"{_relation(path)} needs",
                remedy=identity_remedy(table.ref),
                place=str(table.ref),
            )


def identity_remedy(ref: TableRef) -> str:
    """The SQL that makes PostgreSQL's log carry whole rows."""
    return f"ALTER TABLE {quote(ref.schema)}.{quote(ref.name)} REPLICA IDENTITY FULL"


def _relation(path: Sequence[str]) -> str:
    return f"the relation {'.'.join(path)}" if path else "the document's key"


def _image(batch: ChangeBatch, side: str, columns: Sequence[str]) -> Row | None:
    """The columns of one image. What an after image lacks is as before, and the before image has it."""
    struct = batch.data.column(side)
    if struct.null_count == len(struct):
        return None
    exact = optional(batch, f"{side}_exact")
    found = []
    for name in columns:
        tagged = None
        if exact is not None and exact.type.get_field_index(name) >= 0:
            tagged = field_of(exact, name)
        found.append(Values(field_of(struct, name), tagged))
    mask = struct.is_valid()
    for values in found:
        mask = pc.and_(mask, values.known)
    return found if mask.true_count == len(struct) else [values.filter(mask) for values in found]


def plain_texts(values: pa.Array) -> pa.StringArray:
    """Each value's text: one for one with the value."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_floating(values.type):
        return values.cast(_STRING)
    texts, _ = json_values(values)
    return texts


def id_texts(values: Values, column: Column, dialect: str) -> pa.StringArray:
    """Each value's text as the ids of documents have it: the same for equal values, whatever their scale."""
    texts = plain_texts(values.typed)
    if values.exact is not None:
        _, body = split_tags(values.exact)
        texts = pc.coalesce(texts, body)
    match family(column, dialect):
        case "decimal" | "numeric":
            scaled = pc.and_(pc.match_substring(texts, "."), pc.invert(pc.match_substring(texts, "e")))
            return pc.if_else(scaled, pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), "."), texts)
        case "char":
            return pc.ascii_rtrim(texts, " ")
        case "real":
            return _reals(values.typed, texts, dialect)
        case "uuid":
            return pc.utf8_lower(texts)
    return texts


def _reals(values: pa.Array, texts: pa.StringArray, dialect: str) -> pa.StringArray:
    """Reals as the source writes them. Nobody has them in keys, so it is done one by one."""
    found = zip(values.to_pylist(), texts.to_pylist(), strict=True)
    return pa.array([text if one is None else _real(one, dialect) for one, text in found], _STRING)


def _real(value: float, dialect: str) -> str:
    text = repr(value)
    if dialect != "postgres" or not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
    text = text.removesuffix(".0")
    if "e" in text or abs(value) < 1e15:
        return text
    # PostgreSQL goes over to exponents one digit earlier.
    digits = text.lstrip("-").rstrip("0")
    sign, fraction = "-" if value < 0 else "", f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e+15"


def sent_texts(values: Values) -> pa.StringArray:
    """Each value as text that PostgreSQL reads as the same value."""
    kind = values.typed.type
    texts = _hex(values.typed, "\\x") if pa.types.is_binary(kind) else plain_texts(values.typed)
    if values.exact is None:
        return texts
    _, body = split_tags(values.exact)
    return pc.coalesce(texts, body)


def sent_json(values: Values) -> pa.StringArray:
    """Each value as JSON for SQLite; bytes, and text that is not UTF-8, as `{"b": hex}` and `{"x": hex}`."""
    kind = values.typed.type
    if pa.types.is_binary(kind):
        texts = _hex(values.typed, '{"b":"')
        texts = pc.binary_join_element_wise(texts, '"}', "")
    else:
        texts, is_text = json_values(values.typed)
        texts = quoted(texts) if is_text else texts
    if values.exact is None or values.exact.null_count == len(values.exact):
        return texts
    tags, body = split_tags(values.exact)
    odd = pc.fill_null(pc.is_in(tags, value_set=pa.array(["b", "x"])), False)
    plain = pc.and_(values.exact.is_valid(), pc.invert(odd))
    if pc.any(plain).as_py():
        texts = pc.replace_with_mask(texts, plain, exact_values(values.exact.filter(plain)))
    if pc.any(odd).as_py():
        pairs = zip(tags.filter(odd).to_pylist(), body.filter(odd).to_pylist(), strict=True)
        rare = [f'{{"{tag}":"{base64.b64decode(text).hex()}"}}' for tag, text in pairs]
        texts = pc.replace_with_mask(texts, odd, pa.array(rare, _STRING))
    return texts


def _hex(values: pa.Array, lead: str) -> pa.StringArray:
    """Bytes in hexadecimal digits, all of them in one go."""
    filled = pc.fill_null(values, b"")
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False).astype(np.int64)
    digits = pc.binary_join(pa.array([filled.to_pylist()], pa.list_(pa.binary())), b"")[0].as_py().hex()
    ends = np.concatenate(([0], np.cumsum(2 * lengths))).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(digits.encode()))
    texts = pc.binary_join_element_wise(lead, texts, "")
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _STRING)) if values.null_count else texts


def plainly_equal(one: TableSchema, name: str, other: TableSchema, named: str) -> bool:
    """Whether equal values of the two columns have equal texts, whatever the source thinks of equality."""
    a, b = one.column(name), other.column(named)
    whole = {"short", "integer", "long"}
    if a.type.name in whole and b.type.name in whole:
        return True
    return a.type == b.type and (a.native, b.native) in (("uuid", "uuid"), ("date", "date"))
