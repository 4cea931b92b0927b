"""Filling an index on a real session: by questions to the source, or by joins over copies of its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tailrace import app
from tailrace.config import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.runtime.observer import Observer, Recorder
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.engine.documenting import NAMES, SCHEMA, TABLES, filling
from tests.support.documents.compare import compare
from tests.support.documents.oracle import rebuild
from tests.support.postgres import Database, Server, postgres  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CONFIG = """
[source]
url = "{url}"
[sinks.store]
type = "sqlite"
path = "docs.db"
[[index]]
name = "customers"
schema = "customers.schema.yml"
backfill = "{backfill}"
"""


class After(Observer):
    """Does something after a batch, and remembers what it heard."""

    def __init__(self, batch: int, act: Callable[[], None]) -> None:
        self.heard = Recorder()
        self._batch, self._act = batch, act

    def event(self, name: str, **fields: Any) -> None:
        self.heard.event(name, **fields)
        if name == "batch.written" and fields["batch"] == self._batch:
            self._act()


class Filled:
    """A source and a pipeline that fills an index from it, ten root rows a chunk."""

    def __init__(self, spark: SparkSession, directory: Path, database: Database | None) -> None:
        self._spark, self._directory, self._database = spark, directory, database
        (directory / "customers.schema.yml").write_text(SCHEMA)
        if database is None:
            with closing(self.source()) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        self.sql(*TABLES, *filling(100, 200, 400))
        if database is not None:
            database.publish(*NAMES)

    def source(self) -> Any:
        if self._database is not None:
            return self._database.connect()
        return sqlite3.connect(self._directory / "shop.db", timeout=60, isolation_level=None)

    def sql(self, *statements: str) -> None:
        with closing(self.source()) as connection:
            for statement in statements:
                connection.execute(statement)

    def run(self, backfill: str, observer: Observer | None = None) -> None:
        url = "sqlite:shop.db" if self._database is None else self._database.socket_url()
        path = self._directory / "tailrace.toml"
        path.write_text(CONFIG.format(url=url, backfill=backfill))
        config = load_config(path)
        spec = app.pipeline_spec(config)
        spec = replace(spec, options={**spec.options, "chunkRows": "10", "maxRowsPerTrigger": "20"})
        Pipeline(spec, self._spark, release=app.release(config), observer=observer).run(once=True)

    def differences(self) -> list[str]:
        with closing(self.source()) as connection:
            wanted = rebuild(yaml.safe_load(SCHEMA), connection)
        with closing(SqliteSink(SqliteStoreConfig(str(self._directory / "docs.db")))) as store:
            return compare(wanted, store.read("customers"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def filled(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Filled]:
    if request.param == "sqlite":
        yield Filled(spark, tmp_path, None)
        return
    server: Server = request.getfixturevalue("postgres")
    database = server.database()
    yield Filled(spark, tmp_path, database)
    database.drop()


@pytest.mark.parametrize("backfill", ["source", pytest.param("spark", marks=pytest.mark.long)])
def test_what_changes_while_an_index_is_filled_wins_over_what_was_read(filled: Filled, backfill: str) -> None:
    """Chunks come two at a time: after the first batch most documents are not written yet."""

    def change() -> None:
        filled.sql(
            "UPDATE orders SET total = total + 1000 WHERE id % 5 = 0",
            "UPDATE orders SET customer = 99 WHERE id % 7 = 0",
            "DELETE FROM items WHERE id % 3 = 0",
            "DELETE FROM customers WHERE id IN (2, 50, 98)",
            "INSERT INTO customers VALUES (500, 'late', 1)",
            "UPDATE cities SET title = 'Torino' WHERE id = 1",
        )

    observer = After(0, change)
    filled.run(backfill, observer)
    assert observer.heard.count("index.complete") == 1
    # What was committed after the run had begun is the next one's.
    filled.run(backfill)
    assert filled.differences() == []


@pytest.mark.long
def test_copies_of_tables_are_gone_once_the_index_is_complete(filled: Filled, tmp_path: Path) -> None:
    observer = After(-1, lambda: None)
    filled.run("spark", observer)
    assert observer.heard.count("index.copying") == len(NAMES)
    assert filled.differences() == []
    assert list((tmp_path / ".tailrace" / "filling").iterdir()) == []
