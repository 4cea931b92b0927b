"""What a query that has ended leaves behind, in this process and in Spark's JVM."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.spark.forgetting import forget_queries
from tests.support.shop import Shop
from tests.support.sparks import Query
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
    forget_queries(spark)
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
        forget_queries(spark)
        wait_until(lambda: _called() == 0)


def _monitors(spark: SparkSession) -> list[Any]:
    """Threads of the JVM that look for idle workers."""
    threads = spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return [one for one in threads if one.getName().startswith("Idle Worker Monitor")]


def test_of_queries_that_have_ended_the_jvm_keeps_neither_a_thread_nor_a_session(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # given queries that have ended
    jvm = spark.sparkContext._jvm
    forget_queries(spark)
    sessions: dict[int, Any] = {}

    def note(frame: DataFrame, _number: int) -> None:
        sessions[number] = jvm.java.lang.ref.WeakReference(frame._jdf.sparkSession())

    for number in range(6):
        shop.insert(number, number + 1)
        stream = Query(spark, tmp_path / str(number), shop.url).load().writeStream.foreachBatch(note)
        stream = stream.option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
        stream.trigger(availableNow=True).start().awaitTermination()
    before = len(_monitors(spark))
    assert len(sessions) == 6
    # when they are forgotten
    forget_queries(spark)
    # then nothing holds what Spark made for each of them
    wait_until(lambda: len(_monitors(spark)) <= before - 6)

    def collected() -> bool:
        jvm.System.gc()
        # Threads that Spark begins once hold the session of that moment, and pyspark holds the newest.
        return sum(not session.refersTo(None) for session in sessions.values()) <= 2

    wait_until(collected)
    # and who looks for idle workers of tasks goes on, and nobody reads of an exception that is none
    assert _monitors(spark)
    settings = jvm.System.getProperty("log4j2.configurationFile").removeprefix("file://")
    assert "Idle Worker Monitor" not in Path(settings).with_name("spark.log").read_text()
