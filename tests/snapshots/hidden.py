"""Commits that are in the log, and that nobody can see: the server waits for a standby that never answers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tests.faults.databases import Postgres
from tests.support.postgres import Server
from tests.support.waiting import wait_until

WAITS = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"


def lonely(server: Server) -> Server:
    """The server, where whoever commits with `synchronous_commit = on` waits for ever, and nobody else."""
    server.restart(synchronous_standby_names="nobody", synchronous_commit="local")
    return server


class Hidden:
    """An application's connection whose commits can be hidden. Use as a context."""

    def __init__(self, ledger: Postgres) -> None:
        self._admin = ledger.database.admin()
        self._connection = ledger.connect()
        self._connection.execute("SET synchronous_commit = on")
        self._pid = self._connection.info.backend_pid

    def __enter__(self) -> Hidden:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._admin), closing(self._connection):
            self._admin.execute("SELECT pg_cancel_backend(%s)", (self._pid,))

    def commit(self, *statements: str) -> int:
        """A transaction that is written and not visible when this returns; where the log ends then."""
        self._connection.execute("BEGIN")
        for statement in statements:
            self._connection.execute(statement.encode())
        self._connection.pgconn.send_query(b"COMMIT")
        self._connection.pgconn.flush()
        wait_until(self._waits, interval=0.003, what="a commit that waits for its standby")
        (end,) = self._row("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")
        return int(end)

    def show(self) -> None:
        """Let everybody see it."""
        assert self._waits(), "it was visible all the time"
        self._admin.execute("SELECT pg_cancel_backend(%s)", (self._pid,))
        while self._connection.pgconn.get_result() is not None:
            pass

    def _waits(self) -> bool:
        return bool(self._row(WAITS, (self._pid,))[0])

    def _row(self, query: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._admin.execute(query.encode(), values).fetchone()
        assert row is not None
        return row
