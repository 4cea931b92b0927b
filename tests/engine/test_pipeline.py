"""Pipelines on a real session: mirrors and feeds in step with a SQLite file, through stops and faults."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.engine.gate import Gate
from tailrace.engine.pipeline import Pipeline, RunResult
from tailrace.engine.progress import committed, is_committed
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import DataError, NeedsOperator, Transient
from tailrace.model.table import TableRef
from tailrace.runtime.observer import Recorder
from tailrace.sinks.contract import FeedSink, Progress, Report
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.spark.offsets import Offset
from tests.support.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ORDERS = TableRef("main", "orders")


class Collected(FeedSink):
    """A feed that keeps what it gets, and does first whatever a test wants."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, int | None]] = []
        self.calls = 0
        self.before: Callable[[], None] = lambda: None

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:  # noqa: ARG002
        self.calls += 1
        self.before()
        for batch in batches:
            rows = batch.data.to_pylist()
            self.ops += [(row["op"], (row["after"] or row["before"] or {}).get("id")) for row in rows]
        return Report(written=len(batches))

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Setting:
    """One pipeline's surroundings, and its runs."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.shop = Shop(directory)
        self.feed = Collected()
        self.observer = Recorder()
        self.released: list[Offset] = []
        self.pipeline: Pipeline | None = None

    def make(self, **changes: Any) -> Pipeline:
        """A pipeline over the same state."""
        options = {
            "url": self.shop.url,
            "tables": "orders",
            "stateDir": str(self.directory / "state"),
            "view": "packed",
            "consumer": "test",
            **changes.pop("options", {}),
        }
        settings: dict[str, Any] = {
            "mirrors": (Mirror(ORDERS, "orders", DeltaSink(DeltaConfig(str(self.directory / "lake")))),),
            "feeds": (Feed(frozenset({ORDERS}), self.feed),),
            "dead_letters": str(self.directory / "dead"),
            **changes,
        }
        spec = PipelineSpec("test", options, str(self.directory / "checkpoint"), **settings)
        self.pipeline = Pipeline(spec, self.spark, release=self.released.append, observer=self.observer)
        return self.pipeline

    def once(self, **changes: Any) -> RunResult:
        """Catch up."""
        return self.make(**changes).run(once=True)

    def mirrored(self) -> list[tuple[Any, ...]]:
        """The Delta table's rows."""
        table = DeltaTable(str(self.directory / "lake/orders")).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def setting(spark: SparkSession, tmp_path: Path) -> Setting:
    return Setting(spark, tmp_path)


def test_mirror_and_feed_stay_in_step_over_runs_and_a_clean_restart_repeats_nothing(setting: Setting) -> None:
    setting.shop.insert(0, 50)
    result = setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert [op for op, _ in setting.feed.ops] == ["s"] + ["r"] * 50
    assert result.rows == 50
    assert setting.released == [result.offset]

    setting.shop.run("UPDATE orders SET city = 'A' WHERE id < 10", "DELETE FROM orders WHERE id >= 40")
    setting.shop.run("UPDATE orders SET id = 900 WHERE id = 0")
    setting.feed.ops.clear()
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert sorted(op for op, _ in setting.feed.ops) == ["d"] * 10 + ["u"] * 11

    setting.feed.ops.clear()
    assert setting.once().batches == 0
    assert setting.feed.ops == []


