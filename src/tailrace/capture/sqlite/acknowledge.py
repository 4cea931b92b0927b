"""The consumer's cursor and the pruning of the log, lazily.

SQLite has one writer at a time, and it should be the application. So an acknowledgement is remembered and
written when the source has been quiet for a moment, or else once in a while; the lock is never waited for,
and held for a few milliseconds at most. Losing a remembered one costs nothing: the log is then kept longer.
"""

from __future__ import annotations

import sqlite3
import threading
import time

from tailrace.capture.sqlite.client import connect, is_busy, translate
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.kept import Reading
from tailrace.capture.sqlite.meta import CONSUMERS, TABLES, cursor_of
from tailrace.capture.sqlite.triggers import log_name

QUIET = 0.05
_STEP = 250
# How long one flush may hold the lock, and how many times as long it then leaves the lock alone: while the
# source is quiet, and while the application writes.
_HOLD_QUIET, _REST_QUIET = 0.003, 1
_HOLD_BUSY, _REST_BUSY = 0.0005, 100
_RETRY = 0.01
_LAST_TRY = 0.1


class Acknowledger:
    """The cursors of one capture. `note` and `flush_if_due` belong to the thread of `live`; `close` to any.

    `close` may also come from a signal handler, inside of the very call that holds the lock: that call then
    closes when it is through.
    """

    def __init__(self, config: SqliteConfig, reading: Reading) -> None:
        self._config, self._reading = config, reading
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._wanted: dict[str, int] = {}
        self._recorded: dict[str, int] = {}
        self._backlog = False
        self._closed = threading.Event()
        self._flushing: int | None = None
        self._last_commit = 0.0
        self._last_flush = time.monotonic()
        self._next = 0.0

    def commit_seen(self) -> None:
        """The application committed something just now."""
        self._last_commit = time.monotonic()

    def note(self, consumer: str, version: int) -> int:
        """Remember an acknowledgement, write it if it is time, and say which one is on record."""
        if consumer not in self._recorded:
            with self._reading() as connection:
                self._recorded[consumer] = cursor_of(connection, consumer) or 0
        self._wanted[consumer] = max(version, self._wanted.get(consumer, 0))
        self.flush_if_due()
        return self._recorded.get(consumer, 0)

    def recorded(self, consumer: str, version: int) -> None:
        """This is on record already."""
        self._recorded[consumer] = max(version, self._recorded.get(consumer, 0))

    def forget(self, consumer: str) -> None:
        """The consumer's cursor was removed: another one may begin anywhere."""
        self._wanted = {name: version for name, version in self._wanted.items() if name != consumer}
        self._recorded.pop(consumer, None)

    def on_record(self, consumer: str) -> int:
        """The newest acknowledgement that is known to be on record."""
        return self._recorded.get(consumer, 0)

    @property
    def dirty(self) -> bool:
        """Is there something to write or to prune?"""
        return self._backlog or self._unwritten()

    def _unwritten(self) -> bool:
        # A copy: another thread may close meanwhile.
        return any(v > self._recorded.get(c, 0) for c, v in dict(self._wanted).items())

    def due_in(self) -> float | None:
        """Seconds until `flush_if_due` would write, None where there is nothing to write."""
        if not self.dirty:
            return None
        now = time.monotonic()
        lazy = self._next if self._backlog else self._last_flush + self._config.prune_seconds
        return max(0.0, self._next - now, min(lazy, self._last_commit + QUIET) - now)

    def flush_if_due(self) -> None:
        """Write the cursors and prune a bounded piece of the log, unless the application should go first."""
        if self._closed.is_set() or self.due_in() != 0.0:
            return
        self._flushing = threading.get_ident()
        try:
            with self._lock:
                if not self._closed.is_set():
                    self._flush_politely()
        finally:
            self._flushing = None
            if self._closed.is_set():
                self.close()

    def _flush_politely(self) -> None:
        started = time.monotonic()
        quiet = started - self._last_commit >= QUIET
        try:
            held = self._flush(_HOLD_QUIET if quiet else _HOLD_BUSY)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translate(error, self._config) from error
            self._next = started + _RETRY
            return
        now = time.monotonic()
        self._last_flush = now
        self._next = now + held * (_REST_QUIET if quiet else _REST_BUSY)

    def _flush(self, prune: float) -> float:
        """One short write transaction, pruning for so many seconds; returns how long it held the lock."""
        if self._connection is None:
            self._connection = connect(self._config, "rw", timeout=0)
        connection = self._connection
        logs = (
            [log_name(i) for (i,) in connection.execute(f"SELECT id FROM {TABLES} ORDER BY id")]
            if prune > 0
            else []
        )
        wanted = dict(self._wanted)
        connection.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        try:
            for consumer, version in wanted.items():
                connection.execute(
                    f"UPDATE {CONSUMERS} SET acknowledged = ? WHERE name = ? AND acknowledged < ?",
                    (version, consumer, version),
                )
            if prune > 0:
                self._backlog = not all(_prune(connection, log, started + prune) for log in logs)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for consumer, version in wanted.items():
            self.recorded(consumer, version)
        return time.monotonic() - started

    def close(self) -> None:
        """Try once more to write the cursors, then let go of the connection."""
        self._closed.set()
        if self._flushing == threading.get_ident():
            return
        with self._lock:
            deadline = time.monotonic() + _LAST_TRY
            while self._unwritten():
                try:
                    self._flush(0)
                except sqlite3.Error as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        break
                    time.sleep(_RETRY / 10)
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _prune(connection: sqlite3.Connection, log: str, deadline: float) -> bool:
    """Delete what every consumer has acknowledged; False where time ran out before the end."""
    below = f"seq <= (SELECT min(acknowledged) FROM {CONSUMERS})"
    while True:
        row = connection.execute(
            f"SELECT max(seq), count(*) FROM (SELECT seq FROM {log} WHERE {below} ORDER BY seq LIMIT {_STEP})"
        ).fetchone()
        if row[1] == 0:
            return True
        if time.monotonic() >= deadline:
            return False
        connection.execute(f"DELETE FROM {log} WHERE seq <= ?", (row[0],))
        if row[1] < _STEP:
            return True
