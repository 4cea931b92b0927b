"""The table of faults tells the truth about its tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.rows import ROWS

HERE = Path(__file__).parent
WANTED = {*range(1, 10), 11, 12, 16, *range(26, 29), *range(33, 37), 39, 40}


def functions(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def is_long(file: str, name: str) -> bool:
    tree = ast.parse((HERE / file).read_text())
    (node,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return any("mark.long" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_every_fault_of_sqlite_into_delta_is_in_the_table_once() -> None:
    numbers = [row.number for row in ROWS]
    assert sorted(numbers) == sorted(WANTED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_every_row_has_tests_that_exist_and_one_in_every_run(row: object) -> None:
    from tests.faults.rows import Row

    assert isinstance(row, Row)
    assert row.proved
    named = [tuple(test.split("::")) for test in row.proved]
    for file, name in named:
        assert name in functions(file), name
    assert not all(is_long(file, name) for file, name in named)