def test_a_feed_without_snapshot_sees_changes_only(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    feeds = (Feed(frozenset({ORDERS}), setting.feed, snapshot=False),)
    setting.once(feeds=feeds)
    setting.shop.insert(5, 6)
    setting.once(feeds=feeds)
    assert setting.feed.ops == [("c", 5)]
    assert setting.mirrored() == setting.shop.rows()


def test_a_stop_does_not_wait_for_a_batch_that_comes_after_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a stop, and changes that make Spark begin another batch before it is told
    arrived, turned_away = threading.Event(), Gate.batch

    def batch(gate: Gate, number: int) -> Any:
        if gate.closed:
            arrived.set()
        return turned_away(gate, number)

    def known(checkpoint: str, number: int) -> bool:
        return arrived.is_set() and is_committed(checkpoint, number)

    def stop() -> None:
        pipeline.request_stop()
        # Until the run has heard of it, batches come in.
        setting.shop.insert(100 + setting.feed.calls, 101 + setting.feed.calls)

    monkeypatch.setattr(Gate, "batch", batch)
    monkeypatch.setattr("tailrace.engine.pipeline.is_committed", known)
    monkeypatch.setattr("tailrace.engine.pipeline.COMMIT_SECONDS", 120.0)
    pipeline = setting.make()
    setting.shop.insert(0, 5)
    setting.feed.before = stop
    results: list[RunResult] = []
    run = threading.Thread(target=lambda: results.append(pipeline.run()), daemon=True)
    # when it runs
    run.start()
    assert arrived.wait(120)
    # then it ends soon, and well
    run.join(timeout=30)
    assert not run.is_alive()
    assert setting.released == [results[0].offset]
    # and what came is neither lost nor told twice
    setting.feed.before = lambda: None
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert len(setting.feed.ops) == len(set(setting.feed.ops)) == len(setting.shop.rows()) + 1


def test_a_stop_inside_a_batch_finishes_it_and_a_restart_repeats_nothing(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        go_on.wait(60)

    setting.feed.before = hold
    pipeline = setting.make()
    results: list[RunResult] = []
    run = threading.Thread(target=lambda: results.append(pipeline.run()))
    run.start()
    assert inside.wait(60)
    pipeline.request_stop()
    setting.shop.insert(5, 8)
    go_on.set()
    run.join(60)
    assert results
    assert results[0].batches == 1
    assert setting.feed.ops == [("s", None), *[("r", i) for i in range(5)]]

    setting.feed.before = lambda: None
    setting.feed.ops.clear()
    setting.once()
    assert [op for op in setting.feed.ops if op[0] != "c"] == []
    assert sorted(setting.feed.ops) == [("c", 5), ("c", 6), ("c", 7)]
    assert setting.mirrored() == setting.shop.rows()


def test_a_passing_fault_of_a_sink_is_retried_and_nothing_is_acknowledged_meanwhile(setting: Setting) -> None:
    setting.once()
    setting.shop.insert(0, 3)
    capture = SqliteCapture(SqliteConfig.from_url(setting.shop.url))
    seen: list[int] = []

    def fail_twice() -> None:
        if len(seen) < 2:
            seen.append(capture.consumers()[0].acknowledged)
            raise Transient("not now")

    setting.feed.before = fail_twice
    setting.once()
    assert setting.observer.count("sink.retry") == 2
    assert max(seen) < capture.head().version
    assert setting.feed.ops[-3:] == [("c", 0), ("c", 1), ("c", 2)]
    capture.close()


def test_an_error_of_a_sink_ends_the_run_as_itself_and_the_batch_comes_again(setting: Setting) -> None:
    setting.shop.insert(0, 3)

    def fail() -> None:
        raise NeedsOperator("the receiver refuses", remedy="ask it why")

    setting.feed.before = fail
    with pytest.raises(NeedsOperator, match="refuses") as caught:
        setting.once()
    assert caught.value.remedy == "ask it why"
    assert setting.feed.ops == []
    setting.feed.before = lambda: None
    setting.once()
    assert [op for op, _ in setting.feed.ops] == ["s", "r", "r", "r"]


def test_a_mirror_that_is_gone_is_an_error_and_a_requested_snapshot_brings_it_back(setting: Setting) -> None:
    from tailrace.changelog.filesystem import open_filesystem
    from tailrace.spark.plans import PlanStore

    setting.shop.insert(0, 3)
    setting.once()
    shutil.rmtree(setting.directory / "lake/orders")
    setting.shop.insert(3, 4)
    with pytest.raises(NeedsOperator, match="gone") as caught:
        setting.once()
    assert "tailrace snapshot --table orders" in str(caught.value.remedy)

    store = PlanStore(*open_filesystem(str(setting.directory / "state")))
    store.request(ORDERS)
    # The batch that failed was logged by Spark and comes first, exactly as it was; then the snapshot.
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert store.requests() == {}


def test_a_snapshot_that_was_asked_for_and_cannot_be_mirrored_is_not_skipped(setting: Setting) -> None:
    from tailrace.changelog.filesystem import open_filesystem
    from tailrace.spark.plans import PlanStore

    setting.shop.insert(0, 3)
    setting.once()
    store = PlanStore(*open_filesystem(str(setting.directory / "state")))
    begun = store.request(ORDERS)
    setting.shop.run("INSERT INTO orders VALUES (8, 'odd', 'text')")
    with pytest.raises(DataError, match="price"):
        setting.once()
    # Its batch is logged and comes again; what is asked for now follows it.
    assert store.request(ORDERS) != begun
    setting.shop.run("UPDATE orders SET price = 2 WHERE id = 8")
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert store.requests() == {}


def test_values_that_do_not_fit_stop_the_mirror_or_are_set_aside(setting: Setting) -> None:
    setting.shop.insert(0, 2)
    setting.once()
    setting.shop.run(
        "INSERT INTO orders VALUES (7, 'ok', 1.5)", "INSERT INTO orders VALUES (8, 'odd', 'text')"
    )
    with pytest.raises(DataError, match="price") as caught:
        setting.once()
    assert "types" in str(caught.value.remedy)
    assert "text" not in caught.value.message.replace("context", "")

    setting.once(on_error="skip")
    assert [row[0] for row in setting.mirrored()] == [0, 1, 7]
    files = (setting.directory / "dead").iterdir()
    letters = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert [letter["after"]["price"] for letter in letters] == ["text"]


def test_the_end_of_the_last_batch_is_in_sparks_log(setting: Setting) -> None:
    assert committed(str(setting.directory / "checkpoint")) is None
    setting.shop.insert(0, 1)
    result = setting.once()
    found = committed(str(setting.directory / "checkpoint"))
    assert found is not None
    assert found[1] == result.offset
