"""Batch reads of PostgreSQL: one moment for tables and tasks, filters of every type, columns by privilege."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.model.errors import SchemaDrift, UsageError
from tests.docs.blocks import code_blocks
from tests.support.postgres import Database, database, postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.spark
PUSH = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, database: Database, table: str, **options: Any) -> DataFrame:
    given = {"url": database.socket_url(), "tables": table, **options}
    return spark.read.format("tailrace").options(**given).load()


@contextmanager
def transfers(database: Database) -> Iterator[threading.Event]:
    """A writer that moves amounts between rows of two tables: the sum over both is always the same."""
    stop, moved = threading.Event(), threading.Event()

    def write() -> None:
        with database.connect() as source:
            turn = 0
            while not stop.is_set():
                turn += 1
                with source.transaction():
                    source.execute("UPDATE left_side SET n = n - 1 WHERE id = %s", (turn % 1000,))
                    source.execute("UPDATE right_side SET n = n + 1 WHERE id = %s", (999 - turn % 1000,))
                moved.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield moved
    finally:
        stop.set()
        writer.join()


def test_tables_and_tasks_of_a_moment_see_one_point_in_time(spark: SparkSession, database: Database) -> None:
    for side in ("left_side", "right_side"):
        database.sql(
            f"CREATE TABLE {side} (id int PRIMARY KEY, n int)",
            f"INSERT INTO {side} SELECT i, 100 FROM generate_series(0, 999) i",
        )
    with transfers(database) as moved:
        assert moved.wait(30)
        with tailrace.moment(spark, database.socket_url()) as moment:
            left = moment.table("left_side", partitions=4)
            right = moment.table("right_side", partitions=3)
            assert (left.rdd.getNumPartitions(), right.rdd.getNumPartitions()) == (4, 3)
            first = left.agg({"n": "sum"}).first()[0] + right.agg({"n": "sum"}).first()[0]
            again = left.union(right).agg({"n": "sum"}).first()[0]
            left_then, left_now = left.agg({"n": "sum"}).first()[0], None
            moved.clear()
            assert moved.wait(30)
            left_now = left.agg({"n": "sum"}).first()[0]
    assert first == again == 200_000
    assert left_then == left_now


def test_the_example_of_the_page_runs(spark: SparkSession, database: Database, root: Path) -> None:
    database.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, city text)",
        "CREATE TABLE items (order_id int, sku text)",
        "INSERT INTO orders VALUES (1, 'Oslo'), (2, 'Bergen')",
        "INSERT INTO items VALUES (1, 'a'), (1, 'b'), (2, 'c')",
    )
    blocks = code_blocks((root / "docs/batch.md").read_text(encoding="utf-8"), "python")
    (block,) = [block for block in blocks if "tailrace.moment" in block.body]
    names: dict[str, Any] = {"spark": spark, "url": database.socket_url()}
    exec(compile(block.body, "docs/batch.md", "exec"), names)  # noqa: S102 - it is what the page shows
    assert {row["city"]: row["count"] for row in names["rows"]} == {"Oslo": 2, "Bergen": 1}


def test_a_dataframe_read_after_its_moment_says_so(spark: SparkSession, database: Database) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    with tailrace.moment(spark, database.socket_url()) as moment:
        frame = moment.table("t", columns=["n"], where="id = 1")
        database.sql("UPDATE t SET n = 2", "INSERT INTO t VALUES (2, 2)")
        assert [row.asDict() for row in frame.collect()] == [{"n": 1}]
    with pytest.raises(Exception, match="tailrace-error") as caught:
        frame.collect()
    error = tailrace.cause(caught.value)
    assert isinstance(error, UsageError)
    assert "inside" in str(error.remedy)
    with pytest.raises(UsageError, match="has ended"):
        moment.table("t")


def test_a_table_truncated_since_is_an_error_not_empty(spark: SparkSession, database: Database) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with tailrace.moment(spark, database.socket_url()) as moment:
        frame = moment.table("t")
        database.sql("TRUNCATE t")
        with pytest.raises(Exception, match="tailrace-error") as caught:
            frame.count()
    assert isinstance(tailrace.cause(caught.value), SchemaDrift)


@pytest.mark.long
def test_filters_of_every_type_give_the_rows_that_spark_gives(
    spark: SparkSession, database: Database
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, b boolean, s smallint, l bigint, f real, d double precision,"
        " p numeric(10,2), day date, at timestamptz, clock timestamp, raw bytea, u uuid, w text, c char(3))",
        "INSERT INTO t VALUES (1, true, 1, 1, 0.1, 0.1, 0.10, '2024-01-01', '2024-01-01 00:00+00',"
        " '2024-01-01 00:00', '\\x61', '00000000-0000-0000-0000-00000000000a', 'a', 'a')",
        "INSERT INTO t VALUES (2, false, -1, 9223372036854775807, 'NaN', 'NaN', -1, '1999-12-31',"
        " '1999-12-31 23:59:59.999999+00', '1999-12-31 23:59:59.999999', '\\xff',"
        " 'ffffffff-0000-0000-0000-000000000000', 'B', 'ab')",
        "INSERT INTO t VALUES (3, true, 5, -5, '-0', 0, 7.5, '2030-06-01', '2030-06-01 12:00+00',"
        " '2030-06-01 12:00', '\\x', '10000000-0000-0000-0000-000000000000', 'ä', 'abc')",
        "INSERT INTO t (id) VALUES (4)",
    )
    # Not cached: Spark's cache skips rows with NaN, which are above every number.
    plain = load(spark, database, "t")
    truth = spark.createDataFrame(plain.collect(), plain.schema)
    conditions = [
        *("b", "not b", "b <=> null", "s > 0", "l = 9223372036854775807", "f = cast(0.1 as float)"),
        *("f > 1", "f >= double('NaN')", "d = 0.1D", "d <= 0", "d <=> double('NaN')", "p = 0.1", "p < 7.5"),
        *("p in (0.10, -1.00)", "day >= date'2024-01-01'", "at < timestamp'2024-01-01 00:00:00'"),
        *("clock > timestamp_ntz'1999-12-31 23:59:59.999998'", "raw = X'61'", "raw > X'61'"),
        *("u = '00000000-0000-0000-0000-00000000000a'", "u > '0fffffff-0000-0000-0000-000000000000'"),
        *("w = 'a'", "w <> 'a'", "w > 'Z'", "w like 'a%'", "w like '%ä'", "c = 'a'", "c = 'a  '"),
        *("w is null", "w is not null and id <> 1", "not (w <=> 'a')", "id = 1 or l = -5"),
    ]
    spark.conf.set(PUSH, "true")
    try:
        for condition in conditions:
            pushed = load(spark, database, "t", pushFilters="true").where(condition)
            wanted = {row.id for row in truth.where(condition).collect()}
            assert {row.id for row in pushed.collect()} == wanted, condition
    finally:
        spark.conf.unset(PUSH)


def test_columns_that_may_not_be_read_are_not_needed(spark: SparkSession, database: Database) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text, secret text)",
        "INSERT INTO t VALUES (1, 'x', 'y')",
        "REVOKE ALL ON t FROM tailrace",
        "GRANT SELECT (id, a) ON t TO tailrace",
    )
    frame = load(spark, database, "t", columns='["a"]')
    assert [row.asDict() for row in frame.collect()] == [{"a": "x"}]
