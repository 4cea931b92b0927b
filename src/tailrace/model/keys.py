"""Keys as small integers: equal keys get equal numbers, whatever their columns and types.

`number_keys` reads the identity columns of after images and of before images together, so that a key change
is a row whose two numbers differ. A tagged value (`*_exact`) in a key counts as a value of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import DataError
from tailrace.model.render import absent_masks, field_of, optional
from tailrace.model.table import TableSchema

Ints = npt.NDArray[np.int64]
Split = Callable[[Ints], list[tuple[ChangeBatch, Ints]]]


@dataclass(frozen=True)
class Keys:
    """`rows` upsert the keys `codes`; `gone_rows` delete the keys `gone_codes`. Codes are below `count`."""

    rows: Ints
    codes: Ints
    gone_rows: Ints
    gone_codes: Ints
    count: int


def number_keys(split: Split, table: TableSchema, upserting: Ints, deleting: Ints, total: int) -> Keys:
    """Number the keys of the after images of `upserting` and of the before images of `deleting` rows.

    An update is in both; it deletes only where its before image has the key and the key differs.
    """
    after = [
        _image(batch, places, "after", table, np.ones(len(places), bool))
        for batch, places in split(upserting)
    ]
    before = []
    kept = []
    offset = 0
    for batch, places in split(deleting):
        known = _known(batch, places, table)
        kept.append(deleting[offset : offset + len(places)][known])
        offset += len(places)
        before.append(_image(batch, places, "before", table, known))
    parts = after + before
    codes, count = _combine(table, parts) if parts else (np.empty(0, np.int64), 0)
    gone_rows = np.concatenate(kept) if kept else np.empty(0, np.int64)
    new, old = codes[: len(upserting)], codes[len(upserting) :]
    if not len(gone_rows):
        return Keys(upserting, new, gone_rows, old, count)
    now = np.full(total, -1, dtype=np.int64)
    now[upserting] = new
    changed = now[gone_rows] != old
    return Keys(upserting, new, gone_rows[changed], old[changed], count)


def _known(batch: ChangeBatch, places: Ints, table: TableSchema) -> npt.NDArray[np.bool_]:
    """Which rows have their whole key in the before image: all deletes, and updates whose log tells."""
    known = batch.data.column("before").is_valid().to_numpy(zero_copy_only=False)
    masks = absent_masks(optional(batch, "before_absent"), len(batch))
    for name in table.identity:
        if name in masks:
            known = known & ~masks[name]
    deletes = pc.equal(batch.data.column("op"), Op.DELETE.value).to_numpy(zero_copy_only=False)
    result: npt.NDArray[np.bool_] = (known | deletes)[places]
    return result


def _image(
    batch: ChangeBatch, places: Ints, side: str, table: TableSchema, wanted: npt.NDArray[np.bool_]
) -> list[tuple[pa.Array, pa.Array | None]]:
    """For each identity column the values, and the tagged values where some row of it has one."""
    exact = optional(batch, f"{side}_exact")
    picked = places[wanted]
    whole = len(picked) == len(batch)
    result = []
    for name in table.identity:
        values = field_of(batch.data.column(side), name)
        values = values if whole else values.take(pa.array(picked))
        tagged = None
        if exact is not None and exact.type.get_field_index(name) >= 0:
            tagged = field_of(exact, name)
            tagged = tagged if whole else tagged.take(pa.array(picked))
        nulls = (
            values.null_count if tagged is None else pc.and_(values.is_null(), tagged.is_null()).true_count
        )
        if nulls:
            raise DataError(
                f"table {table.ref}: {nulls} changes have no value in the key column {name}",
                remedy=f"declare the column {name} NOT NULL, or another primary key",
                place=str(table.ref),
            )
        result.append((values, tagged))
    return result


def _combine(table: TableSchema, parts: list[list[tuple[pa.Array, pa.Array | None]]]) -> tuple[Ints, int]:
    codes: Ints | None = None
    count = 1
    for i in range(len(table.identity)):
        columns = [[part[i][0] for part in parts]]
        if any(part[i][1] is not None for part in parts):
            columns.append(
                [pa.nulls(len(p[i][0]), pa.string()) if p[i][1] is None else p[i][1] for p in parts]
            )
        for chunks in columns:
            more, size = _codes(pa.concat_arrays(chunks))
            if codes is None:
                codes, count = more, size
                continue
            if count * size >= 2**62:
                codes, count = _codes(pa.array(codes))
            codes, count = codes * size + more, count * size
    if codes is None:
        return np.empty(0, np.int64), 0
    return (codes, count) if count <= 8 * len(codes) + 1024 else _codes(pa.array(codes))


def _codes(values: pa.Array) -> tuple[Ints, int]:
    """Equal values get equal numbers, null gets one of its own."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # makes -0.0 the 0.0 it equals
    if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
        span = pc.min_max(values)
        low, high = int(span["min"].as_py()), int(span["max"].as_py())
        if high - low < 4 * len(values) + 1024:
            return np.asarray(values.to_numpy(), dtype=np.int64) - low, high - low + 1
    encoded: Any = values.dictionary_encode()
    indices = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return np.asarray(indices, dtype=np.int64), len(encoded.dictionary) + 1
