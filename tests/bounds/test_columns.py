"""Rows of a thousand columns take no more memory when there are more of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds.grounds import Ground, mirrored
from tests.bounds.rig import JVM_MB, Home, bounded

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

COLUMNS = [f"c{number}" for number in range(1, 1000)]
# A micro-batch of them is full at some thousand rows.
SMALL, LARGE = 6_000, 30_000
CEILINGS = {"driver": 900.0, "jvm": JVM_MB, "capture": 600.0, "workers": 700.0}
SUMS = f"""
SELECT count(*), CAST(sum(id) AS BIGINT), {", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COLUMNS)}
FROM items
"""


@pytest.fixture
def home(tmp_path: Path, ground: Ground) -> Iterator[Home]:
    made = Home(tmp_path, ground.url)
    yield made
    for directory in (made.lake, made.state):
        shutil.rmtree(directory, ignore_errors=True)


def _insert(ground: Ground, first: int, last: int) -> None:
    values = ", ".join(f"(i * {7 + number}) % {10_007 + number}" for number in range(len(COLUMNS)))
    ground.transaction(f"INSERT INTO items SELECT i, {values} FROM {ground.series(first, last)}")


def test_a_mirror_takes_rows_of_a_thousand_columns(ground: Ground, home: Home) -> None:
    columns = ", ".join(f"{name} INTEGER" for name in COLUMNS)
    ground.transaction(f"CREATE TABLE items (id INTEGER PRIMARY KEY, {columns})")
    ground.publish(["items"])
    home.configure('[[table]]\nname = "items"')
    _insert(ground, 1, 10)
    with home.running() as running:
        running.phase("begin", 10)
        what = "rows of 1,000 columns"
        small = running.phase(f"{SMALL:,} {what}", SMALL, lambda: _insert(ground, 11, 10 + SMALL))
        first = 11 + SMALL
        large = running.phase(f"{LARGE:,} {what}", LARGE, lambda: _insert(ground, first, first + LARGE - 1))
    expected = ground.asked(SUMS)
    assert expected[0][0] == 10 + SMALL + LARGE
    assert mirrored(home.lake / "items", SUMS) == expected
    bounded(small, large, ceilings=CEILINGS)
