"""One connection for many reads: SQLite parses the whole schema for each one that is new.

Of a thousand captured tables, with their logs and triggers, that takes a quarter of a second, and whoever
plans or reads them asks several times for each. An idle connection holds no lock and sees every commit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tailrace.capture.sqlite.client import connect, translated
from tailrace.capture.sqlite.config import SqliteConfig

# A connection inside of one read transaction, for as long as the block runs.
Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Kept:
    """The connection of one capture's reads, from any thread; a second one is opened where it is in use.

    `prepare` is called for each connection that is new. Nothing is kept after `close`.
    """

    def __init__(
        self, config: SqliteConfig, prepare: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        self._config, self._prepare = config, prepare
        # `close` may come from a signal handler while this thread holds it.
        self._guard = threading.RLock()
        self._idle: tuple[sqlite3.Connection, object] | None = None
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction. Closed where the block fails."""
        # Before it is opened: what replaces the file meanwhile is then found out by the next one.
        place = self._place()
        connection = self._take(place) or self._open()
        try:
            with translated(self._config):
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
                connection.text_factory = str
        except BaseException:
            connection.close()
            raise
        self._put(connection, place)

    def close(self) -> None:
        """Let go of the file; what is being read is closed when it ends."""
        with self._guard:
            self._closed = True
            found, self._idle = self._idle, None
        if found is not None:
            found[0].close()

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._config, "ro")
        if self._prepare is not None:
            self._prepare(connection)
        return connection

    def _take(self, place: object) -> sqlite3.Connection | None:
        with self._guard:
            found, self._idle = self._idle, None
        if found is None:
            return None
        connection, known = found
        if known == place:
            return connection
        connection.close()
        return None

    def _put(self, connection: sqlite3.Connection, place: object) -> None:
        with self._guard:
            if not self._closed and self._idle is None and place is not None:
                self._idle = connection, place
                return
        connection.close()

    def _place(self) -> object:
        """The file, to this process: another one in its place is another database."""
        try:
            found = self._config.path.stat()
        except OSError:
            return None
        return os.getpid(), found.st_dev, found.st_ino
