"""What is left of the speed where something has grown."""

from __future__ import annotations

import pytest

from bench import scaling
from bench.scaling import BATCH, CHANGED, COUNT, Result


def _result(group: str, contestant: str, size: int, *, seconds: float, rows: int = 1_000_000) -> Result:
    return Result(
        group,
        contestant,
        size,
        rows,
        1.0,
        seconds=seconds,
        cpu_seconds=1.0,
        server_cpu_seconds=1.0,
        peak_mb=10.0,
        tree_peak_mb=100.0 + size / 100_000,
        others=0.0,
    )


def _figures(*results: Result) -> dict[str, float]:
    return {figure.what: figure.value for figure in scaling._figures(list(results))}


def test_rates_leave_the_start_out_and_memory_is_better_when_it_is_lower() -> None:
    small = _result("rows", BATCH, 1_000_000, seconds=3.0)
    large = _result("rows", BATCH, 10_000_000, seconds=21.0, rows=10_000_000)
    found = {figure.what: figure for figure in scaling._figures([small, large])}
    rate = found[f"rows: {BATCH}, rows/s at 10,000,000 against 1,000,000"]
    memory = found[f"rows: {BATCH}, memory at 10,000,000 against 1,000,000"]
    assert (rate.value, rate.lower) == (1.0, False)
    assert memory.value == pytest.approx(200 / 110)
    assert memory.lower


def test_wider_tables_are_compared_by_values() -> None:
    ten, hundred = (_result("columns", BATCH, size, seconds=1 + size / 10) for size in (10, 100))
    assert _figures(ten, hundred) == {f"columns: {BATCH}, values/s at 100 against 10": pytest.approx(1.0)}


def test_changes_are_compared_with_the_client_that_counts() -> None:
    both = [
        _result("transactions", name, 10, seconds=seconds) for name, seconds in ((COUNT, 5), (CHANGED, 3))
    ]
    assert _figures(*both) == {f"transactions: {CHANGED} against {COUNT} at 10": pytest.approx(2.0)}


def test_small_sizes_can_be_chosen() -> None:
    assert max(scaling._options(["--quick"]).rows) < max(scaling._options([]).rows) == 10_000_000
