"""The driver's side of a stream of PostgreSQL, without a session: replays, gaps, passing faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.model.errors import LogLost
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
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items, others WITH (publish_via_partition_root)")
    database.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    return database


def test_a_replayed_batch_that_ended_at_no_transaction_takes_in_no_later_one(
    shop: Database, tmp_path: Path
) -> None:
    query = Query(shop, tmp_path)
    query.until("items", "r", "1")
    query.until("others", "r", "1")
    start = query.offset
    shop.sql("CREATE TABLE unwatched (id int)", "INSERT INTO unwatched VALUES (1)")
    end = Offset(open_capture(query.options).head(), start.snapshots)
    query.driver.close()
    for segment in (tmp_path / "changelog").glob("*.seg"):
        segment.unlink()
    shop.sql("INSERT INTO items VALUES (2)")

    again = Query(shop, tmp_path, start)
    assert again.read(end) == []
    again.until("items", "c", "2")
    assert again.rows == [("items", "c", '{"id":2}')]
    again.driver.close()


def test_a_query_whose_slot_was_dropped_delivers_what_it_has_and_leaves_no_new_slot(
    shop: Database, tmp_path: Path
) -> None:
    query = Query(shop, tmp_path)
    query.until("items", "r", "1")
    query.until("others", "r", "1")
    shop.sql("INSERT INTO items VALUES (2)")
    head = open_capture(query.options).head().version
    wait_until(lambda: query.driver._log().end >= head)
    query.driver.close()
    with shop.admin() as admin:
        admin.execute("SELECT pg_drop_replication_slot(%s)", shop.slots())

    again = Query(shop, tmp_path, query.offset)
    again.until("items", "c", "2")
    with pytest.raises(LogLost, match="there is no replication slot"):
        wait_until(again.batch, timeout=30)
    again.driver.close()
    assert shop.slots() == []
