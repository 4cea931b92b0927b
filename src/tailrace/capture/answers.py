"""Rows of a query as every mechanism gives them (`Capture.query`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.model.table import ColumnType

EXACT = "exact"
Columns = Sequence[tuple[str, ColumnType]]


def answer(columns: Columns, cells: Sequence[tuple[pa.Array, pa.Array | None]]) -> pa.RecordBatch:
    """One batch: for each column its values, and the tagged texts of those that its type cannot hold."""
    fields = [pa.field(name, kind.arrow) for name, kind in columns]
    arrays = [typed for typed, _ in cells]
    tagged = [
        (name, tags)
        for (name, _), (_, tags) in zip(columns, cells, strict=True)
        if tags is not None and tags.null_count < len(tags)
    ]
    if tagged:
        exact = pa.StructArray.from_arrays(
            [tags for _, tags in tagged], fields=[pa.field(name, pa.string()) for name, _ in tagged]
        )
        fields.append(pa.field(EXACT, exact.type))
        arrays.append(exact)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
