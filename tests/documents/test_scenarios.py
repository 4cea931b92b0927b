"""Every way in which a change touches documents, by every kind of key, at every depth, through a pipeline.

One pipeline keeps one index for each kind of key. After every step the sink is what a naive rebuild gives.
The long ones try every replica identity with every kind of key, the others one identity with each.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace import app as tailrace
from tailrace.app.belonging import claim
from tailrace.app.parts import captured_tables
from tailrace.config import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.model.errors import ConfigError, NeedsOperator
from tailrace.spark.source import TailraceSource
from tests.documents import scenarios
from tests.documents.scenarios import STEPS, Tables
from tests.faults.microbatch import StandIn
from tests.support.documents.pipelines import (
    MARKS_TABLE,
    App,
    Home,
    OpenSearchStore,
    PostgresApp,
    SqliteApp,
    Store,
)
from tests.support.opensearch import Client
from tests.support.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ended(Exception):
    """The pipeline ended, and should not have."""


class Running:
    """A pipeline on a thread, from its configuration."""

    def __init__(self, home: Home, spark: SparkSession) -> None:
        config = load_config(home.path)
        spec = tailrace.pipeline_spec(config)
        with tailrace.opened(config) as capture:
            claim(config, captured_tables(config, capture))
        self._pipeline = Pipeline(spec, spark, release=tailrace.release(config))
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._pipeline.run()
        except BaseException as error:
            self._error = error

    def alive(self) -> None:
        if not self._thread.is_alive():
            raise Ended("the pipeline ended by itself") from self._error

    def stop(self) -> None:
        self._pipeline.request_stop()
        self._thread.join(120)
        if self._error is not None:
            raise self._error


@contextmanager
def running(home: Home, spark: SparkSession) -> Iterator[Running]:
    found = Running(home, spark)
    try:
        yield found
    finally:
        found.stop()


def play(
    app: App,
    every: Sequence[Tables],
    directory: Path,
    spark: SparkSession,
    name: str,
    *,
    store: Store | None = None,
    together: int = 1,
) -> None:
    """All steps, each for all kinds of keys in one transaction; after so many the sink is compared."""
    app.run(MARKS_TABLE, *(line for tables in every for line in tables.ddl()))
    app.run(*(line for tables in every for line in scenarios.fill(tables)))
    home = Home(directory, name, app, store)
    home.configure({tables.kind.name: tables.schema() for tables in every})
    with running(home, spark) as pipeline:
        # The first is a change too, and begins once everything is filled.
        app.mark()
        home.settle(pipeline.alive)
        for at, step in enumerate(STEPS, start=1):
            app.run(*(line for tables in every for line in step(tables)))
            if at % together and at < len(STEPS):
                continue
            try:
                home.settle(pipeline.alive)
            except AssertionError as error:
                raise AssertionError(f"after {step.__name__}: {error}") from None


IDENTITIES = ("DEFAULT", "FULL", "INDEX")


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_after_every_change_of_a_row_its_documents_are_what_a_rebuild_gives(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    pairs = zip(scenarios.POSTGRES, itertools.cycle(IDENTITIES), strict=False)
    every = [Tables(kind, identity=identity) for kind, identity in pairs]
    play(PostgresApp(database), every, tmp_path, spark, f"s{database.name}")


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_after_every_change_of_a_row_of_sqlite_its_documents_are_what_a_rebuild_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    every = [Tables(kind, truncates=False) for kind in scenarios.SQLITE if kind.name in ("text", "composite")]
    play(SqliteApp(tmp_path / "shop.db"), every, tmp_path / "home", spark, "scenarios")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_same_holds_for_every_kind_of_key_with_every_identity(
    database: Database, spark: SparkSession, tmp_path: Path, identity: str
) -> None:
    every = [Tables(kind, identity=identity) for kind in scenarios.POSTGRES]
    play(PostgresApp(database), every, tmp_path, spark, f"s{database.name}")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_same_holds_for_every_kind_of_key_of_sqlite(spark: SparkSession, tmp_path: Path) -> None:
    every = [Tables(kind, truncates=False) for kind in scenarios.SQLITE]
    play(SqliteApp(tmp_path / "shop.db"), every, tmp_path / "home", spark, "scenarios")


@pytest.fixture
def without_spark() -> Iterator[Any]:
    """What stands in for Spark, without a JVM."""
    spark = StandIn()
    spark.register(TailraceSource)
    yield spark
    spark.stop()


@pytest.fixture
def kept(opensearch: Client, prefix: str) -> OpenSearchStore:
    return OpenSearchStore(opensearch.url, prefix)


def test_after_every_few_changes_documents_in_opensearch_are_what_a_rebuild_gives(
    without_spark: Any, tmp_path: Path, kept: OpenSearchStore
) -> None:
    every = [Tables(kind, truncates=False) for kind in scenarios.SQLITE if kind.name == "composite"]
    app = SqliteApp(tmp_path / "shop.db")
    play(app, every, tmp_path / "home", without_spark, "scenarios", store=kept, together=10)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_same_holds_in_opensearch_for_every_kind_of_key_with_every_identity(
    database: Database, spark: SparkSession, tmp_path: Path, identity: str, kept: OpenSearchStore
) -> None:
    every = [Tables(kind, identity=identity) for kind in scenarios.POSTGRES]
    play(PostgresApp(database), every, tmp_path, spark, f"s{database.name}", store=kept)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_holds_in_opensearch_for_every_kind_of_key_of_sqlite(
    without_spark: Any, tmp_path: Path, kept: OpenSearchStore
) -> None:
    every = [Tables(kind, truncates=False) for kind in scenarios.SQLITE]
    play(SqliteApp(tmp_path / "shop.db"), every, tmp_path / "home", without_spark, "scenarios", store=kept)


@pytest.mark.parametrize("identity", ["NOTHING", "USING INDEX {table}_n"])
def test_an_identity_that_tells_no_old_key_is_refused_with_the_remedy_that_mends_it(
    database: Database, tmp_path: Path, identity: str
) -> None:
    app = PostgresApp(database)
    tables = Tables(scenarios.POSTGRES[0], identity="DEFAULT")
    app.run(MARKS_TABLE, *tables.ddl())
    home = Home(tmp_path, f"s{database.name}", app)
    home.configure({"documents": tables.schema()})
    config = load_config(home.path)
    for name in ("l0", "l2", "t", "f", "j0", "j1"):
        table = tables.kind.table(name)
        app.run(
            f"CREATE UNIQUE INDEX {table}_n ON {table} (n)",
            f"ALTER TABLE {table} REPLICA IDENTITY {identity.format(table=table)}",
        )
        errors = [found for found in tailrace.check(config) if found.severity == "error"]
        assert {found.table for found in errors} == {f"public.{table}"}
        with pytest.raises((NeedsOperator, ConfigError), match=table) as refused:
            tailrace.pipeline_spec(config)
        assert refused.value.remedy is not None
        # Each by itself, as a person does.
        database.sql(*refused.value.remedy.split("; "))
        assert [found for found in tailrace.check(config) if found.severity == "error"] == []
        tailrace.pipeline_spec(config)
