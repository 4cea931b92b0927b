"""Filters in SQLite give what Spark would give, or more; never less."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.model.filters import Filter
from tailrace.spark.read import typed_rows
from tests.capture.sqlite.support import Source
from tests.support.filtering import Filters, Row, passes

Make = Callable[..., Source]
WORDS = [None, "", "a", "A", "ä", "a ", "a%b_c!", "it's \\", "😀", "￿", "a\0b", "17", "017", "1e3"]
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "whole": ("INTEGER", [None, -(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1]),
    "yes": ("BOOLEAN", [None, 0, 1]),
    "real": ("REAL", [None, 0.1, -0.0, 0.0, 0.30000000000000004, 1e-5, 1e300, 5e-324, 2**53, float("inf")]),
    "loose": ("NUMERIC", [None, 1, 0.1, 2**53, -7.25]),
    "price": ("DECIMAL(18,4)", [None, 0, 1, 0.1, 1.1, -7.25, 99999999999.5, 123456789012.0]),
    "bytes": ("BLOB", [None, b"", b"\0", b"\xff", b"\0\xff", b"a"]),
    "words": ("TEXT", WORDS),
    "nocase": ("VARCHAR(20) COLLATE NOCASE", WORDS),
    "rtrim": ("TEXT COLLATE RTRIM", WORDS),
    "day": ("DATE", [None, "2024-01-01", "2024-1-1", 20240101, 1.5, "17", "1e3x"]),
    "bare": ("", [*WORDS, 17, 1000, 1.5]),
    'odd "name': ("INTEGER", [None, 1, 2]),
}


def filled(source: Make, rows: int = 200) -> Source:
    dice = random.Random(rows)
    names = ", ".join('"' + name.replace('"', '""') + f'" {kind}' for name, (kind, _) in COLUMNS.items())
    s = source(f"CREATE TABLE t (key INTEGER PRIMARY KEY, {names})")
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    s.app.executemany(
        f"INSERT INTO t VALUES ({marks})",
        [(i, *(dice.choice(values) for _, values in COLUMNS.values())) for i in range(rows)],
    )
    return s


def read(s: Source, where: str | None = None) -> list[Row]:
    table = s.capture.describe(s.ref("t"))
    batches = s.capture.snapshot(table, Chunk(s.ref("t"), 0, where=where), position=0, seq=0)
    return [row for batch in batches for row in typed_rows(batch).to_pylist()]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_random_filters_lose_no_row_that_spark_would_keep(
    source: Make, tmp_path: Path, encoding: str
) -> None:
    # The file that `source` opens: an encoding is chosen before the first table.
    with closing(sqlite3.connect(tmp_path / "0.db")) as early:
        early.executescript(f"PRAGMA encoding = '{encoding}'; CREATE TABLE first (a)")
    s = filled(source)
    assert s.app.execute("PRAGMA encoding").fetchone() == (encoding,)
    table = s.capture.describe(s.ref("t"))
    rows = read(s)
    filters = Filters(rows, random.Random(21))
    pushed = exact = 0
    for _ in range(500):
        asked = filters.some()
        condition = s.capture.condition(table, asked)
        if condition.sql is None:
            assert condition.exact == ()
            continue
        pushed += 1
        got = {row["key"] for row in read(s, condition.sql)}
        wanted = {row["key"] for row in rows if all(passes(row, one) for one in asked)}
        sure = {row["key"] for row in rows if all(passes(row, one) for one in condition.exact)}
        assert wanted <= got, (asked, condition)
        assert got <= sure, (asked, condition)
        exact += set(condition.exact) == set(asked)
    assert pushed > 200
    assert exact > 60


UNSURE = [
    Filter("whole", "=", True),
    Filter("whole", "=", "1"),
    Filter("whole", "=", 2**64),
    Filter("whole", "=", -(2**63)),
    Filter("yes", "=", 1),
    Filter("real", "<", float("nan")),
    Filter("price", "<", Decimal("0.10000000000000000001")),
    Filter("price", "<", Decimal(2**60)),
    Filter("words", "=", "a\0"),
    Filter("words", "contains", "a", negated=True),
    Filter("whole", "in", tuple(range(5000))),
    Filter("whole", "in", (1, None), negated=True),
    Filter("nothing", "=", 1),
]


def test_a_filter_that_is_not_surely_the_same_is_left_to_spark(source: Make) -> None:
    s = filled(source, 1)
    table = s.capture.describe(s.ref("t"))
    assert [one for one in UNSURE if s.capture.condition(table, [one]).sql is not None] == []


def test_a_column_of_another_type_than_its_own_is_asked_for_null_only(source: Make) -> None:
    s = source("CREATE TABLE t (key INTEGER PRIMARY KEY, n INTEGER)", types={"t.n": "string"})
    table = s.capture.describe(s.ref("t"))
    assert s.capture.condition(table, [Filter("n", "=", "1")]).sql is None
    assert s.capture.condition(table, [Filter("n", "null")]).sql == '("n" IS NULL)'


def test_equal_values_are_found_by_indexes(source: Make) -> None:
    s = source("CREATE TABLE t (key INTEGER PRIMARY KEY, words TEXT)", "CREATE INDEX by_words ON t (words)")
    table = s.capture.describe(s.ref("t"))
    for one, index in ((Filter("words", "=", "x"), "by_words"), (Filter("key", ">", 5), "PRIMARY KEY")):
        where = s.capture.condition(table, [one]).sql
        assert index in str(s.app.execute(f"EXPLAIN QUERY PLAN SELECT * FROM t WHERE {where}").fetchall())


def test_a_chunk_without_bounds_is_the_whole_table_also_where_the_key_may_be_null(source: Make) -> None:
    s = source("CREATE TABLE t (k TEXT PRIMARY KEY, v)")
    s.run("INSERT INTO t VALUES ('x', 1), (NULL, 2), (NULL, 3)")
    assert len(read(s)) == 3
