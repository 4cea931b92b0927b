"""A table that is no longer what setup saw: noticed, named, and mended by setup."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from tailrace.model.errors import LogLost, SchemaDrift, SetupMissing
from tests.capture.sqlite.support import CONSUMER, Source, seen
from tests.support.waiting import wait_until

Make = Callable[..., Source]
T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT)"
CHANGES = {
    "column z was added": ["ALTER TABLE t ADD COLUMN z INTEGER"],
    "column b was renamed to c": ["ALTER TABLE t RENAME COLUMN b TO c"],
    "renamed to t2": ["ALTER TABLE t RENAME TO t2"],
    "was dropped": ["DROP TABLE t"],
    "dropped and created again": ["DROP TABLE t", T],
    "its primary key changed": ["DROP TABLE t", "CREATE TABLE t (id INTEGER, a TEXT PRIMARY KEY, b TEXT)"],
    "column a was declared anew": ["DROP TABLE t", T.replace("a TEXT", "a BLOB")],
    "unique index u was added": ["CREATE UNIQUE INDEX u ON t (a)"],
    "unique index old was dropped": ["DROP INDEX old"],
    "unique index old changed": ["DROP INDEX old", "CREATE UNIQUE INDEX old ON t (a)"],
}


def drop_trigger(s: Source, like: str) -> None:
    (name,) = s.app.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE ?", (like,)
    ).fetchone()
    s.run(f'DROP TRIGGER "{name}"')


def begin(s: Source) -> object:
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01)
    assert next(live) is None
    return live


@pytest.mark.parametrize("words", CHANGES)
def test_each_kind_of_drift_is_named_after_what_was_logged_before_it(source: Make, words: str) -> None:
    s = source(T, "CREATE UNIQUE INDEX old ON t (b)").install()
    live = begin(s)
    s.run("INSERT INTO t VALUES (1, 'x', 'y')", *CHANGES[words])
    part = next(live)  # type: ignore[call-overload]
    assert [c.after for c in seen(part.batches)] == [{"id": 1, "a": "x", "b": "y"}]
    with pytest.raises(SchemaDrift, match=words) as raised:
        next(live)  # type: ignore[call-overload]
    assert "tailrace setup" in str(raised.value.remedy)
    assert [f.code for f in s.capture.coverage(s.tables)] == ["drift"]


@pytest.mark.parametrize("words", [w for w in CHANGES if "renamed to t2" not in w and w != "was dropped"])
def test_setup_mends_a_drifted_table_with_a_new_generation(source: Make, words: str) -> None:
    s = source(T, "CREATE UNIQUE INDEX old ON t (b)").install()
    s.run("INSERT INTO t VALUES (1, 'x', 'y')", *CHANGES[words])
    before = s.capture.generations()[s.ref("t")]
    (sentence,) = s.capture.setup(s.tables)
    assert "fresh snapshot" in sentence
    assert s.capture.setup(s.tables) == []
    after = s.capture.generations()[s.ref("t")]
    assert after[0] != before[0]
    with pytest.raises(LogLost, match="t"):
        s.parts()
    s.run("REPLACE INTO t (id, a) VALUES (5, 'q')")
    found = s.changes(accept={s.ref("t"): after[0]})
    assert found[-1].after is not None
    assert found[-1].after["a"] == "q"
    names = [c.name for c in s.capture.describe(s.ref("t")).columns]
    assert list(found[-1].after) == names


@pytest.mark.parametrize("event", ["insert", "update", "delete", "replace"])
def test_a_missing_trigger_is_drift_and_setup_puts_it_back(source: Make, event: str) -> None:
    s = source(T).install()
    drop_trigger(s, f"%_{event} (%")
    with pytest.raises(SchemaDrift, match="1 of its triggers"):
        s.parts()
    s.capture.setup(s.tables)
    assert s.capture.coverage(s.tables) == []


def test_an_altered_trigger_is_drift(source: Make) -> None:
    s = source(T).install()
    name, sql = s.app.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE '%_delete (%'").fetchone()
    s.run(f'DROP TRIGGER "{name}"', sql.replace("'d'", "'c'"))
    with pytest.raises(SchemaDrift, match="altered"):
        s.parts()


@pytest.mark.parametrize("name", ["app", '"after"', "main.[my trigger]"])
def test_a_later_trigger_that_may_skip_ours_is_drift_and_setup_overtakes_it(source: Make, name: str) -> None:
    s = source(T, "CREATE TABLE other (id)").install("t")
    s.run(
        "CREATE TRIGGER a BEFORE INSERT ON t WHEN NEW.a = 'skip' BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER b INSERT ON t WHEN NEW.a = 'skip' BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER c AFTER INSERT ON other BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER d AFTER INSERT ON t WHEN 0 BEGIN SELECT RAISE(ABORT, 'raise(ignore)'); END",
    )
    assert s.capture.coverage(s.tables) == []
    s.run(f"CREATE TRIGGER IF NOT EXISTS {name} AFTER INSERT ON t BEGIN SELECT raise ( ignore ); END")
    with pytest.raises(SchemaDrift, match="may end a statement before it is captured"):
        s.changes()
    s.capture.forget(CONSUMER)
    s.install("t")
    s.run("INSERT INTO t VALUES (1, 'x', 'y')")
    assert s.ops() == [("c", None, (1, "x", "y"))]


def test_vacuum_other_tables_and_plain_indexes_are_no_drift(source: Make) -> None:
    s = source(T).install()
    live = begin(s)
    s.run("VACUUM", "CREATE TABLE other (x)", "CREATE INDEX i ON t (b)", "ANALYZE", "DROP INDEX i")
    s.run("INSERT INTO t VALUES (1, 'x', 'y')", "VACUUM")
    part = wait_until(lambda: next(live))  # type: ignore[call-overload]
    assert len(seen(part.batches)) == 1
    assert next(live) is None  # type: ignore[call-overload]


def test_a_vacuum_that_renumbers_rows_is_drift_for_a_table_without_a_key_only(source: Make) -> None:
    s = source(T, "CREATE TABLE k (x)", "CREATE TABLE i (x)", "CREATE INDEX ix ON i (x)").install()
    s.run("VACUUM")
    findings = {(f.table, f.code) for f in s.capture.coverage(s.tables) if f.severity == "error"}
    assert findings == {("main.k", "drift")}
    s.tables = [s.ref("t"), s.ref("i")]
    assert s.changes() == []
    assert len(s.capture.setup([s.ref("k")])) == 1
    assert not [f for f in s.capture.coverage([s.ref("k")]) if f.severity == "error"]


def test_the_error_of_a_refused_drop_column_tells_what_to_do(source: Make) -> None:
    s = source(T).install()
    with pytest.raises(sqlite3.OperationalError, match="tailrace teardown --table t, ALTER, tailrace setup"):
        s.run("ALTER TABLE t DROP COLUMN b")
    assert s.capture.teardown([s.ref("t")]) == ["removed capture of table t"]
    s.run("ALTER TABLE t DROP COLUMN b")
    s.capture.setup(s.tables)
    s.position = s.capture.head()
    s.run("INSERT INTO t VALUES (1, 'x')")
    assert s.ops() == [("c", None, (1, "x"))]


def test_a_teardown_while_the_stream_runs_stops_it(source: Make) -> None:
    for tables in ("all", "one"):
        s = source(T).install()
        live = begin(s)
        s.run("INSERT INTO t VALUES (1, 'x', 'y')")
        s.capture.teardown(None if tables == "all" else s.tables)
        with pytest.raises(SetupMissing):
            next(live)  # type: ignore[call-overload]


def test_a_table_set_up_anew_while_the_stream_runs_stops_it(source: Make) -> None:
    s = source(T).install()
    live = begin(s)
    s.run("ALTER TABLE t ADD COLUMN z")
    s.capture.setup(s.tables)
    with pytest.raises(SchemaDrift, match="set up anew"):
        next(live)  # type: ignore[call-overload]


def test_a_renamed_table_is_torn_down_by_its_old_name_and_leaves_the_new_one_free(source: Make) -> None:
    s = source(T).install()
    s.run("ALTER TABLE t RENAME TO t2")
    assert s.capture.teardown([s.ref("t")])
    assert s.app.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone() == (0,)
    s.capture.setup([s.ref("t2")])
    s.run("INSERT INTO t2 VALUES (1, 'x', 'y')")
