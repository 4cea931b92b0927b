"""What a life stands on: the source with its application, and where documents go; real servers of its own.

A server here may be killed, restarted and cut off, so no other test shares it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from tailrace.sinks.contract import DocumentSink
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.life.model import Variant
from tests.support import opensearch
from tests.support.documents import grammar
from tests.support.documents.pipelines import MARKS, App, OpenSearchStore, PostgresApp, SqliteApp, Store
from tests.support.installed import installation
from tests.support.postgres import PASSWORD, ROLE, Server
from tests.support.proxy import Proxy

TABLES = (*grammar.TABLES, MARKS, "ledger", "wide")
Row = tuple[Any, ...]


class Unavailable(Exception):
    """A server that cannot be had here."""


class Ground(ABC):
    """The source, as its application and the oracles see it; nothing here asks the product."""

    app: App
    errors: tuple[type[Exception], ...]

    @abstractmethod
    def transaction(self, statements: Sequence[str], *, commit: bool = True) -> None:
        """One transaction of the application's, committed or rolled back."""

    def publish(self) -> None:  # noqa: B027 - not every source wants it
        """What an owner does once, when the tables are there."""

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """The columns that the table has now."""

    @abstractmethod
    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        """The table as plain SQL reads it."""

    @abstractmethod
    def cursor(self) -> int | None:
        """What the source has on record for the pipeline; None where nothing is, or it cannot be asked."""

    @abstractmethod
    def mark(self) -> int:
        """What that must reach after the last transaction."""

    @abstractmethod
    def retained(self) -> int | None:
        """How much log the source keeps: rows of SQLite's, bytes of PostgreSQL's."""

    @abstractmethod
    def close(self) -> None:
        """Nothing that was started survives."""


class SqliteGround(Ground):
    """A file."""

    errors = (sqlite3.OperationalError, sqlite3.IntegrityError)

    def __init__(self, directory: Path, name: str) -> None:
        self._name = name
        self.path = directory / "shop.db"
        self.app = SqliteApp(self.path)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def transaction(self, statements: Sequence[str], *, commit: bool = True) -> None:
        end = "COMMIT" if commit else "ROLLBACK"
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute(end)

    def columns(self, table: str) -> list[str]:
        with closing(self._connect()) as connection:
            return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        named = ", ".join(f'"{column}"' for column in columns)
        with closing(self._connect()) as connection:
            return connection.execute(f'SELECT {named} FROM "{table}"').fetchall()

    def _ask(self, query: str, *values: Any) -> Any:
        # Never a connection that stays: it would keep the WAL from being reset.
        try:
            with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)) as connection:
                row = connection.execute(query, values).fetchone()
        except sqlite3.OperationalError:
            return None
        return None if row is None else row[0]

    def cursor(self) -> int | None:
        found = self._ask("SELECT acknowledged FROM _tailrace_consumers WHERE name = ?", self._name)
        return None if found is None else int(found)

    def mark(self) -> int:
        return int(self._ask("SELECT seq FROM _tailrace_meta") or 0)

    def retained(self) -> int | None:
        try:
            with closing(self._connect()) as connection:
                query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_tailrace_log_*'"
                names = [name for (name,) in connection.execute(query)]
                counts = (connection.execute(f'SELECT count(*) FROM "{name}"').fetchone() for name in names)
                return sum(int(count) for (count,) in counts)
        except sqlite3.OperationalError:
            return None

    def close(self) -> None:
        pass


class LivingPostgres(PostgresApp):
    """An application that connects again after its server was down. The pipeline comes by the proxy."""

    def renew(self) -> None:
        self.database.close()
        self.database._connections.clear()
        self.database.app = self.database.connect()
        self._reader = self.database.connect()
        self._reader.prepared_max = None

    @property
    def before(self) -> int:
        """The last commit ends behind this."""
        return self._before


