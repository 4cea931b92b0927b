"""The connection that a capture keeps: few are opened, and none outlives its file or its capture."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.capture.sqlite import SqliteConfig, client, kept
from tailrace.capture.sqlite.client import Mode
from tailrace.model.errors import ConfigError, NeedsOperator
from tailrace.model.table import ColumnType
from tests.capture.sqlite.support import Source

TABLE = "CREATE TABLE t{} (id INTEGER PRIMARY KEY, n INTEGER)"
MANY = """INSERT INTO t1 WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s LIMIT 500)
SELECT i, i FROM s"""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that captures open to keep."""
    made: list[sqlite3.Connection] = []

    def noted(config: SqliteConfig, mode: Mode) -> sqlite3.Connection:
        made.append(client.connect(config, mode))
        return made[-1]

    monkeypatch.setattr(kept, "connect", noted)
    return made


def _closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def test_many_tables_are_described_planned_and_read_by_one_connection(
    source: Callable[..., Source], opened: list[sqlite3.Connection]
) -> None:
    shop = source(*(TABLE.format(number) for number in range(30))).install()
    shop.run(*(f"INSERT INTO t{number} VALUES (1, {number})" for number in range(30)))
    read = [shop.snapshot(f"t{number}")[0].after for number in range(30)]
    assert read == [{"id": 1, "n": number} for number in range(30)]
    assert shop.position is not None
    assert shop.capture.lag(shop.position).changes == 30
    assert len(opened) == 1


def test_a_read_that_begins_inside_of_another_has_a_connection_of_its_own(
    source: Callable[..., Source], opened: list[sqlite3.Connection]
) -> None:
    shop = source(TABLE.format(1), slice_rows=2).install()
    shop.run(MANY)
    table = shop.capture.describe(shop.ref("t1"))
    (chunk,) = shop.capture.plan(table.ref, rows_per_chunk=1000)
    outer = shop.capture.snapshot(table, chunk, position=1, seq=1)
    first = len(next(outer))
    shop.run("DELETE FROM t1")
    assert shop.snapshot("t1") == []
    # It goes on with the rows of its own moment.
    assert first + sum(len(batch) for batch in outer) == 500
    assert len(opened) == 2


def test_what_commits_later_and_a_new_schema_are_seen(source: Callable[..., Source]) -> None:
    shop = source(TABLE.format(1)).install()
    assert shop.snapshot("t1") == []
    shop.run("INSERT INTO t1 VALUES (1, 1)", "ALTER TABLE t1 ADD COLUMN name TEXT DEFAULT 'x'")
    assert [one.after for one in shop.snapshot("t1")] == [{"id": 1, "n": 1, "name": "x"}]


def test_a_file_that_took_the_place_of_another_is_read(source: Callable[..., Source], tmp_path: Path) -> None:
    shop = source(TABLE.format(1))
    assert shop.capture.tables() == [shop.ref("t1")]
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute(TABLE.format(2))
    other.close()
    for end in ("-wal", "-shm"):
        shop.path.with_name(shop.path.name + end).unlink()
    (tmp_path / "other.db").replace(shop.path)
    assert shop.capture.tables() == [shop.ref("t2")]
    shop.path.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        shop.capture.tables()


def test_a_capture_that_is_closed_keeps_nothing(
    source: Callable[..., Source], opened: list[sqlite3.Connection]
) -> None:
    shop = source(TABLE.format(1))
    shop.capture.tables()
    assert [_closed(one) for one in opened] == [False]
    shop.capture.close()
    # What is asked of it all the same is answered.
    assert shop.capture.tables() == [shop.ref("t1")]
    assert [_closed(one) for one in opened] == [True, True]


def test_a_read_that_fails_or_is_left_lets_go_of_its_connection(
    source: Callable[..., Source], opened: list[sqlite3.Connection]
) -> None:
    shop = source(TABLE.format(1), slice_rows=2)
    shop.run(MANY)
    with pytest.raises(NeedsOperator):
        list(shop.capture.query("SELECT nonsense FROM t1", (), [("n", ColumnType("long"))]))
    left = shop.capture.query("SELECT n FROM t1", (), [("n", ColumnType("long"))])
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert [_closed(one) for one in opened] == [True, True]


def test_conditions_of_people_do_not_see_the_functions_of_our_own_statements(
    source: Callable[..., Source],
) -> None:
    shop = source(TABLE.format(1)).install()
    sql = "SELECT tailrace_base64(x'00') AS b"
    rows = list(shop.capture.query(sql, (), [("b", ColumnType("string"))]))
    assert [row for batch in rows for row in batch.to_pylist()] == [{"b": "AA=="}]
    with pytest.raises(ConfigError, match="no such function"):
        shop.capture.check_condition(shop.ref("t1"), "tailrace_base64(n) = ''")


def test_two_slashes_before_an_absolute_path_are_one(source: Callable[..., Source]) -> None:
    shop = source(TABLE.format(1))
    assert SqliteConfig.from_url(f"sqlite:///{shop.path}").path == shop.path
