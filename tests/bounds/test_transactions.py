"""A transaction takes as much memory as a part of it, however many rows it has."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.bounds.grounds import Ground, mirrored
from tests.bounds.rig import JVM_MB, Home, bounded
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(3600)

# So that a machine with less time can try it smaller.
LARGE = int(os.environ.get("TAILRACE_BOUNDS_ROWS", "5000000"))
SMALL = LARGE // 10
SHORT = int(os.environ.get("TAILRACE_BOUNDS_SHORT", "300000"))
CEILINGS = {"driver": 700.0, "jvm": JVM_MB, "capture": 450.0, "workers": 700.0}
COLUMNS = "id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(40) NOT NULL"
NOTE = "'row ' || CAST((i * 7919) % 1000003 AS VARCHAR(20)) || ' of a large transaction'"
GROUPS = 1000
SCHEMA = """
version: 1
table: groups
primary_key: id
fields:
  - long: id
  - count: items
    table: items
    foreign_key: amount
  - sum: total
    table: items
    foreign_key: amount
    column: id
    value_type: long
"""
# Whatever is lost, doubled or mixed up changes one of these.
SUMS = f"""
SELECT count(*), CAST(sum(id) AS BIGINT), CAST(sum(amount) AS BIGINT),
       CAST(sum((id * 31 + amount) % 65521) AS BIGINT),
       CAST(sum(CASE WHEN note = {NOTE.replace("(i ", "(id ")} THEN 1 ELSE 0 END) AS BIGINT)
FROM items
"""


@pytest.fixture
def home(tmp_path: Path, ground: Ground) -> Iterator[Home]:
    made = Home(tmp_path, ground.url)
    yield made
    shutil.rmtree(made.lake, ignore_errors=True)
    shutil.rmtree(made.state, ignore_errors=True)


def _insert(ground: Ground, first: int, last: int) -> None:
    ground.transaction(f"INSERT INTO items SELECT i, i % 1000, {NOTE} FROM {ground.series(first, last)}")


def _begin(ground: Ground, home: Home, extra: str = "") -> None:
    ground.transaction(f"CREATE TABLE items ({COLUMNS})")
    ground.publish(["items"])
    _insert(ground, 0, 0)
    home.configure(f'[[table]]\nname = "items"\n{extra}')


def _compare(ground: Ground, home: Home, count: int) -> None:
    expected = ground.asked(SUMS)
    assert expected[0][0] == expected[0][-1] == count
    assert mirrored(home.lake / "items", SUMS) == expected


@pytest.mark.spark
@pytest.mark.long
def test_a_mirror_takes_a_transaction_of_any_number_of_rows(ground: Ground, home: Home) -> None:
    _begin(ground, home)
    with home.running() as running:
        running.phase("begin", 1)
        small = running.phase(f"{SMALL:,} rows", SMALL, lambda: _insert(ground, 1, SMALL))
        large = running.phase(
            f"{LARGE:,} rows", LARGE, lambda: _insert(ground, SMALL + 1, SMALL + LARGE), timeout=1800
        )
    _compare(ground, home, SMALL + LARGE + 1)
    bounded(small, large, ceilings=CEILINGS)


@pytest.mark.spark
@pytest.mark.long
def test_documents_follow_a_transaction_of_any_number_of_rows(ground: Ground, home: Home) -> None:
    ground.transaction(
        "CREATE TABLE groups (id BIGINT PRIMARY KEY)",
        f"CREATE TABLE items ({COLUMNS})",
        "CREATE INDEX items_by_amount ON items (amount)",
        f"INSERT INTO groups SELECT i FROM {ground.series(0, GROUPS - 1)}",
    )
    ground.publish(["groups", "items"])
    (home.directory / "groups.schema.yml").write_text(SCHEMA)
    home.configure(
        '[sinks.docs]\ntype = "sqlite"\npath = "docs.db"\n'
        '[[index]]\nname = "groups"\nschema = "groups.schema.yml"\nsinks = ["docs"]'
    )
    with home.running() as running:
        wait_until(lambda: len(_documents(home)) == GROUPS, timeout=120, what="the first filling")
        small = running.phase(f"{SMALL:,} rows", SMALL, lambda: _insert(ground, 1, SMALL))
        large = running.phase(
            f"{LARGE:,} rows", LARGE, lambda: _insert(ground, SMALL + 1, SMALL + LARGE), timeout=3000
        )
    expected = ground.asked("SELECT amount, count(*), CAST(sum(id) AS BIGINT) FROM items GROUP BY amount")
    assert sum(row[1] for row in expected) == SMALL + LARGE
    assert _documents(home) == {str(amount): (count, total) for amount, count, total in expected}
    bounded(small, large, ceilings=CEILINGS)


def _documents(home: Home) -> dict[str, tuple[int, int]]:
    """How many items a group has by its document, and what their ids add up to."""
    path = home.directory / "docs.db"
    if not path.exists():
        return {}
    query = "SELECT id, json_extract(document, '$.items'), json_extract(document, '$.total') FROM documents"
    with closing(sqlite3.connect(path)) as connection:
        try:
            return {one: (count, total) for one, count, total in connection.execute(query)}
        except sqlite3.OperationalError:
            # It is being laid out.
            return {}


@pytest.mark.parametrize("ground", ["sqlite"], indirect=True)
def test_without_spark_a_mirror_takes_a_transaction_of_any_number_of_rows(
    ground: Ground, tmp_path: Path
) -> None:
    home, small, large = Home(tmp_path, ground.url, alone=True), SHORT // 10, SHORT
    # The transaction is several times as large as a batch, and ten times that.
    _begin(ground, home, '[batch]\nmax_bytes = "2MB"')
    home.run("begin")
    _insert(ground, 1, small)
    few = home.run(f"{small:,} rows")
    _insert(ground, small + 1, small + large)
    many = home.run(f"{large:,} rows")
    _compare(ground, home, small + large + 1)
    bounded(few, many, ceilings={"driver": 400.0}, ratio=1.2, slack=20.0)
