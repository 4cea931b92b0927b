"""A small database for tests, and what plain SQL says is in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any


class Shop:
    """A SQLite file in WAL mode with one table of orders; more tables by `run`."""

    def __init__(self, directory: Path, name: str = "shop.db") -> None:
        self.path = directory / name
        self.run(
            "PRAGMA journal_mode=WAL",
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT, price REAL)",
        )

    @property
    def url(self) -> str:
        """The URL of the file."""
        return f"sqlite:{self.path}"

    def run(self, *statements: str) -> None:
        """Statements in one transaction (a PRAGMA runs on its own)."""
        connection = self.connect()
        try:
            connection.isolation_level = None
            pragmas = [text for text in statements if text.startswith("PRAGMA")]
            for text in pragmas:
                connection.execute(text)
            connection.execute("BEGIN IMMEDIATE")
            for text in statements:
                if text not in pragmas:
                    connection.execute(text)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def insert(self, first: int, last: int, city: str = "Oslo") -> None:
        """Orders of these ids, in one transaction."""
        connection = self.connect()
        with connection:
            connection.executemany(
                "INSERT INTO orders VALUES (?, ?, ?)", ((i, city, i * 0.5) for i in range(first, last))
            )
        connection.close()

    def rows(self, table: str = "orders") -> list[tuple[Any, ...]]:
        """All rows, ordered by the first column."""
        connection = self.connect()
        try:
            return connection.execute(f'SELECT * FROM "{table}" ORDER BY 1').fetchall()
        finally:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """A connection of the application's."""
        return sqlite3.connect(self.path, timeout=30)
