"""A batch in pieces for the store: rows to bind, and what can be said against a document beforehand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sinks.contract import DocumentBatch, Rejection

NOT_JSON = "the document is not valid JSON, or is nested deeper than SQLite reads"


def sift(
    batch: DocumentBatch, max_bytes: int
) -> tuple[pa.LargeStringArray, pa.LargeStringArray, list[Rejection]]:
    """The ids and documents that can be tried, and the rejections of the others."""
    ids, documents = batch.ids.cast(pa.large_string()), batch.documents.cast(pa.large_string())
    # SQLite's reader of JSON ends at a NUL and would take what is before it for the whole.
    holed = pc.fill_null(pc.match_substring(documents, "\0"), False)
    long = pc.fill_null(pc.greater(pc.binary_length(documents), max_bytes), False)
    bad = pc.or_(holed, long)
    if not pc.any(bad).as_py():
        return ids, documents, []
    reason = pc.if_else(long, f"the document is longer than {max_bytes:,} bytes", NOT_JSON)
    rejected = [
        Rejection(id_, why)
        for id_, why in zip(ids.filter(bad).to_pylist(), reason.filter(bad).to_pylist(), strict=True)
    ]
    good = pc.invert(bad)
    return ids.filter(good), documents.filter(good), rejected


def pieces(
    ids: pa.LargeStringArray, documents: pa.LargeStringArray, max_rows: int, max_bytes: int
) -> Iterator[list[tuple[str, str | None]]]:
    """Rows of (id, document) in the order of their ids, cut by number and by bytes."""
    order = pc.sort_indices(ids)
    ids, documents = ids.take(order), documents.take(order)
    lengths = pc.fill_null(pc.binary_length(documents), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    start = 0
    while start < len(ids):
        before = int(ends[start - 1]) if start else 0
        by_bytes = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = max(start + 1, min(start + max_rows, by_bytes, len(ids)))
        count = stop - start
        yield list(
            zip(ids.slice(start, count).to_pylist(), documents.slice(start, count).to_pylist(), strict=True)
        )
        start = stop
