"""Chunks hold every row once, whatever the key, and their bounds survive JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.capture.contract import Chunk
from tailrace.model.errors import ConfigError, SchemaDrift
from tests.capture.sqlite.support import Source, Undecodable, seen

Make = Callable[..., Source]
MIXED = [*range(7), -1.5, 2.5, float("inf"), 2**63 - 1, "", "a", "A", "ä", "a\0", b"", b"\xff", b"a"]
TABLES: dict[str, tuple[str, list[Any]]] = {
    "rowid alias": ("CREATE TABLE t (k INTEGER PRIMARY KEY, v)", list(range(-20, 20, 3))),
    "text key": ("CREATE TABLE t (k TEXT PRIMARY KEY, v)", [f"key{i}" for i in range(20)]),
    "any key": ("CREATE TABLE t (k PRIMARY KEY, v)", MIXED),
    "any key, no rowid": ("CREATE TABLE t (k PRIMARY KEY, v) WITHOUT ROWID", MIXED),
    "nocase key": ("CREATE TABLE t (v, k TEXT COLLATE NOCASE PRIMARY KEY)", ["b", "A", "c", "Z", "y"]),
    "descending key": ("CREATE TABLE t (k INTEGER PRIMARY KEY DESC, v)", list(range(20))),
    "no key": ("CREATE TABLE t (k, v)", MIXED),
}


def travelled(chunk: Chunk) -> Chunk:
    return Chunk(chunk.table, chunk.index, json.loads(json.dumps(chunk.bounds)), chunk.rows)


def read(s: Source, chunks: list[Chunk], **options: Any) -> list[dict[str, Any] | None]:
    table = s.capture.describe(s.ref("t"))
    return [
        change.after
        for chunk in chunks
        for change in seen(s.capture.snapshot(table, travelled(chunk), position=9, seq=1, **options))
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", TABLES)
def test_the_chunks_hold_every_row_once(source: Make, kind: str, size: int) -> None:
    ddl, keys = TABLES[kind]
    s = source(ddl)
    s.app.executemany("INSERT INTO t (k, v) VALUES (?, 'x')", [(key,) for key in keys])
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=size)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    got = read(s, chunks)
    assert sorted((type(r["k"]).__name__, str(r["k"])) for r in got if r) == sorted(
        (type(key).__name__, str(key)) for key in keys
    )
    if size < len(keys):
        assert len(chunks) >= len(keys) // size


def test_a_key_that_is_not_utf8_is_a_bound_too(source: Make) -> None:
    s = source("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL, v) WITHOUT ROWID")
    for key in (b"\xfe", b"\xff", b"\xff\xfe", b"plain"):
        s.app.execute("INSERT INTO t VALUES (CAST(? AS TEXT), 1)", (key,))
    got = read(s, s.capture.plan(s.ref("t"), rows_per_chunk=1))
    assert [r["k"] for r in got if r] == ["plain", *map(Undecodable, (b"\xfe", b"\xff", b"\xff\xfe"))]


def test_composite_keys_page_in_key_order_wherever_the_columns_stand(source: Make) -> None:
    s = source("CREATE TABLE t (v, b TEXT, a INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID")
    keys = [(a, b) for a in range(5) for b in "xyz"]
    s.app.executemany("INSERT INTO t (a, b) VALUES (?, ?)", reversed(keys))
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=4)
    assert chunks[0].bounds["upto"] == [["i", "1"], ["t", "x"]]
    assert [(r["a"], r["b"]) for r in read(s, chunks) if r] == keys


def test_rows_with_null_in_the_key_have_a_chunk_of_their_own(source: Make) -> None:
    s = source("CREATE TABLE t (a TEXT, b TEXT, PRIMARY KEY (a, b))")
    s.run("INSERT INTO t VALUES ('x', 'y'), (NULL, 'y'), ('x', NULL), (NULL, NULL), (NULL, NULL)")
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=1)
    assert chunks[-1].bounds == {"null": True}
    assert len(read(s, chunks)) == 5


def test_the_outer_chunks_are_open_for_rows_that_come_later(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    (only,) = s.capture.plan(s.ref("t"), rows_per_chunk=10)
    s.app.executemany("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(20)])
    assert len(read(s, [only])) == 20
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=5)
    s.run("INSERT INTO t VALUES (-100, 0), (100, 0)")
    assert len(read(s, chunks)) == 22


def test_snapshot_rows_are_numbered_over_slices_and_carry_the_position(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)", slice_rows=64)
    s.app.executemany("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(500)])
    table = s.capture.describe(s.ref("t"))
    (chunk,) = s.capture.plan(table.ref, rows_per_chunk=1000)
    batches = list(s.capture.snapshot(table, chunk, position=7, seq=3))
    assert len(batches) > 1
    assert [c.seq for c in seen(batches)] == list(range(3, 503))
    assert {(c.op, c.position) for c in seen(batches)} == {("r", 7)}
    assert batches[0].data.column("xid").null_count == len(batches[0])


def test_a_projection_reads_only_those_columns(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v, w TEXT)")
    s.run("INSERT INTO t VALUES (1, 2, 'x')")
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=10)
    assert read(s, chunks, columns=["w", "k"]) == [{"w": "x", "k": 1}]
    with pytest.raises(ConfigError, match="nope"):
        read(s, chunks, columns=["nope"])


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD COLUMN z", "DROP TABLE t"])
def test_a_table_that_changed_since_it_was_described_is_drift(source: Make, statement: str) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    table = s.capture.describe(s.ref("t"))
    (chunk,) = s.capture.plan(table.ref, rows_per_chunk=10)
    s.run(statement)
    with pytest.raises(SchemaDrift):
        list(s.capture.snapshot(table, chunk, position=1, seq=1))


def test_no_transaction_outlives_a_chunk(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    s.app.executemany("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(50)])
    for chunk in s.capture.plan(s.ref("t"), rows_per_chunk=10):
        list(s.capture.snapshot(s.capture.describe(s.ref("t")), chunk, position=1, seq=1))
        assert s.app.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_a_keyed_chunk_is_found_by_its_index(source: Make) -> None:
    s = source("CREATE TABLE t (v, b TEXT, a INTEGER, PRIMARY KEY (a, b))")
    rows = [(i % 50, str(i)) for i in range(3000)]
    s.app.executemany("INSERT INTO t (a, b) VALUES (?, ?)", rows)
    from tailrace.capture.sqlite import catalog, snapshot

    shape = catalog.read_shape(s.app, "t")
    assert shape is not None
    chunk = s.capture.plan(s.ref("t"), rows_per_chunk=100)[10]
    sql, parameters = snapshot._query(shape, s.capture.describe(s.ref("t")), chunk)
    (plan,) = s.app.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    assert "USING INDEX" in plan[3]
    walk = "SELECT a, b FROM t WHERE (a, b) > (?, ?) ORDER BY a, b LIMIT 2 OFFSET ?"
    assert "TEMP B-TREE" not in str(s.app.execute(f"EXPLAIN QUERY PLAN {walk}", (1, "x", 5)).fetchall())


def test_a_key_with_a_collation_of_the_application_is_cut_too(source: Make) -> None:
    s = source("CREATE TABLE x (k)")
    s.app.create_collation("backwards", lambda a, b: (a < b) - (a > b))
    s.run("CREATE TABLE t (k TEXT COLLATE backwards PRIMARY KEY NOT NULL, v)")
    s.app.executemany("INSERT INTO t (k) VALUES (?)", [(f"{i:03}",) for i in range(20)])
    s.install("t")
    assert [r["k"] for r in read(s, s.capture.plan(s.ref("t"), rows_per_chunk=3)) if r] == [
        f"{i:03}" for i in range(20)
    ]
    s.run("REPLACE INTO t VALUES ('003', 1)")
    assert [op for op, _, _ in s.ops()] == ["d", "c"]


@pytest.mark.parametrize("key", ["k INTEGER PRIMARY KEY", "k TEXT PRIMARY KEY", "k"])
def test_rows_of_many_bytes_make_chunks_of_fewer_rows(source: Make, key: str) -> None:
    s = source(f"CREATE TABLE t ({key}, v)")
    # The last half of them are ten times as large.
    rows = [(f"{k:03}", "x" * (1000 if k < 200 else 10_000)) for k in range(400)]
    s.app.executemany("INSERT INTO t VALUES (?, ?)", rows)
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=1000, bytes_per_chunk=100_000)
    parts = [read(s, [chunk]) for chunk in chunks]
    assert sorted(int(row["k"]) for part in parts for row in part if row) == list(range(400))
    sizes = [len(part) for part in parts if part]
    assert 90 <= sizes[0] <= 110
    assert max(sizes[3:]) <= 11
    assert [chunk.rows for chunk in chunks] == [len(part) for part in parts]


def test_rows_of_few_bytes_make_chunks_of_the_rows_asked_for(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    s.app.executemany("INSERT INTO t VALUES (?, 'x')", [(k,) for k in range(10)])
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=4, bytes_per_chunk=10**9)
    assert [chunk.rows for chunk in chunks] == [4, 4, 2]


def test_no_chunk_is_smaller_than_a_row(source: Make) -> None:
    s = source("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    assert len(s.capture.plan(s.ref("t"), rows_per_chunk=10, bytes_per_chunk=1)) == 1
    s.app.executemany("INSERT INTO t VALUES (?, 'x')", [(k,) for k in range(3)])
    chunks = s.capture.plan(s.ref("t"), rows_per_chunk=10, bytes_per_chunk=1)
    assert [row["k"] for row in read(s, chunks) if row] == [0, 1, 2]
    with pytest.raises(ConfigError):
        s.capture.plan(s.ref("t"), rows_per_chunk=10, bytes_per_chunk=0)
