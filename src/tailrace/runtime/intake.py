"""From log and snapshot to deliveries: what is taken, in which order, and how it is packed.

`pack` gathers items up to a number of rows and bytes. A delivery holds whole units, or parts of one unit that
is larger than a delivery. Whatever does not fit waits in the buffer. With a snapshot pending, log and chunks
take turns: the log until it is caught up or as many rows as a delivery holds, then a chunk. So neither
starves the other, and a chunk always stands behind everything that was taken before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from tailrace.model.change import ChangeBatch
from tailrace.model.position import Position
from tailrace.runtime.beginning import Mode
from tailrace.runtime.checkpoint import Order
from tailrace.runtime.delivery import Item, Piece
from tailrace.runtime.feed import Feed
from tailrace.runtime.snapshots import Snapshots


class Intake:
    """Everything taken and not delivered. Belongs to the thread of its runtime's calls."""

    def __init__(
        self, feed: Feed, snapshots: Snapshots, *, mode: Mode, order: Order, max_rows: int, max_bytes: int
    ) -> None:
        self.feed = feed
        self.snapshots = snapshots
        self._streams = mode != "snapshot"
        self._first = order == "first" or not self._streams
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._injected: deque[Item] = deque()
        self._buffer: deque[Item] = deque()
        self._chunk: Iterator[Item] | None = None
        self._log_rows = 0

    @property
    def pending(self) -> int:
        """How many changes are taken or injected, and not delivered."""
        return sum(item.rows for item in (*self._injected, *self._buffer))

    @property
    def finished(self) -> bool:
        """Whether nothing will ever come again: a snapshot without a stream, read to its end."""
        waiting = self._injected or self._buffer or self._chunk or self.snapshots.pending
        return not self._streams and not waiting

    def inject(self, batches: tuple[ChangeBatch, ...], position: Position) -> None:
        """Deliver these next, between two units."""
        self._injected.append(Item(batches, position, origin="injected"))

    def pack(self, *, inside: bool, deadline: float, ended: Callable[[], bool]) -> list[Item]:
        """Items for one delivery; `inside` says that a unit was delivered in part. Empty if nothing came."""
        items: list[Item] = []
        rows = size = 0
        try:
            while not ended():
                item = self._ready(inside)
                if item is None:
                    late = time.monotonic() >= deadline
                    if rows and (late or not self._at_once()):
                        break
                    if not self._pull() and (rows or late or self.finished or self.feed.ended):
                        break
                    continue
                opens = not item.last and not inside
                full = rows + item.rows > self._max_rows or size + item.nbytes > self._max_bytes
                if rows and (full or opens):
                    self.give_back([item])
                    break
                if item.rows > self._max_rows:
                    item, rest = item.split(self._max_rows)
                    self._buffer.appendleft(rest)
                items.append(item)
                rows, size = rows + item.rows, size + item.nbytes
                closes, inside = inside and item.last, not item.last
                if closes or rows >= self._max_rows:
                    break
        except BaseException:
            self.give_back(items)
            raise
        return items

    def give_back(self, items: list[Item]) -> None:
        """Items that could not be delivered come next again."""
        for item in reversed(items):
            (self._injected if item.origin == "injected" else self._buffer).appendleft(item)

    def rest(self) -> tuple[list[Piece], list[Piece]]:
        """What was injected, and what was taken, as `force_stop` gives it back."""
        injected = [Piece("injected", item.batches, item.position) for item in self._injected]
        buffered = [Piece(item.origin, item.batches, item.position) for item in self._buffer if item.rows]
        buffered.sort(key=lambda piece: piece.origin == "taken")
        return injected, buffered

    def close(self) -> None:
        """Let go of the log; what was taken stays readable."""
        self._chunk = None
        self.feed.close()

    def _ready(self, inside: bool) -> Item | None:
        if self._injected and not inside:
            return self._injected.popleft()
        return self._buffer.popleft() if self._buffer else None

    def _at_once(self) -> bool:
        """Whether more can be had without waiting for the source."""
        if self._chunk is not None or self.snapshots.pending:
            return True
        return self._streams and not self.feed.caught_up()

    def _pull(self) -> bool:
        """Take one more item from the log or the snapshot into the buffer."""
        if self._chunk is None and self.snapshots.pending and self._chunk_is_due():
            self._chunk = self.snapshots.chunk(self.feed.position)
            self._log_rows = 0
        if self._chunk is not None:
            chunk, self._chunk = self._chunk, None
            item = next(chunk)
            self._buffer.append(item)
            self._chunk = None if item.last else chunk
            return True
        return self._streams and self._take()

    def _chunk_is_due(self) -> bool:
        if self._first:
            return True
        return not self.feed.inside and (self._log_rows >= self._max_rows or self.feed.caught_up())

    def _take(self) -> bool:
        part = self.feed.take()
        if part is None:
            return False
        self._log_rows += part.rows
        for piece in part.transactions():
            self._buffer.append(Item(piece.batches, piece.position, piece.complete))
        return True
