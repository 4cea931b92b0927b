"""The sources of the bounds, and SQL that adds a table up: on the source, and on its mirror."""

from __future__ import annotations

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, QueryBuilder

from tests.support.postgres import Database

Row = tuple[Any, ...]


class Ground(ABC):
    """A database and its application."""

    url: str
    # What may be kept when everything is acknowledged.
    little: int
    # Whether what was written while capture waited comes as one group, which is taken whole.
    groups = False
    # Numbers from :first to :last, as a table `n(i)`.
    numbers: str

    @abstractmethod
    def transaction(self, *statements: str) -> None:
        """One transaction."""

    @abstractmethod
    def asked(self, query: str) -> list[Row]:
        """The rows of an answer. SQL may call `md5` of a text."""

    @abstractmethod
    def put(self, statement: str, rows: Iterable[Row]) -> None:
        """One transaction of the same statement for each row, whose values are `{}` in it."""

    def publish(self, tables: Sequence[str]) -> None:  # noqa: B027 - not every source wants it
        """What an owner does once, when the tables are there."""

    @abstractmethod
    def retained(self) -> int:
        """How much log is kept for the pipeline: rows of SQLite's, bytes of PostgreSQL's."""

    def settled(self) -> bool:
        """Whether the log that was kept for the pipeline is let go of."""
        return self.retained() <= self.little

    def series(self, first: int, last: int) -> str:
        """A FROM clause with the numbers i."""
        return self.numbers.format(first=first, last=last)


class SqliteGround(Ground):
    """A file."""

    little = 100
    groups = True
    numbers = (
        "(WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
        " SELECT i FROM n)"
    )

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop.db"
        self.url = f"sqlite:{self.path}"
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def transaction(self, *statements: str) -> None:
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def asked(self, query: str) -> list[Row]:
        with closing(self._connect()) as connection:
            connection.create_function("md5", 1, md5)
            return [tuple(row) for row in connection.execute(query)]

    def put(self, statement: str, rows: Iterable[Row]) -> None:
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement.replace("{}", "?"), rows)
            connection.execute("COMMIT")

    def retained(self) -> int:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_tailrace_log_*'"
        with closing(self._connect()) as connection:
            names = [name for (name,) in connection.execute(query)]
            return sum(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names)


class PostgresGround(Ground):
    """A database of a server."""

    little = 16 * 1024 * 1024
    numbers = "generate_series({first}::int8, {last}::int8) n(i)"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.socket_url()

    def transaction(self, *statements: str) -> None:
        with self._database.app.transaction():
            for statement in statements:
                self._database.app.execute(statement.encode())

    def asked(self, query: str) -> list[Row]:
        return self._database.rows(query)

    def put(self, statement: str, rows: Iterable[Row]) -> None:
        with self._database.app.transaction():
            for row in rows:
                self._database.app.execute(statement.replace("{}", "%s").encode(), row)

    def publish(self, tables: Sequence[str]) -> None:
        self._database.publish(*tables)

    def retained(self) -> int:
        with self._database.admin() as connection:
            query = "SELECT max(pg_current_wal_lsn() - restart_lsn)::int8 FROM pg_replication_slots"
            (found,) = connection.execute(query).fetchone() or (0,)
        return int(found or 0)


def md5(text: str) -> str:
    """As databases have it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def mirrored(path: Path, query: str) -> list[Row]:
    """The rows of an answer about a mirror, by another engine than the one that wrote it."""
    builder = QueryBuilder().register(path.name, DeltaTable(str(path)))
    table = builder.execute(query).read_all()
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True))
