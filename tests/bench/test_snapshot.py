"""Ratios of snapshots are those of the same round, and a bar never goes away."""

from __future__ import annotations

import pytest

from bench import snapshot
from bench.measure import Figure
from bench.snapshot import BATCH, DEBEZIUM, JDBC, STREAM, Result


def _result(contestant: str, turn: int, seconds: float, empty: float = 0.0) -> Result:
    return Result(
        table="orders",
        title="",
        contestant=contestant,
        turn=turn,
        rows=100,
        columns=8,
        seconds=seconds,
        empty_seconds=empty,
        cpu_seconds=0.0,
        server_cpu_seconds=0.0,
        empty_cpu_seconds=0.0,
        peak_mb=0.0,
        tree_peak_mb=0.0,
        others=0.0,
    )


def _figure(what: str, *results: Result) -> Figure:
    return {figure.what: figure for figure in snapshot._figures(list(results))}[f"orders: {what}"]


def test_a_ratio_is_the_one_in_the_middle_of_those_of_the_same_round() -> None:
    # The machine becomes slower and slower; round 1 of the other side failed.
    ours = [_result(BATCH, turn, seconds) for turn, seconds in enumerate((1.0, 2.0, 4.0, 8.0))]
    other = [_result(JDBC, turn, seconds) for turn, seconds in ((0, 0.9), (2, 4.4), (3, 7.6))]
    assert _figure(f"{BATCH} against {JDBC}", *ours, *other).value == pytest.approx(0.95)


def test_who_has_fewer_rounds_is_compared_in_those() -> None:
    ours = [_result(BATCH, turn, 1.0) for turn in range(5)]
    other = [_result(DEBEZIUM, turn, seconds) for turn, seconds in enumerate((11.0, 15.0, 12.0))]
    assert _figure(f"{BATCH} against {DEBEZIUM}", *ours, *other).value == pytest.approx(12.0)


def test_debezium_has_three_rounds_and_all_but_the_first_after_those_of_the_others() -> None:
    quick, late = snapshot.QUICK_KINDS, ("debezium",)
    others = [(0, None), *((turn, quick) for turn in range(1, 5))]
    assert snapshot.rounds(5, barred=True) == [*others, (1, late), (2, late)]
    assert snapshot.rounds(5, barred=False) == [*others[:3], (1, late), (2, late)]
    assert snapshot.rounds(1, barred=True) == [(0, None)]


def test_a_bar_that_could_not_be_measured_is_missed() -> None:
    found = _figure(f"{STREAM} against {BATCH}", _result(STREAM, 0, 2.0, 1.95), _result(BATCH, 0, 1.0, 0.1))
    assert found.ok is False
