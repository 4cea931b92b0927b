"""The live stream: look, deliver, wait.

A look is one short read transaction: the counter, the consumer's cursor and, when the schema moved, whether
the tables are still what setup saw. Everything between the last look and this one is one group: SQLite does
not tell transactions apart, but a reader sees only whole ones. The group is then read in slices
(`slices.py`), each in a read transaction of its own, since log rows never change.
"""

from __future__ import annotations

import shlex
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from tailrace.capture.sqlite import drift, meta
from tailrace.capture.sqlite.acknowledge import Acknowledger
from tailrace.capture.sqlite.client import IDENTITY_REMEDY, connect, require_wal, translated
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.meta import Captured
from tailrace.capture.sqlite.slices import SliceReader
from tailrace.capture.sqlite.wake import Waker
from tailrace.model.change import Part
from tailrace.model.errors import IdentityMismatch, LogLost, SchemaDrift, SetupMissing, Transient
from tailrace.model.position import Position
from tailrace.model.table import TableRef

# After a file notice the commit may need a moment to be visible: pauses between looks, about 60 ms in all.
_BACKOFF = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)


class Stream:
    """One run of `live`."""

    def __init__(
        self,
        config: SqliteConfig,
        cursors: Acknowledger,
        closed: threading.Event,
        waker: Waker,
        *,
        start: Position,
        tables: Sequence[TableRef],
        consumer: str,
        accept: Mapping[TableRef, str],
    ) -> None:
        self._config, self._cursors, self._closed, self._waker = config, cursors, closed, waker
        self._start, self._consumer, self._accept = start, consumer, accept
        self._names = [table.name for table in tables]
        self._position = start.version
        self._tables: dict[str, Captured] = {}
        self._drift: SchemaDrift | None = None
        self._schema_version = -1
        self._data_version = -1

    def run(self, wait: float) -> Iterator[Part | None]:
        """Parts until closed; None whenever nothing came for `wait` seconds."""
        connection = connect(self._config, "ro")
        try:
            with translated(self._config):
                file = self._file()
                self._begin(connection)
                deadline = time.monotonic() + wait
                while not self._closed.is_set():
                    if self._changed(connection):
                        head = self._look(connection)
                        if head > self._position:
                            yield from self._group(connection, head)
                            deadline = time.monotonic() + wait
                        if self._drift is not None:
                            raise self._drift
                        continue
                    self._cursors.flush_if_due()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        if file != self._file():
                            raise Transient(f"{self._config.path} was replaced by another file")
                        yield None
                        deadline = time.monotonic() + wait
                        continue
                    self._wait(connection, left)
        finally:
            connection.close()

    def _wait(self, connection: sqlite3.Connection, left: float) -> None:
        due = self._cursors.due_in()
        if not self._waker.wait(min(left, self._config.timer, self._config.timer if due is None else due)):
            return
        for pause in _BACKOFF:
            if self._closed.is_set() or self._peek(connection) != self._data_version:
                return
            time.sleep(pause)

    def _file(self) -> tuple[int, int] | None:
        try:
            found = self._config.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _peek(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def _changed(self, connection: sqlite3.Connection) -> bool:
        version = self._peek(connection)
        changed, self._data_version = version != self._data_version, version
        return changed

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Can this position be continued? Never a gap: one of the errors otherwise."""
        connection.execute("BEGIN")
        require_wal(connection, self._config)
        source = meta.identity(connection, self._config)
        if self._start.source != source:
            raise IdentityMismatch(
                f"{self._config.path} is not the database this position belongs to",
                remedy=IDENTITY_REMEDY,
            )
        known = meta.captured(connection)
        missing = [name for name in self._names if name not in known]
        if missing:
            raise SetupMissing(f"not set up for capture: {', '.join(missing)}", remedy="tailrace setup")
        self._tables = {name: known[name] for name in self._names}
        self._check_counter(meta.counter(connection))
        self._check_cursor(connection)
        late = [
            table
            for table in self._tables.values()
            if table.began > self._position and self._accept.get(table.ref) != table.generation
        ]
        if late:
            told = ", ".join(f"{table.name} (generation {table.generation})" for table in late)
            raise LogLost(
                f"capture began after position {self._position}, earlier changes are not in the log: {told}",
                remedy=f"tailrace snapshot {_options(table.name for table in late)}",
            )
        connection.execute("COMMIT")

    def _look(self, connection: sqlite3.Connection) -> int:
        """The newest position, after making sure that everything up to it is in the logs."""
        connection.execute("BEGIN")
        version = int(connection.execute("PRAGMA schema_version").fetchone()[0])
        if version != self._schema_version:
            self._check_schema(connection)
            self._schema_version = version
        head = meta.counter(connection)
        self._check_counter(head)
        self._check_cursor(connection)
        connection.execute("COMMIT")
        if head > self._position:
            self._cursors.commit_seen()
        return head

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        if not meta.exists(connection):
            raise SetupMissing(f"capture was removed from {self._config.path}", remedy="tailrace setup")
        known, triggers = meta.captured(connection), drift.Triggers(connection)
        for name, table in self._tables.items():
            now = known.get(name)
            if now is None:
                raise SetupMissing(f"capture of table {name} was removed", remedy="tailrace setup")
            if now.generation != table.generation:
                raise SchemaDrift(
                    f"table {name} was set up anew (generation {now.generation}) while it was read",
                    remedy=f"tailrace snapshot {_options([name])}",
                )
            if differences := drift.find(connection, table, triggers):
                # What was logged before is delivered first.
                self._drift = self._drift or drift.error(name, differences)

    def _check_counter(self, head: int) -> None:
        if head < self._position:
            raise self._older(f"it is at {head}, the state at {self._position}")

    def _older(self, what: str) -> IdentityMismatch:
        return IdentityMismatch(
            f"{self._config.path} is older than the state (restored from a backup?): {what}",
            remedy="restore the state of the same moment, or give the pipeline a new state directory",
        )

    def _check_cursor(self, connection: sqlite3.Connection) -> None:
        cursor = meta.cursor_of(connection, self._consumer)
        if cursor is not None and cursor <= self._position:
            # Written past our position since it was restored, only the cursor tells. `close` writes the
            # cursor beside the read transaction that we are in, which then is behind for a good reason.
            known = self._cursors.on_record(self._consumer)
            if cursor < known and not self._closed.is_set():
                raise self._older(f"{self._consumer} has acknowledged {cursor} there, and {known} before")
            self._cursors.recorded(self._consumer, cursor)
            return
        what = "is not registered" if cursor is None else f"has acknowledged {cursor}"
        raise LogLost(
            f"consumer {self._consumer} {what}, so the log after {self._position} may be gone",
            remedy=LogLost.ANEW,
        )

    def _group(self, connection: sqlite3.Connection, head: int) -> Iterator[Part]:
        reader = SliceReader(self._config, list(self._tables.values()), head)
        position = self._start.at(head)
        done = self._position
        while done < head:
            connection.execute("BEGIN")
            self._check_cursor(connection)
            batches, done = reader.read(connection, done)
            connection.execute("COMMIT")
            yield Part(batches, position, complete=done >= head)
            # Not held while the next slice is read.
            del batches
            if self._closed.is_set() and done < head:
                return
        self._position = head


def _options(names: Iterator[str] | Sequence[str]) -> str:
    return " ".join(f"--table {shlex.quote(name)}" for name in names)
