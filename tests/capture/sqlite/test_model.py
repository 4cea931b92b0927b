"""The stream applied by key gives the table: random DML, REPLACE included, strictly change by change."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capture.sqlite.support import Model, Source

TABLES = {
    "rowid": "CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT UNIQUE, v)",
    "text key": "CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL, u TEXT COLLATE NOCASE UNIQUE, v)",
    "without rowid": "CREATE TABLE t (u, v, k INTEGER, PRIMARY KEY (k, u)) WITHOUT ROWID",
    "no key": "CREATE TABLE t (k, u, v)",
    "generated": "CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT, v, g AS (lower(u)) VIRTUAL UNIQUE)",
}
INDEXES = [
    "CREATE UNIQUE INDEX i ON t (v) WHERE v > 1",
    "CREATE UNIQUE INDEX i ON t (lower(u), k)",
    "CREATE UNIQUE INDEX i ON t (v, u COLLATE NOCASE)",
    "CREATE INDEX i ON t (v)",
]
small = st.integers(1, 4)
letter = st.sampled_from(["a", "A", "b", "B", None])
verb = st.sampled_from(["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL", "REPLACE"])
update = st.sampled_from(["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"])
statement = st.one_of(
    st.tuples(
        verb,
        st.lists(st.tuples(small, letter, small), min_size=1, max_size=3),
        st.sampled_from(["", " ON CONFLICT DO NOTHING", " ON CONFLICT DO UPDATE SET v = excluded.v"]),
    ),
    st.tuples(
        update, st.sampled_from(["k = k + 1", "u = 'a'", "v = v - 1", "k = 2, u = 'B'", "v = 3"]), small
    ),
    st.tuples(st.just("DELETE"), small, st.none()),
    st.tuples(
        st.sampled_from(["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s"]), st.none(), st.none()
    ),
)


def run(source: Source, verb: str, what: object, more: object) -> None:
    match what:
        case list():
            values = ", ".join("(?, ?, ?)" for _ in what)
            sql = f"{verb} INTO t (k, u, v) VALUES {values}{more}"
            arguments = [value for row in what for value in row]
        case str():
            sql, arguments = f"{verb} t SET {what} WHERE k >= ?", [more]
        case int():
            sql, arguments = "DELETE FROM t WHERE k = ?", [what]
        case _:
            sql, arguments = verb, []
    with contextlib.suppress(sqlite3.Error):
        source.app.execute(sql, arguments)


@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    statements=st.lists(statement, min_size=1, max_size=25),
    index=st.sampled_from(INDEXES),
    recursive=st.booleans(),
    rows=st.integers(2, 5),
)
def test_the_stream_applied_by_key_is_the_table(
    table: str, statements: list[tuple[str, object, object]], index: str, recursive: bool, rows: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory) / "m.db", TABLES[table], index, slice_rows=rows)
        try:
            source.run(f"PRAGMA recursive_triggers={int(recursive)}")
            source.install()
            schema = source.capture.describe(source.ref("t"))
            model = Model(schema.identity)
            for number, one in enumerate(statements):
                run(source, *one)
                if number % 5 == 4 and not source.app.in_transaction:
                    model.apply(source.changes())
            if source.app.in_transaction:
                source.run("COMMIT")
            model.apply(source.changes())
            model.check(source.rows(schema))
        finally:
            source.close()
