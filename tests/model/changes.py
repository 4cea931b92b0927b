"""Batches of changes from plain Python rows, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.model.change import ChangeBatch, schema_of
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema


def table_of(
    columns: dict[str, str], key: Sequence[str] = ("id",), name: str = "orders", **more: Any
) -> TableSchema:
    """A table of `main` with columns by Spark's type names."""
    return TableSchema(
        TableRef("main", name),
        tuple(Column(n, ColumnType(t)) for n, t in columns.items()),
        tuple(key),
        **more,
    )


def batch_of(table: TableSchema, changes: Sequence[dict[str, Any]]) -> ChangeBatch:
    """A batch of changes given as dicts with the fields of the batch; what is missing is null.

    `before_absent`, `after_absent`, `before_exact` and `after_exact` become columns where a change has them.
    """
    optional = []
    for side in ("before", "after"):
        if any(f"{side}_absent" in change for change in changes):
            optional.append(pa.field(f"{side}_absent", pa.list_(pa.string())))
        names = [
            c.name for c in table.columns if any(c.name in (x.get(f"{side}_exact") or {}) for x in changes)
        ]
        if names:
            optional.append(pa.field(f"{side}_exact", pa.struct([pa.field(n, pa.string()) for n in names])))
    schema = schema_of(table, optional)
    arrays = [pa.array([change.get(field.name) for change in changes], field.type) for field in schema]
    return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=schema))
