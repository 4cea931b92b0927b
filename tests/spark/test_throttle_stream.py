"""The throttle in a real session: a bounded run is not ended by it, and progress says what waits."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.shop import Shop
from tests.support.sparks import Query
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_bounded_run_waits_for_its_budget_and_ends_with_the_whole_snapshot(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.insert(0, 3_000)
    query = Query(spark, tmp_path, shop.url, chunkRows="500", snapshotRowsPerSecond="1000")
    began = time.monotonic()
    rows = query.once()
    assert sorted(json.loads(row["after"])["id"] for row in rows if row["op"] == "r") == list(range(3_000))
    assert time.monotonic() - began >= 3_000 / 1_000
    assert len(query.batches) >= 2
    assert query.once() == []


def test_progress_says_what_a_snapshot_waits_for_while_changes_flow(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.insert(0, 1_000)
    # The first chunk has to wait for a quarter of an hour.
    query = Query(spark, tmp_path, shop.url, chunkRows="3000", snapshotRowsPerSecond="1")
    running = query.start()
    try:
        # From then on what is written is a change to the query.
        wait_until((tmp_path / "state" / "throttle.json").exists)
        shop.insert(1_000, 1_003)
        wait_until(lambda: [row["op"] for row in query.rows] == ["c"] * 3)

        def waits() -> str | None:
            progress = running.lastProgress
            if progress is None:
                return None
            source = json.loads(progress["sources"][0]["latestOffset"])
            return source["snapshot_waits"] and str(source["snapshot_waits"]["reason"])

        assert wait_until(waits) == "the ceiling is 1 rows a second"
    finally:
        query.stop()
