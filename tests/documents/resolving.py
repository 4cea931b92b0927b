"""Plans made by hand, databases of both kinds with changes of them, and documents rebuilt the naive way."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.capture.contract import Capture
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.documents.plan import Aggregate, IndexPlan, Link, Member, Place, Related, Scalar, Through
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema, quote
from tests.support.postgres import Database

CONSUMER = "resolve"


@dataclass(frozen=True)
class Node:
    """A place: its table, how it hangs on its parent, and what is below it."""

    table: str
    parent: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    through: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    shape: Any = "has_many"
    below: tuple[Node, ...] = ()


class World:
    """A database, its capture, and the changes since the last look."""

    capture: Capture
    position: Position
    schema: str

    def __init__(self) -> None:
        self.known: dict[str, TableSchema] = {}
        self.live: Iterator[Part | None] | None = None

    def sql(self, *statements: str) -> None:
        """One transaction."""
        raise NotImplementedError

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def install(self) -> None:
        self.tables = self.capture.resolve(["*"])
        self.capture.setup(self.tables)
        self.position = self.capture.register(CONSUMER)

    def changes(self) -> list[ChangeBatch]:
        """What was committed since the last look, visible to questions."""
        end = self.head()
        found: list[ChangeBatch] = []
        deadline = time.monotonic() + 30
        if self.live is None:
            self.live = self.capture.live(self.position, self.tables, consumer=CONSUMER, wait=0.05)
        while self.position < end:
            assert time.monotonic() < deadline
            if (part := next(self.live)) is not None:
                found += part.batches
                if part.complete:
                    self.position = part.position
        self.capture.wait_visible(end, 10)
        return found

    def skip(self) -> None:
        """Look away from what was committed up to now."""
        self.changes()

    def close(self) -> None:
        """End the reader."""
        self.capture.close()
        if isinstance(self.live, Generator):
            self.live.close()

    def described(self, name: str) -> TableSchema:
        """The table as it was when it was first asked for."""
        if name not in self.known:
            self.known[name] = self.capture.describe(TableRef(self.schema, name))
        return self.known[name]

    def head(self) -> Position:
        return self.capture.head()

    def plan(self, node: Node) -> IndexPlan:
        numbers = iter(range(1000))

        def place(node: Node, path: tuple[str, ...]) -> Place:
            number = next(numbers)
            table = self.described(node.table)
            link = None
            if node.parent:
                through = None
                if node.through is not None:
                    junction = self.described(node.through[0])
                    through = Through(junction, node.through[1], node.through[2])
                link = Link(node.shape, node.parent, node.own, through)
            members = [Member(name, Scalar(name, "custom")) for name in table.key]
            for at, child in enumerate(node.below):
                name = f"{child.table}{at}"
                made = place(child, (*path, name))
                value = Aggregate(made, "count") if child.shape == "count" else Related(made)
                members.append(Member(name, value))
            return Place(number, path, table, table.key or ("id",), tuple(members), link)

        return IndexPlan("test", place(node, ()))

    def documents(self, node: Node) -> dict[str, Any]:
        """Every document, rebuilt row by row in Python."""
        tables: dict[str, list[dict[str, Any]]] = {}

        def rows(name: str) -> list[dict[str, Any]]:
            if name not in tables:
                columns = [column.name for column in self.described(name).columns]
                fetched = self.rows(f"SELECT {', '.join(map(quote, columns))} FROM {quote(name)}")
                tables[name] = [dict(zip(columns, row, strict=True)) for row in fetched]
            return tables[name]

        def matches(row: dict[str, Any], names: Sequence[str], values: Sequence[Any]) -> bool:
            return all(v is not None and row[n] == v for n, v in zip(names, values, strict=True))

        def build(row: dict[str, Any], node: Node) -> dict[str, Any]:
            made: dict[str, Any] = {"row": row}
            for at, child in enumerate(node.below):
                values = [row[name] for name in child.parent]
                found = []
                if child.through is None:
                    found = [one for one in rows(child.table) if matches(one, child.own, values)]
                else:
                    junction, left, right = child.through
                    for link in rows(junction):
                        if matches(link, left, values):
                            far = [link[name] for name in right]
                            found += [one for one in rows(child.table) if matches(one, child.own, far)]
                made[f"{child.table}{at}"] = sorted((build(one, child) for one in found), key=repr)
            return made

        key = self.described(node.table).key
        return {"/".join(str(row[name]) for name in key): build(row, node) for row in rows(node.table)}


class SqliteWorld(World):
    schema = "main"

    def __init__(self, path: Path, *ddl: str) -> None:
        super().__init__()
        self.app = sqlite3.connect(path, isolation_level=None)
        self.app.execute("PRAGMA journal_mode=WAL")
        self.app.execute("PRAGMA synchronous=OFF")
        for statement in ddl:
            self.app.execute(statement)
        self.capture = SqliteCapture(SqliteConfig(path))
        self.install()

    def sql(self, *statements: str) -> None:
        self.app.execute("BEGIN")
        for statement in statements:
            self.app.execute(statement)
        self.app.execute("COMMIT")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.app.execute(query).fetchall()

    def close(self) -> None:
        super().close()
        self.app.close()


class PostgresWorld(World):
    schema = "public"

    def __init__(self, database: Database, *ddl: str) -> None:
        super().__init__()
        self.database = database
        self.admin = database.connect("postgres")
        database.sql(*ddl)
        self.capture = PostgresCapture(PostgresConfig.from_url(database.superuser_url()))
        self.install()

    def sql(self, *statements: str) -> None:
        with self.database.app.transaction():
            self.database.sql(*statements)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.database.rows(query)

    def close(self) -> None:
        super().close()
        self.database.drop()

    def head(self) -> Position:
        """Behind everything that is written, and on disk."""
        self.admin.execute("SELECT pg_logical_emit_message(true, 'test', 'flush')")
        row = self.admin.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchone()
        return self.position.at(int(row[0]) if row else 0)


Make = Callable[..., World]


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The documents that are not what they were."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def names(ids: Iterable[str]) -> Iterator[str]:
    """Ids as `documents` spells them."""
    import json

    for one in ids:
        yield "/".join(json.loads(one)) if one.startswith("[") else one
