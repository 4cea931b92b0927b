"""A table that stands still while its query goes on, seen from the driver, without a session."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tailrace.engine.status import _timed
from tailrace.model.errors import ConfigError
from tailrace.spark.offsets import Offset
from tailrace.spark.source import open_capture
from tests.spark.querying import Query
from tests.support.postgres import PASSWORD, Database, database, postgres
from tests.support.waiting import wait_until

__all__ = ["database", "postgres"]


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database.sql("CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE others (id int PRIMARY KEY)")
    publish(database, "CREATE PUBLICATION tailrace FOR TABLE items, others WITH (publish_via_partition_root)")
    database.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    return database


def publish(source: Database, statement: str) -> None:
    with source.admin() as connection:
        connection.execute(statement.encode())


def cursor(offset: Offset) -> str:
    return offset.snapshots["public.items"].generation


def test_a_table_taken_out_stops_alone_and_is_read_again_after_the_remedy(
    shop: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(shop, tmp_path)
    query.until("items", "r", "1")
    query.until("others", "r", "1")
    publish(shop, "ALTER PUBLICATION tailrace DROP TABLE items")
    with caplog.at_level(logging.WARNING):
        query.until_stopped("public.items")
        wait_until(lambda: "public.items" in caplog.text)
    assert "tailrace setup" in caplog.text
    shop.sql("INSERT INTO items VALUES (2)", "INSERT INTO others VALUES (2)")
    query.until("others", "c", "2")

    query = query.restart(shop, tmp_path)
    shop.sql("INSERT INTO others VALUES (3)")
    query.until("others", "c", "3")
    query.until_stopped("public.items")
    assert {row[0] for row in query.rows} == {"others"}
    before = cursor(query.offset)

    publish(shop, "ALTER PUBLICATION tailrace ADD TABLE items")
    shop.sql("INSERT INTO items VALUES (4)", "INSERT INTO others VALUES (4)")
    query.until("others", "c", "4")
    assert query.stopped() == ["public.items"]
    query = query.restart(shop, tmp_path)
    for number in "124":
        query.until("items", "r", number)
    shop.sql("INSERT INTO items VALUES (5)")
    query.until("items", "c", "5")
    assert query.stopped() == []
    assert cursor(query.offset) != before
    query.driver.close()


@pytest.mark.long
def test_a_dropped_table_is_stopped_and_told_after_a_restart_too(shop: Database, tmp_path: Path) -> None:
    query = Query(shop, tmp_path)
    query.until("items", "r", "1")
    query.until("others", "r", "1")
    shop.sql("DROP TABLE items")
    query.until_stopped("public.items")
    query = query.restart(shop, tmp_path)
    shop.sql("INSERT INTO others VALUES (2)")
    query.until("others", "c", "2")
    query.until_stopped("public.items")
    query.driver.close()
    with pytest.raises(ConfigError, match="nothing"):
        query.restart(shop, tmp_path, tables="nothing,others")


def test_a_table_dropped_during_its_snapshot_stops_no_other(shop: Database, tmp_path: Path) -> None:
    query = Query(shop, tmp_path)
    end = query.driver.latest(query.offset, max_rows=None, max_bytes=None)
    assert set(end.snapshots) == {"public.items", "public.others"}
    shop.sql("DROP TABLE items")
    # The batch is logged already, and comes again after a restart.
    query = query.restart(shop, tmp_path)
    parts = query.driver.partitions(query.offset, end, single=False)
    assert {read.chunk.table.name for part in parts for read in part.chunks} == {"others"}
    query.offset = end
    shop.sql("INSERT INTO others VALUES (2)")
    query.until("others", "c", "2")
    assert query.stopped() == ["public.items"]
    query.driver.close()


@pytest.mark.long
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_where_loss_is_allowed_a_table_is_read_again_as_soon_as_it_can_be(
    shop: Database, tmp_path: Path, starting: str
) -> None:
    query = Query(shop, tmp_path, failOnDataLoss="false", startingOffsets=starting)
    shop.sql("INSERT INTO items VALUES (2)")
    query.until("items", "c" if starting == "latest" else "r", "2")
    publish(shop, "ALTER PUBLICATION tailrace DROP TABLE items")
    query.until_stopped("public.items")
    shop.sql("INSERT INTO items VALUES (3)")
    publish(shop, "ALTER PUBLICATION tailrace ADD TABLE items")
    query.until("items", "r", "3")
    query.until_stopped()
    shop.sql("INSERT INTO items VALUES (4)")
    query.until("items", "c", "4")
    query.driver.close()


@pytest.mark.long
def test_a_snapshot_that_is_asked_for_lets_a_published_table_go_on(shop: Database, tmp_path: Path) -> None:
    query = Query(shop, tmp_path, startingOffsets="latest")
    shop.sql("INSERT INTO items VALUES (2)")
    query.until("items", "c", "2")
    publish(shop, "ALTER PUBLICATION tailrace DROP TABLE items")
    query.until_stopped("public.items")
    shop.sql("INSERT INTO items VALUES (3)")
    publish(shop, "ALTER PUBLICATION tailrace ADD TABLE items")
    (ref,) = open_capture(query.options).resolve(["items"])
    query.driver._snapshots._plans.request(ref)
    query.until("items", "r", "3")
    query.until_stopped()
    query.driver.close()


@pytest.mark.long
def test_lag_has_bytes_and_seconds_here_and_for_another_process(shop: Database, tmp_path: Path) -> None:
    query = Query(shop, tmp_path, startingOffsets="latest")
    shop.sql("INSERT INTO items VALUES (2)")
    query.until("items", "c", "2")

    def settled() -> bool:
        query.batch()
        report = query.driver.report() or {}
        return report["lag"]["bytes"] == 0 or report["lag"]["seconds"] is not None

    wait_until(settled, timeout=30)
    saved = tmp_path / "changelog" / "filler.json"

    def remembered() -> bool:
        query.batch()
        return saved.exists() and "reached" in saved.read_text()

    wait_until(remembered, timeout=30)
    query.driver.close()
    shop.sql("INSERT INTO items VALUES (3)")
    capture = open_capture(query.options)
    seconds = []

    def grows() -> bool:
        lag = _timed(capture.lag(query.offset.position), str(tmp_path), query.offset.position.version)
        assert (lag.bytes or 0) > 0
        assert lag.seconds is not None
        seconds.append(lag.seconds)
        return seconds[-1] > seconds[0] > 0

    wait_until(grows)
    capture.close()


def test_a_table_that_was_renamed_for_a_while_is_read_again(shop: Database, tmp_path: Path) -> None:
    query = Query(shop, tmp_path)
    query.until("items", "r", "1")
    query.until("others", "r", "1")
    shop.sql("ALTER TABLE items RENAME TO things", "INSERT INTO things VALUES (2)")
    shop.sql("INSERT INTO others VALUES (2)")
    query.until("others", "c", "2")
    query.until_stopped("public.items")
    shop.sql("ALTER TABLE things RENAME TO items")
    # Published as it was all the time, but the log that was passed over has changes of it.
    query = query.restart(shop, tmp_path)
    query.until("items", "r", "2")
    shop.sql("INSERT INTO items VALUES (3)")
    query.until("items", "c", "3")
    query.driver.close()
