"""Lines cut into bodies, and the key that lets a receiver recognise a body it has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.model.render import buffer_of
from tailrace.sinks.contract import Progress


def bodies(text: pa.LargeStringArray, limit: int) -> Iterator[tuple[int, bytes]]:
    """Bodies of at most `limit` bytes of whole lines, each with its number of lines.

    A line longer than the limit is a body of its own.
    """
    if not len(text):
        return
    ends = np.frombuffer(text.buffers()[1], dtype=np.int64)[text.offset : text.offset + len(text) + 1]
    ends = ends - ends[0]
    whole = buffer_of(text)
    start = 0
    while start < len(text):
        stop = int(np.searchsorted(ends, ends[start] + limit, side="right")) - 1
        stop = min(max(stop, start + 1), len(text))
        yield stop - start, whole.slice(int(ends[start]), int(ends[stop] - ends[start])).to_pybytes()
        start = stop


def idempotency_key(progress: Progress, piece: int, body: bytes) -> str:
    """The same for the same body of the same batch, whenever and however often it is sent.

    The body is part of it: snapshot rows are read anew for a replay, and where they differ the lines may be
    cut elsewhere. A receiver that knew pieces by number only would then drop lines it never saw.
    """
    snapshots = sorted((table, plan, chunk) for table, (plan, chunk) in progress.snapshots.items())
    named = json.dumps([progress.pipeline, progress.source, progress.start, progress.end, snapshots, piece])
    return hashlib.sha256(named.encode() + b"\n" + hashlib.sha256(body).digest()).hexdigest()[:40]
