"""SQLite → Spark: throughput, snapshot speed, latency and memory, in one run on one machine.

Every bar is a ratio against something measured beside it, so that a slow or busy machine changes both sides.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console

import tailrace
from bench.empty import empty_batches
from bench.measure import Figure, Outcome, PeakMemory, at_least, at_most, p50, p90, stopwatch
from bench.postgres_spark import PATIENT
from bench.usage import Sampler, Watch
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES, SNAPSHOT_ROWS, BIG_TRANSACTION, LATENCIES, ROUNDS = 500_000, 1_000_000, 2_000_000, 80, 5
QUICK = 20
COLUMNS = (
    "id INTEGER PRIMARY KEY, customer INTEGER, price REAL, paid INTEGER,"
    " city TEXT, street TEXT, note TEXT, at TEXT"
)


class Run:
    """One session of Spark's for everything, and what was measured by it."""

    def __init__(self, spark: SparkSession, home: Path, options: argparse.Namespace) -> None:
        self._spark, self._home, self._options = spark, home, options
        self.details: list[dict[str, Any]] = []

    def changes(self) -> list[Figure]:
        """From the log table to a no-op sink and to Delta."""
        rows = self._options.changes
        path = new_database(self._home, "changes")
        # Both begin before the changes: what is measured is the way of changes, not of a snapshot.
        self._drain(path, "noop", startingOffsets="latest")
        self._to_delta(path)
        fill(path, rows, 10)
        noop = self._watched("changes → no-op", rows, lambda: self._drain(path, "noop"))
        delta = self._watched("changes → Delta mirror", rows, lambda: self._to_delta(path))
        return [
            Figure("changes, log table → Spark no-op (envelope)", rows / noop, "/s"),
            Figure("changes, log table → Delta mirror", rows / delta, "/s"),
            Figure("changes, Delta mirror against no-op", noop / delta, "×"),
        ]

    def snapshot(self) -> list[Figure]:
        """A table's rows into Spark, against plain sqlite3 fetch and pyarrow in this process."""
        rows = self._options.rows
        path = new_database(self._home, "snapshot")
        fill(path, rows, rows)
        plain_fetch(path)
        self._batch(path, 2)
        rounds = [self._snapshot_round(path, rows, turn) for turn in range(self._options.rounds)]
        plain, batch, single, inside = (p50(list(same)) for same in zip(*rounds, strict=True))
        return [
            Figure("snapshot, plain sqlite3 + pyarrow", rows / plain, "/s"),
            Figure("snapshot, batch read, 1 partition", rows / single, "/s"),
            Figure("snapshot, batch read, 2 partitions", rows / batch, "/s"),
            Figure("snapshot inside a stream (envelope)", rows / inside, "/s"),
            at_least("batch read against plain", p50([one[0] / one[1] for one in rounds]), 0.7),
            Figure("snapshot inside a stream against plain", p50([one[0] / one[3] for one in rounds]), "×"),
        ]

    def _snapshot_round(self, path: Path, rows: int, turn: int) -> tuple[float, float, float, float]:
        """Seconds of each way, one after the other: a machine is slower now and then, for all of a round."""
        return (
            self._watched("rows, plain sqlite3 and pyarrow", rows, lambda: plain_fetch(path)),
            self._watched("rows, batch read, 2 partitions", rows, lambda: self._batch(path, 2)),
            self._watched("rows, batch read, 1 partition", rows, lambda: self._batch(path, 1)),
            self._watched("rows, at the start of a stream", rows, lambda: self._drain(path, f"snap{turn}")),
        )

    def latency(self) -> list[Figure]:
        """From a commit to rows in foreachBatch on an idle pipeline, and an empty micro-batch beside it."""
        path = new_database(self._home, "latency")
        arrived: dict[int, float] = {}
        news = threading.Condition()

        def sink(frame: DataFrame, _: int) -> None:
            for key in frame.select("id").toArrow()["id"].to_pylist():
                with news:
                    arrived[key] = time.perf_counter()
                    news.notify_all()

        count = self._options.latencies
        frame = stream(self._spark, path, self._home / "idle", view="table")
        query = frame.writeStream.foreachBatch(sink)
        running = query.option("checkpointLocation", str(self._home / "idle-check")).start()
        connection = sqlite3.connect(path)
        waits: list[float] = []
        try:
            for key in range(count):
                time.sleep(random.uniform(0.05, 0.15))
                insert(connection, [key])
                begun = time.perf_counter()
                with news:
                    if not news.wait_for(lambda key=key: key in arrived, 60):
                        raise RuntimeError("a commit did not arrive within a minute")
                waits.append(arrived[key] - begun)
        finally:
            running.stop()
            connection.close()
        waits = waits[count // 4 :]
        empty = empty_batches(self._spark, self._home, 2 * count)
        self.details += [
            {"what": "commit → foreachBatch", "waits": waits},
            {"what": "empty micro-batch", "waits": empty},
        ]
        return [
            Figure("empty micro-batch, p50", p50(empty) * 1000, "ms"),
            Figure("commit → foreachBatch, p50", p50(waits) * 1000, "ms"),
            Figure("commit → foreachBatch, p90", p90(waits) * 1000, "ms"),
            at_most("latency p50 against an empty micro-batch", p50(waits) / p50(empty), 2.5),
        ]

    def big_transaction(self) -> list[Figure]:
        """One large transaction, and what the capture process takes for it."""
        rows = self._options.big
        path = new_database(self._home, "big")
        self._drain(path, "big", startingOffsets="latest")
        fill(path, rows, rows)
        with PeakMemory("python_streaming_source_runner") as memory:
            seconds = self._watched("one large transaction → no-op", rows, lambda: self._drain(path, "big"))
        return [
            Figure(f"one transaction of {rows:,} rows → no-op", rows / seconds, "/s"),
            at_most("peak memory of the capture process", memory.peak / 1e6, 600, "MB"),
        ]

    def _watched(self, what: str, rows: int, act: Callable[[], float]) -> float:
        """Its seconds; CPU and memory are those of this process and all below it, Spark's too."""
        whole = Watch(os.getpid())
        with Sampler(whole):
            seconds = act()
        self.details.append(
            {
                "what": what,
                "rows": rows,
                "seconds": seconds,
                "cpu_seconds": whole.cpu,
                "tree_peak_mb": whole.peak_sum / 1e6,
            }
        )
        return seconds

    def _drain(self, path: Path, name: str, **options: str) -> float:
        """Seconds of a query that takes everything there is into the no-op sink."""
        with stopwatch() as seconds:
            query = stream(self._spark, path, self._home / name, **options).writeStream.format("noop")
            query.option("checkpointLocation", str(self._home / f"{name}-check")).trigger(
                availableNow=True
            ).start().awaitTermination()
        return seconds[0]

    def _batch(self, path: Path, parts: int) -> float:
        """Seconds for spark.read of the whole table into a no-op sink."""
        reader = self._spark.read.format("tailrace").option("url", f"sqlite:{path}")
        with stopwatch() as seconds:
            frame = reader.option("tables", "orders").option("numPartitions", parts).load()
            frame.write.format("noop").mode("overwrite").save()
        return seconds[0]

    def _to_delta(self, path: Path) -> float:
        """Seconds to bring the same changes into a Delta table by the engine."""
        from tailrace.engine.pipeline import Pipeline
        from tailrace.engine.spec import Mirror, PipelineSpec
        from tailrace.model.table import TableRef
        from tailrace.sinks.delta.config import DeltaConfig
        from tailrace.sinks.delta.sink import DeltaSink

        home = self._home
        options = {"url": f"sqlite:{path}", "tables": "orders", "stateDir": str(home / "delta")}
        mirror = Mirror(TableRef("main", "orders"), "orders", DeltaSink(DeltaConfig(str(home / "lake"))))
        spec = PipelineSpec("bench", options | {"view": "packed"}, str(home / "delta-check"), (mirror,))
        with stopwatch() as seconds:
            Pipeline(spec, self._spark, release=lambda _: None).run(once=True)
        return seconds[0]


def run(console: Console, arguments: list[str]) -> Outcome:
    """All of it, on one Spark session."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        with console.status("starting Spark"):
            spark = open_session("bench", settings=PATIENT, log=home / "spark.log")
            tailrace.register(spark)
        made = Run(spark, home, options)
        figures: list[Figure] = []
        try:
            for title, measure in (
                ("latency", made.latency),
                ("changes", made.changes),
                ("snapshot", made.snapshot),
                ("one large transaction", made.big_transaction),
            ):
                with console.status(title):
                    figures += measure()
        finally:
            spark.stop()
    return Outcome(figures, made.details, bars=not options.no_bars)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="sqlite …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes ({CHANGES})")
    parser.add_argument("--rows", type=int, default=SNAPSHOT_ROWS, help=f"rows of a table ({SNAPSHOT_ROWS})")
    parser.add_argument("--big", type=int, default=BIG_TRANSACTION, help=f"rows at once ({BIG_TRANSACTION})")
    parser.add_argument("--latencies", type=int, default=LATENCIES, help=f"commits to wait for ({LATENCIES})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often a table is read ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=f"only one row of {QUICK}, one round")
    parser.add_argument("--no-bars", action="store_true", help="end with 0 also when a bar was missed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.changes, options.rows, options.big = CHANGES // QUICK, SNAPSHOT_ROWS // QUICK, 100_000
        options.latencies, options.rounds = LATENCIES // 4, 1
    if min(options.changes, options.rows, options.big, options.rounds) < 1 or options.latencies < 8:
        parser.error("numbers must be at least 1, --latencies 8")
    return options


def plain_fetch(path: Path) -> float:
    """Seconds for the simplest loop that makes Arrow batches of the table."""
    whole, real, text = pa.int64(), pa.float64(), pa.string()
    types = [whole, whole, real, whole, text, text, text, text]
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
