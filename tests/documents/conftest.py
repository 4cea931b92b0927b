"""The servers of the tests of documents, and the sources that rendering is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.documents.rendering import Build, PostgresSource, Source, SparkEngine, SqliteSource
from tests.support.opensearch import opensearch, opensearch_server, prefix
from tests.support.postgres import Server, database, own_server, postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database", "opensearch", "opensearch_server", "own_server", "postgres", "prefix"]


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[PostgresSource]:
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()


@pytest.fixture(params=["postgres", "sqlite"])
def source(request: pytest.FixtureRequest) -> Source:
    """An empty source."""
    if request.param == "sqlite":
        return SqliteSource()
    made: PostgresSource = request.getfixturevalue("shared")
    made.sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return made


@pytest.fixture(params=["source", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def build(request: pytest.FixtureRequest, source: Source) -> Build:
    """The documents of a plan: by the source itself, and by Spark over its tables."""
    if request.param == "source":
        return source.documents
    spark: SparkSession = request.getfixturevalue("spark")
    return SparkEngine(spark, source).documents
