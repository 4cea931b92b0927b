"""The table of states: what start, stop and force_stop do in each, and that every error has its name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.capture.scripted import Faults, ScriptedCapture
from tailrace.model.change import Part
from tailrace.model.errors import StateOwned, StateUnreadable, Transient, UsageError
from tailrace.runtime.checkpoint import Checkpoint, CheckpointStore
from tailrace.runtime.delivery import Counters
from tailrace.runtime.runtime import Runtime
from tests.runtime.support import Bench, drain, row, rows_of
from tests.support.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _life(bench: Bench, state: str) -> Runtime:
    runtime = bench.runtime()
    if state == "stopped":
        runtime.start()
        runtime.stop()
    assert runtime.state == state
    return runtime


@pytest.mark.parametrize("state", ["idle", "stopped"])
def test_start_makes_an_idle_or_stopped_runtime_run(bench: Bench, state: str) -> None:
    runtime = _life(bench, state)
    runtime.start()
    assert runtime.state == "running"
    runtime.stop()


@pytest.mark.parametrize("state", ["idle", "stopped"])
def test_stop_of_one_that_does_not_run_returns_nothing_pending(bench: Bench, state: str) -> None:
    runtime = _life(bench, state)
    runtime.stop()
    assert (runtime.state, runtime.unconfirmed) == ("stopped", 0)


@pytest.mark.parametrize("state", ["idle", "stopped"])
def test_force_stop_of_one_that_does_not_run_returns_nothing_pending(bench: Bench, state: str) -> None:
    runtime = _life(bench, state)
    assert runtime.force_stop() == []
    assert runtime.state == "stopped"


def test_starting_a_running_one_is_an_error_and_changes_nothing(bench: Bench) -> None:
    runtime = bench.started()
    with pytest.raises(UsageError, match=r"already started"):
        runtime.start()
    assert runtime.state == "running"
    assert bench.observer.count("runtime.start.state") == runtime.errors["runtime.start.state"] == 1
    runtime.stop()


def test_stop_is_refused_while_anything_is_unconfirmed_and_says_how_many(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1), row(2), row(3))
    delivery = runtime.poll()
    assert delivery is not None
    with pytest.raises(UsageError, match=r"^3 changes are not confirmed"):
        runtime.stop()
    assert runtime.state == "running"
    assert bench.observer.count("runtime.stop.unconfirmed") == 1
    runtime.acknowledge(delivery.token)
    runtime.stop()
    assert str(runtime.state) == "stopped"


def test_what_was_taken_and_not_delivered_is_unconfirmed_and_a_poll_of_zero_empties_it(bench: Bench) -> None:
    runtime = bench.started(max_rows=2)
    for number in range(3):
        bench.source.insert(bench.items, row(2 * number), row(2 * number + 1))
    bench.source.insert(bench.items, row(10))
    first = runtime.poll()
    assert first is not None
    runtime.acknowledge(first.token)
    while delivery := runtime.poll(0):
        runtime.acknowledge(delivery.token)
        if runtime.unconfirmed == 0:
            break
    runtime.stop()


def test_force_stop_of_a_running_one_returns_every_unconfirmed_change_in_order(bench: Bench) -> None:
    runtime = bench.started(max_rows=3)
    bench.source.insert(bench.items, row(1), row(2))
    bench.source.insert(bench.items, row(3), row(4))
    delivery = runtime.poll()
    assert rows_of(delivery) == [("c", 1), ("c", 2)]
    assert delivery is not None
    runtime.acknowledge(delivery.token, 1)
    template = delivery.batches[0].slice(0, 1)
    runtime.inject([template])
    assert runtime.unconfirmed == 1 + 1 + 2
    pieces = runtime.force_stop()
    assert [(piece.origin, rows_of(piece)) for piece in pieces] == [
        ("injected", [("c", 1)]),
        ("delivered", [("c", 2)]),
        ("taken", [("c", 3), ("c", 4)]),
    ]
    assert (runtime.state, runtime.unconfirmed, bench.capture.open_lives) == ("stopped", 0, 0)


def test_force_stop_returns_the_buffered_rest_of_a_split_transaction_before_what_was_taken(
    bench: Bench,
) -> None:
    runtime = bench.started(max_rows=2)
    bench.source.insert(bench.items, *(row(number) for number in range(5)))
    part = runtime.poll()
    assert part is not None
    assert not part.complete
    pieces = runtime.force_stop()
    assert [(piece.origin, rows_of(piece)) for piece in pieces] == [
        ("delivered", [("c", 0), ("c", 1)]),
        ("buffered", [("c", 2), ("c", 3), ("c", 4)]),
    ]


class _SlowToClose(ScriptedCapture):
    """A log whose reader takes its time to end, so that `stopping` can be seen."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.source)
        self.ending = threading.Event()
        self.may_end = threading.Event()
        self.slow = False

    def live(self, *args: object, **kwargs: object) -> Iterator[Part | None]:
        try:
            yield from super().live(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            if self.slow:
                self.ending.set()
                self.may_end.wait(60)


@pytest.mark.parametrize(
    ("method", "said"),
    [("start", "is stopping"), ("stop", "already stopping"), ("force_stop", "already stopping")],
)
def test_a_stopping_one_refuses_every_call(bench: Bench, method: str, said: str) -> None:
    capture = bench.capture = _SlowToClose(bench)
    runtime = bench.started()
    capture.slow = True
    assert runtime.poll(0) is None
    stopper = threading.Thread(target=runtime.stop)
    stopper.start()
    try:
        assert capture.ending.wait(60)
        assert runtime.state == "stopping"
        with pytest.raises(UsageError, match=said):
            getattr(runtime, method)()
        name = "runtime.start.state" if method == "start" else "runtime.stop.state"
        assert runtime.errors[name] == bench.observer.count(name) == 1
    finally:
        capture.may_end.set()
        stopper.join(60)
    assert str(runtime.state) == "stopped"


def test_a_start_that_cannot_connect_leaves_nothing_open_and_the_state_as_it_was(bench: Bench) -> None:
    bench.capture.faults = Faults(connect=1)
    runtime = bench.runtime()
    with pytest.raises(Transient):
        runtime.start()
    assert runtime.state == "idle"
    assert bench.observer.count("runtime.start.connect") == 1
    assert bench.capture.open_lives == 0
    assert not bench.checkpoint_file.exists()
    bench.store().acquire(wait=0)
    assert bench.source.cursors == {}


def test_a_failed_start_may_be_repeated(bench: Bench) -> None:
    bench.capture.faults = Faults(connect=1)
    runtime = bench.runtime()
    with pytest.raises(Transient):
        runtime.start()
    runtime.start()
    assert runtime.state == "running"
    runtime.stop()


class _FullDisk(CheckpointStore):
    full = True

    def save(self, checkpoint: Checkpoint) -> None:
        if self.full:
            raise Transient("no space left")
        super().save(checkpoint)


def test_a_start_whose_save_fails_takes_its_cursor_back(bench: Bench) -> None:
    store = _FullDisk(str(bench.path), "test")
    runtime = bench.runtime(store=store)
    with pytest.raises(Transient):
        runtime.start()
    assert (runtime.state, bench.source.cursors) == ("idle", {})
    assert bench.observer.count("runtime.start.save") == 1
    bench.source.cursors["test"] = 0
    with pytest.raises(Transient):
        runtime.start()
    assert bench.source.cursors == {"test": 0}, "a cursor that was there before stays"
    store.full = False
    runtime.start()
    runtime.stop()


def test_a_second_runtime_on_the_same_state_is_refused_by_name(bench: Bench) -> None:
    first = bench.started()
    second = bench.store()
    with pytest.raises(StateOwned):
        second.acquire(wait=0)
    first.stop()
    second.acquire(wait=0)
    second.release()


def test_a_restart_reads_the_committed_count_again_and_counters_begin_at_zero(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1), row(2))
    drain(runtime)
    assert (runtime.counters.polled, runtime.counters.committed, runtime.committed_count) == (2, 2, 2)
    assert runtime.counters.last_commit is not None
    runtime.stop()
    runtime.start()
    assert (runtime.counters.polled, runtime.counters.committed, runtime.committed_count) == (0, 0, 2)
    assert runtime.counters == Counters()
    bench.source.insert(bench.items, row(3))
    drain(runtime)
    assert runtime.committed_count == 3
    runtime.stop()


