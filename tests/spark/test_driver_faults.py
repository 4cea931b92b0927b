"""The driver's side of a stream of a scripted source: gaps, jumps that came to nothing, passing faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.app.control import Control
from tailrace.capture.contract import Capture, Chunk
from tailrace.capture.scripted import Faults, ScriptedCapture, ScriptedSource
from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.statefile import write_state
from tailrace.model.errors import LogLost, Transient
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.orders import Orders
from tailrace.spark.plans import PlanStore
from tailrace.spark.read import read_slice
from tests.runtime.support import row
from tests.support.waiting import wait_until


class Bench:
    """A source with one table, and lives of one query on it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.source = ScriptedSource()
        self.items = self.source.table("items")
        self.lives: list[StreamDriver] = []

    def driver(self, capture: ScriptedCapture | None = None, **options: Any) -> StreamDriver:
        """A new life; the one before is over."""
        self.close()
        given = {"url": "sqlite:none", "tables": "items", "stateDir": str(self.state), **options}
        capture = capture or ScriptedCapture(self.source)
        self.lives.append(StreamDriver(SourceOptions.parse(given), lambda _: capture))
        return self.lives[-1]

    def insert(self, *numbers: int) -> int:
        return self.source.insert(self.items, *map(row, numbers))

    def next(self, driver: StreamDriver, start: Offset, max_rows: int | None = None) -> Offset:
        """The end of the next batch, once there is one."""
        ends: list[Offset] = [start]

        def moved() -> bool:
            ends.append(driver.latest(start, max_rows=max_rows, max_bytes=None))
            return ends[-1] != start

        wait_until(moved, timeout=30)
        return ends[-1]

    def read(
        self, driver: StreamDriver, start: Offset, end: Offset, capture: ScriptedCapture | None = None
    ) -> list[tuple[str, str | None]]:
        """(op, image) of a batch."""
        capture = capture or ScriptedCapture(self.source)
        return [
            (found["op"], found["after"])
            for part in driver.partitions(start, end, single=False)
            for batch in read_slice(part, "envelope", f"{self.state}/changelog", capture)
            for found in batch.to_pylist()
        ]

    def close(self) -> None:
        while self.lives:
            self.lives.pop().close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "state")
    yield made
    made.close()


def begun(bench: Bench, **options: Any) -> Offset:
    """Where a query stands that has its snapshot."""
    driver = bench.driver(**options)
    return bench.next(driver, driver.initial())


@pytest.mark.parametrize("busy", [True, False])
def test_a_jump_over_a_gap_that_came_to_nothing_is_made_again(bench: Bench, busy: bool) -> None:
    forgiving: dict[str, Any] = {"failOnDataLoss": "false"}
    start = begun(bench, **forgiving)
    bench.close()
    bench.insert(1)
    bench.source.prune(bench.insert(2))
    # Spark never logged what this one said.
    killed = bench.driver(**forgiving)
    assert bench.next(killed, start).position.version == 2
    if busy:
        bench.insert(3)
        wait_until(lambda: killed._log().end == 3)
    bench.close()

    with pytest.raises(LogLost):
        bench.next(bench.driver(), start)
    again = bench.driver(**forgiving)
    end = bench.next(again, start)
    assert end.position.version == bench.source.head
    if busy:
        # What follows is captured before the batch is read.
        bench.insert(4)
        wait_until(lambda: again._log().end == 4)
    read = bench.read(again, start, end)
    assert [op for op, _ in read] == ["s"] + ["r"] * bench.source.head
    assert bench.read(bench.driver(), start, end) == read, "also after a crash"


def test_a_table_that_began_anew_is_read_behind_all_that_was_captured_of_it_before(bench: Bench) -> None:
    start = begun(bench)
    bench.insert(1)
    bench.insert(2)
    wait_until(lambda: bench.lives[0]._log().end == 2)
    bench.close()
    # Nobody captured this: a row of it that the log has must not come after the snapshot.
    bench.source.recreate(bench.items)
    latest = bench.insert(3)

    again = bench.driver()
    seen: list[tuple[int, set[str]]] = []
    while not any("r" in ops for _, ops in seen):
        end = bench.next(again, start, max_rows=1)
        seen.append((end.position.version, {op for op, _ in bench.read(again, start, end)}))
        start = end
    assert [ops for _, ops in seen[:2]] == [{"c"}, {"c"}]
    assert seen[-1][0] == latest


def test_a_chunk_waits_until_all_that_is_captured_is_visible(bench: Bench) -> None:
    waited: list[int] = []

    class Watching(ScriptedCapture):
        def wait_visible(self, position: Position, timeout: float) -> None:  # noqa: ARG002
            waited.append(position.version)

    driver = bench.driver(Watching(bench.source))
    start = driver.initial()
    end = bench.next(driver, start)
    bench.insert(1)
    wait_until(lambda: driver._log().end == 1)
    driver.partitions(start, end, single=False)
    assert (end.position.version, waited) == (0, [1])


