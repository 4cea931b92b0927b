"""The driver's side of a stream of a scripted source: gaps, jumps that came to nothing, passing faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.scripted import Faults, ScriptedCapture, ScriptedSource
from tailrace.model.errors import LogLost, Transient
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
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
