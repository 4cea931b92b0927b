"""The gate: a stop lets the batch inside finish and turns the next one away."""

from __future__ import annotations

import threading

import pytest

from tailrace.engine.gate import Closed, Gate


def test_a_stop_waits_for_the_batch_inside() -> None:
    gate, inside, leave = Gate(), threading.Event(), threading.Event()

    def batch() -> None:
        with gate.batch(3):
            inside.set()
            leave.wait(60)

    worker = threading.Thread(target=batch)
    worker.start()
    assert inside.wait(60)
    assert not gate.close(0.05)
    leave.set()
    assert gate.close(60)
    assert gate.finished == 3
    worker.join()


def test_a_batch_after_the_stop_writes_nothing_and_waits_for_nobody() -> None:
    gate, outcome = Gate(), []

    def batch() -> None:
        try:
            with gate.batch(4):
                outcome.append("written")
        except Closed:
            outcome.append("closed")

    gate.close()
    worker = threading.Thread(target=batch)
    worker.start()
    worker.join(timeout=20)
    assert outcome == ["closed"]


def test_a_batch_that_fails_is_not_finished() -> None:
    gate = Gate()
    with pytest.raises(ValueError, match="no"), gate.batch(5):
        raise ValueError("no")
    assert gate.finished == -1
    assert gate.close(0)


def test_waiting_for_a_retry_ends_with_the_stop() -> None:
    gate = Gate()
    threading.Timer(0.05, gate.close).start()
    assert gate.wait_closed(30)
