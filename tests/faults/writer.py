"""An application that numbers its writes: `python -m tests.faults.writer URL JOURNAL SEED FIRST KEYS LIMIT`.

Every write of a key has a higher number than the one before, also those that are rolled back. The journal has
a line before each commit and one after it: ok, failed, or, where the writer was killed in between, neither.
A writer whose server goes away waits for it, and asks what became of its transaction. It ends after LIMIT
transactions, or at the end of its standard input.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import sqlite3
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TextIO

import psycopg

Op = tuple[int, int, str]
LOG = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8"


class Store(ABC):
    """What a writer needs of its database. `Lost` is raised where the connection is gone."""

    begin = "BEGIN"

    @abstractmethod
    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """Run one statement."""

    @abstractmethod
    def log(self) -> int:
        """Where the log ends now. A transaction whose end is after the cursor's beginning is delivered."""

    def mark(self) -> None:  # noqa: B027 - not every database needs to
        """The transaction's own name is wanted later."""

    def committed(self) -> bool | None:
        """What became of the transaction whose commit was not answered; None while nobody can say."""
        return None

    def has(self, key: int, number: int) -> bool:  # noqa: ARG002 - where nothing is ever unknown
        """Whether the row of that key has that number."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Let go."""


class Lost(Exception):
    """The connection is gone."""


class SqliteStore(Store):
    begin = "BEGIN IMMEDIATE"

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._connection.execute("PRAGMA synchronous=OFF")

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        self._connection.execute(statement, values)

    def log(self) -> int:
        """All or nothing: asked inside of the transaction, it is before the cursor's beginning or after."""
        try:
            found = self._connection.execute("SELECT 1 FROM _tailrace_consumers").fetchone()
        except sqlite3.OperationalError:
            return 0
        return 0 if found is None else 2**62

    def close(self) -> None:
        self._connection.close()


class PostgresStore(Store):
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._xid: int | None = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=2)
        return self._connection

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        try:
            self._connected().execute(statement.replace("?", "%s").encode(), values)
        except psycopg.OperationalError:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise Lost from None

    def log(self) -> int:
        with contextlib.suppress(psycopg.OperationalError):
            row = self._connected().execute(LOG).fetchone()
            assert row is not None
            return int(row[0])
        raise Lost

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def has(self, key: int, number: int) -> bool:
        query = "SELECT 1 FROM ledger WHERE key = %s AND number = %s"
        return self._connected().execute(query, (key, number)).fetchone() is not None

    def mark(self) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            row = self._connected().execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            self._xid = row[0] if row else None
            return
        raise Lost

    def committed(self) -> bool | None:
        with contextlib.suppress(psycopg.OperationalError):
            if self._xid is None:
                self._connected().execute("SELECT 1")
                return False
            try:
                row = self._connected().execute("SELECT txid_status(%s)", (self._xid,)).fetchone()
            except psycopg.errors.InvalidParameterValue:
                # In the future: a crash forgot the transaction altogether.
                return False
            # NULL and "in progress" are no answer yet: the old session may not have ended.
            return {"committed": True, "aborted": False}.get(row[0] if row else "")
        self._connection = None
        return None


def store_of(url: str) -> Store:
    """The store that a URL means."""
    if url.startswith("sqlite:"):
        return SqliteStore(url.removeprefix("sqlite:"))
    return PostgresStore(url)


class Application:
    """One writer with keys of its own."""

    def __init__(self, store: Store, journal: TextIO, seed: int, first: int, keys: int) -> None:
        self._store = store
        self._journal = journal
        self._random = random.Random(seed)
        self._keys = range(first, first + keys)
        self._numbers: dict[int, int] = {}
        self._present: set[int] = set()
        self._name = f"{first}"
        self._count = 0

    def transaction(self) -> None:
        """A few writes, committed or rolled back in one of several ways."""
        self._count += 1
        ident = f"{self._name}.{self._count}"
        kept: list[Op] = []
        try:
            self._try(ident, kept)
        except Lost:
            # Not committed, for nobody asked for it.
            self._say({"t": ident, "ops": kept, "lost": [], "low": 0})
            self._say({"t": ident, "outcome": "failed", "high": 0})
            self._wait()

    def _try(self, ident: str, kept: list[Op]) -> None:
        run, present = self._store.execute, set(self._present)
        way = self._random.random()
        run(self._store.begin)
        self._writes(ident, self._random.randint(1, 6), present, kept)
        lost: list[Op] = []
        if way < 0.1:
            run("SAVEPOINT inner_one")
            self._writes(ident, self._random.randint(1, 3), set(present), lost)
            run("ROLLBACK TO inner_one")
            run("RELEASE inner_one")
        self._store.mark()
        low = high = self._store.log()
        self._say({"t": ident, "ops": kept, "lost": lost, "low": low})
        outcome = "failed"
        try:
            run("ROLLBACK" if way > 0.9 else "COMMIT")
            outcome = "failed" if way > 0.9 else "ok"
            if low < 2**62:
                high = self._store.log()
        except Lost:
            outcome, high = ("ok" if self._wait() and self._shown(kept) else "failed"), 2**62
        if outcome == "ok":
            self._present = present
        self._say({"t": ident, "outcome": outcome, "high": high})

    def _shown(self, ops: list[Op]) -> bool:
        """Whether the table has it: after a crash another transaction may have been given its name."""
        last = {key: (number, op) for key, number, op in ops}
        return all(self._store.has(key, number) for key, (number, op) in last.items() if op != "d")

    def _wait(self) -> bool:
        """Until the server can say what became of the transaction."""
        while (known := self._store.committed()) is None:
            if select.select([sys.stdin], [], [], 0.05)[0]:
                raise SystemExit(0)
        return known

    def _writes(self, ident: str, count: int, present: set[int], done: list[Op]) -> None:
        for _ in range(count):
            key = self._random.choice(self._keys)
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            note = f"{ident}:" + "x" * self._random.randint(0, 40)
            if key not in present:
                self._store.execute("INSERT INTO ledger VALUES (?, ?, ?)", (key, number, note))
                present.add(key)
                done.append((key, number, "c"))
            elif self._random.random() < 0.2:
                self._store.execute("DELETE FROM ledger WHERE key = ?", (key,))
                present.discard(key)
                done.append((key, number, "d"))
            else:
                self._store.execute(
                    "UPDATE ledger SET number = ?, note = ? WHERE key = ?", (number, note, key)
                )
                done.append((key, number, "u"))

    def _say(self, body: dict[str, Any]) -> None:
        self._journal.write(json.dumps(body) + "\n")
        self._journal.flush()


def main() -> None:
    """Write until told to end."""
    url, journal, seed, first, keys, limit = sys.argv[1:]
    with Path(journal).open("a") as file:
        store = store_of(url)
        application = Application(store, file, int(seed), int(first), int(keys))
        pace = random.Random(int(seed) + 1)
        for number in range(int(limit)):
            application.transaction()
            if number == 0:
                with contextlib.suppress(BrokenPipeError):
                    sys.stdout.write("writing\n")
                    sys.stdout.flush()
            # The pace is the time it listens for the word to end.
            if select.select([sys.stdin], [], [], pace.choice((0.0, 0.001, 0.005, 0.02)))[0]:
                break
        store.close()


if __name__ == "__main__":
    main()
