"""A batch as the lines of a bulk request, made of Arrow's buffers: no document is parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.render import buffer_of
from tailrace.sinks.contract import DocumentBatch, Rejection

MAX_ID = 512
# So much is worth a request of its own where connections are idle.
_WORTH = 128 * 1024
# What a string of JSON must escape; everything else of an id is sent as it is.
_ODD = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class Items:
    """Documents to send: for each its id, its lines in a bulk request, and whether it is a delete."""

    ids: pa.LargeStringArray
    lines: pa.LargeStringArray
    deletes: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Piece:
    """Some of the items as one request."""

    rows: np.ndarray
    body: memoryview


def sift(batch: DocumentBatch) -> tuple[pa.Array, pa.Array, list[Rejection]]:
    """The ids and documents that can be sent, and the rejections of the others."""
    ids, documents = batch.ids.cast(pa.large_string()), batch.documents.cast(pa.large_string())
    length = pc.binary_length(ids)
    bad = pc.or_(pc.equal(length, 0), pc.greater(length, MAX_ID))
    if not pc.any(bad).as_py():
        return ids, documents, []
    # A delete of what can never have been written has nothing to delete.
    named = ids.filter(pc.and_(bad, pc.is_valid(documents)))
    why = f"its id is empty or longer than {MAX_ID} bytes, which OpenSearch does not take"
    good = pc.invert(bad)
    return ids.filter(good), documents.filter(good), [Rejection(id_, why) for id_ in named.to_pylist()]


def encode(ids: pa.LargeStringArray, documents: pa.LargeStringArray, version: int) -> Items:
    """The items of a bulk request, each with its version."""
    deletes = pc.is_null(documents)
    names = _escaped(ids)
    if pc.any(pc.match_substring(documents, "\n")).as_py():
        # Between values only: a string of JSON has none. A line must be one.
        documents = pc.replace_substring(documents, "\n", " ")
    end = f'","version":{version},"version_type":"external_gte"}}}}\n'
    whole, empty, newline = (pa.scalar(text, pa.large_string()) for text in (end, "", "\n"))
    if documents.null_count == 0:
        begin = pa.scalar('{"index":{"_id":"', pa.large_string())
        lines = pc.binary_join_element_wise(begin, names, whole, documents, newline, empty)
    else:
        begin = pc.if_else(deletes, '{"delete":{"_id":"', '{"index":{"_id":"').cast(pa.large_string())
        last = pc.if_else(deletes, "", "\n").cast(pa.large_string())
        texts = pc.fill_null(documents, "")
        lines = pc.binary_join_element_wise(begin, names, whole, texts, last, empty)
    return Items(ids, lines, deletes.to_numpy(zero_copy_only=False))


def _escaped(ids: pa.LargeStringArray) -> pa.LargeStringArray:
    odd = pc.match_substring_regex(ids, _ODD)
    if not pc.any(odd).as_py():
        return ids
    texts = [json.dumps(id_, ensure_ascii=False)[1:-1] for id_ in ids.filter(odd).to_pylist()]
    return pc.replace_with_mask(ids, odd, pa.array(texts, pa.large_string()))


def pieces(items: Items, *, max_bytes: int, max_items: int, parallel: int) -> list[Piece]:
    """All items in requests of at most so many bytes and items, none of them copied.

    Where there is less than one request for each connection, and enough to be worth it, it is divided.
    """
    if not len(items):
        return []
    lines = items.lines
    ends = np.frombuffer(lines.buffers()[1], dtype=np.int64)[lines.offset : lines.offset + len(lines) + 1]
    ends = ends - ends[0]
    total = int(ends[-1])
    wanted = max(-(-total // max_bytes), -(-len(lines) // max_items), min(parallel, total // _WORTH), 1)
    whole = memoryview(buffer_of(lines))
    found: list[Piece] = []
    start = 0
    while start < len(lines):
        # Of about the same size: no connection waits for the last and longest.
        share = -(-(total - int(ends[start])) // max(1, wanted - len(found)))
        even = int(np.searchsorted(ends, ends[start] + share, side="left"))
        most = int(np.searchsorted(ends, ends[start] + max_bytes, side="right")) - 1
        stop = min(max(min(even, most), start + 1), start + max_items, len(lines))
        found.append(Piece(np.arange(start, stop), whole[int(ends[start]) : int(ends[stop])]))
        start = stop
    return found


def some(items: Items, rows: Sequence[int] | np.ndarray) -> Piece:
    """Some items, of anywhere, as one request."""
    chosen = np.asarray(rows, dtype=np.int64)
    return Piece(chosen, memoryview(buffer_of(items.lines.take(pa.array(chosen)))))
