"""The shop's database by its plain driver: SQLite, or PostgreSQL.

Whoever uses it writes one SQL for both, with `?` for values. What the two do not share is here.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Database(ABC):
    """One connection. Outside of a transaction every statement is one."""

    connection: Any

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> Any:
        """Run a statement; a cursor."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def begin_reading(self) -> None:
        """Begin a transaction that sees one moment."""

    @abstractmethod
    def defer(self) -> None:
        """Let foreign keys be wrong until the transaction's end."""

    @abstractmethod
    def create(self, tables: str) -> None:
        """Run the statements of a schema."""

    @abstractmethod
    def replace(self, table: str, key: str, row: tuple[Any, ...]) -> None:
        """Put a row in the place of the one that has its key, which goes first, where there is one."""

    def many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement for each of some rows."""
        for row in rows:
            self.execute(statement, *row)

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """What a query finds, by the names of its columns."""
        cursor = self.execute(statement, *values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def one(self, statement: str, *values: Any) -> Any:
        """The first row that a query finds, as a tuple; None where there is none."""
        return self.execute(statement, *values).fetchone()

    def commit(self) -> None:
        """End the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Take everything back since the transaction's begin."""
        self.execute("ROLLBACK")

    def close(self) -> None:
        """End the connection, and a transaction that is open."""
        self.connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sqlite(Database):
    """A file, in WAL mode once it has tables."""

    def __init__(self, path: str, *, reading: bool) -> None:
        mode = "ro" if reading else "rwc"
        self.connection = sqlite3.connect(
            f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True, timeout=10, isolation_level=None
        )
        self.connection.execute("PRAGMA foreign_keys=ON")

    def execute(self, statement: str, *values: Any) -> Any:
        return self.connection.execute(statement, values)

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        self.execute("BEGIN")

    def defer(self) -> None:
        self.execute("PRAGMA defer_foreign_keys=ON")

    def create(self, tables: str) -> None:
        self.connection.executescript(f"PRAGMA journal_mode=WAL; {tables}")

    def replace(self, table: str, key: str, row: tuple[Any, ...]) -> None:  # noqa: ARG002
        self.execute(f"REPLACE INTO {table} VALUES ({_marks(row)})", *row)


class Postgres(Database):
    """A database of a server."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(url, autocommit=True)

    def execute(self, statement: str, *values: Any) -> Any:
        return self.connection.execute(statement.replace("?", "%s").encode(), values)

    def begin(self) -> None:
        self.execute("BEGIN")

    def begin_reading(self) -> None:
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def defer(self) -> None:
        self.execute("SET CONSTRAINTS ALL DEFERRED")

    def create(self, tables: str) -> None:
        self.connection.execute(tables.replace(" WITHOUT ROWID", "").encode())

    def replace(self, table: str, key: str, row: tuple[Any, ...]) -> None:
        self.execute(f"DELETE FROM {table} WHERE {key} = ?", row[0])
        self.execute(f"INSERT INTO {table} VALUES ({_marks(row)})", *row)


def connect(url: str, *, reading: bool = False) -> Database:
    """A connection to `sqlite:PATH` or `postgresql://…`. One to a file may be for `reading` alone."""
    scheme, _, path = url.partition(":")
    return Sqlite(path, reading=reading) if scheme == "sqlite" else Postgres(url)


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))
