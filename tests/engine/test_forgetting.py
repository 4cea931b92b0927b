"""What a query that has ended leaves behind in this process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace import app
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _called() -> int:
    """Threads by which the JVM calls this process."""
    return sum("ClientServerConnection" in str(getattr(t, "_target", "")) for t in threading.enumerate())


def test_queries_that_have_ended_leave_no_connection_and_the_next_one_works(
    spark: SparkSession, tmp_path: Path
) -> None:
    app.forget_queries(spark)
    wait_until(lambda: _called() == 0)
    for number in range(3):
        seen: list[int] = []

        def note(_frame: DataFrame, batch: int, seen: list[int] = seen) -> None:
            seen.append(batch)

        stream = spark.readStream.format("rate").load().writeStream.foreachBatch(note)
        query = stream.option("checkpointLocation", str(tmp_path / str(number))).start()
        wait_until(seen.copy)
        # The JVM's finalizer calls by one of its own for a moment, when it clears away a function of old.
        wait_until(lambda: _called() == 1)
        query.stop()
        app.forget_queries(spark)
        wait_until(lambda: _called() == 0)
