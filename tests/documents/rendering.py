"""Engines that build documents of a plan, behind one interface: two sources, and Spark over either of them.

A source makes tables of one definition, in its own types. Spark gets what a capture would give it: the
columns typed and decoded by the capture's own functions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.capture.postgres import catalog as postgres_catalog
from tailrace.capture.postgres.types import CANONICAL, from_text
from tailrace.capture.sqlite import catalog as sqlite_catalog
from tailrace.capture.sqlite import decode
from tailrace.capture.sqlite.functions import install
from tailrace.documents.plan import Aggregate, IndexPlan, Link, Member, Place, Related, Scalar, Shape, Through
from tailrace.documents.render import Keys, Query, build_query
from tailrace.model.table import TableRef, TableSchema, quote
from tests.support.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Documents = dict[str, Any]
Build = Callable[..., Documents]


def read(rows: Iterable[tuple[str, str]]) -> Documents:
    """Documents by their id, numbers exact; every one is a single line, and no id comes twice."""
    found: Documents = {}
    for name, text in rows:
        assert "\n" not in text
        assert "\r" not in text
        assert name not in found
        found[name] = json.loads(text, parse_float=Decimal)
    return found


class PostgresSource:
    """Tables in a PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, database: Database) -> None:
        self.connection = database.connect()
        # Tables of one name have other columns in the next test.
        self.connection.prepare_threshold = None
        for name, value in CANONICAL.items():
            self.connection.execute(f"SET {name} = '{value}'".encode())

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def insert(self, table: str, *rows: Sequence[Any]) -> None:
        marks = ", ".join(["%s"] * len(rows[0]))
        with self.connection.cursor() as cursor:
            name = quote(table).replace("%", "%%")
            cursor.executemany(f"INSERT INTO {name} VALUES ({marks})".encode(), rows)

    def table(self, name: str, schema: str = "public") -> TableSchema:
        connection: Any = self.connection
        return postgres_catalog.describe(connection, TableRef(schema, name))

    def run(self, query: Query, parameters: Sequence[Any]) -> list[tuple[str, str]]:
        return self.connection.execute(query.sql.encode(), parameters).fetchall()

    def documents(self, plan: IndexPlan, keys: pa.Table | None = None) -> Documents:
        query = build_query(plan, "postgres", None if keys is None else Keys())
        return read(self.run(query, query.bind(keys)))

    def rows(self, table: TableSchema) -> pa.Table:
        columns = ", ".join(_output(column.name) for column in table.columns)
        name = f"{quote(table.ref.schema)}.{quote(table.ref.name)}"
        found = self.connection.execute(f"SELECT {columns} FROM {name}".encode()).fetchall()
        values = list(zip(*found, strict=True)) if found else [()] * len(table.columns)
        typed = [
            from_text(pa.array(texts, pa.string()), column.type)[0]
            for texts, column in zip(values, table.columns, strict=True)
        ]
        return pa.table(dict(zip((column.name for column in table.columns), typed, strict=True)))


def _output(name: str) -> str:
    """The text of a type's output function, with the blanks of a char."""
    return f"CASE WHEN {quote(name)} IS NOT NULL THEN concat({quote(name)}) END"


class SqliteSource:
    """Tables in a SQLite database."""

    dialect = "sqlite"

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        install(self.connection)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def insert(self, table: str, *rows: Sequence[Any]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        self.connection.executemany(f"INSERT INTO {quote(table)} VALUES ({marks})", rows)

    def table(self, name: str) -> TableSchema:
        shape = sqlite_catalog.read_shape(self.connection, name)
        assert shape is not None
        return sqlite_catalog.schema_of(shape, {}, "")

    def run(self, query: Query, parameters: Sequence[Any]) -> list[tuple[str, str]]:
        return self.connection.execute(query.sql, parameters).fetchall()

    def documents(self, plan: IndexPlan, keys: pa.Table | None = None) -> Documents:
        query = build_query(plan, "sqlite", None if keys is None else Keys())
        return read(self.run(query, query.bind(keys)))

    def rows(self, table: TableSchema) -> pa.Table:
        columns = ", ".join(quote(column.name) for column in table.columns)
        found = self.connection.execute(f"SELECT {columns} FROM {quote(table.ref.name)}").fetchall()
        names = [column.name for column in table.columns]
        if not found:
            return pa.table({c.name: pa.nulls(0, c.type.arrow) for c in table.columns})
        cells = decode.decode(found, [column.type for column in table.columns])
        return pa.table(dict(zip(names, (cell.typed for cell in cells), strict=True)))


Source = PostgresSource | SqliteSource


class SparkEngine:
    """Spark over the tables of a source."""

    def __init__(self, spark: SparkSession, source: Source) -> None:
        self._spark, self._source = spark, source

    def documents(self, plan: IndexPlan, keys: pa.Table | None = None) -> Documents:
        views: dict[TableRef, str] = {}
        for table in _tables(plan):
            views[table.ref] = f"tailrace_view_{len(views)}"
            # By name: of its own Spark takes a timestamp without a zone for one with.
            schema = ", ".join(f"`{c.name.replace('`', '``')}` {c.type.name}" for c in table.columns)
            frame = self._spark.createDataFrame(self._source.rows(table), schema)
            frame.createOrReplaceTempView(views[table.ref])
        if keys is not None:
            self._spark.createDataFrame(keys).createOrReplaceTempView("tailrace_keys")
        scope = None if keys is None else Keys("tailrace_keys")
        query = build_query(plan, "spark", scope, source=self._source.dialect, views=views)
        assert query.bind(keys) == ()
        return read((row["id"], row["document"]) for row in self._spark.sql(query.sql).collect())


def _tables(plan: IndexPlan) -> list[TableSchema]:
    found: dict[TableRef, TableSchema] = {}
    for chain in plan.chains():
        place = chain[-1]
        found[place.table.ref] = place.table
        if place.link is not None and place.link.through is not None:
            found[place.link.through.table.ref] = place.link.through.table
    return list(found.values())


def root(table: TableSchema, *members: Member, **more: Any) -> IndexPlan:
    """A plan with these members of the root."""
    place = {name: more.pop(name) for name in ("filters", "key") if name in more}
    return IndexPlan("test", Place(0, (), table, place.pop("key", table.key), members, **place), **more)


def scalars(table: TableSchema, **kinds: Any) -> list[Member]:
    """Columns as members of their own name."""
    return [Member(name, Scalar(name, kind)) for name, kind in kinds.items()]


def related(
    name: str,
    shape: Shape,
    table: TableSchema,
    *members: Member,
    parent: str | tuple[str, ...],
    own: str | tuple[str, ...],
    through: Through | None = None,
    **more: Any,
) -> Member:
    """A relation as a member."""
    return Member(
        name, Related(place(name, shape, table, *members, parent=parent, own=own, through=through, **more))
    )


def place(
    name: str,
    shape: Shape,
    table: TableSchema,
    *members: Member,
    parent: str | tuple[str, ...],
    own: str | tuple[str, ...],
    through: Through | None = None,
    **more: Any,
) -> Place:
    """A place that hangs on its parent."""
    link = Link(shape, _several(parent), _several(own), through)
    return Place(1, (name,), table, table.key, members, link, **more)


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def aggregate(name: str, function: Any, where: Place, column: str | None = None, kind: Any = None) -> Member:
    return Member(name, Aggregate(where, function, column, kind))
