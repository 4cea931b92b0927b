"""The file of link state.

    state        source, the position that the values are of, how far back it can go, epoch of its owner
    tables       what is remembered of which table, and how far its seeding is
    now_N_E      current values of table N by key; a TRUNCATE begins another E
    undo_N       for each change that altered something: the key, and what was there before

A write is one short transaction of a part; it checks that no later owner has taken the file over. `sync`
makes everything durable: the changelog must not publish a position that is not.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.capture.contract import Chunk
from tailrace.model.errors import Fenced, IdentityMismatch, StateUnreadable, Transient
from tailrace.model.table import TableRef, TableSchema
from tailrace.runtime.links.cells import Column, Kind, arrow_of, kind_of, listed, whole_key

VERSION = 1
_DDL = """
CREATE TABLE IF NOT EXISTS state (
  version INTEGER, source TEXT, position INTEGER, pruned INTEGER, epoch INTEGER, horizon INTEGER);
CREATE TABLE IF NOT EXISTS tables (number INTEGER PRIMARY KEY, ref TEXT UNIQUE, body TEXT);
"""


@dataclass(frozen=True)
class Remembered:
    """One table of the state. `columns` are remembered, by `identity`; `kinds` say how they are held.

    `epochs` are the TRUNCATEs that can still be gone back over: position, seq, and the epoch before it.
    """

    number: int
    ref: TableRef
    identity: tuple[str, ...]
    whole: bool
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    generation: str
    epoch: int = 0
    epochs: tuple[tuple[int, int, int], ...] = ()
    seeded: bool = False
    next: int = 0
    chunks: tuple[Chunk, ...] = field(default=())

    @property
    def now(self) -> str:
        """The table of current values."""
        return f"now_{self.number}_{self.epoch}"

    @property
    def undo(self) -> str:
        """The table of what was before."""
        return f"undo_{self.number}"

    @property
    def held(self) -> tuple[str, ...]:
        """Columns of SQLite's that hold the values: each, and its tagged text where there can be one."""
        pairs = ((f"v{at}",) if kind == "n" else (f"v{at}", f"x{at}") for at, kind in enumerate(self.kinds))
        return tuple(name for pair in pairs for name in pair)

    def fits(self, table: TableSchema, columns: Sequence[str]) -> bool:
        """Whether rows of `table` can be remembered here."""
        return (self.identity, self.whole, self.columns, self.kinds) == (
            table.identity,
            whole_key(table),
            tuple(columns),
            tuple(kind_of(table.column(name).type) for name in columns),
        )

    def to_json(self) -> str:
        """A text that `from_json` reads back."""
        body = asdict(self)
        body["ref"] = [self.ref.schema, self.ref.name]
        body["chunks"] = [{"index": c.index, "bounds": c.bounds, "rows": c.rows} for c in self.chunks]
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> Remembered:
        """The table that `to_json` wrote."""
        body = json.loads(text)
        ref = TableRef(*body.pop("ref"))
        chunks = tuple(Chunk(ref, c["index"], c["bounds"], c["rows"]) for c in body.pop("chunks"))
        for name in ("identity", "columns", "kinds"):
            body[name] = tuple(body[name])
        body["epochs"] = tuple(tuple(one) for one in body["epochs"])
        return cls(ref=ref, chunks=chunks, **body)


