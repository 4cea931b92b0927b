"""A micro-batch as it comes from Spark: Arrow batches, or where in the changelog a large one lies.

A transaction may be larger than memory. Then its rows do not come through Spark: the writer reads them from
the changelog, in pieces of a batch's usual size, in the order of the log. The rows that were read for
snapshots are the last piece's: they stand after everything of the log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tailrace.changelog.reader import read_windows, schemas_of
from tailrace.changelog.segment import WindowRef
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.pack import unpack
from tailrace.model.table import TableRef
from tailrace.sinks.contract import Progress
from tailrace.spark.offsets import Cursor, Offset


@dataclass(frozen=True)
class Received:
    """A packed micro-batch: which one it is and where it ends, and its changes.

    `begun` are the plans that have begun by its end of each table that has any, but for those of keys alone,
    `seen` up to where its chunks of tables may have seen the log, `horizon` up to where link state may not
    know old values, `first` the tables of which a snapshot has its first chunk in it. Of a large batch
    `windows` are where the changes of the log lie, of `tables` alone, and `batches` are those of snapshots.
    """

    progress: Progress
    end: Offset
    begun: dict[str, set[str]]
    seen: dict[str, int]
    batches: list[ChangeBatch]
    horizon: int = 0
    first: frozenset[str] = frozenset()
    windows: tuple[WindowRef, ...] = ()
    tables: frozenset[TableRef] = frozenset()

    @property
    def anew(self) -> frozenset[TableRef]:
        """The tables of which a whole snapshot begins in it: nothing of the log before it counts."""
        marked = (one for one in self.batches if len(one) and one.data["op"][0].as_py() == Op.SNAPSHOT)
        return frozenset(one.table.ref for one in marked)

    def pieces(self, changelog: str, size: int) -> Iterator[tuple[list[ChangeBatch], int]]:
        """The changes in the order of the log, in pieces of about `size` bytes where they are many.

        With each how many changes of the log there are up to its end; 0 with the last, which is everything
        where the batch is not large.
        """
        done, held, piece = 0, 0, list[ChangeBatch]()
        windows = read_windows(changelog, self.windows, tables=self.tables)
        for window, batches in zip(self.windows, windows, strict=True):
            if piece and held + window.bytes > size:
                out, held, piece = piece, 0, []
                yield out, done
                # Nobody holds what was handed on: two pieces would take twice the memory.
                del out
            done, held = done + window.rows, held + window.bytes
            piece += batches
            del batches
        yield piece + self.batches, 0


def received(table: pa.Table, pipeline: str, changelog: str) -> Received | None:
    """The micro-batch in the rows of the packed view; None where there are none."""
    windows: list[WindowRef] = []
    tables: frozenset[TableRef] = frozenset()
    ends: tuple[Offset, Offset] | None = None
    horizon = 0
    seen: dict[str, int] = {}
    batches: list[ChangeBatch] = []
    for kind, payload in zip(table["kind"].to_pylist(), table["payload"], strict=True):
        if kind == "progress":
            if ends is None:
                body = json.loads(payload.as_buffer().to_pybytes())
                ends = Offset.from_json(body["start"]), Offset.from_json(body["end"])
                horizon = int(body.get("horizon", 0))
        elif kind == "seen":
            for name, position in json.loads(payload.as_buffer().to_pybytes()).items():
                seen[name] = max(position, seen.get(name, 0))
        elif kind == "windows":
            body = json.loads(payload.as_buffer().to_pybytes())
            windows = [WindowRef.from_json(one) for one in body["windows"]]
            tables = frozenset(TableRef(*one) for one in body["tables"])
        else:
            batches.append(unpack(payload.as_buffer()))
    if ends is None:
        return None
    start, end = ends
    begun = {name: {cursor.plan} for name, cursor in end.snapshots.items() if cursor.whole}
    for name in begun.keys() & start.snapshots.keys():
        begun[name].add(start.snapshots[name].plan)
    generations: dict[str, set[str]] = {}
    for schema in (*(batch.table for batch in batches), *schemas_of(changelog, windows)):
        generations.setdefault(str(schema.ref), set()).add(schema.generation)
    progress = _progress(start, end, pipeline, generations)
    before = {name: cursor.plan for name, cursor in start.snapshots.items()}
    first = frozenset(name for name, (plan, _) in progress.snapshots.items() if before.get(name) != plan)
    return Received(progress, end, begun, seen, batches, horizon, first, tuple(windows), tables)


def _progress(start: Offset, end: Offset, pipeline: str, generations: Mapping[str, set[str]]) -> Progress:
    moved = {
        table: (cursor.plan, cursor.next)
        for table, cursor in end.snapshots.items()
        if start.snapshots.get(table) != cursor and cursor.of
    }
    position = end.position
    unfinished = {
        table
        for table, cursor in end.snapshots.items()
        if not cursor.complete or _stale(cursor, generations.get(table, set()))
    }
    return Progress(
        pipeline,
        start.position.version,
        position.version,
        moved,
        position.source,
        frozenset(unfinished.union(moved)),
    )


def _stale(cursor: Cursor, generations: Collection[str]) -> bool:
    """Whether the table is to be read again: its capture began anew, and a pause may hold the snapshot up."""
    return not cursor.generation or any(found not in ("", cursor.generation) for found in generations)
