"""Snapshots and the hand-over: the barrier, the orders, the markers, the end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.scripted import Event, Faults, ScriptedCapture
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import Transient
from tailrace.model.table import TableSchema
from tailrace.runtime.delivery import Delivery
from tests.runtime.support import Bench, drain, row, rows_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_snapshot_ends_by_itself_after_every_row(bench: Bench) -> None:
    bench.source.commit(*(Event(Op.INSERT, bench.items, None, row(n)) for n in range(5)), logged=False)
    runtime = bench.started(mode="snapshot", rows_per_chunk=2)
    found = []
    while not runtime.finished:
        found += drain(runtime)
    assert found == [("s", None), *(("r", n) for n in range(5))]
    assert runtime.poll(60.0) is None, "at once"
    assert bench.source.cursors == {}, "a snapshot alone leaves no cursor that makes the source keep its log"
    runtime.stop()
    runtime.start()
    assert runtime.poll(60.0) is None, "a finished snapshot is never repeated"
    runtime.stop()


def test_a_marker_precedes_each_table_and_empty_tables_have_one_too(bench: Bench) -> None:
    empty = bench.source.table("empty")
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(tables=[empty, bench.items], mode="snapshot")
    tables = []
    while delivery := runtime.poll(0.05):
        tables += [(batch.table.ref.name, rows_of(batch)) for batch in delivery.batches]
        runtime.acknowledge(delivery.token)
    assert tables == [("empty", [("s", None)]), ("items", [("s", None)]), ("items", [("r", 1)])]
    runtime.stop()


def test_the_moment_the_snapshot_is_complete_is_recorded(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(mode="snapshot_then_changes", clock=lambda: 1234.5)
    delivery = runtime.poll()
    assert delivery is not None
    assert bench.stored().snapshot_complete is None
    runtime.acknowledge(delivery.token)
    assert runtime.snapshot_complete == bench.stored().snapshot_complete == 1234.5
    assert bench.observer.count("runtime.snapshot.complete") == 1
    runtime.stop()


def test_first_delivers_every_row_before_any_change(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(4)))
    runtime = bench.started(mode="snapshot_then_changes", order="first", rows_per_chunk=2, max_rows=2)
    bench.source.update(bench.items, row(0), row(0, "new"))
    found = drain(runtime)
    assert found == [("s", None), *(("r", n) for n in range(4)), ("u", 0)]
    runtime.stop()


def test_interleaved_chunks_stand_behind_the_log_and_carry_its_position(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(mode="snapshot_then_changes")
    bench.source.insert(bench.items, row(2), row(3))
    delivery = runtime.poll()
    assert delivery is not None
    order = [
        (change["position"], change["seq"]) for batch in delivery.batches for change in batch.data.to_pylist()
    ]
    assert rows_of(delivery) == [("c", 2), ("c", 3), ("s", None), ("r", 1), ("r", 2), ("r", 3)]
    assert order == sorted(set(order))
    assert {position for position, _ in order} == {2}
    runtime.acknowledge(delivery.token)
    runtime.stop()


class _Watching(ScriptedCapture):
    """Notes what the barrier was asked for before each chunk."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.source)
        self.calls: list[tuple[str, int]] = []

    def wait_visible(self, position: Any, timeout: float) -> None:
        self.calls.append(("visible", position.version))
        super().wait_visible(position, timeout)

    def snapshot(
        self, table: TableSchema, chunk: Chunk, *, position: int, seq: int, columns: Any = None
    ) -> Any:
        self.calls.append(("chunk", position))
        return super().snapshot(table, chunk, position=position, seq=seq, columns=columns)


def test_a_chunk_is_read_only_behind_the_barrier_at_its_position(bench: Bench) -> None:
    capture = bench.capture = _Watching(bench)
    bench.source.insert(bench.items, *(row(n) for n in range(6)))
    runtime = bench.started(mode="snapshot_then_changes", rows_per_chunk=2, max_rows=3)
    while delivery := runtime.poll(0.05):
        if delivery.complete:
            runtime.acknowledge(delivery.token)
        if bench.source.head < 4:
            bench.source.insert(bench.items, row(100 + bench.source.head))
    chunks = [at for at, (call, _) in enumerate(capture.calls) if call == "chunk"]
    assert len(chunks) == 3
    for at in chunks:
        assert capture.calls[at - 1] == ("visible", capture.calls[at][1])
    runtime.stop()


