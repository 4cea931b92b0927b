"""SQLite → Spark: throughput, snapshot speed, latency and memory, in one run on one machine.

Every bar is a ratio against something measured beside it, so that a slow or busy machine changes both sides.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console

import tailrace
from bench.empty import empty_batches
from bench.measure import Figure, PeakMemory, at_least, at_most, p50, p90, stopwatch
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES = 500_000
SNAPSHOT_ROWS = 1_000_000
BIG_TRANSACTION = 2_000_000
LATENCIES = 80
COLUMNS = (
    "id INTEGER PRIMARY KEY, customer INTEGER, price REAL, paid INTEGER,"
    " city TEXT, street TEXT, note TEXT, at TEXT"
)


def run(console: Console) -> list[Figure]:
    """All of it, on one Spark session."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        with console.status("starting Spark"):
            spark = open_session("bench", log=home / "spark.log")
            tailrace.register(spark)
        try:
            figures: list[Figure] = []
            for title, measure in (
                ("latency", latency),
                ("changes", changes),
                ("snapshot", snapshot),
                ("a transaction of 2 million rows", big_transaction),
            ):
                with console.status(title):
                    figures += measure(spark, home)
            return figures
        finally:
            spark.stop()


def changes(spark: SparkSession, home: Path) -> list[Figure]:
    """From the log table to a no-op sink and to Delta."""
    path = new_database(home, "changes")
    # Both begin before the changes: what is measured is the way of changes, not of a snapshot.
    first = stream(spark, path, home / "noop", startingOffsets="latest").writeStream.format("noop")
    first.option("checkpointLocation", str(home / "noop-check")).trigger(
        availableNow=True
    ).start().awaitTermination()
    to_delta(spark, path, home)
    fill(path, CHANGES, 10)
    with stopwatch() as noop:
        query = stream(spark, path, home / "noop").writeStream.format("noop")
        query.option("checkpointLocation", str(home / "noop-check")).trigger(
            availableNow=True
        ).start().awaitTermination()
    delta = to_delta(spark, path, home)
    return [
        Figure("changes, log table → Spark no-op (envelope)", CHANGES / noop[0], "/s"),
        Figure("changes, log table → Delta mirror", CHANGES / delta, "/s"),
    ]


def to_delta(spark: SparkSession, path: Path, home: Path) -> float:
    """Seconds to bring the same changes into a Delta table by the engine."""
    from tailrace.engine.pipeline import Pipeline
    from tailrace.engine.spec import Mirror, PipelineSpec
    from tailrace.model.table import TableRef
    from tailrace.sinks.delta.config import DeltaConfig
    from tailrace.sinks.delta.sink import DeltaSink

    options = {"url": f"sqlite:{path}", "tables": "orders", "stateDir": str(home / "delta"), "view": "packed"}
    mirror = Mirror(TableRef("main", "orders"), "orders", DeltaSink(DeltaConfig(str(home / "lake"))))
    spec = PipelineSpec("bench", options, str(home / "delta-check"), (mirror,))
    with stopwatch() as seconds:
        Pipeline(spec, spark, release=lambda _: None).run(once=True)
    return seconds[0]


def snapshot(spark: SparkSession, home: Path) -> list[Figure]:
    """A table's rows into Spark, against plain sqlite3 fetch and pyarrow in this process."""
    path = new_database(home, "snapshot")
    fill(path, SNAPSHOT_ROWS, SNAPSHOT_ROWS)
    plain = min(plain_fetch(path) for _ in range(2))
    batch = min(batch_read(spark, path, parts) for parts in (2, 2))
    single = batch_read(spark, path, 1)
    with stopwatch() as inside:
        query = stream(spark, path, home / "snap").writeStream.format("noop")
        query.option("checkpointLocation", str(home / "snap-check")).trigger(
            availableNow=True
        ).start().awaitTermination()
    return [
        Figure("snapshot, plain sqlite3 + pyarrow", SNAPSHOT_ROWS / plain, "/s"),
        Figure("snapshot, batch read, 1 partition", SNAPSHOT_ROWS / single, "/s"),
        Figure("snapshot, batch read, 2 partitions", SNAPSHOT_ROWS / batch, "/s"),
        Figure("snapshot inside a stream (envelope)", SNAPSHOT_ROWS / inside[0], "/s"),
        at_least("batch read against plain", plain / batch, 0.7),
    ]


