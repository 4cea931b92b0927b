"""One connection for many chunks: a session costs both sides more than a small chunk does.

A task reads its chunks one after the other. Meanwhile its capture keeps the connection of the last question
for the next one. What has lain idle for a while may be dead by then, so it is asked for a sign of life.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

from tailrace.capture.postgres.client import Connection, connect, translated
from tailrace.capture.postgres.config import PostgresConfig

# Seconds after which a connection is not trusted any more.
_TRUSTED = 1.0


class Kept:
    """The connection of one capture's reads, from any thread; a second one is opened where it is in use."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._guard = threading.Lock()
        self._keepers = 0
        self._idle: Connection | None = None
        self._since = 0.0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the connection while the block runs; blocks may overlap."""
        with self._guard:
            self._keepers += 1
        try:
            yield
        finally:
            connection = None
            with self._guard:
                self._keepers -= 1
                if not self._keepers:
                    connection, self._idle = self._idle, None
            if connection is not None:
                connection.close()

    @contextmanager
    def session(self, *, patient: bool = True) -> Iterator[Connection]:
        """A connection for as long as the block runs, outside of any transaction. Closed where it fails."""
        with self._guard:
            connection, self._idle = self._idle, None
            trusted = time.monotonic() - self._since < _TRUSTED
        if connection is None or not (trusted or self._alive(connection)):
            connection = connect(self._config)
        connection.governed(self._config, patient)
        try:
            with translated(self._config):
                yield connection
        except BaseException:
            connection.close()
            raise
        with self._guard:
            clean = connection.info.transaction_status == TransactionStatus.IDLE
            if self._keepers and clean and self._idle is None:
                self._idle, self._since = connection, time.monotonic()
                return
        connection.close()

    def _alive(self, connection: Connection) -> bool:
        """Whether it can be used; one that cannot is closed. A silent server is for the caller to hear of."""
        connection.governed(self._config, patient=False)
        try:
            connection.execute("SELECT")
        except psycopg.Error:
            connection.close()
            return False
        return True