def test_an_older_checkpoint_put_in_place_stops_at_the_commit_barrier(bench: Bench) -> None:
    runtime = bench.started()
    old = bench.checkpoint_file.read_bytes()
    bench.source.insert(bench.items, row(1))
    drain(runtime)
    runtime.stop()
    bench.checkpoint_file.write_bytes(old)
    with pytest.raises(StateUnreadable, match=r"this process committed 1"):
        runtime.start()
    assert bench.observer.count("runtime.start.barrier") == 1
    assert runtime.state == "stopped"


def test_a_second_call_at_the_same_time_is_an_error_and_not_silence(bench: Bench) -> None:
    runtime = bench.started(wait=0.2)
    poller = threading.Thread(target=runtime.poll, args=(60.0,))
    poller.start()
    wait_until(lambda: runtime.counters.last_poll is not None)
    with pytest.raises(UsageError, match=r"another call is running"):
        runtime.poll(0)
    with pytest.raises(UsageError, match=r"another call is running"):
        runtime.stop()
    assert runtime.errors["runtime.poll.busy"] == 1
    runtime.close()
    poller.join(60)
    assert not poller.is_alive()


def test_close_from_another_thread_ends_a_running_poll(bench: Bench) -> None:
    runtime = bench.started(wait=30.0)
    given: list[object] = []
    poller = threading.Thread(target=lambda: given.append(runtime.poll(60.0)))
    poller.start()
    wait_until(lambda: bench.capture.open_lives == 1)
    runtime.close()
    poller.join(60)
    assert not poller.is_alive()
    assert given == [None]
    assert (runtime.state, bench.capture.open_lives) == ("stopped", 0)
    runtime.close()


def test_close_before_a_start_is_for_good(bench: Bench) -> None:
    runtime = bench.runtime()
    runtime.close()
    with pytest.raises(UsageError, match=r"closed"):
        runtime.start()


@pytest.mark.parametrize("method", ["poll", "acknowledge", "inject"])
def test_a_method_of_a_running_one_is_refused_before_the_start(bench: Bench, method: str) -> None:
    runtime = bench.runtime()
    arguments: tuple[object, ...] = {"poll": (), "acknowledge": (None,), "inject": ([],)}[method]
    with pytest.raises(UsageError, match=r"not running but idle"):
        getattr(runtime, method)(*arguments)
    assert runtime.errors[f"runtime.{method}.state"] == 1


def test_installing_is_refused_while_running(bench: Bench) -> None:
    runtime = bench.started()
    with pytest.raises(UsageError):
        runtime.setup([bench.items])
    with pytest.raises(UsageError):
        runtime.teardown()
    assert runtime.errors["runtime.setup.state"] == runtime.errors["runtime.teardown.state"] == 1
    runtime.stop()
    assert runtime.setup([bench.items]) == runtime.setup([bench.items]) == []
    assert runtime.teardown() == runtime.teardown() == []
