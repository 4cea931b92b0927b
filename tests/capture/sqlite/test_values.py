"""Every value of every storage class in every declared type: plain SQL, snapshot and stream agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.capture.sqlite.rows import Pace, steps
from tests.capture.sqlite.support import Source, Undecodable, same

Make = Callable[..., Source]

DECLARED = [
    *("INTEGER", "BIGINT", "REAL", "DOUBLE PRECISION", "TEXT", "VARCHAR(10)", "BLOB", "BOOLEAN", "NUMERIC"),
    *("DECIMAL(10,2)", "NUMERIC(38,10)", "DECIMAL(3)", "DATE", "DATETIME", "JSON", ""),
]
OVERRIDES = ["short", "integer", "float", "date", "timestamp", "timestamp_ntz"]
TYPES = {f"t.o{i}": name for i, name in enumerate(OVERRIDES)}
COLUMNS = [f"c{i} {declared}" for i, declared in enumerate(DECLARED)] + [
    f"o{i}" for i in range(len(OVERRIDES))
]

VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.decimals(-1000, 1000, places=2).map(float),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["2024-02-29", "2024-02-30", "0000-01-01", "2024-02-29 12:34:56", "2024-02-29T12:34:56.5"]
    ),
    st.sampled_from(
        ["2024-01-01 00:00:00Z", "2024-01-01 00:00:00.123456+05:30", "24:00", "9999-12-31", "12"]
    ),
    st.sampled_from([2.0**53 + 2, 2**53 + 1, -(2**63), 1e15, 0.1 + 0.2, 1e-5, 99999999.99, 1e300]),
    st.binary(max_size=20),
    st.binary(min_size=1, max_size=8).map(Undecodable),
)
EDGES = [2**63 - 1, -(2**63), float("inf"), float("-inf"), 0.1 + 0.2, 1.7976931348623157e308, "a\0b", "", b""]


def insert(source: Source, key: int, values: list[Any]) -> None:
    """Insert through plain SQL; text that is not UTF-8 goes in as a cast blob."""
    marks = ", ".join("CAST(? AS TEXT)" if isinstance(value, Undecodable) else "?" for value in values)
    plain = [bytes(value) if isinstance(value, Undecodable) else value for value in values]
    source.app.execute(f"INSERT INTO t VALUES (?, {marks})", [key, *plain])


def agree(plain: list[dict[str, Any]], captured: list[dict[str, Any] | None]) -> None:
    assert len(plain) == len(captured)
    for expected, got in zip(plain, captured, strict=True):
        assert got is not None
        for name, value in expected.items():
            if name in TEMPORAL and hasattr(got[name], "isoformat"):
                assert isinstance(value, str)
                assert value[:4] == f"{got[name].year:04d}" or value.endswith(("+05:30",))
                continue
            assert same(value, got[name]), (name, value, got[name])


TEMPORAL = {f"o{i}" for i, name in enumerate(OVERRIDES) if name.startswith(("date", "timestamp"))}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(st.lists(VALUES, min_size=len(COLUMNS), max_size=len(COLUMNS)), min_size=1, max_size=4))
@example([[edge] * len(COLUMNS) for edge in EDGES])
@example([[Undecodable(b"\xff\xfe")] * len(COLUMNS), ["ok"] * len(COLUMNS)])
@example([[b"\x00\xff"] * len(COLUMNS)])
@example([[12] * len(COLUMNS), [12.5] * len(COLUMNS)])
def test_plain_sql_snapshot_and_stream_agree_on_every_value(rows: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source = Source(
            Path(directory) / "v.db",
            f"CREATE TABLE t (k INTEGER PRIMARY KEY, {', '.join(COLUMNS)})",
            types=TYPES,
        )
        try:
            source.install()
            for key, values in enumerate(rows):
                insert(source, key, values)
            plain = source.rows(source.capture.describe(source.ref("t")))
            live = [change.after for change in source.changes()]
            agree(plain, live)
            snapshot = [change.after for change in source.snapshot("t", rows_per_chunk=2)]
            assert snapshot == live
            source.run("UPDATE t SET k = k + 100 WHERE k >= 0")
            moved = source.changes()
            assert [change.before for change in moved] == live
            source.run("DELETE FROM t")
            assert [change.before for change in source.changes()] == [change.after for change in moved]
        finally:
            source.close()


@pytest.mark.parametrize("width", [60, 200, 1000, 1980])
def test_wide_tables_are_captured(source: Make, width: int) -> None:
    columns = ", ".join(f"c{i}" for i in range(width))
    s = source(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {columns})").install()
    s.run(f"INSERT INTO wide VALUES (1, {', '.join(str(i) for i in range(width))})")
    s.run(f"UPDATE wide SET c{width - 1} = NULL", "REPLACE INTO wide (id, c0) VALUES (1, 'new')")
    changes = s.changes()
    assert [change.op for change in changes] == ["c", "u", "d", "c"]
    assert changes[0].after == {"id": 1, **{f"c{i}": i for i in range(width)}}
    assert changes[1].after is not None
    assert changes[1].after[f"c{width - 1}"] is None


def test_generated_columns_are_in_images_and_snapshots(source: Make) -> None:
    s = source(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, v INTEGER GENERATED ALWAYS AS (a * 2) VIRTUAL, "
        "s TEXT GENERATED ALWAYS AS ('n' || a) STORED UNIQUE)"
    ).install()
    s.run("INSERT INTO t (id, a) VALUES (1, 5)", "UPDATE t SET a = 6", "REPLACE INTO t (id, a) VALUES (2, 6)")
    assert s.ops() == [
        ("c", None, (1, 5, 10, "n5")),
        ("u", (1, 5, 10, "n5"), (1, 6, 12, "n6")),
        ("d", (1, 6, 12, "n6"), None),
        ("c", None, (2, 6, 12, "n6")),
    ]
    assert [c.after for c in s.snapshot("t")] == [{"id": 2, "a": 6, "v": 12, "s": "n6"}]
    table = s.capture.describe(s.ref("t"))
    assert [column.generated for column in table.columns] == [False, False, True, True]


@pytest.mark.parametrize(
    "name",
    [
        *("order", "it's", "a b", "dots.in.name", "main.t", "übergröße", "UPPER", "日本", "select"),
        *('x"; DROP TABLE y; --', "[bracket]", "`tick`", "a\nb", "%s ?1", "rowid"),
    ],
)
def test_any_table_and_column_name_works(source: Make, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    column = '"' + name.replace('"', '""') + '!"'
    s = source(
        "CREATE TABLE y (id INTEGER PRIMARY KEY)",
        f"CREATE TABLE {quoted} ({column} TEXT UNIQUE, id INTEGER PRIMARY KEY)",
    )
    s.tables = [s.ref(name)]
    assert s.capture.resolve([name, f"main.{name}"]) == s.tables
    s.capture.setup(s.tables)
    s.position = s.capture.register("test")
    s.run(f"INSERT INTO {quoted} VALUES ('v', 1)", f"REPLACE INTO {quoted} VALUES ('v', 2)")
    assert s.ops() == [("c", None, ("v", 1)), ("d", ("v", 1), None), ("c", None, ("v", 2))]
    assert [change.after for change in s.snapshot(name)] == [{f"{name}!": "v", "id": 2}]
    assert s.capture.teardown(s.tables)
    assert s.app.execute("SELECT count(*) FROM y").fetchone() == (0,)


def test_a_table_without_a_key_has_its_rowid_as_first_column_under_a_free_name(source: Make) -> None:
    s = source("CREATE TABLE t (rowid TEXT, _rowid_ TEXT)").install()
    table = s.capture.describe(s.ref("t"))
    assert (table.key, table.row_id, table.columns[0].name) == ((), "oid", "oid")
    s.run("INSERT INTO t VALUES ('a', 'b')", "INSERT INTO t VALUES ('a', 'b')", "DELETE FROM t WHERE oid = 1")
    assert s.ops() == [("c", None, (1, "a", "b")), ("c", None, (2, "a", "b")), ("d", (1, "a", "b"), None)]


def test_a_composite_key_is_named_in_key_order(source: Make) -> None:
    s = source("CREATE TABLE t (v, b TEXT, a INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID").install()
    assert s.capture.describe(s.ref("t")).key == ("a", "b")
    s.run("INSERT INTO t VALUES (0, 'x', 1)", "UPDATE t SET b = 'y'", "REPLACE INTO t VALUES (2, 'y', 1)")
    assert s.ops() == [
        ("c", None, (0, "x", 1)),
        ("u", (0, "x", 1), (0, "y", 1)),
        ("d", (0, "y", 1), None),
        ("c", None, (2, "y", 1)),
    ]


def test_declared_types_become_the_types_of_the_columns(source: Make) -> None:
    s = source(f"CREATE TABLE t (k INTEGER PRIMARY KEY, {', '.join(COLUMNS)})", types=TYPES)
    found = [column.type.name for column in s.capture.describe(s.ref("t")).columns]
    assert found == [
        *("long", "long", "long", "double", "double", "string", "string", "binary", "boolean", "double"),
        *("decimal(10,2)", "decimal(38,10)", "decimal(3,0)", "string", "string", "string", "string"),
        *OVERRIDES,
    ]


def test_batches_that_need_no_exact_values_have_no_column_for_them(source: Make) -> None:
    s = source("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, d DECIMAL(10,2))").install()
    s.app.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, f"x{i}", i / 100) for i in range(2000)])
    (batch,) = [batch for part in s.parts() for batch in part.batches]
    assert "after_exact" not in batch.data.schema.names
    assert batch.data.schema.field("after").type.field("d").type == pa.decimal128(10, 2)
    assert batch.data.column("after").field("d")[1234].as_py() * 100 == 1234


def test_large_values_are_fetched_one_by_one_until_their_size_is_known(source: Make) -> None:
    shop = source("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
    shop.run(*(f"INSERT INTO t VALUES ({number}, printf('%.*c', 100000, 'x'))" for number in range(20)))
    pace = Pace(2, 1 << 20)
    fetched = []
    for rows in steps(shop.app, "SELECT id, body FROM t ORDER BY id", (), pace):
        fetched.append(len(rows))
        pace.learn(len(rows), 100_000 * len(rows))
    assert fetched[0] == 1
    assert sum(fetched) == 20
    # A quarter of the budget at once, and no more.
    assert max(fetched) <= 2