def batch_read(spark: SparkSession, path: Path, parts: int) -> float:
    """Seconds for spark.read of the whole table into a no-op sink."""
    reader = spark.read.format("tailrace").option("url", f"sqlite:{path}").option("tables", "orders")
    with stopwatch() as seconds:
        reader.option("numPartitions", parts).load().write.format("noop").mode("overwrite").save()
    return seconds[0]


def plain_fetch(path: Path) -> float:
    """Seconds for the simplest loop that makes Arrow batches of the table."""
    types = [
        pa.int64(),
        pa.int64(),
        pa.float64(),
        pa.int64(),
        pa.string(),
        pa.string(),
        pa.string(),
        pa.string(),
    ]
    connection = sqlite3.connect(path)
    with stopwatch() as seconds:
        cursor = connection.execute("SELECT * FROM orders")
        while rows := cursor.fetchmany(20_000):
            pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)],
                names=[str(index) for index in range(8)],
            )
    connection.close()
    return seconds[0]


def latency(spark: SparkSession, home: Path) -> list[Figure]:
    """From a commit to rows in foreachBatch on an idle pipeline, against an empty micro-batch beside it."""
    path = new_database(home, "latency")
    arrived: dict[int, float] = {}
    news = threading.Condition()

    def sink(frame: DataFrame, _: int) -> None:
        for key in frame.select("id").toArrow()["id"].to_pylist():
            with news:
                arrived[key] = time.perf_counter()
                news.notify_all()

    frame = stream(spark, path, home / "idle", view="table")
    query = (
        frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(home / "idle-check")).start()
    )
    connection = sqlite3.connect(path)
    waits: list[float] = []
    try:
        for key in range(LATENCIES):
            time.sleep(random.uniform(0.05, 0.15))
            insert(connection, [key])
            begun = time.perf_counter()
            with news:
                if not news.wait_for(lambda key=key: key in arrived, 60):
                    raise RuntimeError("a commit did not arrive within a minute")
            waits.append(arrived[key] - begun)
    finally:
        query.stop()
        connection.close()
    waits = waits[LATENCIES // 4 :]
    empty = empty_batches(spark, home, 2 * LATENCIES)
    return [
        Figure("empty micro-batch, p50", p50(empty) * 1000, "ms"),
        Figure("commit → foreachBatch, p50", p50(waits) * 1000, "ms"),
        Figure("commit → foreachBatch, p90", p90(waits) * 1000, "ms"),
        at_most("latency p50 against an empty micro-batch", p50(waits) / p50(empty), 2.5),
    ]


def big_transaction(spark: SparkSession, home: Path) -> list[Figure]:
    """One transaction of 2 million rows, and what the capture process takes for it."""
    path = new_database(home, "big")
    check = str(home / "big-check")
    state = home / "big-state"
    first = stream(spark, path, state, startingOffsets="latest").writeStream.format("noop")
    first.option("checkpointLocation", check).trigger(availableNow=True).start().awaitTermination()
    fill(path, BIG_TRANSACTION, BIG_TRANSACTION)
    with PeakMemory("python_streaming_source_runner") as memory, stopwatch() as seconds:
        query = stream(spark, path, state).writeStream.format("noop")
        query.option("checkpointLocation", check).trigger(availableNow=True).start().awaitTermination()
    return [
        Figure("one transaction of 2 million rows → no-op", BIG_TRANSACTION / seconds[0], "/s"),
        at_most("peak memory of the capture process", memory.peak / 1e6, 600, "MB"),
    ]


def stream(spark: SparkSession, path: Path, state: Path, **options: str) -> DataFrame:
    """A stream of the benchmark's table."""
    reader = spark.readStream.format("tailrace").option("url", f"sqlite:{path}").option("tables", "orders")
    return reader.option("stateDir", str(state)).options(**options).load()


def new_database(home: Path, name: str) -> Path:
    """An empty table in WAL mode."""
    path = home / f"{name}.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"CREATE TABLE orders ({COLUMNS})")
    connection.close()
    return path


def fill(path: Path, rows: int, per_transaction: int) -> None:
    """Insert rows with ids from 0."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    for first in range(0, rows, per_transaction):
        insert(connection, range(first, min(first + per_transaction, rows)))
    connection.close()


def insert(connection: sqlite3.Connection, ids: Any) -> None:
    """One transaction of rows."""
    with connection:
        connection.executemany(
            "INSERT INTO orders VALUES (?,?,?,?,?,?,?,?)",
            (
                (
                    i,
                    i % 997,
                    i * 0.37,
                    i % 2,
                    f"city {i % 31}",
                    f"street {i % 1009}",
                    "a short note",
                    "2026-01-01T10:00:00",
                )
                for i in ids
            ),
        )
