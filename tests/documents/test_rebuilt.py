"""Documents that a source builds from a plan are those of the naive rebuild, for whatever schema and rows."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.capture.contract import Capture
from tailrace.capture.postgres import PostgresCapture
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.config.index.load import index_from
from tailrace.documents.compile import catalog_of, compile_index
from tailrace.documents.render import build_query
from tests.support.documents import grammar
from tests.support.documents.compare import compare
from tests.support.documents.oracle import rebuild

LONG_SECONDS = 200.0


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[tuple[Any, Capture]]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        grammar.create(connection)
        capture = SqliteCapture(SqliteConfig(tmp_path / "shop.db"))
        yield connection, capture
        capture.close()


@pytest.fixture
def server(database: Any) -> Iterator[tuple[Any, Capture]]:
    grammar.create(database.app)
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    yield database.app, capture
    capture.close()


def built(capture: Capture, schema: dict[str, Any]) -> pa.Table:
    plan = compile_index("i", index_from(schema, "random"), catalog_of(capture))
    query = build_query(plan, capture.kind)
    batches = list(capture.query(query.sql, query.bind(), query.columns))
    empty = pa.schema([("id", pa.string()), ("document", pa.string())])
    return pa.Table.from_batches(batches) if batches else empty.empty_table()


def try_out(connection: Any, capture: Capture, seed: int, schemas: int) -> None:
    dice = random.Random(seed)
    for table in grammar.TABLES:
        connection.execute(f"DELETE FROM {table}")
    grammar.fill(dice, connection)
    for _ in range(schemas):
        schema = grammar.schema(dice)
        wrong = compare(rebuild(schema, connection), built(capture, schema))
        assert wrong == [], f"seed {seed}: {schema}"


def test_sqlite_builds_what_a_naive_rebuild_gives(lite: tuple[Any, Capture], seed: int) -> None:
    for at in range(5):
        try_out(*lite, seed + at, 3)


def test_postgres_builds_what_a_naive_rebuild_gives(server: tuple[Any, Capture], seed: int) -> None:
    try_out(*server, seed, 4)


@pytest.mark.long
def test_both_build_what_a_naive_rebuild_gives_for_long(
    lite: tuple[Any, Capture], server: tuple[Any, Capture], seed: int
) -> None:
    end, at = time.monotonic() + LONG_SECONDS, 0
    while time.monotonic() < end:
        try_out(*lite, seed + at, 5)
        try_out(*server, seed + at, 5)
        at += 1


@pytest.fixture
def seed() -> int:
    """The dice of a test; what fails says it."""
    return random.SystemRandom().randrange(10**9)
