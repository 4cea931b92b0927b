"""Batch reads of SQLite: columns, conditions, filters and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.capture.contract import Chunk
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef
from tailrace.spark.batch import SnapshotReader, shares
from tailrace.spark.options import SourceOptions
from tests.support.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that hands filters over to sources."""
    spark.conf.set(PUSH, "true")
    yield spark
    spark.conf.unset(PUSH)


def load(spark: SparkSession, shop: Shop, **options: Any) -> DataFrame:
    given = {"url": shop.url, "tables": "orders", **options}
    return spark.read.format("tailrace").options(**given).load()


def refused(frame: Any) -> ConfigError:
    with pytest.raises(Exception, match="tailrace-error") as caught:
        frame().collect()
    error = tailrace.cause(caught.value)
    assert isinstance(error, ConfigError)
    return error


@pytest.mark.spark
def test_only_the_columns_asked_for_are_read_in_the_order_asked_for(spark: SparkSession, shop: Shop) -> None:
    shop.insert(0, 3)
    frame = load(spark, shop, columns="city, id")
    assert frame.columns == ["city", "id"]
    assert sorted(row[1] for row in frame.collect()) == [0, 1, 2]
    wrong = refused(lambda: load(spark, shop, columns="idd"))
    assert "idd" in wrong.message
    assert wrong.remedy == "did you mean id?"
    assert "twice" in refused(lambda: load(spark, shop, columns="id,id")).message


@pytest.mark.spark
def test_a_condition_in_the_sources_own_sql_chooses_the_rows(spark: SparkSession, shop: Shop) -> None:
    shop.insert(0, 100)
    frame = load(spark, shop, where="id % 10 = 3 OR id = 0", numPartitions="3", chunkRows="20")
    assert sorted(row.id for row in frame.collect()) == [0, 3, 13, 23, 33, 43, 53, 63, 73, 83, 93]
    assert frame.where("id > 50").count() == 5
    assert "refused" in refused(lambda: load(spark, shop, where="id = 1) OR (1 = 1")).message


@pytest.mark.spark
def test_a_read_has_as_many_tasks_as_asked_for_of_about_equal_size(spark: SparkSession, shop: Shop) -> None:
    from pyspark.sql.functions import spark_partition_id

    shop.insert(0, 1000)
    frame = load(spark, shop, numPartitions="4")
    sizes = [row["count"] for row in frame.groupBy(spark_partition_id()).count().collect()]
    assert len(sizes) == 4
    assert sum(sizes) == 1000
    assert max(sizes) <= 251


@pytest.mark.spark
def test_filters_of_a_query_are_tested_by_the_source_where_it_is_asked_to(
    pushing: SparkSession, shop: Shop, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.insert(0, 150)
    shop.insert(150, 200, city="Bergen")
    shop.run("UPDATE orders SET city = NULL WHERE id = 3")
    for condition, wanted in (
        ("id in (1, 3, 500)", {1, 3}),
        ("not (id <= 197)", {198, 199}),
        ("city = 'Bergen' and id < 153", {150, 151, 152}),
        ("city like 'Be%' and price >= 99.5", {199}),
        ("city is null", {3}),
        ("id < 5 and upper(city) = 'OSLO'", {0, 1, 2, 4}),
    ):
        frame = load(pushing, shop, pushFilters="true", numPartitions="2", chunkRows="50").where(condition)
        assert {row.id for row in frame.collect()} == wanted, condition
    # An integer is surely compared alike, so that Spark does not compare it once more.
    capfd.readouterr()
    load(pushing, shop, pushFilters="true").where("id < 10").explain()
    assert "Filter (" not in capfd.readouterr().out


@pytest.mark.spark
def test_a_dataframe_gives_every_query_its_rows_whatever_was_asked_before(
    pushing: SparkSession, shop: Shop
) -> None:
    # Spark 4.3 keeps the plan of the last filter in the DataFrame, so filters are not handed over unasked.
    shop.insert(0, 100)
    frame = load(pushing, shop)
    assert frame.where("id < 10").count() == 10
    assert frame.count() == 100
    assert frame.where("id < 10").union(frame.where("id >= 10")).count() == 100


@pytest.mark.spark
@pytest.mark.xfail(strict=True, reason="Spark 4.3 keeps the last filter's plan in the DataFrame: decision 9")
def test_a_dataframe_that_hands_its_filters_over_can_be_used_twice(pushing: SparkSession, shop: Shop) -> None:
    shop.insert(0, 100)
    frame = load(pushing, shop, pushFilters="true")
    assert frame.where("id < 10").count() == 10
    assert frame.count() == 100


@pytest.mark.spark
def test_a_moment_of_sqlite_is_refused_with_what_to_do(spark: SparkSession, shop: Shop) -> None:
    with pytest.raises(ConfigError, match="cannot share one point in time") as caught:
        tailrace.moment(spark, shop.url).__enter__()
    assert "one partition" in str(caught.value.remedy)
    assert "no moments" in refused(lambda: load(spark, shop, moment="1-1-1/0123456789abcdef")).message


@pytest.mark.spark
@pytest.mark.parametrize("name", ["columns", "where", "pushFilters", "moment"])
def test_a_stream_refuses_the_options_of_batch_reads(
    spark: SparkSession, shop: Shop, tmp_path: Path, name: str
) -> None:
    value = "true" if name == "pushFilters" else "id"
    frame = (
        spark.readStream.format("tailrace")
        .options(**{"url": shop.url, "tables": "orders", "stateDir": str(tmp_path / "s"), name: value})
        .load()
    )
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match="tailrace-error") as caught:
        query.awaitTermination(60)
    assert f"`{name}` is for batch reads" in str(tailrace.cause(caught.value))


def test_shares_are_about_equal_and_hold_every_chunk_once() -> None:
    ref = TableRef("main", "t")
    chunks = [Chunk(ref, index, {}, rows) for index, rows in enumerate([100, 1, 1, 50, 50, 0, 100, 98])]
    made = shares(chunks, 3)
    assert sorted(chunk.index for share in made for chunk in share) == list(range(8))
    sizes = [sum(chunk.rows for chunk in share) for share in made]
    assert max(sizes) - min(sizes) <= 50
    assert shares(chunks[:2], 5) == [(chunks[0],), (chunks[1],)]
    assert shares(chunks, 1) == [tuple(chunks)]


def test_one_task_reads_a_table_in_one_look_also_where_its_key_may_be_null(tmp_path: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "t.db")) as source:
        source.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (k TEXT PRIMARY KEY, n INTEGER)")
        source.executescript("INSERT INTO t VALUES ('a', 1), (NULL, 2), (NULL, 3)")
    options = SourceOptions.parse({"url": f"sqlite:{tmp_path / 't.db'}", "tables": "t"})
    reader = SnapshotReader(options)
    (part,) = reader.partitions()
    assert len(part.chunks) == 1
    assert sum(batch.num_rows for batch in reader.read(part)) == 3
