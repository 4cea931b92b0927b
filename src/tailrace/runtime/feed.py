"""The log of a source as a runtime and a filler take it: part by part, on demand, nothing twice.

The feed runs no thread and reads nothing ahead: `take` pulls one part out of `capture.live`. It remembers how
far it took, so that a broken reader can be opened again and what it then repeats is dropped and counted:
transactions by position, parts of an unfinished one by (position, seq). Rows are never compared, so two equal
rows stay two. A mechanism that groups transactions may group them anew when it is opened again; an unfinished
group then comes once more as a whole, under its new position.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.contract import Capture
from tailrace.model.change import ChangeBatch, Ends, Part
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime.history import SchemaHistory


class Feed:
    """One reader of one log. Belongs to one thread, as `live` does."""

    def __init__(
        self,
        capture: Capture,
        tables: Sequence[TableRef],
        *,
        consumer: str,
        start: Position,
        wait: float,
        accept: Mapping[TableRef, str] | None = None,
        history: SchemaHistory | None = None,
    ) -> None:
        self._capture = capture
        self._history = history
        self._tables = list(tables)
        self._consumer = consumer
        self._wait = wait
        self._accept = dict(accept or {})
        self._live: Iterator[Part | None] | None = None
        self._head = start
        self._inside: Position | None = None
        self._seq = -1
        self.position = start
        self.deduplicated = 0
        self.ended = False

    @property
    def inside(self) -> bool:
        """Whether a transaction was taken in part: the rest of it must come first."""
        return self._inside is not None

    def probe(self) -> None:
        """Raise what stands against continuing at this position; take nothing."""
        live = self._open(0.01)
        try:
            next(live, None)
        finally:
            _close(live)

    def _open(self, wait: float) -> Iterator[Part | None]:
        if self._history is not None:
            self._history.begin(self._capture, self._tables, self.position.version)
        return self._capture.live(
            self.position, self._tables, consumer=self._consumer, wait=wait, accept=self._accept
        )

    def caught_up(self) -> bool:
        """Whether everything that the source had when it was last asked is taken; asks again if so."""
        if self.inside or self.position < self._head:
            return False
        self._head = self._capture.head()
        return self.position >= self._head

    def take(self) -> Part | None:
        """The next part that was not taken yet; None if nothing came for a while, or the capture is closed.

        After an error the next call opens the log again, at the last whole transaction.
        """
        if self._live is None:
            self._live = self._open(self._wait)
        try:
            for part in self._live:
                if part is None:
                    # Nothing for us up to the head the source had: asking for it again would only wait.
                    self._head = self.position
                    return None
                if part.position > self.position:
                    if self._history is not None:
                        self._history.note(part.batches)
                    return self._fresh(part)
                self.deduplicated += part.rows
        except BaseException:
            self.close()
            raise
        self.ended = True
        return None

    def _fresh(self, part: Part) -> Part:
        batches = part.batches
        if part.ends is not None:
            self._inside = None
            part = self._unseen(part, part.ends)
            self.position = part.position
            return part
        if self._inside == part.position:
            batches = tuple(batch for batch in map(self._beyond, batches) if len(batch))
        else:
            self._seq = -1
        for batch in batches:
            self._seq = max(self._seq, cast(int, pc.max(batch.data.column("seq")).as_py() or 0))
        self._inside = None if part.complete else part.position
        if part.complete:
            self.position = part.position
        return Part(batches, part.position, part.complete)

    def _unseen(self, part: Part, ends: Ends) -> Part:
        """Of several transactions those that were not taken yet."""
        seen = int(np.searchsorted(ends.versions, self.position.version, side="right"))
        if not seen:
            return part
        batches = []
        for batch in part.batches:
            positions = batch.data.column("position").to_numpy()
            first = int(np.searchsorted(positions, self.position.version, side="right"))
            if first < len(batch):
                batches.append(batch.slice(first, len(batch) - first))
        known = int(ends.rows[seen - 1])
        self.deduplicated += known
        return Part(tuple(batches), part.position, ends=Ends(ends.versions[seen:], ends.rows[seen:] - known))

    def _beyond(self, batch: ChangeBatch) -> ChangeBatch:
        fresh = batch.data.filter(pc.greater(batch.data.column("seq"), pa.scalar(self._seq)))
        self.deduplicated += len(batch) - fresh.num_rows
        return ChangeBatch(batch.table, fresh)

    def settle(self, acknowledged: int) -> None:
        """Everything up to here is acknowledged: the source does not give it again."""
        if self._history is not None:
            self._history.prune(acknowledged)

    def close(self) -> None:
        """End the reader; `take` would begin a new one."""
        live, self._live = self._live, None
        if live is not None:
            _close(live)


def _close(live: Iterator[Part | None]) -> None:
    if isinstance(live, Generator):
        live.close()
