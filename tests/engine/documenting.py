"""A pipeline that keeps documents, from its own `tailrace.toml`, on the stand-in for Spark, here."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tailrace import app
from tailrace.app.belonging import claim
from tailrace.app.letters import dead_letters, retry_dead_letters
from tailrace.app.parts import captured_tables
from tailrace.config import load_config
from tailrace.engine.deadletters import DeadLetter, Retried
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.spec import PipelineSpec
from tailrace.engine.status import Status
from tailrace.runtime.observer import Recorder
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tailrace.spark.source import TailraceSource
from tests.faults.microbatch import Manners, StandIn
from tests.support.documents.compare import compare
from tests.support.documents.oracle import rebuild
from tests.support.postgres import Database
from tests.support.waiting import wait_until

# Both databases take it: customers with orders, items, products, tags through a junction, and aggregates.
TABLES = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text, city bigint)",
    "CREATE TABLE cities (id bigint PRIMARY KEY, title text)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, total bigint)",
    "CREATE TABLE items (id bigint PRIMARY KEY, of bigint, qty bigint)",
    "CREATE TABLE tags (id bigint PRIMARY KEY, word text)",
    "CREATE TABLE tagged (id bigint PRIMARY KEY, customer bigint, tag bigint)",
    "CREATE INDEX orders_customer ON orders (customer)",
    "CREATE INDEX items_of ON items (of)",
    "CREATE INDEX tagged_customer ON tagged (customer)",
    "CREATE INDEX tagged_tag ON tagged (tag)",
    "CREATE INDEX customers_city ON customers (city)",
)
NAMES = ("customers", "cities", "orders", "items", "tags", "tagged")
SCHEMA = """
version: 1
table: customers
primary_key: id
fields:
  - long: id
  - text: name
  - belongs_to: home
    table: cities
    primary_key: id
    column: city
    fields: [{text: title}]
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: customer
    fields:
      - long: id
      - long: total
      - has_many: items
        table: items
        primary_key: id
        foreign_key: of
        fields: [{long: id}, {long: qty}]
  - many_to_many: tags
    table: tags
    primary_key: id
    through: {table: tagged, left_key: customer, right_key: tag}
    fields: [{text: word}]
  - count: order_count
    table: orders
    foreign_key: customer
  - sum: spent
    table: orders
    foreign_key: customer
    column: total
    value_type: long
