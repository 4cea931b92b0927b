"""Questions in the source's own SQL: values, parameters, errors, and what they never do."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import PostgresCapture
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import DataError, NeedsOperator
from tailrace.model.table import ColumnType, TableRef
from tests.support.postgres import Database

LONG, TEXT = ColumnType("long"), ColumnType("string")


@pytest.fixture
def capture(database: Database) -> PostgresCapture:
    return PostgresCapture(PostgresConfig.from_url(database.url()))


def ask(capture: PostgresCapture, sql: str, *parameters: Any, **columns: ColumnType) -> list[dict[str, Any]]:
    found = capture.query(sql, parameters, list(columns.items()))
    return [row for batch in found for row in batch.to_pylist()]


def test_values_are_those_of_a_snapshot(database: Database, capture: PostgresCapture) -> None:
    database.sql(
        "CREATE TABLE t (id int8 PRIMARY KEY, a text, n numeric(10,2), d date, m timestamptz, b bytea,"
        " r float8, t bool, u uuid, j jsonb)",
        r"INSERT INTO t VALUES (1, E'tab\tnew\nline \\ 100% ''x''', 1.50, '2026-01-02',"
        r" '2026-01-02 03:04:05.6+02', '\x00ff', 0.1, true, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '[]'),"
        r" (2, NULL, 'NaN', 'infinity', '-infinity', NULL, 'Infinity', false, NULL, NULL)",
    )
    table = capture.describe(TableRef("public", "t"))
    (batch,) = capture.snapshot(table, Chunk(table.ref, 0), position=1, seq=0)
    columns = [(column.name, column.type) for column in table.columns]
    (found,) = capture.query("SELECT * FROM t", (), columns)
    images = batch.data.column("after")
    assert found.schema.names == [*(name for name, _ in columns), "exact"]
    for at, (name, _) in enumerate(columns):
        assert found.column(at).equals(images.field(name))
    exact = batch.data.column("after_exact")
    assert found.column("exact").to_pylist() == exact.to_pylist()


def test_parameters_are_values_whatever_they_contain(capture: PostgresCapture) -> None:
    odd = ["it's", 'a "b"', "back\\slash", "100%s", "%(name)s", "{x,y}", "NULL", "", "$1 :a ?", "é😀", "a\nb"]
    sql = "SELECT 1 % 5, v FROM unnest(CAST(%s AS text[])) AS v"
    rows = ask(capture, sql.replace("1 % 5", "1 %% 5"), odd, one=LONG, v=TEXT)
    assert rows == [{"one": 1, "v": value} for value in odd]
    named = capture.query("SELECT %(a)s", {"a": "it's"}, [("v", TEXT)])
    assert [batch.to_pylist() for batch in named] == [[{"v": "it's"}]]


def test_rows_come_in_bounded_batches_and_none_in_none(database: Database) -> None:
    capture = PostgresCapture(PostgresConfig.from_url(database.url(), {"batch_bytes": 100_000}))
    sql = "SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i"
    found = list(capture.query(sql, (), [("i", LONG), ("x", TEXT)]))
    assert sum(batch.num_rows for batch in found) == 20_000
    assert max(batch.nbytes for batch in found) < 400_000
    assert ask(capture, "SELECT 1 WHERE false", i=LONG) == []


def test_an_error_tells_no_value(database: Database, capture: PostgresCapture) -> None:
    database.sql("CREATE TABLE t (a text)", "INSERT INTO t VALUES ('canary')")
    with pytest.raises(DataError) as found:
        ask(capture, "SELECT a::int FROM t", a=LONG)
    assert "canary" not in str(found.value)
    assert "InvalidTextRepresentation" in str(found.value)
    with pytest.raises(DataError) as found:
        ask(capture, "SELECT %s", "canary\0", a=TEXT)
    assert "canary" not in str(found.value)
    with pytest.raises(NeedsOperator, match="nowhere"):
        ask(capture, "SELECT 1 FROM nowhere", a=LONG)


def test_a_question_writes_nothing_and_keeps_no_transaction(
    database: Database, capture: PostgresCapture
) -> None:
    database.sql("CREATE SEQUENCE s", "GRANT USAGE ON SEQUENCE s TO tailrace")
    with pytest.raises(NeedsOperator, match="read-only"):
        ask(capture, "SELECT nextval('s')", a=LONG)
    with capture.together():
        first = ask(capture, "SELECT pg_backend_pid()", a=LONG)
        assert ask(capture, "SELECT pg_backend_pid()", a=LONG) == first
        with database.admin() as connection:
            states = connection.execute(
                "SELECT state FROM pg_stat_activity"
                " WHERE usename = 'tailrace' AND datname = current_database()"
            )
            assert states.fetchall() == [("idle",)]


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        ("REPLICA IDENTITY DEFAULT", {"id"}),
        ("REPLICA IDENTITY FULL", {"id", "a", "b"}),
        ("REPLICA IDENTITY USING INDEX ab", {"a", "id"}),
        ("REPLICA IDENTITY NOTHING", set()),
    ],
)
def test_what_the_log_tells_of_a_row_as_it_was_follows_the_identity(
    database: Database, capture: PostgresCapture, alter: str, told: set[str]
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b text)",
        "CREATE UNIQUE INDEX ab ON t (a, id)",
        f"ALTER TABLE t {alter}",
    )
    assert capture.told_before(capture.describe(TableRef("public", "t"))) == told


def test_a_partitioned_table_tells_what_every_partition_tells(
    database: Database, capture: PostgresCapture
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE one PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE two PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE one REPLICA IDENTITY FULL",
    )
    table = capture.describe(TableRef("public", "t"))
    assert capture.told_before(table) == {"id"}
    database.sql("ALTER TABLE two REPLICA IDENTITY FULL")
    assert capture.told_before(table) == {"id", "a"}
