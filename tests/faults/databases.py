"""The application's database, as the application and the oracles see it: one class for each kind.

Nothing here asks the code under test: plain SQL over the database's own driver.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from tests.support.postgres import PASSWORD, ROLE, Database, Server

Row = tuple[Any, ...]
ROWS = "SELECT key, number, note FROM ledger"
TABLE = "CREATE TABLE ledger (key bigint PRIMARY KEY, number bigint NOT NULL, note text)"
PUBLISHED = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
SLOTS = "SELECT slot_name, plugin, database FROM pg_replication_slots WHERE database = current_database()"


class Ledger(ABC):
    """A database with the table `ledger` in it."""

    kind: str
    schema: str
    url: str
    consumer = "rig"
    # Where the newest write of the rig's own stands in the log.
    mark = 0

    @abstractmethod
    def connect(self) -> Any:
        """A connection of the application's, in autocommit mode; `execute` and `close` are what it has."""

    @abstractmethod
    def run(self, *statements: str) -> None:
        """One transaction of the application's."""

    @abstractmethod
    def insert(self, first: int, count: int, note: str = ":bulk") -> None:
        """So many rows in one transaction."""

    @abstractmethod
    def rows(self) -> dict[int, Row]:
        """The table as plain SQL reads it."""

    @abstractmethod
    def cursor(self) -> int | None:
        """What the server has on record for the pipeline; None where nothing is, or it cannot be asked."""

    @abstractmethod
    def provisioned(self) -> list[Any]:
        """What capture has here, and for whom the log is kept."""

    @abstractmethod
    def address(self) -> str:
        """How a writer connects."""

    def close(self) -> None:  # noqa: B027 - nothing is held by default
        """Let go of the database."""


class Sqlite(Ledger):
    """A file."""

    kind, schema = "sqlite", "main"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:{path}"
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(
                "CREATE TABLE ledger (key INTEGER PRIMARY KEY, number INTEGER NOT NULL, note TEXT)"
            )

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def run(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def insert(self, first: int, count: int, note: str = ":bulk") -> None:
        self.run(
            f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count}) "
            f"INSERT INTO ledger SELECT {first} + i, 1, '{note}' FROM n"
        )

    def rows(self) -> dict[int, Row]:
        with closing(self.connect()) as connection:
            return {row[0]: row for row in connection.execute(ROWS)}

    @property
    def mark(self) -> int:  # type: ignore[override]
        with closing(self.connect()) as connection:
            try:
                return int(connection.execute("SELECT seq FROM _tailrace_meta").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def cursor(self) -> int | None:
        try:
            # Never a connection that stays: it would keep the WAL from being reset.
            with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)) as connection:
                row = connection.execute(
                    "SELECT acknowledged FROM _tailrace_consumers WHERE name = ?", (self.consumer,)
                ).fetchone()
        except sqlite3.OperationalError:
            return None
        return None if row is None else int(row[0])

    def provisioned(self) -> list[Any]:
        queries = (
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' ORDER BY name",
            "SELECT id, name, generation FROM _tailrace_tables",
            "SELECT name FROM _tailrace_consumers",
        )
        with closing(self.connect()) as connection:
            return [connection.execute(query).fetchall() for query in queries]

    def address(self) -> str:
        return self.url


class Postgres(Ledger):
    """A database of a server. The pipeline comes as the least privileged role, the application as `app`."""

    kind, schema = "postgres", "public"

    def __init__(self, database: Database, directory: Path) -> None:
        self.database = database
        # Slots belong to the whole server, and other rigs have theirs in it.
        self.consumer = f"rig{database.name}"
        self.slot = f"tailrace_{self.consumer}"
        self._lock = threading.Lock()
        self._asked: psycopg.Connection[Any] | None = None
        self._password = directory / "password"
        self._password.touch(mode=0o600)
        escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
        self._password.write_text(f"*:*:*:*:{escaped}\n")
        self.url = self.url_of(database.server.port)
        self.run(TABLE)
        self.publish()

    @property
    def server(self) -> Server:
        return self.database.server

    def url_of(self, port: int, name: str | None = None) -> str:
        """The URL without its password: that is in a file."""
        return f"postgresql://{ROLE}@127.0.0.1:{port}/{name or self.database.name}?passfile={self._password}"

    def publish(self, *tables: str) -> None:
        """What the owner of the tables does once."""
        with self.database.admin() as connection:
            named = ", ".join(tables or ("ledger",))
            connection.execute(f"CREATE PUBLICATION tailrace FOR TABLE {named} WITH ({PUBLISHED})".encode())

    def connect(self) -> psycopg.Connection[Any]:
        return self.server.admin(self.database.name, "app")

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())
            self.mark = self._flushed(connection)

    def _flushed(self, connection: psycopg.Connection[Any]) -> int:
        """Right after a commit this is its end, unless somebody else writes at the same moment."""
        row = connection.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchone()
        assert row is not None
        return int(row[0])

    def insert(self, first: int, count: int, note: str = ":bulk") -> None:
        self.run(f"INSERT INTO ledger SELECT {first} + i, 1, '{note}' FROM generate_series(0, {count - 1}) i")

    def rows(self) -> dict[int, Row]:
        with self.connect() as connection:
            return {row[0]: row for row in connection.execute(ROWS)}

    def cursor(self) -> int | None:
        query = (
            "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots"
            " WHERE slot_name = %s AND database = current_database()"
        )
        with self._lock:
            try:
                if self._asked is None:
                    self._asked = self.database.admin()
                row = self._asked.execute(
                    f"{query} AND database = current_database()", (self.slot,)
                ).fetchone()
            except psycopg.OperationalError:
                self._hang_up()
                return None
        return None if row is None or row[0] is None else int(row[0])

    def _hang_up(self) -> None:
        if self._asked is not None:
            with contextlib.suppress(psycopg.Error):
                self._asked.close()
        self._asked = None

    def admin(self, *statements: str) -> list[Row]:
        """Statements of the database's administrator, each by itself; the rows of the last."""
        found: list[Row] = []
        with self.database.admin() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found

    def provisioned(self) -> list[Any]:
        tables = "SELECT pubname, schemaname, tablename FROM pg_publication_tables"
        return [self.admin(tables), self.admin("SELECT oid FROM pg_publication"), self.admin(SLOTS)]

    def address(self) -> str:
        host = str(self.server.directory).replace("/", "%2F")
        return f"postgresql://app@{host}:{self.server.port}/{self.database.name}"

    def close(self) -> None:
        with self._lock:
            self._hang_up()
