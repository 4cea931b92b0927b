"""Decoded columns to change batches: log rows paired into changes, snapshot rows into reads.

A log row holds one image. The `b` of an update stands right before its `u`, in the same log, so pairing is
arithmetic on row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.capture.sqlite.decode import Cells
from tailrace.model.change import TS, ChangeBatch, schema_of
from tailrace.model.table import TableSchema

_MILLISECOND = 1000


def changes(
    table: TableSchema, head: Sequence[pa.Array], cells: Sequence[Cells], *, position: int
) -> ChangeBatch:
    """The changes that log rows hold; `head` is their numbers, operations and times.

    No update is cut in half: the caller sees to that.
    """
    seqs, ops, times = head
    code = np.asarray(ops.to_numpy(zero_copy_only=False), dtype="U1")
    rows = np.flatnonzero(code != "b")
    kind = code[rows]
    before = pa.array(rows - (kind == "u"), mask=~np.isin(kind, ("u", "d")))
    after = pa.array(rows, mask=kind == "d")
    keep = pa.array(rows)
    count = len(rows)
    fields: list[pa.Field] = []
    optional: list[pa.Array] = []
    images = _struct(table, cells)
    exact = _exact(table, cells)
    for name, index in (("before_exact", before), ("after_exact", after)):
        if exact is not None and _needed(exact, index):
            optional.append(exact.take(index))
            fields.append(pa.field(name, exact.type))
    data = pa.RecordBatch.from_arrays(
        [
            ops.take(keep),
            _constant(position, pa.int64(), count),
            seqs.take(keep),
            _constant(str(position), pa.string(), count),
            _timestamps(times.take(keep)),
            pa.nulls(count, table.struct) if before.null_count == count else images.take(before),
            images if count == len(code) and after.null_count == 0 else images.take(after),
            *optional,
        ],
        schema=schema_of(table, fields),
    )
    return ChangeBatch(table, data)


def reads(table: TableSchema, cells: Sequence[Cells], *, position: int, seq: int, ts: int) -> ChangeBatch:
    """Snapshot rows, numbered from `seq`; `ts` is in microseconds."""
    images = _struct(table, cells)
    count = len(images)
    exact = _exact(table, cells)
    data = pa.RecordBatch.from_arrays(
        [
            _constant("r", pa.string(), count),
            _constant(position, pa.int64(), count),
            pa.array(np.arange(seq, seq + count, dtype=np.int64)),
            pa.nulls(count, pa.string()),
            _constant(ts, TS, count),
            pa.nulls(count, table.struct),
            images,
            *([] if exact is None else [exact]),
        ],
        schema=schema_of(table, [] if exact is None else [pa.field("after_exact", exact.type)]),
    )
    return ChangeBatch(table, data)


def _struct(table: TableSchema, cells: Sequence[Cells]) -> pa.StructArray:
    return pa.StructArray.from_arrays([cell.typed for cell in cells], fields=list(table.struct))


def _exact(table: TableSchema, cells: Sequence[Cells]) -> pa.StructArray | None:
    pairs = [
        (c.name, cell.exact) for c, cell in zip(table.columns, cells, strict=True) if cell.exact is not None
    ]
    if not pairs:
        return None
    return pa.StructArray.from_arrays(
        [array for _, array in pairs], fields=[pa.field(name, pa.string()) for name, _ in pairs]
    )


def _needed(exact: pa.StructArray, index: pa.Array) -> bool:
    return any(array.take(index).null_count < len(index) for array in exact.flatten())


def _constant(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _timestamps(times: pa.Array) -> pa.Array:
    micros = np.asarray(times.to_numpy(zero_copy_only=False), dtype=np.int64) * _MILLISECOND
    return pa.array(micros).cast(TS)