"""
# A few rows of each: 3 cities, 20 customers, 40 orders, 80 items, 5 tags, 30 junction rows.
FEW = (20, 40, 80)


def filling(customers: int, orders: int, items: int) -> list[str]:
    """Statements that fill the tables, for both databases."""

    def numbers(count: int) -> str:
        each = f"SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}"
        return f"WITH RECURSIVE n(i) AS ({each}) "

    return [
        "INSERT INTO cities VALUES (1, 'Turin'), (2, 'Delft'), (3, 'Kyoto')",
        "INSERT INTO tags VALUES (1, 'new'), (2, 'vip'), (3, 'late'), (4, 'far'), (5, 'old')",
        numbers(customers) + "INSERT INTO customers SELECT i, 'customer ' || i, 1 + i % 3 FROM n",
        numbers(orders) + f"INSERT INTO orders SELECT i, 1 + (i * 7) % {customers}, i * 3 FROM n",
        numbers(items) + f"INSERT INTO items SELECT i, 1 + (i * 3) % {orders}, i % 5 FROM n",
        numbers(30) + f"INSERT INTO tagged SELECT i, 1 + (i * 11) % {customers}, 1 + i % 5 FROM n",
    ]


class Documents:
    """A source, a document store, and a pipeline between them. Each run is a process's life."""

    def __init__(self, directory: Path, database: Database | None = None) -> None:
        self.directory, self._database = directory, database
        self.store = directory / "docs.db"
        # The sink as `tailrace.toml` has it, and what stands before all of it.
        self.kept, self.head = '[sinks.store]\ntype = "sqlite"\npath = "docs.db"\n', ""
        self.schemas: dict[str, str] = {}
        self.extra: dict[str, str] = {}
        self.more = ""
        self.limit: int | None = None
        self.options: dict[str, str] = {}
        self.manners = Manners()
        self.observer = Recorder()
        if database is None:
            with closing(sqlite3.connect(directory / "shop.db")) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        self.transaction(*TABLES)

    @property
    def kind(self) -> str:
        return "sqlite" if self._database is None else "postgres"

    def source(self) -> Any:
        """A connection of the application's, in autocommit mode."""
        if self._database is not None:
            return self._database.connect()
        return sqlite3.connect(self.directory / "shop.db", timeout=60, isolation_level=None)

    def transaction(self, *statements: str) -> None:
        """One transaction of the application's."""
        with closing(self.source()) as connection:
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")

    def sql(self, *statements: str) -> None:
        """Each a transaction by itself."""
        with closing(self.source()) as connection:
            for statement in statements:
                connection.execute(statement)

    def index(self, name: str, schema: str = SCHEMA, **settings: str) -> None:
        """Add an index, or change its schema and settings."""
        self.schemas[name] = schema
        self.extra[name] = "".join(f"{key} = {value}\n" for key, value in settings.items())
        self._write()

    def _write(self) -> None:
        url = "sqlite:shop.db" if self._database is None else self._database.superuser_url()
        parts = [self.head, f'[source]\nurl = "{url}"\n', self.kept, self.more]
        for name, schema in self.schemas.items():
            (self.directory / f"{name}.schema.yml").write_text(schema)
            own = f'[[index]]\nname = "{name}"\nschema = "{name}.schema.yml"\n' + self.extra[name]
            parts.append(own + ("" if "sinks" in self.extra[name] else 'sinks = ["store"]\n'))
        (self.directory / "tailrace.toml").write_text("\n".join(parts))

    # Runs

    def config(self) -> Any:
        self._write()
        return load_config(self.directory / "tailrace.toml", environ={})

    def spec(self) -> PipelineSpec:
        spec = app.pipeline_spec(self.config())
        spec = replace(spec, options={**spec.options, **self.options})
        if self.limit is None:
            return spec
        sink = SqliteSink(SqliteStoreConfig(str(self.store), max_document_bytes=self.limit))
        return replace(spec, indexes=tuple(replace(index, sink=sink) for index in spec.indexes))

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        """A pipeline that is ready to run."""
        config = self.config()
        config.state.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with app.opened(config) as capture:
            claim(config, captured_tables(config, capture))
        spark = StandIn(self.manners)
        spark.register(TailraceSource)
        self.observer = Recorder()
        try:
            yield Pipeline(self.spec(), spark, release=app.release(config), observer=self.observer)
        finally:
            spark.stop()

    def run(self) -> None:
        """Take everything that there is now, then end; raises what stopped it."""
        with self.pipeline() as pipeline:
            pipeline.run(once=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[[], BaseException | None]]:
        """Run until the block ends. Gives what tells the error that it ended with, by itself, if any."""
        failed: list[BaseException] = []
        with self.pipeline() as pipeline:

            def life() -> None:
                try:
                    pipeline.run()
                except BaseException as error:
                    failed.append(error)

            thread = threading.Thread(target=life, daemon=True)
            thread.start()
            try:
                yield lambda: failed[0] if failed else None
            finally:
                pipeline.request_stop()
                thread.join(timeout=60)
                assert not thread.is_alive()

    def status(self) -> Status:
        return app.status(self.config())

    # What there is

    def reader(self) -> sqlite3.Connection:
        """A connection to the store that only reads."""
        return sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=60)

    def found(self, index: str = "customers") -> pa.Table:
        """The documents as any reader of the store's file sees them."""
        query = 'SELECT id, version, document FROM documents WHERE "index" = ? ORDER BY id'
        rows = []
        # Before the first run has made the file, and laid it out.
        with contextlib.suppress(sqlite3.OperationalError), closing(self.reader()) as connection:
            rows = connection.execute(query, (index,)).fetchall()
        columns: Sequence[Any] = list(zip(*rows, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.int64(), pa.large_string())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["id", "version", "document"])

    def ids(self, index: str = "customers") -> set[str]:
        return set(self.found(index)["id"].to_pylist())

    def differences(
        self, index: str = "customers", without: Sequence[str] = (), mend: str | None = None
    ) -> list[str]:
        """What is not as a naive rebuild has it; documents of these ids aside.

        Where some cannot be computed, `mend` is the statement that makes it possible, for this once.
        """
        with closing(self.source()) as connection:
            if mend is not None:
                connection.execute("BEGIN")
                connection.execute(mend)
            wanted = rebuild(yaml.safe_load(self.schemas[index]), connection)
            if mend is not None:
                connection.execute("ROLLBACK")
        found = self.found(index)
        keep = [id_ not in without for id_ in found["id"].to_pylist()]
        found = found.filter(pa.array(keep, pa.bool_()))
        return compare({id_: one for id_, one in wanted.items() if id_ not in without}, found)

    def check(self, *indexes: str) -> None:
        """Every index holds exactly the documents that a naive rebuild gives."""
        for index in indexes or tuple(self.schemas):
            assert self.differences(index) == [], index

    def settles(self, *indexes: str, error: Callable[[], BaseException | None] | None = None) -> None:
        """Wait until they do, while the pipeline runs."""

        def right() -> bool:
            if error is not None and (found := error()) is not None:
                raise found
            self.check(*indexes)
            return True

        wait_until(right, timeout=60, interval=0.1, what="documents that equal a rebuild")

    def letters(self) -> list[DeadLetter]:
        return dead_letters(self.config())

    def retry(self) -> Retried:
        return retry_dead_letters(self.config())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.observer.events if told == name]

    def fillings(self) -> list[tuple[str, str]]:
        """Index and reason of each filling of the last run."""
        return [(event["index"], event["reason"]) for event in self.events("index.filling")]
