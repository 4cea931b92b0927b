"""What a sustained rate leaves out is measured alike for both sides; what was not measured holds no bar."""

from __future__ import annotations

from bench import postgres
from bench.measure import at_most
from bench.postgres import DEBEZIUM, NOOP, Result


def _result(contestant: str, workload: str, seconds: float, empty: float | None, start: float) -> Result:
    return Result(
        workload=workload,
        title="",
        contestant=contestant,
        rows=100,
        seconds=seconds,
        sustained_seconds=seconds - start,
        empty_seconds=empty,
        cpu_seconds=0.0,
        server_cpu_seconds=0.0,
        peak_mb=0.0,
        tree_peak_mb=0.0,
        others=0.0,
    )


def test_of_every_contestant_the_least_start_that_was_seen_is_left_out() -> None:
    results = [
        _result(NOOP, "small", 6.0, 3.0, 3.0),
        _result(NOOP, "big", 9.0, 1.0, 1.0),
        _result(DEBEZIUM, "small", 8.0, None, 0.5),
        _result(DEBEZIUM, "small", 8.0, None, 2.0),
        _result(DEBEZIUM, "big", 20.0, None, 5.0),
    ]
    left = [one.sustained_seconds for one in postgres._started(results)]
    assert left == [5.0, 8.0, 7.5, 7.5, 19.5]


def test_a_process_that_was_not_found_holds_no_bar() -> None:
    assert at_most("peak memory", 0.0, 600, "MB").ok is False
    assert at_most("peak memory", 1.0, 600, "MB").ok is True
