"""One connection for many chunks: a session costs both sides more than a small chunk does.

A task reads its chunks one after the other. Meanwhile its capture keeps the connection of the last question
for the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus

from tailrace.capture.postgres.client import Connection, connect, translated
from tailrace.capture.postgres.config import PostgresConfig


class Kept:
    """The connection of one capture's reads, from any thread; a second one is opened where it is in use."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._guard = threading.Lock()
        self._keeps = False
        self._idle: Connection | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the connection while the block runs."""
        self._keeps = True
        try:
            yield
        finally:
            with self._guard:
                self._keeps = False
                connection, self._idle = self._idle, None
            if connection is not None:
                connection.close()

    @contextmanager
    def session(self, *, patient: bool = True) -> Iterator[Connection]:
        """A connection for as long as the block runs, outside of any transaction. Closed where it fails."""
        with self._guard:
            connection, self._idle = self._idle, None
        if connection is None:
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
            if self._keeps and clean and self._idle is None:
                self._idle = connection
                return
        connection.close()
