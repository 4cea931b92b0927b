"""The executors' side: windows and chunks become Arrow batches of the chosen view. Stateless."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from tailrace.capture.contract import Capture
from tailrace.changelog.reader import read_windows
from tailrace.model.change import ChangeBatch, marker
from tailrace.model.net import net
from tailrace.model.pack import pack
from tailrace.model.position import Position
from tailrace.model.render import envelope, field_of, optional
from tailrace.model.table import TableSchema
from tailrace.model.views import conform, net_view, resolve_exact, table_view
from tailrace.spark.conditional import stoppable
from tailrace.spark.options import View
from tailrace.spark.partitions import ChunkRead, Slice
from tailrace.spark.patience import patiently

VISIBLE_TIMEOUT = 60.0
# So much of a chunk a task keeps until the chunk is whole.
HELD_BYTES = 64 << 20
PACKED = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("table", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)


def read_slice(
    part: Slice, view: View, changelog: str, capture: Capture, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Everything a task delivers, in order; typed views in the columns of `schema`, the query's own."""
    if view == "packed":
        yield packed("progress", "", 0, json.dumps(part.progress).encode())
    if part.referred:
        yield _referred(part)
        return
    if view == "net":
        everything = [batch for group in _groups(part, changelog, capture) for batch in group]
        if everything:
            yield conform(net_view(net(everything)), schema)
        return
    for group in _groups(part, changelog, capture):
        if view == "envelope":
            yield _in_order([envelope(batch) for batch in group])
        elif view == "table":
            for batch in group:
                yield conform(table_view(batch), schema)
        else:
            for batch in group:
                yield packed("changes", str(batch.table.ref), len(batch), pack(batch))
    if view == "packed" and part.chunks:
        # Changes up to here may be in the chunks, and come by the log all the same.
        tables, seen = sorted({str(read.chunk.table) for read in part.chunks}), capture.seen()
        yield packed("seen", "", 0, json.dumps(dict.fromkeys(tables, seen)).encode())


def packed(kind: str, table: str, rows: int, payload: bytes) -> pa.RecordBatch:
    """One row of the packed view."""
    return pa.RecordBatch.from_pydict(
        {"kind": [kind], "table": [table], "rows": [rows], "payload": [payload]}, schema=PACKED
    )


def _referred(part: Slice) -> pa.RecordBatch:
    tables = [[ref.schema, ref.name] for ref in part.tables]
    body = {"windows": [window.to_json() for window in part.windows], "tables": tables}
    return packed("windows", "", sum(window.rows for window in part.windows), json.dumps(body).encode())


def _groups(part: Slice, changelog: str, capture: Capture) -> Iterator[Sequence[ChangeBatch]]:
    """Batches that interleave, together: a window of the log, or one batch of a chunk."""
    for batches in read_windows(changelog, part.windows, tables=set(part.tables)):
        if batches:
            yield batches
    for chunk in part.chunks:
        with stoppable(chunk):
            for batch in read_chunk(chunk, capture):
                yield [batch]


def read_chunk(read: ChunkRead, capture: Capture) -> Iterator[ChangeBatch]:
    """A chunk's rows, not before every transaction up to its position is visible to a reader."""
    table = TableSchema.from_json(read.table)

    def begin() -> tuple[list[ChangeBatch], Iterator[ChangeBatch]] | None:
        if capture.describe(table.ref).generation != table.generation:
            # Capture of it began anew since the plan was made: its own snapshot follows and replaces this.
            return None
        capture.wait_visible(Position(read.source, read.position), VISIBLE_TIMEOUT)
        rows = capture.snapshot(table, read.chunk, position=read.position, seq=read.seq, columns=read.columns)
        return _held(rows)

    if (begun := patiently(begin)) is None:
        return
    # With a condition the table's other rows stay as they are.
    if read.chunk.index == 0 and read.chunk.where is None:
        yield marker(table, read.position, read.seq - 1, int(time.time() * 1_000_000))
    yield from _handed(*begun)


def patient_rows(begin: Callable[[], Iterator[ChangeBatch]]) -> Iterator[ChangeBatch]:
    """The rows of a chunk that `begin` begins to read, and begins again after a passing fault."""
    yield from _handed(*patiently(lambda: _held(begin())))


def _held(rows: Iterator[ChangeBatch]) -> tuple[list[ChangeBatch], Iterator[ChangeBatch]]:
    """The first batches of a chunk, up to a bound, and the rest.

    What is handed on cannot be taken back, so nothing is before a chunk of the usual size is whole: where a
    passing fault breaks it off it is read again from its beginning. One beyond the bound is handed on as it
    comes, and a fault in the rest of it is Spark's to repeat.
    """
    held: list[ChangeBatch] = []
    room = HELD_BYTES
    for batch in rows:
        held.append(batch)
        room -= batch.nbytes
        if room <= 0:
            break
    return held, rows


def _handed(held: list[ChangeBatch], rest: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    # Let go one by one: what is handed on is held by nobody.
    held.reverse()
    while held:
        yield held.pop()
    yield from rest


def typed_rows(batch: ChangeBatch) -> pa.RecordBatch:
    """The after images as plain typed columns, for batch reads."""
    after, exact = batch.data["after"], optional(batch, "after_exact")
    columns = []
    for field in batch.table.struct:
        tagged = None
        if exact is not None and exact.type.get_field_index(field.name) >= 0:
            tagged = field_of(exact, field.name)
        columns.append(resolve_exact(field_of(after, field.name), tagged, batch.table, field.name))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(batch.table.struct))


def _in_order(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches of several tables as one, in the order of their transactions."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    ordered = table.sort_by([("position", "ascending"), ("seq", "ascending")])
    return ordered.combine_chunks().to_batches()[0]