class Flaky(ScriptedCapture):
    """Fails once wherever it is asked something, and then answers."""

    def __init__(self, source: ScriptedSource) -> None:
        super().__init__(source, faults=Faults(connect=1, visible=1, at_chunk=1))
        self.failed: set[str] = set()

    def _once(self, what: str) -> None:
        if what not in self.failed:
            self.failed.add(what)
            raise Transient(f"{what} fails once")

    def resolve(self, names: Sequence[str]) -> list[TableRef]:
        self._once("resolve")
        return super().resolve(names)

    def generations(self) -> dict[TableRef, tuple[str, int]]:
        self._once("generations")
        return super().generations()

    def head(self) -> Position:
        self._once("head")
        return super().head()

    def plan(
        self, table: TableRef, *, rows_per_chunk: int, bytes_per_chunk: int | None = None
    ) -> list[Chunk]:
        self._once("plan")
        return super().plan(table, rows_per_chunk=rows_per_chunk, bytes_per_chunk=bytes_per_chunk)

    def describe(self, ref: TableRef) -> TableSchema:
        self._once("describe")
        return super().describe(ref)


def test_a_passing_fault_of_the_source_ends_no_query(bench: Bench) -> None:
    bench.insert(1, 2)
    capture = Flaky(bench.source)
    driver = bench.driver(capture)
    start = driver.initial()
    driver.prepare_available_now()
    bench.insert(3)
    end = bench.next(driver, start)
    ops = [op for op, _ in bench.read(driver, start, end)]
    assert sorted(ops) == ["c", "r", "r", "r", "s"]
    assert capture.failed == {"resolve", "generations", "head", "plan", "describe"}
    assert not capture.faults.visible


def test_a_chunk_whose_reading_breaks_before_its_first_rows_is_read_again(bench: Bench) -> None:
    bench.insert(1, 2)
    driver = bench.driver()
    start = driver.initial()
    end = bench.next(driver, start)
    capture = Flaky(bench.source)
    capture.faults.connect = 0
    ops = [op for op, _ in bench.read(driver, start, end, capture)]
    assert ops == ["s", "r", "r"]
    assert capture.failed == {"describe"}
    assert (capture.faults.visible, capture.faults.at_chunk) == (0, None)


FORGIVING: dict[str, Any] = {"failOnDataLoss": "false"}


def lose(bench: Bench, driver: StreamDriver, *numbers: int) -> None:
    """Rows that nobody captured; the filler finds that out."""
    assert driver._filler is not None
    driver._filler.close()
    for number in numbers:
        bench.source.prune(bench.insert(number))
    driver._filler._failure = LogLost("the slot was invalidated")


def stores(bench: Bench) -> tuple[PlanStore, Orders]:
    place = open_filesystem(str(bench.state))
    return PlanStore(*place), Orders(*place)


def looking(driver: StreamDriver) -> StreamDriver:
    driver._looked = 0.0
    return driver


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("anew", [False, True])
def test_a_gap_right_after_a_request_has_begun_is_closed_by_another_snapshot(
    bench: Bench, anew: bool, killed: bool
) -> None:
    start = begun(bench, **FORGIVING)
    driver = bench.lives[-1]
    bench.insert(1)
    start = bench.next(driver, start)
    request = stores(bench)[0].request(bench.items)
    end = bench.next(looking(driver), start)
    assert end.snapshots["main.items"].plan == request
    assert bench.read(driver, start, end)
    assert request in stores(bench)[0].requests(), "until its first batch is committed"
    # Spark commits the batch, and the log is lost meanwhile.
    lose(bench, driver, 2, 3)
    if anew:
        bench.source.recreate(bench.items)
    if killed:
        driver = bench.driver(**FORGIVING)
    after = bench.next(driver, end)
    told = bench.read(driver, end, after)
    assert after.snapshots["main.items"].plan != request
    assert [op for op, _ in told] == ["s", "r", "r", "r"]
    driver.latest(after, max_rows=None, max_bytes=None)
    assert not stores(bench)[0].requests()


def test_a_snapshot_that_closes_a_gap_is_not_taken_twice_after_a_jump_that_came_to_nothing(
    bench: Bench,
) -> None:
    start = begun(bench, **FORGIVING)
    lose(bench, bench.lives[-1], 1, 2)
    assert bench.next(bench.lives[-1], start) != start
    again = bench.driver(**FORGIVING)
    end = bench.next(again, start)
    assert [op for op, _ in bench.read(again, start, end)] == ["s", "r", "r"]
    assert looking(again).latest(end, max_rows=None, max_bytes=None) == end
    assert looking(again).latest(end, max_rows=None, max_bytes=None) == end
    assert not stores(bench)[0].requests()


