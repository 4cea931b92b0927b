"""Reading tables chunk by chunk, behind the barrier that orders chunks against the log.

A chunk is read only when everything delivered so far, up to position L, is visible to a reader. Its rows then
are at least as new as what was delivered, so they carry L and come after the log's rows of L; whatever they
saw beyond L comes again from the log. The rows of all snapshots are numbered on from `SNAPSHOT_SEQ`, so that
(position, seq) orders them after every log change of their position and among each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tailrace.capture.contract import Capture
from tailrace.model.change import SNAPSHOT_SEQ, ChangeBatch, marker
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime.checkpoint import Cursor
from tailrace.runtime.delivery import Item
from tailrace.runtime.observer import Observer


class Snapshots:
    """The tables to be read. The cursors here say what was read; the checkpoint's, what was confirmed."""

    def __init__(
        self,
        capture: Capture,
        cursors: Mapping[TableRef, Cursor],
        *,
        rows: int,
        rows_per_chunk: int,
        visible_timeout: float,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._capture = capture
        self._cursors = dict(cursors)
        self._rows_per_chunk = rows_per_chunk
        self._visible_timeout = visible_timeout
        self._observer = observer
        self._clock = clock
        self.rows = rows

    @property
    def pending(self) -> bool:
        """Whether chunks are still to be read."""
        return any(not cursor.complete for cursor in self._cursors.values())

    def chunk(self, position: Position) -> Iterator[Item]:
        """Read the next chunk after the barrier at `position`: one unit, whose last item moves the cursor.

        A reading that fails may be begun again; the chunk is then delivered again as a whole.
        """
        ref = next(table for table, cursor in self._cursors.items() if not cursor.complete)
        self._capture.wait_visible(position, self._visible_timeout)
        schema = self._capture.describe(ref)
        cursor = self._cursors[ref] = self._planned(ref, schema.generation)
        last = cursor.next + 1 == cursor.of
        after = replace(cursor, next=cursor.next + 1, complete=last, chunks=() if last else cursor.chunks)
        held: tuple[ChangeBatch, ...] = ()
        if cursor.next == 0:
            now = int(self._clock() * 1_000_000)
            held = (marker(schema, position.version, SNAPSHOT_SEQ + self.rows, now),)
            self.rows += 1
        seq = SNAPSHOT_SEQ + self.rows
        batches = self._capture.snapshot(
            schema, cursor.chunks[cursor.next], position=position.version, seq=seq
        )
        for number, batch in enumerate(batches):
            self.rows += len(batch)
            if number:
                yield Item(held, position, last=False, origin="buffered")
                held = ()
            held = (*held, batch)
        self._cursors[ref] = after
        yield Item(held, position, cursor=after, origin="buffered")

    def _planned(self, ref: TableRef, generation: str) -> Cursor:
        cursor = self._cursors[ref]
        if cursor.plan and cursor.generation == generation:
            return cursor
        chunks = tuple(self._capture.plan(ref, rows_per_chunk=self._rows_per_chunk))
        self._observer.event("runtime.snapshot.begin", table=str(ref), chunks=len(chunks))
        return Cursor(ref, uuid.uuid4().hex[:12], 0, len(chunks), chunks, generation)
