"""The table of faults tells the truth about its tests."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tests.faults.marks import KINDS, kinds_of
from tests.faults.rows import ROWS, Row

WANTED = {
    "sqlite": {*range(1, 10), 11, 12, 16, 22, 24, *range(26, 30), *range(33, 37), 38, 39, 40},
    "postgres": {*range(1, 37), 38, 39, 40},
}
# Spark itself, servers of their own, or seconds of patience: too slow for every run.
LONG_ONLY = {"sqlite": {5}, "postgres": {5, 15, 16, 22, 25, 32, 38, 39, 40}}


def module_of(file: str) -> ModuleType:
    return importlib.import_module(f"tests.faults.{file.removesuffix('.py')}")


def runs_of(test: str) -> dict[str, bool]:
    """The databases a test runs on, and whether that is only in the long suite."""
    file, name = test.split("::")
    module = module_of(file)
    marks = getattr(module, "pytestmark", [])
    return kinds_of(getattr(module, name), marks if isinstance(marks, list) else [marks])


def test_every_fault_that_concerns_a_database_is_in_the_table_once() -> None:
    assert sorted(row.number for row in ROWS) == sorted({row.number for row in ROWS})
    assert {kind: {row.number for row in ROWS if row.on(kind)} for kind in KINDS} == WANTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_every_row_has_tests_that_run_on_its_databases_and_one_in_every_run(row: Row) -> None:
    for kind in KINDS:
        runs = {test: runs_of(test) for test in row.on(kind)}
        missing = [test for test, found in runs.items() if kind not in found]
        assert not missing, kind
        if runs:
            assert all(found[kind] for found in runs.values()) == (row.number in LONG_ONLY[kind]), kind
