"""Columns of changed rows, old and new, out of whole batches; and their texts.

Nothing here is done row by row, but for values that no column of their type holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.documents.render.binding import Row, Values, known, plain_texts
from tailrace.documents.render.families import family
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import NeedsOperator
from tailrace.model.render import absent_masks, field_of, optional
from tailrace.model.table import Column, TableRef, TableSchema, quote
from tailrace.model.text import split_tags

Bools = npt.NDArray[np.bool_]
_STRING = pa.string()


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
    """The columns of one image. What an after image lacks is as it was before."""
    struct = batch.data.column(side)
    if struct.null_count == len(struct):
        return None
    lacks = absent_masks(optional(batch, "after_absent"), len(batch)) if side == "after" else {}
    found = []
    for name in columns:
        values = _column(batch, side, name)
        if name in lacks:
            mask, old = pa.array(lacks[name]), _column(batch, "before", name)
            tagged = [pa.nulls(len(batch), _STRING) if x is None else x for x in (old.exact, values.exact)]
            values = Values(pc.if_else(mask, old.typed, values.typed), pc.if_else(mask, *tagged))
        found.append(values)
    return known(found)


def _column(batch: ChangeBatch, side: str, name: str) -> Values:
    exact = optional(batch, f"{side}_exact")
    tagged = None
    if exact is not None and exact.type.get_field_index(name) >= 0:
        tagged = field_of(exact, name)
    return Values(field_of(batch.data.column(side), name), tagged)


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
        case "uuid" if dialect == "postgres":
            return pc.utf8_lower(texts)
    return texts


def _reals(values: pa.Array, texts: pa.StringArray, dialect: str) -> pa.StringArray:
    """Reals as the source writes them. Nobody has them in keys, so it is done one by one."""
    single = pa.types.is_float32(values.type)
    # So many digits before the point are written out.
    most = 16 if dialect != "postgres" else 6 if single else 15
    typed = values.fill_null(0).to_numpy(zero_copy_only=False)
    found = zip(typed, values.is_valid().to_pylist(), texts.to_pylist(), strict=True)
    return pa.array(
        [_real(one, most, fraction=dialect != "postgres") if there else text for one, there, text in found],
        _STRING,
    )


def _real(value: np.floating[Any], most: int, *, fraction: bool) -> str:
    """The fewest digits that tell it from all others. With `fraction` a whole number has one too."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-4 <= abs(value) < 10**most:
        return np.format_float_positional(value, unique=True, trim="0" if fraction else "-")
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)


def plainly_equal(one: TableSchema, name: str, other: TableSchema, named: str) -> bool:
    """Whether equal values of the two columns have equal texts, whatever the source thinks of equality."""
    a, b = one.column(name), other.column(named)
    whole = {"short", "integer", "long"}
    if a.type.name in whole and b.type.name in whole:
        return True
    return a.type == b.type and (a.native, b.native) in (("uuid", "uuid"), ("date", "date"))