class PostgresGround(Ground):
    """A server of its own behind a proxy. The pipeline comes as the least privileged role."""

    errors = (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable)
    app: LivingPostgres

    def __init__(self, directory: Path, name: str) -> None:
        found = installation()
        if found is None:
            raise Unavailable("a PostgreSQL server")
        self.server = Server(found)
        self.database = self.server.database()
        self.proxy = Proxy(self.server.port)
        self.slot = f"tailrace_{name}"
        password = directory / "password"
        password.touch(mode=0o600)
        escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
        password.write_text(f"*:*:*:*:{escaped}\n")
        self.app = LivingPostgres(self.database)
        port, base = self.proxy.port, self.database.name
        self.app.url = f"postgresql://{ROLE}@127.0.0.1:{port}/{base}?passfile={password}"
        self._lock = threading.Lock()
        self._asked: psycopg.Connection[Any] | None = None

    def transaction(self, statements: Sequence[str], *, commit: bool = True) -> None:
        if commit:
            return self.app.run(*statements)
        with self.database.app.transaction(force_rollback=True):
            for statement in statements:
                self.database.app.execute(statement.encode())
        return None

    def publish(self) -> None:
        self.database.app.execute("ALTER TABLE ledger REPLICA IDENTITY FULL")
        self.database.publish(*TABLES)

    def columns(self, table: str) -> list[str]:
        query = (
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return [name for (name,) in self.database.app.execute(query, (table,)).fetchall()]

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        named = ", ".join(f'"{column}"' for column in columns)
        # JSON is text to a mirror.
        shown = named.replace('"extra"', '"extra"::text')
        return self.database.rows(f'SELECT {shown} FROM "{table}"')

    def _ask(self, query: str, *values: Any) -> Any:
        with self._lock:
            try:
                if self._asked is None:
                    self._asked = self.database.admin()
                row = self._asked.execute(query.encode(), values).fetchone()
            except psycopg.OperationalError:
                self._hang_up()
                return None
        return None if row is None else row[0]

    def _hang_up(self) -> None:
        if self._asked is not None:
            with contextlib.suppress(psycopg.Error):
                self._asked.close()
        self._asked = None

    def cursor(self) -> int | None:
        query = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"
        found = self._ask(query, self.slot)
        return None if found is None else int(found)

    def mark(self) -> int:
        return self.app.before

    def retained(self) -> int | None:
        query = (
            "SELECT (pg_current_wal_insert_lsn() - restart_lsn)::int8 FROM pg_replication_slots"
            " WHERE slot_name = %s"
        )
        found = self._ask(query, self.slot)
        return None if found is None else int(found)

    def renew(self) -> None:
        """After the server was down."""
        self.app.renew()

    def close(self) -> None:
        with self._lock:
            self._hang_up()
        self.proxy.close()
        self.server.remove()


class FileStore(Store):
    """A file of the pipeline's directory: one of two."""

    def __init__(self, letter: str, prefix: str = "") -> None:
        self._file, self.prefix = f"docs-{letter}.db", prefix

    def section(self) -> str:
        return f'[sinks.store]\ntype = "sqlite"\npath = "{self._file}"'

    def sink(self, directory: Path) -> DocumentSink:
        return SqliteSink(SqliteStoreConfig(str(directory / self._file)))


class Cluster:
    """Where documents go: two files, or a cluster of one node and a file."""

    def __init__(self, variant: Variant) -> None:
        self.server: opensearch.Server | None = None
        self._prefix = ""
        if variant.documents == "opensearch":
            if (reason := opensearch.unavailable()) is not None:
                raise Unavailable(reason)
            self.server = opensearch.Server()
            self._prefix = f"w{uuid.uuid4().hex[:10]}_"

    def store(self, letter: str) -> Store:
        if self.server is not None and letter == "a":
            return OpenSearchStore(self.server.url, self._prefix)
        return FileStore(letter, self._prefix)

    def close(self) -> None:
        if self.server is not None:
            self.server.thaw()
            self.server.remove()


def ground_of(variant: Variant, directory: Path, name: str) -> SqliteGround | PostgresGround:
    """The source of a life."""
    directory.mkdir(parents=True, exist_ok=True)
    return (SqliteGround if variant.source == "sqlite" else PostgresGround)(directory, name)
