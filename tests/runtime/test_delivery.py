"""Tokens, prefixes, transaction boundaries, replays: what is delivered and when it counts as confirmed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tailrace.capture.scripted import Event, Faults
from tailrace.model.change import Op
from tailrace.model.errors import Fenced, Transient, UsageError
from tailrace.runtime.delivery import Token
from tests.runtime.support import Bench, drain, row, rows_of
from tests.support.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _break_saving(bench: Bench) -> bytes:
    saved = bench.checkpoint_file.read_bytes()
    bench.checkpoint_file.unlink()
    bench.checkpoint_file.mkdir()
    return saved


def _mend_saving(bench: Bench, saved: bytes) -> None:
    bench.checkpoint_file.rmdir()
    bench.checkpoint_file.write_bytes(saved)


def test_a_token_is_spent_once(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    delivery = runtime.poll()
    assert delivery is not None
    assert runtime.acknowledge(delivery.token) is None
    with pytest.raises(UsageError, match=r"spent"):
        runtime.acknowledge(delivery.token)
    with pytest.raises(UsageError, match=r"spent"):
        runtime.acknowledge(Token(delivery.token.number))
    assert runtime.errors["runtime.acknowledge.token"] == 2
    assert (runtime.committed_count, bench.source.cursors["test"]) == (1, 1)
    runtime.stop()


def test_a_save_that_fails_leaves_the_token_unspent(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    delivery = runtime.poll()
    assert delivery is not None
    saved = _break_saving(bench)
    for _ in range(2):
        with pytest.raises(Transient):
            runtime.acknowledge(delivery.token)
    assert (runtime.committed_count, runtime.unconfirmed, bench.source.cursors["test"]) == (0, 1, 0)
    assert bench.observer.count("runtime.acknowledge.save") == 2
    _mend_saving(bench, saved)
    runtime.acknowledge(delivery.token)
    assert (bench.stored().committed, runtime.unconfirmed, bench.source.cursors["test"]) == (1, 0, 1)
    runtime.stop()


def test_one_delivery_is_out_at_a_time(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    assert runtime.poll() is not None
    with pytest.raises(UsageError, match=r"1 delivered changes are not acknowledged"):
        runtime.poll()
    assert runtime.errors["runtime.poll.unconfirmed"] == 1
    runtime.close()


def test_a_prefix_may_be_acknowledged_and_the_rest_stays_pending(bench: Bench) -> None:
    runtime = bench.started()
    for number in range(3):
        bench.source.insert(bench.items, row(2 * number), row(2 * number + 1))
    delivery = runtime.poll()
    assert delivery is not None
    assert delivery.rows == 6
    rest = runtime.acknowledge(delivery.token, 3)
    assert rest is not None
    assert runtime.unconfirmed == 3
    assert (bench.stored().position.version, bench.stored().committed) == (1, 2), "whole transactions only"
    assert bench.source.cursors["test"] == 1
    with pytest.raises(UsageError):
        runtime.acknowledge(delivery.token)
    with pytest.raises(UsageError, match=r"4 changes cannot be acknowledged of 3"):
        runtime.acknowledge(rest, 4)
    with pytest.raises(UsageError):
        runtime.acknowledge(rest, 0)
    assert runtime.acknowledge(rest) is None
    assert (bench.stored().position.version, bench.stored().committed) == (3, 6)
    runtime.stop()


def test_after_a_prefix_and_a_crash_the_unfinished_transaction_comes_again_whole(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(0), row(1))
    bench.source.insert(bench.items, row(2), row(3))
    delivery = runtime.poll()
    assert delivery is not None
    runtime.acknowledge(delivery.token, 3)
    runtime.force_stop()
    runtime = bench.started()
    assert drain(runtime) == [("c", 2), ("c", 3)]
    assert runtime.committed_count == 4
    runtime.stop()


def test_a_delivery_ends_on_a_transaction_boundary(bench: Bench) -> None:
    runtime = bench.started(max_rows=5)
    for number in range(4):
        bench.source.insert(bench.items, row(10 * number), row(10 * number + 1))
    sizes = []
    while delivery := runtime.poll(0.05):
        assert delivery.complete
        sizes.append(delivery.rows)
        runtime.acknowledge(delivery.token)
    assert sizes == [4, 4]
    runtime.stop()


@pytest.mark.parametrize("parts", [1, 4])
def test_a_large_transaction_comes_in_parts_that_are_acknowledged_together(bench: Bench, parts: int) -> None:
    runtime = bench.started(max_rows=3)
    events = [Event(Op.INSERT, bench.items, None, row(number)) for number in range(8)]
    bench.source.commit(*events, parts=parts)
    bench.source.insert(bench.items, row(99))
    found, deliveries = [], []
    while True:
        delivery = runtime.poll()
        assert delivery is not None
        assert delivery.rows <= 3
        found += rows_of(delivery)
        deliveries.append(delivery)
        if delivery.complete:
            break
        with pytest.raises(UsageError, match=r"acknowledged together"):
            runtime.acknowledge(delivery.token)
        assert bench.stored().position.version == 0
    assert found == [("c", number) for number in range(8)]
    assert runtime.unconfirmed == 8
    with pytest.raises(UsageError):
        runtime.acknowledge(deliveries[0].token)
    runtime.acknowledge(deliveries[-1].token)
    assert (bench.stored().position.version, bench.stored().committed) == (1, 8)
    assert drain(runtime) == [("c", 99)]
    runtime.stop()


def test_a_prefix_that_ends_between_two_parts_does_not_move_the_position(bench: Bench) -> None:
    runtime = bench.started(max_rows=2)
    bench.source.commit(*(Event(Op.INSERT, bench.items, None, row(number)) for number in range(6)), parts=3)
    delivery = runtime.poll()
    while delivery is not None and not delivery.complete:
        delivery = runtime.poll()
    assert delivery is not None
    rest = runtime.acknowledge(delivery.token, 2)
    assert rest is not None
    assert (bench.stored().position.version, bench.stored().committed, bench.source.cursors["test"]) == (
        0,
        0,
        0,
    )
    assert runtime.unconfirmed == 4
    runtime.force_stop()
    runtime = bench.started()
    assert drain(runtime) == [("c", number) for number in range(6)]
    runtime.stop()


def test_parts_beyond_the_budget_leave_memory_and_come_back_whole(bench: Bench) -> None:
    runtime = bench.started(max_rows=10, max_bytes=4_000)
    events = [Event(Op.INSERT, bench.items, None, row(number, "x" * 100)) for number in range(200)]
    bench.source.commit(*events, parts=20)
    for _ in range(20):
        assert runtime.poll() is not None
    assert runtime._ledger.held <= 4_000
    pieces = runtime.force_stop()
    assert [change for piece in pieces for change in rows_of(piece)] == [("c", n) for n in range(200)]


def test_what_a_replay_delivers_again_is_dropped_and_counted(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1), row(2))
    bench.source.insert(bench.items, row(3))
    drain(runtime)
    runtime.stop()
    bench.capture.replay = 2
    runtime.start()
    bench.source.insert(bench.items, row(4))
    assert drain(runtime) == [("c", 4)]
    assert runtime.counters.deduplicated == 3
    runtime.stop()


def test_two_equal_rows_are_two_rows(bench: Bench) -> None:
    runtime = bench.started()
    twice = Event(Op.INSERT, bench.items, None, row(1))
    bench.source.commit(twice, twice)
    bench.source.commit(twice)
    assert drain(runtime) == [("c", 1)] * 3
    assert runtime.counters.deduplicated == 0
    runtime.stop()


def test_a_log_cut_inside_a_transaction_goes_on_without_a_gap_or_a_repetition(bench: Bench) -> None:
    runtime = bench.started(max_rows=2)
    events = [Event(Op.INSERT, bench.items, None, row(number)) for number in range(8)]
    bench.capture.faults = Faults(at_part=3)
    bench.source.commit(*events, parts=4)
    found, cuts = [], 0
    while True:
        try:
            delivery = runtime.poll()
        except Transient:
            cuts += 1
            continue
        assert delivery is not None
        found += rows_of(delivery)
        if delivery.complete:
            break
    assert cuts == 1
    assert found == [("c", number) for number in range(8)]
    assert runtime.counters.deduplicated == 4
    runtime.acknowledge(delivery.token)
    runtime.stop()


def test_a_poll_that_fails_keeps_what_it_had_taken(bench: Bench) -> None:
    runtime = bench.started()
    bench.capture.faults = Faults(at_part=3)
    for number in range(3):
        bench.source.insert(bench.items, row(number))
    with pytest.raises(Transient):
        runtime.poll()
    assert (runtime.unconfirmed, bench.observer.count("runtime.poll.source")) == (2, 1)
    assert drain(runtime) == [("c", 0), ("c", 1), ("c", 2)]
    runtime.stop()


def test_an_acknowledgement_the_source_did_not_hear_is_repeated(bench: Bench) -> None:
    runtime = bench.started()
    bench.capture.faults = Faults(acknowledge=1)
    bench.source.insert(bench.items, row(1))
    assert drain(runtime) == [("c", 1)]
    assert bench.observer.count("runtime.acknowledge.source") == 1
    assert (bench.stored().position.version, bench.source.cursors["test"]) == (1, 1)
    runtime.stop()


def test_the_acknowledged_position_moves_while_watched_tables_are_idle(bench: Bench) -> None:
    other = bench.source.table("other")
    runtime = bench.started()
    for number in range(5):
        bench.source.insert(other, row(number))
    assert runtime.poll(0.1) is None
    assert (bench.stored().position.version, bench.source.cursors["test"], runtime.unconfirmed) == (5, 5, 0)
    runtime.stop()


def test_an_idle_position_that_cannot_be_saved_is_saved_later(bench: Bench) -> None:
    other = bench.source.table("other")
    runtime = bench.started()
    bench.source.insert(other, row(1))
    saved = _break_saving(bench)
    with pytest.raises(Transient):
        runtime.poll(0.05)
    _mend_saving(bench, saved)
    assert runtime.poll(0.05) is None
    assert bench.stored().position.version == 1
    runtime.stop()


def test_a_transaction_whose_last_part_holds_nothing_of_ours_is_still_acknowledged(bench: Bench) -> None:
    other = bench.source.table("other")
    runtime = bench.started(max_rows=2)
    mine = [Event(Op.INSERT, bench.items, None, row(number)) for number in range(2)]
    theirs = [Event(Op.INSERT, other, None, row(number)) for number in range(2)]
    bench.source.commit(*mine, *theirs, parts=2)
    first = runtime.poll()
    assert first is not None
    assert (first.rows, first.complete) == (2, False)
    last = runtime.poll()
    assert last is not None
    assert (last.rows, last.complete) == (0, True)
    runtime.acknowledge(last.token)
    assert bench.stored().position.version == 1
    runtime.stop()


def test_injected_changes_come_next_and_are_confirmed_without_moving_the_position(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    delivery = runtime.poll()
    assert delivery is not None
    runtime.inject(list(delivery.batches))
    assert runtime.unconfirmed == 2
    runtime.acknowledge(delivery.token)
    with pytest.raises(UsageError, match=r"^1 changes"):
        runtime.stop()
    injected = runtime.poll(0)
    assert rows_of(injected) == [("c", 1)]
    assert injected is not None
    runtime.acknowledge(injected.token)
    assert (runtime.committed_count, bench.stored().position.version) == (2, 1)
    runtime.stop()


def test_a_clean_stop_and_start_without_writes_delivers_nothing(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    drain(runtime)
    runtime.stop()
    runtime.start()
    assert runtime.poll(0.05) is None
    runtime.stop()


def test_lag_counts_from_the_confirmed_position(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    bench.source.insert(bench.items, row(2))
    assert runtime.lag().changes == 2
    drain(runtime)
    assert runtime.lag().changes == 0
    runtime.stop()


def test_a_runtime_that_lost_its_state_to_another_process_is_fenced(bench: Bench) -> None:
    runtime = bench.started()
    bench.source.insert(bench.items, row(1))
    delivery = runtime.poll()
    assert delivery is not None
    owners = bench.checkpoint_file.parent / "owner"
    newest = max(owners.glob("*.json"))
    later = newest.with_name(f"{int(newest.stem) + 1:08d}.json")
    later.write_bytes(newest.read_bytes())
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 0.06)
    with pytest.raises(Fenced):
        runtime.acknowledge(delivery.token)
    assert bench.stored().committed == 0
    runtime.close()