def test_a_position_that_does_not_become_visible_is_a_passing_fault(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    runtime = bench.started(mode="snapshot_then_changes")
    bench.capture.faults = Faults(visible=1)
    with pytest.raises(Transient):
        runtime.poll()
    assert drain(runtime) == [("s", None), ("r", 1)]
    runtime.stop()


def test_a_busy_log_does_not_starve_the_snapshot(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(4)))
    runtime = bench.started(mode="snapshot_then_changes", rows_per_chunk=2, max_rows=3)
    for _ in range(20):
        for number in range(6):
            bench.source.update(bench.items, row(0), row(0, str(number)))
        delivery = runtime.poll()
        assert delivery is not None
        runtime.acknowledge(delivery.token)
        if runtime.snapshot_complete:
            break
    assert runtime.snapshot_complete
    runtime.force_stop()


def test_no_chunk_stands_between_the_parts_of_a_transaction(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(4)))
    runtime = bench.started(mode="snapshot_then_changes", rows_per_chunk=2, max_rows=2)
    bench.source.commit(*(Event(Op.INSERT, bench.items, None, row(10 + n)) for n in range(8)), parts=4)
    found = drain(runtime)
    assert found[:8] == [("c", 10 + n) for n in range(8)]
    assert found[8:12] == [("s", None), ("r", 0), ("r", 1), ("r", 2)]
    runtime.stop()


def test_a_chunk_larger_than_a_delivery_comes_in_parts_confirmed_together(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(7)))
    runtime = bench.started(mode="snapshot", rows_per_chunk=100, max_rows=3)
    first = runtime.poll()
    assert first is not None
    assert not first.complete
    runtime.force_stop()
    assert bench.stored().cursors[bench.items].next == 0
    runtime = bench.started(mode="snapshot", rows_per_chunk=100, max_rows=3)
    assert drain(runtime) == [("s", None), *(("r", n) for n in range(7))]
    runtime.stop()


def test_a_chunk_that_fails_is_read_again(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(4)))
    bench.capture.faults = Faults(at_chunk=2)
    runtime = bench.started(mode="snapshot", rows_per_chunk=2, max_rows=3)
    found, faults = [], 0
    while not runtime.finished:
        try:
            delivery = runtime.poll(0.05)
        except Transient:
            faults += 1
            continue
        if delivery:
            found += rows_of(delivery)
            runtime.acknowledge(delivery.token)
    assert faults == 1
    assert found == [("s", None), *(("r", n) for n in range(4))]
    runtime.stop()


def _apply(state: dict[int, str], delivery: Delivery, seen: dict[int, tuple[int, int]] | None) -> None:
    for batch in delivery.batches:
        _apply_batch(state, batch, seen)


def _apply_batch(state: dict[int, str], batch: ChangeBatch, seen: dict[int, tuple[int, int]] | None) -> None:
    for change in batch.data.to_pylist():
        for image in (change["before"], change["after"]):
            if image and seen is not None:
                order = (change["position"], change["seq"])
                assert order > seen.get(image["id"], (-1, -1)) or image is change["after"]
                seen[image["id"]] = order
        if change["op"] == "s":
            state.clear()
        if change["before"]:
            state.pop(change["before"]["id"], None)
        if change["after"]:
            state[change["after"]["id"]] = change["after"]["name"]


@pytest.mark.parametrize("seed", range(8))
def test_with_random_writes_faults_and_restarts_the_consumer_equals_the_source(
    bench: Bench, seed: int
) -> None:
    chance = random.Random(seed)
    rows: dict[int, str] = {}

    def write() -> None:
        number = chance.randrange(30)
        if number in rows and chance.random() < 0.4:
            bench.source.delete(bench.items, row(number, rows.pop(number)))
        elif number in rows:
            name = str(chance.random())
            bench.source.update(bench.items, row(number, rows[number]), row(number, name))
            rows[number] = name
        else:
            rows[number] = "first"
            bench.source.insert(bench.items, row(number, "first"))

    for _ in range(40):
        write()
    order = chance.choice(["interleaved", "first"])
    settings = {"mode": "snapshot_then_changes", "order": order, "rows_per_chunk": 4, "max_rows": 7}
    state: dict[int, str] = {}
    seen: dict[int, tuple[int, int]] | None = {} if order == "interleaved" else None
    runtime = bench.started(**settings)
    idle = 0
    for step in range(400):
        if step < 200:
            for _ in range(chance.randrange(3)):
                write()
        if chance.random() < 0.1:
            bench.capture.faults = Faults()
            setattr(bench.capture.faults, chance.choice(["at_part", "at_chunk", "visible", "acknowledge"]), 1)
        try:
            delivery = runtime.poll(0.0)
        except Transient:
            continue
        idle = 0 if delivery else idle + 1
        if delivery is None:
            if step > 200 and idle > 3:
                break
            continue
        _apply(state, delivery, seen)
        if delivery.complete:
            if chance.random() < 0.1:
                runtime.force_stop()
                runtime.start()
                seen = None
            else:
                runtime.acknowledge(delivery.token)
    assert state == rows
    assert runtime.snapshot_complete
    runtime.close()
