"""`spark.readStream.format("tailrace")` on a real session and a real file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tests.support.replay import replay
from tests.support.shop import Shop
from tests.support.sparks import Query
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

pytestmark = pytest.mark.spark


def expected(shop: Shop) -> dict[str, dict[str, object]]:
    return {f'{{"id":{i}}}': {"id": i, "city": city, "price": price} for i, city, price in shop.rows()}


def test_a_snapshot_then_changes_replay_to_the_table(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    shop.insert(0, 500)
    query = Query(spark, tmp_path, shop.url, chunkRows="200")

    first = query.once()
    assert [row["op"] for row in first].count("s") == 1
    assert [row["op"] for row in first].count("r") == 500
    assert replay(query.rows) == expected(shop)

    shop.run("UPDATE orders SET city = 'Bergen' WHERE id < 100", "DELETE FROM orders WHERE id >= 450")
    shop.run("UPDATE orders SET id = id + 1000 WHERE id = 7")
    second = query.once()
    assert sorted(row["op"] for row in second) == sorted(["u"] * 101 + ["d"] * 50)
    assert replay(query.rows) == expected(shop)

    assert query.once() == [], "a clean restart repeats nothing"


def _lag(progress: StreamingQueryProgress) -> dict[str, Any]:
    found: dict[str, Any] | None = json.loads(progress.json)["sources"][0]["latestOffset"]["lag"]
    return found or {"changes": None}


def test_changes_arrive_while_the_query_runs_and_idle_acknowledges(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, shop.url, startingOffsets="latest", consumer="mine")
    running = query.start()
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    try:
        wait_until(lambda: running.lastProgress is not None)
        shop.insert(0, 3)
        wait_until(lambda: len(query.rows) == 3)
        head = capture.head().version
        assert head > 0
        # No further batch comes, so Spark calls no commit: the acknowledgement is from the next poll.
        wait_until(lambda: capture.consumers()[0].acknowledged == head)
        # The last progress may still be that of the batch; an idle query tells again every ten seconds.
        wait_until(lambda: (p := running.lastProgress) is not None and _lag(p)["changes"] == 0)
    finally:
        query.stop()
        capture.close()


def test_limits_cut_batches_between_transactions_and_never_inside(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, shop.url, startingOffsets="latest", maxRowsPerTrigger="10")
    running = query.start()
    try:
        wait_until(lambda: running.lastProgress is not None)
        for first in range(0, 70, 7):
            shop.insert(first, first + 7)
        # One look may see several transactions as one group.
        wait_until(lambda: len(query.rows) == 70)
        shop.insert(100, 150)
        wait_until(lambda: len(query.rows) == 120)
    finally:
        query.stop()
    sizes = [len(rows) for rows in query.batches.values() if rows]
    assert all(size % 7 == 0 or size == 50 for size in sizes), sizes
    by_position: dict[int, set[int]] = {}
    for number, rows in query.batches.items():
        for row in rows:
            by_position.setdefault(row["position"], set()).add(number)
    assert all(len(numbers) == 1 for numbers in by_position.values())


def test_the_typed_view_has_spark_types_and_change_types(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, shop.url, view="table", startingOffsets="latest")
    query.once()
    shop.insert(1, 2)
    shop.run("UPDATE orders SET price = 9.5 WHERE id = 1")
    shop.run("DELETE FROM orders WHERE id = 1")
    rows = query.once()
    assert [(row["_change_type"], row["id"], row["price"]) for row in rows] == [
        ("insert", 1, 0.5),
        ("update_preimage", 1, 0.5),
        ("update_postimage", 1, 9.5),
        ("delete", 1, 9.5),
    ]
    types = {field.name: field.dataType.simpleString() for field in query.load().schema}
    assert types["id"] == "bigint"
    assert types["price"] == "double"
    assert types["_commit_timestamp"] == "timestamp"


def test_the_net_view_has_one_row_a_key(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    shop.insert(0, 10)
    query = Query(spark, tmp_path, shop.url, view="net")
    first = query.once()
    assert sorted(row["id"] for row in first if row["_change_type"] == "upsert") == list(range(10))
    shop.run(
        "UPDATE orders SET city = 'A'", "UPDATE orders SET city = 'B'", "DELETE FROM orders WHERE id = 3"
    )
    shop.run("UPDATE orders SET id = 77 WHERE id = 4")
    second = query.once()
    assert sorted((row["id"], row["_change_type"], row["city"]) for row in second) == sorted(
        [(i, "upsert", "B") for i in (0, 1, 2, 5, 6, 7, 8, 9, 77)]
        + [(3, "delete", None), (4, "delete", None)]
    )


def test_a_json_offset_starts_where_it_says(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    first = Query(spark, tmp_path / "a", shop.url, startingOffsets="latest")
    first.once()
    shop.insert(0, 5)
    offset = json.loads((tmp_path / "a/state/initial.json").read_text())
    body = offset.get("body", offset)["offset"]
    second = Query(spark, tmp_path / "b", shop.url, startingOffsets=json.dumps(body))
    assert [json.loads(row["key"])["id"] for row in second.once()] == [0, 1, 2, 3, 4]


def test_a_table_added_later_gets_its_snapshot_then(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    shop.run("CREATE TABLE tags (name TEXT PRIMARY KEY)", "INSERT INTO tags VALUES ('a'), ('b')")
    shop.insert(0, 3)
    query = Query(spark, tmp_path, shop.url)
    assert {row["table"] for row in query.once()} == {"orders"}
    rows = query.once(tables="orders,tags")
    assert [(row["table"], row["op"]) for row in sorted(rows, key=lambda row: row["seq"])] == [
        ("tags", "s"),
        ("tags", "r"),
        ("tags", "r"),
    ]


def test_several_tables_of_one_transaction_come_together_and_in_order(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.run("CREATE TABLE tags (name TEXT PRIMARY KEY)")
    query = Query(spark, tmp_path, shop.url, tables="*", startingOffsets="latest")
    query.once()
    shop.run(
        "INSERT INTO orders VALUES (1, 'x', 1)",
        "INSERT INTO tags VALUES ('t')",
        "UPDATE orders SET city = 'y'",
        "DELETE FROM tags",
    )
    rows = query.once()
    assert [(row["table"], row["op"]) for row in rows] == [
        ("orders", "c"),
        ("tags", "c"),
        ("orders", "u"),
        ("tags", "d"),
    ]
    assert len({row["position"] for row in rows}) == 1


def test_the_source_is_discovered_without_registering() -> None:
    import pyspark_tailrace

    assert pyspark_tailrace.DefaultSource.name() == "tailrace"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tables": "ordres"}, "ordres"),
        ({"url": "sqlite:/nowhere/at/all.db"}, "all.db"),
        ({"view": "sideways"}, "view"),
        ({"tabels": "x"}, "tabels"),
    ],
)
def test_bad_options_are_our_errors_at_load(
    spark: SparkSession, shop: Shop, tmp_path: Path, options: dict[str, str], named: str
) -> None:
    query = Query(spark, tmp_path, shop.url)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark makes of it
        query.load(**{"view": "table", **options})
    error = tailrace.cause(caught.value)
    assert isinstance(error, tailrace.ConfigError)
    assert named in str(error)
    assert not query.state.exists()


def test_an_error_while_the_query_runs_is_ours_with_the_remedy(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, shop.url)
    running = query.start()
    try:
        wait_until(lambda: query.calls)
        shop.run("ALTER TABLE orders ADD COLUMN note TEXT")
        with pytest.raises(Exception) as caught:  # noqa: PT011
            running.awaitTermination(60)
    finally:
        query.stop()
    error = tailrace.cause(caught.value)
    assert isinstance(error, tailrace.SchemaDrift)
    assert "orders" in error.message
    assert error.remedy is not None
    assert "tailrace setup" in error.remedy


def test_after_setup_a_drifted_table_is_snapshotted_afresh(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.insert(0, 3)
    query = Query(spark, tmp_path, shop.url)
    query.once()
    shop.run("ALTER TABLE orders ADD COLUMN note TEXT DEFAULT 'n'")
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.setup(capture.resolve(["orders"]))
    capture.close()
    rows = query.once()
    assert [row["op"] for row in sorted(rows, key=lambda row: row["seq"])] == ["s", "r", "r", "r"]
    assert all(json.loads(row["after"])["note"] == "n" for row in rows if row["op"] == "r")


def test_changes_made_before_a_new_column_come_first_and_say_that_it_is_absent(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, shop.url, view="table")
    query.once()
    shop.insert(0, 2)
    shop.run("ALTER TABLE orders ADD COLUMN note TEXT")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        query.once()
    assert isinstance(tailrace.cause(caught.value), tailrace.SchemaDrift)
    # The error came after the changes: they were delivered.
    assert [(row["_change_type"], row["id"]) for row in query.rows[1:]] == [("insert", 0), ("insert", 1)]

    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.setup(capture.resolve(["orders"]))
    capture.close()
    rows = query.once()
    assert [(row["_change_type"], row["id"], row["note"], row["_absent"]) for row in rows] == [
        ("snapshot", None, None, None),
        ("insert", 0, None, None),
        ("insert", 1, None, None),
    ]


def test_a_lost_log_stops_and_failondataloss_false_takes_a_snapshot(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.insert(0, 3)
    query = Query(spark, tmp_path, shop.url, consumer="mine")
    query.once()
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.forget("mine")
    shop.insert(3, 5)
    capture.close()
    with pytest.raises(Exception) as caught:  # noqa: PT011
        query.once()
    assert isinstance(tailrace.cause(caught.value), tailrace.LogLost)
    rows = query.once(failOnDataLoss="false")
    assert [row["op"] for row in sorted(rows, key=lambda row: row["seq"])] == ["s"] + ["r"] * 5
    assert replay(rows) == expected(shop)


def test_after_a_gap_every_table_is_snapshotted_afresh_however_small_the_batches(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.run("CREATE TABLE tags (name TEXT PRIMARY KEY)", "INSERT INTO tags VALUES ('a')")
    shop.insert(0, 3)
    query = Query(
        spark, tmp_path, shop.url, tables="*", consumer="mine", maxRowsPerTrigger="1", numPartitions="1"
    )
    query.once()
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.forget("mine")
    capture.close()
    shop.run("INSERT INTO tags VALUES ('b')", "DELETE FROM orders")
    rows = query.once(failOnDataLoss="false")
    assert sorted((row["table"], row["op"]) for row in rows) == [
        ("orders", "s"),
        ("tags", "r"),
        ("tags", "r"),
        ("tags", "s"),
    ]


def test_a_batch_read_gives_the_rows_as_they_are(spark: SparkSession, shop: Shop) -> None:
    shop.insert(0, 1000)
    for parts in ("1", "3"):
        reader = spark.read.format("tailrace").option("url", shop.url).option("tables", "orders")
        frame = reader.option("numPartitions", parts).option("chunkRows", "100").load()
        assert sorted(tuple(row) for row in frame.collect()) == shop.rows()
