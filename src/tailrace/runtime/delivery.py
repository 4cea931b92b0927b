"""What a runtime hands out, and its ledger of what was handed out and not confirmed.

Everything is made of units: a transaction of the log, a chunk of a snapshot, an injected batch. An `Item` is
a unit or a part of one. Only a whole unit moves the position or a chunk cursor; `Ledger.confirm` says what a
confirmed number of changes amounts to, without changing anything, so that a save may fail in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tailrace.model.change import ChangeBatch
from tailrace.model.position import Position
from tailrace.runtime.checkpoint import Cursor
from tailrace.runtime.spill import Spill, Spilled

Origin = Literal["injected", "delivered", "buffered", "taken"]


@dataclass(frozen=True, eq=False)
class Token:
    """The right to acknowledge one delivery, once. Two tokens are never equal."""

    number: int


@dataclass(frozen=True)
class Delivery:
    """Changes in order: whole transactions and chunks, or, with `complete` false, a part of a large one.

    The parts of a large one are acknowledged together, by the token of the last, whose `complete` is true.
    """

    batches: tuple[ChangeBatch, ...]
    position: Position
    token: Token
    complete: bool = True

    @property
    def rows(self) -> int:
        """How many changes it holds."""
        return sum(len(batch) for batch in self.batches)


@dataclass(frozen=True)
class Piece:
    """Unconfirmed changes that `force_stop` gives back, and how far they had come."""

    origin: Origin
    batches: tuple[ChangeBatch, ...]
    position: Position

    @property
    def rows(self) -> int:
        """How many changes it holds."""
        return sum(len(batch) for batch in self.batches)


@dataclass
class Counters:
    """The run's numbers, from zero at each start. Times are seconds since 1970."""

    polled: int = 0
    committed: int = 0
    deduplicated: int = 0
    last_poll: float | None = None
    last_event: float | None = None
    last_commit: float | None = None


@dataclass(frozen=True)
class Item:
    """A unit, or with `last` false a part of one that more parts follow. `cursor` is what a chunk moves."""

    batches: tuple[ChangeBatch, ...]
    position: Position
    last: bool = True
    cursor: Cursor | None = None
    origin: Origin = "taken"

    @property
    def rows(self) -> int:
        """How many changes it holds."""
        return sum(len(batch) for batch in self.batches)

    @property
    def nbytes(self) -> int:
        """Bytes of its Arrow buffers."""
        return sum(batch.nbytes for batch in self.batches)

    def split(self, rows: int) -> tuple[Item, Item]:
        """The first so many rows, and the rest, which then ends the unit."""
        head, tail = cut(self.batches, rows)
        return replace(self, batches=head, last=False, cursor=None), replace(
            self, batches=tail, origin="buffered"
        )


def cut(
    batches: tuple[ChangeBatch, ...], rows: int
) -> tuple[tuple[ChangeBatch, ...], tuple[ChangeBatch, ...]]:
    """The first so many rows of some batches, and the rest, without copying."""
    head: list[ChangeBatch] = []
    tail: list[ChangeBatch] = []
    for batch in batches:
        taken = min(rows, len(batch))
        rows -= taken
        if taken:
            head.append(batch.slice(0, taken))
        if taken < len(batch):
            tail.append(batch.slice(taken, len(batch) - taken))
    return tuple(head), tuple(tail)


@dataclass(frozen=True)
class _Entry:
    rows: int
    position: Position
    last: bool
    cursor: Cursor | None
    batches: tuple[ChangeBatch, ...] | Spilled


@dataclass(frozen=True)
class Confirmed:
    """What an acknowledgement of `rows` changes amounts to.

    `position` is where the last whole unit among them ends, None if none does; `whole` counts the changes of
    whole units only, so that the count that is saved belongs to the position that is saved.
    """

    rows: int
    whole: int
    position: Position | None
    cursors: tuple[Cursor, ...]
    entries: int
    skip: int
    partial: int


@dataclass
class Ledger:
    """Delivered and not confirmed, in order. Parts beyond `budget` bytes lie in a file."""

    budget: int = 64 * 1024 * 1024
    entries: list[_Entry] = field(default_factory=list)
    skip: int = 0
    partial: int = 0
    held: int = 0
    spill: Spill = field(default_factory=Spill)

    @property
    def pending(self) -> int:
        """How many changes are delivered and not confirmed."""
        return sum(entry.rows for entry in self.entries) - self.skip

    @property
    def open(self) -> bool:
        """Whether more parts of a delivered unit are to follow."""
        return bool(self.entries) and not self.entries[-1].last

    def add(self, items: list[Item]) -> None:
        """Note what is handed out."""
        for item in items:
            kept: tuple[ChangeBatch, ...] | Spilled = item.batches
            if item.rows and self.held + item.nbytes > self.budget:
                kept = self.spill.put(item.batches)
            else:
                self.held += item.nbytes
            self.entries.append(_Entry(item.rows, item.position, item.last, item.cursor, kept))

    def confirm(self, count: int) -> Confirmed:
        """What confirming the next `count` changes amounts to. Nothing is changed."""
        left, skip, partial, whole, passed = count, self.skip, self.partial, 0, 0
        position: Position | None = None
        cursors: list[Cursor] = []
        for entry in self.entries:
            rows = entry.rows - skip
            if rows > left:
                skip, partial = skip + left, partial + left
                break
            left, partial, skip, passed = left - rows, partial + rows, 0, passed + 1
            if entry.last:
                whole, partial, position = whole + partial, 0, entry.position
                cursors += [entry.cursor] if entry.cursor else []
        return Confirmed(count, whole, position, tuple(cursors), passed, skip, partial)

    def apply(self, confirmed: Confirmed) -> None:
        """Forget what was confirmed."""
        del self.entries[: confirmed.entries]
        self.skip, self.partial = confirmed.skip, confirmed.partial
        if not self.entries:
            self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.skip = self.partial = self.held = 0
        self.spill.clear()

    def pieces(self) -> list[Piece]:
        """What is pending, after its confirmed prefix, in order of delivery."""
        pieces, skip = [], self.skip
        for entry in self.entries:
            kept = entry.batches
            batches = self.spill.get(kept) if isinstance(kept, Spilled) else kept
            _, rest = cut(batches, skip)
            skip = 0
            if rest:
                pieces.append(Piece("delivered", rest, entry.position))
        return pieces
