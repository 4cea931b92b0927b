"""Whatever the tables, the rows and the index: every engine builds the same documents."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.documents.generated import World, difference
from tests.documents.rendering import Documents, PostgresSource, SparkEngine, SqliteSource
from tests.support.postgres import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def postgresql(postgres: Server) -> Iterator[PostgresSource]:
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()


def seeds(seconds: float) -> Iterator[int]:
    """Seeds for so long; TAILRACE_RENDER_SEED is one to try again."""
    if given := os.environ.get("TAILRACE_RENDER_SEED"):
        yield int(given)
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        print(f"TAILRACE_RENDER_SEED={seed}")  # noqa: T201
        yield seed


def agree(one: Documents, two: Documents) -> None:
    assert set(one) == set(two)
    for name in one:
        assert difference(one[name], two[name]) is None


def _worlds(postgresql: PostgresSource, seconds: float) -> Iterator[tuple[World, SqliteSource, list[Any]]]:
    for seed in seeds(seconds):
        world, sqlite = World(seed), SqliteSource()
        postgresql.sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        world.make(postgresql, sqlite)
        names = [table.name for table in [*world.tables, *world.junctions]]
        state = world.dice.getstate()
        plans = []
        for source in (postgresql, sqlite):
            # The same index, over the tables as each source describes them.
            world.dice.setstate(state)
            plans.append([world.plan({name: source.table(name) for name in names}) for _ in range(3)])
        yield world, sqlite, list(zip(*plans, strict=True))


def _try(postgresql: PostgresSource, seconds: float, spark: SparkSession | None) -> None:
    for world, sqlite, plans in _worlds(postgresql, seconds):
        for of_postgres, of_sqlite in plans:
            found = postgresql.documents(of_postgres)
            agree(found, sqlite.documents(of_sqlite))
            table = next(one for one in world.tables if one.name == of_sqlite.root.table.ref.name)
            keys = world.asked(table)
            some = postgresql.documents(of_postgres, keys)
            agree(some, {name: found[name] for name in some})
            agree(some, sqlite.documents(of_sqlite, keys))
            if spark is not None:
                agree(found, SparkEngine(spark, postgresql).documents(of_postgres))
                agree(found, SparkEngine(spark, sqlite).documents(of_sqlite))
                agree(some, SparkEngine(spark, postgresql).documents(of_postgres, keys))


def test_two_sources_with_the_same_rows_give_the_same_documents(postgresql: PostgresSource) -> None:
    _try(postgresql, 3, None)


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that does not compile whole statements: each runs once, over a handful of rows."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield spark
    spark.conf.unset("spark.sql.codegen.wholeStage")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_and_the_sources_give_the_same_documents(
    postgresql: PostgresSource, small: SparkSession
) -> None:
    _try(postgresql, 120, small)