@pytest.mark.parametrize("killed", [None, "before", "after"])
def test_a_stop_of_the_snapshot_that_would_close_a_gap_leaves_the_table_incomplete(
    bench: Bench, killed: str | None
) -> None:
    start = begun(bench, **FORGIVING)
    driver = bench.lives[-1]
    plans, orders = stores(bench)
    orders.pause(bench.items)
    looking(driver).latest(start, max_rows=None, max_bytes=None)
    lose(bench, driver, 1, 2)
    end = bench.next(driver, start)
    assert bench.read(driver, start, end) == []
    (request,) = plans.requests()
    control_of(bench).stop("items")
    if killed == "before":
        # It had said so, and not yet removed the request.
        body = {"schema": "main", "name": "items", "where": None, "asked": 0.0}
        path = f"{bench.state}/requests/{request}.json"
        write_state(open_filesystem(str(bench.state))[0], path, "snapshot-request", body)
    short = bench.next(looking(driver), end)
    assert not short.snapshots["main.items"].complete
    if killed == "after":
        driver = bench.driver(**FORGIVING)
    bench.read(driver, end, short)
    assert looking(driver).latest(short, max_rows=None, max_bytes=None) == short
    assert looking(driver).latest(short, max_rows=None, max_bytes=None) == short
    assert not plans.requests()
    assert not orders.read()[0]
    control_of(bench).snapshot("items")
    whole = bench.next(looking(driver), short)
    assert [op for op, _ in bench.read(driver, short, whole)] == ["s", "r", "r"]
    assert whole.snapshots["main.items"].complete


def test_a_request_seen_beside_the_stop_before_it_is_served_whole(bench: Bench) -> None:
    bench.insert(1, 2, 3)
    plans, orders = stores(bench)
    bench.state.mkdir(parents=True, exist_ok=True)
    orders.stop(bench.items)
    request = plans.request(bench.items)
    driver = bench.driver(chunkRows="1", numPartitions="1")
    start = driver.initial()
    ops: list[str] = []
    for _ in range(3):
        end = bench.next(looking(driver), start, max_rows=1)
        ops += [op for op, _ in bench.read(driver, start, end)]
        start = end
    assert start.snapshots["main.items"].plan == request
    assert start.snapshots["main.items"].complete
    assert ops == ["s", "r", "r", "r"]


def test_a_stop_before_the_first_run_withdraws_a_request_and_misses_nothing_of_a_small_table(
    bench: Bench,
) -> None:
    bench.insert(1)
    bench.state.mkdir(parents=True, exist_ok=True)
    control = control_of(bench)
    control.snapshot("items")
    control.stop("items")
    driver = bench.driver()
    start = driver.initial()
    end = bench.next(driver, start)
    assert [op for op, _ in bench.read(driver, start, end)] == ["s", "r"]
    looking(driver).latest(end, max_rows=None, max_bytes=None)
    assert looking(driver).latest(end, max_rows=None, max_bytes=None).snapshots["main.items"].complete
    assert not stores(bench)[1].read()[0]


def control_of(bench: Bench) -> Control:
    @contextlib.contextmanager
    def opened() -> Iterator[Capture]:
        yield ScriptedCapture(bench.source)

    return Control(opened, lambda capture: capture.resolve(["items"]), str(bench.state))


def test_no_table_is_cut_while_the_throttle_says_no_and_a_plan_that_waited_is_made_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[int] = []

    class Cutting(ScriptedCapture):
        def plan(self, *args: Any, **options: Any) -> list[Chunk]:
            cut.append(bench.source.head)
            return super().plan(*args, **options)

    bench.insert(1)
    driver = bench.driver(Cutting(bench.source), snapshotPauseLag="1000 changes")
    start = driver.initial()
    driver._throttle._above["lag.changes"] = "the test says so"
    monkeypatch.setattr(driver._throttle, "_look", lambda: None)
    assert "main.items" not in looking(driver).latest(start, max_rows=None, max_bytes=None).snapshots
    assert cut == []
    # It was allowed to be cut, and is not allowed to be read.
    monkeypatch.setattr("tailrace.spark.throttle.Round.take", lambda _, rows: rows == 0)
    driver._throttle._above.clear()
    assert "main.items" not in looking(driver).latest(start, max_rows=None, max_bytes=None).snapshots
    assert len(cut) == 1
    monkeypatch.undo()
    monkeypatch.setattr("tailrace.spark.snapshots.STALE_SECONDS", 0.0)
    assert bench.next(driver, start).snapshots["main.items"].complete
    assert len(cut) == 2


def test_a_request_made_while_a_begun_plan_waits_is_the_one_that_is_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.insert(1)
    driver = bench.driver()
    start = driver.initial()
    with monkeypatch.context() as refusing:
        refusing.setattr("tailrace.spark.throttle.Round.take", lambda _, rows: rows == 0)
        assert "main.items" not in driver.latest(start, max_rows=None, max_bytes=None).snapshots
        request = stores(bench)[0].request(bench.items)
    assert bench.next(looking(driver), start).snapshots["main.items"].plan == request
