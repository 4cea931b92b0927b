"""Questions in SQLite's own SQL: values, parameters, errors, and that no writer waits for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.model.errors import NeedsOperator, TailraceError
from tailrace.model.table import ColumnType
from tests.capture.sqlite.support import Source

LONG, TEXT = ColumnType("long"), ColumnType("string")
Make = Callable[..., Source]


def ask(source: Source, sql: str, *parameters: Any, **columns: ColumnType) -> list[dict[str, Any]]:
    found = source.capture.query(sql, parameters, list(columns.items()))
    return [row for batch in found for row in batch.to_pylist()]


def test_values_are_those_of_a_snapshot(source: Make) -> None:
    one = source("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, n DECIMAL(10,2), b BLOB, t BOOLEAN)")
    one.app.execute("INSERT INTO t VALUES (1, 'x', 1.5, x'00ff', 1), (2, NULL, 'odd', NULL, 7)")
    one.app.execute("INSERT INTO t VALUES (3, CAST(x'ff' AS TEXT), 3, 'text', 0)")
    table = one.capture.describe(one.ref("t"))
    (batch,) = one.capture.snapshot(table, Chunk(table.ref, 0), position=1, seq=0)
    (found,) = one.capture.query("SELECT * FROM t", (), [(c.name, c.type) for c in table.columns])
    for at, column in enumerate(table.columns):
        assert found.column(at).equals(batch.data.column("after").field(column.name))
    assert found.column("exact").to_pylist() == batch.data.column("after_exact").to_pylist()


def test_parameters_of_any_size_are_values(source: Make) -> None:
    one = source("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    keys = list(range(200_000))
    sql = "SELECT count(*), max(value) FROM json_each(?)"
    assert ask(one, sql, json.dumps(keys), n=LONG, m=LONG) == [{"n": 200_000, "m": 199_999}]
    found = one.capture.query("SELECT :a", {"a": "it's ? :b"}, [("v", TEXT)])
    assert [batch.to_pylist() for batch in found] == [[{"v": "it's ? :b"}]]


def test_rows_come_in_bounded_batches_and_none_in_none(source: Make) -> None:
    one = source("CREATE TABLE t (id INTEGER PRIMARY KEY)", slice_rows=1000)
    sql = "SELECT value FROM json_each(?)"
    found = list(one.capture.query(sql, (json.dumps(list(range(10_000))),), [("v", LONG)]))
    assert sum(batch.num_rows for batch in found) == 10_000
    assert max(batch.num_rows for batch in found) < 6000
    assert ask(one, "SELECT 1 WHERE 0", v=LONG) == []


def test_no_writer_waits_for_a_question(source: Make) -> None:
    one = source("CREATE TABLE t (id INTEGER PRIMARY KEY)", slice_rows=10)
    one.app.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(20_000)])
    one.app.execute("PRAGMA busy_timeout=0")
    found = one.capture.query("SELECT id FROM t", (), [("id", LONG)])
    next(found)
    one.run("INSERT INTO t VALUES (-1)", "DELETE FROM t WHERE id = 5")
    rest = [row["id"] for batch in found for row in batch.to_pylist()]
    assert -1 not in rest


def test_a_question_cannot_write_and_its_errors_name_the_file(source: Make) -> None:
    one = source("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(TailraceError):
        ask(one, "INSERT INTO t VALUES (1) RETURNING id", v=LONG)
    assert one.app.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(NeedsOperator, match=r"0\.db"):
        ask(one, "SELECT 1 FROM nowhere", v=LONG)