class Store:
    """The file, for the one thread that fills the changelog."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._epoch = 0
        with self._translated():
            new = not path.exists()
            self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                # Commits are not synced one by one: `sync` does it before they matter.
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute("PRAGMA cache_size=-65536")
                self._db.execute("PRAGMA wal_autocheckpoint=16384")
                self._db.executescript(_DDL)
            except BaseException:
                self._db.close()
                raise
        if new:
            path.chmod(0o600)
            _sync(path.parent)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Transient(f"the link state {self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> StateUnreadable:
        return StateUnreadable(
            f"the link state cannot be read: {type(error).__name__}",
            remedy=f"rm {self._path}, and index again: it is read from the source anew",
            place=str(self._path),
        )

    def _parsed(self, body: str) -> Remembered:
        try:
            return Remembered.from_json(body)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing. Fenced where another process has taken over."""
        with self._guard, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                row = self._db.execute("SELECT epoch FROM state").fetchone()
                if row is not None and row[0] > self._epoch:
                    raise Fenced(
                        "another process keeps this link state now",
                        remedy="stop this process: the other one goes on",
                        place=str(self._path),
                    )
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def own(self, source: str, epoch: int) -> tuple[int, int, int] | None:
        """Take the file over for this owner of the changelog; its position, pruned position and horizon.

        None where it is new. IdentityMismatch where it is another source's.
        """
        self._epoch = epoch
        with self.writing() as db:
            row = db.execute("SELECT version, source, position, pruned, horizon FROM state").fetchone()
            if row is None:
                return None
            version, known, position, pruned, horizon = row
            if version != VERSION:
                raise StateUnreadable(
                    f"the link state has format {version}, this is {VERSION}",
                    remedy=f"rm {self._path}, and index again",
                    place=str(self._path),
                )
            if known != source:
                raise IdentityMismatch(
                    f"the link state belongs to source {known}, not {source}",
                    remedy=f"rm {self._path}, and index again",
                )
            db.execute("UPDATE state SET epoch = ?", (epoch,))
            return int(position), int(pruned), int(horizon)

    def found(self, source: str, position: int) -> None:
        """Begin anew, with nothing, at a position."""
        with self.writing() as db:
            for (name,) in db.execute(
                "SELECT name FROM sqlite_master WHERE name GLOB 'now_*' OR name GLOB 'undo_*'"
            ).fetchall():
                db.execute(f"DROP TABLE {name}")
            db.execute("DELETE FROM tables")
            db.execute("DELETE FROM state")
            db.execute(
                "INSERT INTO state VALUES (?, ?, ?, ?, ?, 0)",
                (VERSION, source, position, position, self._epoch),
            )

    def tables(self) -> dict[TableRef, Remembered]:
        """What is remembered."""
        with self._guard, self._translated():
            rows = self._db.execute("SELECT body FROM tables").fetchall()
            return {known.ref: known for known in (self._parsed(body) for (body,) in rows)}

    def forget(self, known: Remembered) -> None:
        """Remember nothing of a table any more."""
        with self.writing() as db:
            for epoch in range(known.epoch + 1):
                db.execute(f"DROP TABLE IF EXISTS now_{known.number}_{epoch}")
            db.execute(f"DROP TABLE IF EXISTS {known.undo}")
            db.execute("DELETE FROM tables WHERE number = ?", (known.number,))

    def add(self, table: TableSchema, columns: Sequence[str], chunks: Sequence[Chunk]) -> Remembered:
        """Begin to remember these columns of a table; `chunks` are to be seeded."""
        with self.writing() as db:
            (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM tables").fetchone()
            kinds = tuple(kind_of(table.column(name).type) for name in columns)
            known = Remembered(
                number,
                table.ref,
                table.identity,
                whole_key(table),
                tuple(columns),
                kinds,
                table.generation,
                chunks=tuple(chunks),
            )
            _create(db, known)
            values = ", ".join(known.held)
            db.execute(
                f"CREATE TABLE {known.undo} (position INTEGER, seq INTEGER, part INTEGER, k, there INTEGER, "
                f"{values}, PRIMARY KEY (position, seq, part)) WITHOUT ROWID"
            )
            db.execute("INSERT INTO tables VALUES (?, ?, ?)", (number, str(table.ref), known.to_json()))
            return known

    def save(self, db: sqlite3.Connection, known: Remembered) -> Remembered:
        """Keep what has become of a table, in the transaction that runs."""
        db.execute("UPDATE tables SET body = ? WHERE number = ?", (known.to_json(), known.number))
        return known

    def put(
        self, db: sqlite3.Connection, known: Remembered, keys: pa.Array, values: Sequence[Column]
    ) -> None:
        """Set the values of these keys."""
        marks = ", ".join("?" * (1 + len(known.held)))
        db.executemany(f"INSERT OR REPLACE INTO {known.now} VALUES ({marks})", _rows(known, keys, values))

    def remove(self, db: sqlite3.Connection, known: Remembered, keys: pa.Array) -> None:
        """Remove these keys."""
        db.executemany(f"DELETE FROM {known.now} WHERE k = ?", zip(listed(keys), strict=True))

    def note(
        self,
        db: sqlite3.Connection,
        known: Remembered,
        *,
        places: tuple[pa.Array, pa.Array, pa.Array],
        keys: pa.Array,
        there: pa.Array,
        values: Sequence[Column],
    ) -> None:
        """Keep what was before these changes; `places` are position, seq and part of each."""
        marks = ", ".join("?" * (5 + len(known.held)))
        columns = [listed(column) for column in (*places, keys, there.cast(pa.int64()))]
        rows = zip(*columns, *_lists(known, values), strict=True)
        db.executemany(f"INSERT OR REPLACE INTO {known.undo} VALUES ({marks})", rows)

    def look(
        self, db: sqlite3.Connection, known: Remembered, keys: pa.Array
    ) -> tuple[npt.NDArray[np.bool_], list[Column]]:
        """Which of these keys are there, and their values."""
        count = len(keys)
        values = ", ".join(f"n.{name}" for name in known.held)
        rows = db.execute(
            f"SELECT j.key, {values} FROM json_each(?) j CROSS JOIN {known.now} n ON n.k = j.value",
            (json.dumps(listed(keys), ensure_ascii=False),),
        ).fetchall()
        there = np.zeros(count, np.bool_)
        found: list[tuple[Any, ...]] = [()] * len(known.held)
        places = pa.nulls(count, pa.int64())
        if rows:
            at, *found = zip(*rows, strict=True)
            where = np.array(at, np.int64)
            there[where] = True
            index = np.zeros(count, np.int64)
            index[where] = np.arange(len(rows))
            places = pa.array(index, mask=~there)
        by_name = dict(zip(known.held, found, strict=True))
        columns = []
        for at_, kind in enumerate(known.kinds):
            values_ = pa.array(by_name[f"v{at_}"], arrow_of(kind))
            tagged = by_name.get(f"x{at_}")
            exact = pa.nulls(len(values_), pa.string()) if tagged is None else pa.array(tagged, pa.string())
            columns.append(Column(values_, exact).take(places))
        return there, columns

    def truncate(self, db: sqlite3.Connection, known: Remembered, position: int, seq: int) -> Remembered:
        """Every row is gone; what was there is kept aside until nobody goes back to it."""
        after = replace(known, epoch=known.epoch + 1, epochs=(*known.epochs, (position, seq, known.epoch)))
        _create(db, after)
        return self.save(db, after)

    def rewind(self, position: int) -> None:
        """Go back to the state at a position."""
        with self.writing() as db:
            for (body,) in db.execute("SELECT body FROM tables").fetchall():
                self._rewind(db, self._parsed(body), position)
            db.execute("UPDATE state SET position = ?", (position,))

    def _rewind(self, db: sqlite3.Connection, known: Remembered, position: int) -> None:
        undone = [one for one in known.epochs if one[0] > position]
        stop: tuple[int, int] = (2**63 - 1, 2**63 - 1)
        if undone:
            first = undone[0]
            stop = first[0], first[1]
            for epoch in range(first[2] + 1, known.epoch + 1):
                db.execute(f"DROP TABLE IF EXISTS now_{known.number}_{epoch}")
            known = self.save(
                db, replace(known, epoch=first[2], epochs=known.epochs[: len(known.epochs) - len(undone)])
            )
        columns = ", ".join(known.held)
        # Of each key what was there before its first change beyond the position.
        earliest = (
            f"SELECT k, there, {columns}, "
            "row_number() OVER (PARTITION BY k ORDER BY position, seq, part) AS r "
            f"FROM {known.undo} WHERE position > ? AND (position, seq) < (?, ?)"
        )
        bounds = (position, *stop)
        db.execute(
            f"DELETE FROM {known.now} WHERE k IN (SELECT k FROM ({earliest}) WHERE r = 1 AND NOT there)",
            bounds,
        )
        db.execute(
            f"INSERT OR REPLACE INTO {known.now} SELECT k, {columns} FROM ({earliest}) WHERE r = 1 AND there",
            bounds,
        )
        db.execute(f"DELETE FROM {known.undo} WHERE position > ?", (position,))

    def prune(self, acknowledged: int) -> None:
        """Nobody goes back beyond this position any more."""
        with self.writing() as db:
            for (body,) in db.execute("SELECT body FROM tables").fetchall():
                known = self._parsed(body)
                db.execute(f"DELETE FROM {known.undo} WHERE position <= ?", (acknowledged,))
                gone = [one for one in known.epochs if one[0] <= acknowledged]
                for _, _, epoch in gone:
                    db.execute(f"DROP TABLE IF EXISTS now_{known.number}_{epoch}")
                if gone:
                    self.save(db, replace(known, epochs=known.epochs[len(gone) :]))
            db.execute("UPDATE state SET pruned = max(pruned, ?)", (acknowledged,))

    def reach(self, db: sqlite3.Connection, position: int) -> None:
        """The state is that of this position, in the transaction that runs."""
        db.execute("UPDATE state SET position = ?", (position,))

    def set_horizon(self, horizon: int) -> None:
        """Old values of changes up to here may be newer than they should be, or missing."""
        with self.writing() as db:
            db.execute("UPDATE state SET horizon = ?", (horizon,))

    def sync(self) -> None:
        """Make durable what was committed."""
        with self._guard:
            _sync(Path(f"{self._path}-wal"))

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._db.close()


def _create(db: sqlite3.Connection, known: Remembered) -> None:
    values = ", ".join(known.held)
    key, how = ("k INTEGER PRIMARY KEY", "") if known.whole else ("k TEXT PRIMARY KEY", " WITHOUT ROWID")
    db.execute(f"CREATE TABLE {known.now} ({key}, {values}){how}")


def _lists(known: Remembered, values: Sequence[Column]) -> Iterator[Sequence[Any]]:
    for kind, column in zip(known.kinds, values, strict=True):
        yield listed(column.held)
        if kind != "n":
            empty = column.exact.null_count == len(column.exact)
            yield [None] * len(column.exact) if empty else listed(column.exact)


def _rows(known: Remembered, keys: pa.Array, values: Sequence[Column]) -> Iterator[tuple[Any, ...]]:
    return zip(listed(keys), *_lists(known, values), strict=True)


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        raise Transient(f"the link state {path} cannot be made durable: {error.strerror}") from None
    finally:
        os.close(handle)
