"""The stream that users iterate over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tailrace.capture.scripted import Event, Faults
from tailrace.model.change import Op
from tailrace.model.errors import DataError, UsageError
from tailrace.runtime.api import CaptureStream, capture_stream
from tailrace.runtime.backoff import Backoff
from tests.runtime.support import Bench, row, rows_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _stream(bench: Bench, mode: str = "snapshot", **settings: object) -> CaptureStream:
    quick = {"poll": 0.05, "backoff": Backoff(0.001, 0.01), "observer": bench.observer, **settings}
    return capture_stream(bench.capture, ["items"], state_dir=str(bench.path), mode=mode, **quick)  # type: ignore[arg-type]


def test_iterating_over_a_snapshot_ends_when_it_is_finished(bench: Bench) -> None:
    bench.source.insert(bench.items, *(row(n) for n in range(5)))
    found = []
    with _stream(bench, max_rows=2, rows_per_chunk=2) as stream:
        for delivery in stream:
            found += rows_of(delivery)
            stream.acknowledge(delivery.token)
    assert found == [("s", None), *(("r", n) for n in range(5))]
    assert stream.runtime.state == "stopped"


def test_a_plain_loop_survives_a_transaction_larger_than_a_delivery(bench: Bench) -> None:
    found = []
    with _stream(bench, "changes", max_rows=2) as stream:
        bench.source.commit(*(Event(Op.INSERT, bench.items, None, row(n)) for n in range(5)))
        for delivery in stream:
            found += rows_of(delivery)
            stream.acknowledge(delivery.token)
            if delivery.complete:
                break
        assert stream.runtime.unconfirmed == 0
    assert found == [("c", n) for n in range(5)]


def test_passing_faults_are_retried_while_iterating(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    with _stream(bench) as stream:
        bench.capture.faults = Faults(visible=3)
        found = []
        for delivery in stream:
            found += rows_of(delivery)
            stream.acknowledge(delivery.token)
    assert found == [("s", None), ("r", 1)]
    assert bench.observer.count("runtime.poll.source") == 3


def test_another_error_leaves_the_loop(bench: Bench) -> None:
    bench.source.insert(bench.items, row(1))
    with _stream(bench) as stream:
        bench.capture.faults = Faults(error=DataError, visible=1)
        with pytest.raises(DataError):
            next(iter(stream))


def test_a_forgotten_acknowledgement_is_an_error_and_not_a_hang(bench: Bench) -> None:
    with _stream(bench, "changes") as stream:
        bench.source.insert(bench.items, row(1))
        with pytest.raises(UsageError, match=r"not acknowledged"):
            list(stream)


def test_close_from_another_thread_ends_the_iteration(bench: Bench) -> None:
    with _stream(bench, "changes") as stream:
        timer = threading.Timer(0.1, stream.close)
        timer.start()
        assert list(stream) == []
        timer.join()


def test_what_was_not_acknowledged_comes_again(bench: Bench) -> None:
    with _stream(bench, "changes") as stream:
        bench.source.insert(bench.items, row(1))
        assert rows_of(next(iter(stream))) == [("c", 1)]
    bench.capture.closed = False
    with _stream(bench, "changes") as stream:
        assert rows_of(next(iter(stream))) == [("c", 1)]


def test_finish_inside_of_a_large_transaction_delivers_the_rest_of_it(bench: Bench) -> None:
    with _stream(bench, "changes", max_rows=2) as stream:
        bench.source.insert(bench.items, *(row(n) for n in range(5)))
        bench.source.insert(bench.items, row(9))
        found = []
        for delivery in stream:
            found += rows_of(delivery)
            stream.finish()
            stream.acknowledge(delivery.token)
    assert found == [("c", n) for n in range(5)]
    assert bench.source.cursors["default"] == 1


def test_finish_lets_what_is_being_handled_be_acknowledged(bench: Bench) -> None:
    with _stream(bench, "changes", max_rows=1) as stream:
        bench.source.insert(bench.items, row(1))
        bench.source.insert(bench.items, row(2))
        found = []
        for delivery in stream:
            found += rows_of(delivery)
            stream.finish()
            stream.acknowledge(delivery.token)
    assert found == [("c", 1)]
    assert bench.source.cursors["default"] == 1
