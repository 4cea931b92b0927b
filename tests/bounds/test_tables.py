"""A thousand tables take a little memory each, and no more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.bounds.grounds import Ground, Row, mirrored
from tests.bounds.rig import JVM_MB, Home, Usage, bounded

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

LARGE = int(os.environ.get("TAILRACE_BOUNDS_TABLES", "1000"))
SMALL = LARGE // 10
ROWS = 10
ASKED = 100
CEILINGS = {"driver": 700.0, "jvm": JVM_MB, "capture": 450.0, "workers": 700.0}
# What a table may take in the process that knows most of it.
EACH_MB = 0.3


def _names(count: int) -> list[str]:
    return [f"t{number:04}" for number in range(count)]


def _sums(name: str) -> str:
    return f"SELECT '{name}', count(*), CAST(sum(id) AS BIGINT), CAST(sum(n) AS BIGINT) FROM {name}"


def _held(ground: Ground, names: list[str]) -> list[Row]:
    """The sums of each table; some at a time, for SQLite reads the schema of all first."""
    return sorted(
        row
        for first in range(0, len(names), ASKED)
        for row in ground.asked(" UNION ALL ".join(_sums(name) for name in names[first : first + ASKED]))
    )


def _pipeline(tmp_path: Path, ground: Ground, count: int) -> tuple[Home, Usage, Usage]:
    """A snapshot of so many tables, then a transaction that touches all of them."""
    directory = tmp_path / f"of-{count}"
    directory.mkdir()
    home = Home(directory, ground.url)
    tables = "\n".join(f'[[table]]\nname = "{name}"' for name in _names(count))
    home.configure(tables, name=f"of_{count}")
    updates = [f"UPDATE {name} SET n = n + {count} WHERE id > 3" for name in _names(count)]
    with home.running() as running:
        snapshot = running.phase(f"a snapshot of {count:,} tables", count * ROWS)
        touched = count * (ROWS - 3)
        changes = running.phase(f"changes of {count:,} tables", touched, lambda: ground.transaction(*updates))
    expected = _held(ground, _names(count))
    assert len(expected) == count
    assert [row for name in _names(count) for row in mirrored(home.lake / name, _sums(name))] == expected
    return home, snapshot, changes


def test_mirrors_of_a_thousand_tables_take_little_memory_each(tmp_path: Path, ground: Ground) -> None:
    ground.transaction(
        *(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, n BIGINT)" for name in _names(LARGE)),
        *(f"INSERT INTO {name} SELECT i, i FROM {ground.series(1, ROWS)}" for name in _names(LARGE)),
    )
    ground.publish(_names(LARGE))
    small_home, *small = _pipeline(tmp_path, ground, SMALL)
    large_home, *large = _pipeline(tmp_path, ground, LARGE)
    for few, many in zip(small, large, strict=True):
        bounded(few, many, ceilings=CEILINGS, slack=EACH_MB * (LARGE - SMALL))
    for home in (small_home, large_home):
        shutil.rmtree(home.directory)
