"""The life of link state: where it begins, how it goes along with the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tailrace.capture.contract import Capture
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import ConfigError, StateUnreadable, UsageError
from tailrace.model.position import Position
from tailrace.model.render import optional
from tailrace.model.table import TableRef, TableSchema
from tailrace.runtime.links.cells import held, keys
from tailrace.runtime.links.completing import Completing
from tailrace.runtime.links.store import Remembered, Store

FILE = "links.db"
ROWS_PER_CHUNK = 500_000
VISIBLE_SECONDS = 60.0


class Links:
    """See the package's text. Belongs to the thread that fills the changelog.

    `needed` are the columns to remember, by table. `path` is a file of a local disk.
    """

    def __init__(
        self,
        path: str | Path,
        needed: Mapping[TableRef, Sequence[str]],
        *,
        rows_per_chunk: int = ROWS_PER_CHUNK,
        visible: float = VISIBLE_SECONDS,
    ) -> None:
        self._path = Path(path)
        self._needed = {ref: tuple(columns) for ref, columns in needed.items() if columns}
        self._rows_per_chunk = rows_per_chunk
        self._visible = visible
        self._store: Store | None = None
        self._tables: dict[TableRef, Remembered] = {}
        self._position = 0
        self._saved = 0
        self._pruned = 0
        self.horizon = 0

    def begin(
        self, capture: Capture, position: Position, *, epoch: int = 0, pause: Callable[[], None] | None = None
    ) -> None:
        """The log goes on at `position`: go back to the state of then, and read what is not seeded yet.

        Blocks until every table is seeded; `pause` is called meanwhile and may raise. What was read stays
        read. A state that cannot go back so far, or knows less than that, is read anew: `horizon` then moves.
        """
        store = self._opened()
        known = store.own(position.source, epoch)
        # Between two positions that it does not know of, anything may have happened.
        if known is None or not known[1] <= position.version <= known[0]:
            store.found(position.source, position.version)
            self.horizon, self._pruned = 0, position.version
        else:
            self._pruned, self.horizon = known[1], known[2]
            # Also where it is there already: a transaction may have been remembered in part.
            store.rewind(position.version)
        self._position = self._saved = position.version
        self._tables = self._remembered(store, capture)
        unseeded = [table for table in self._tables.values() if not table.seeded]
        for table in unseeded:
            self._seed(store, capture, table, position, pause or _go_on)
        if unseeded:
            # No read saw more than this: from here on every old value is what it was.
            self.horizon = max(self.horizon, capture.seen())
            store.set_horizon(self.horizon)
        store.sync()

    def complete(self, part: Part) -> Part:
        """The part with whole before images, as far as they are needed; remembers what it says."""
        store = self._opened()
        if any(batch.table.ref in self._tables for batch in part.batches):
            tables = dict(self._tables)
            with store.writing() as db:
                batches = tuple(self._completed(store, db, batch, tables) for batch in part.batches)
                if part.complete:
                    store.reach(db, part.position.version)
            # Only now: a transaction that failed has truncated nothing.
            self._tables = tables
            if part.complete:
                self._position = self._saved = part.position.version
            return replace(part, batches=batches)
        if part.complete:
            self._position = max(self._position, part.position.version)
        return part

    def _completed(
        self, store: Store, db: sqlite3.Connection, batch: ChangeBatch, tables: dict[TableRef, Remembered]
    ) -> ChangeBatch:
        known = tables.get(batch.table.ref)
        if known is None or not len(batch):
            return batch
        completing = Completing(store, db, known, self.horizon)
        completed = completing.complete(batch)
        tables[known.ref] = completing.known
        return completed

    def sync(self) -> None:
        """Make durable what was completed: before the changelog publishes it."""
        store = self._opened()
        if self._position > self._saved:
            with store.writing() as db:
                store.reach(db, self._position)
            self._saved = self._position
        store.sync()

    def prune(self, acknowledged: int) -> None:
        """The log is never read again up to here."""
        if acknowledged > self._pruned and self._store is not None:
            self._store.prune(acknowledged)
            self._pruned = acknowledged
            self._tables = self._store.tables()

    def close(self) -> None:
        """Close the file."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _opened(self) -> Store:
        if self._store is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._store = Store(self._path)
        return self._store

    def _remembered(self, store: Store, capture: Capture) -> dict[TableRef, Remembered]:
        """The tables that are needed, those that are new or began anew without anything seeded."""
        found = store.tables()
        for ref, known in list(found.items()):
            if ref not in self._needed:
                store.forget(known)
                del found[ref]
        for ref, columns in self._needed.items():
            table = capture.describe(ref)
            if not table.identity:
                raise ConfigError(
                    f"table {ref} has no primary key, which link state needs",
                    remedy=f"declare one, or ALTER TABLE {ref} REPLICA IDENTITY FULL",
                )
            held_ = found.get(ref)
            if held_ is not None and held_.generation == table.generation and held_.fits(table, columns):
                continue
            if held_ is not None:
                store.forget(held_)
            chunks = capture.plan(ref, rows_per_chunk=self._rows_per_chunk)
            found[ref] = store.add(table, columns, chunks)
        return found

    def _seed(
        self, store: Store, capture: Capture, known: Remembered, position: Position, pause: Callable[[], None]
    ) -> None:
        """Read the table's keys and columns as they are, chunk by chunk, from where it was left."""
        table = capture.describe(known.ref)
        if not known.fits(table, known.columns):
            raise UsageError(f"table {known.ref} changed while its link state was read")
        names = [*known.identity, *known.columns]
        with capture.together():
            while known.next < len(known.chunks):
                pause()
                capture.wait_visible(position, self._visible)
                chunk = known.chunks[known.next]
                last = known.next + 1 == len(known.chunks)
                after = replace(known, next=known.next + 1, seeded=last, chunks=() if last else known.chunks)
                with store.writing() as db:
                    for batch in capture.snapshot(
                        table, chunk, position=position.version, seq=0, columns=names
                    ):
                        self._put(store, db, known, batch, table)
                        pause()
                    store.save(db, after)
                known = self._tables[known.ref] = after
                if last:
                    return

    def _put(
        self, store: Store, db: sqlite3.Connection, known: Remembered, batch: ChangeBatch, table: TableSchema
    ) -> None:
        after, exact = batch.data.column("after"), optional(batch, "after_exact")
        values = [held(after, exact, name) for name in known.columns]
        store.put(db, known, keys(after, exact, table), values)


def _go_on() -> None:
    return None


def horizon_of(path: str | Path) -> int | None:
    """Up to which position old values may be wrong or missing; None where there is no link state yet.

    Documents must be built from rows that were read behind it. It moves when link state is read anew, and
    older documents must then be built again.
    """
    if not Path(path).exists():
        return None
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            row = db.execute("SELECT horizon FROM state").fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise StateUnreadable(
            f"the link state cannot be read: {type(error).__name__}", place=str(path)
        ) from None
    return None if row is None else int(row[0])
