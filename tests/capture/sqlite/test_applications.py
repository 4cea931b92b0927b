"""What applications do to their own tables: triggers of theirs, cascades, rollbacks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.capture.sqlite.support import Model, Source

Make = Callable[..., Source]
T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, n INTEGER DEFAULT 0)"
TRIGGERS = {
    "changes the new row": "AFTER INSERT ON t BEGIN UPDATE t SET n = n + 1, a = upper(a) WHERE id = NEW.id",
    "deletes the new row": "AFTER INSERT ON t WHEN NEW.n > 5 BEGIN DELETE FROM t WHERE id = NEW.id",
    "moves the new row": "AFTER INSERT ON t WHEN NEW.id < 100 BEGIN "
    "UPDATE t SET id = id + 100 WHERE id = NEW.id",
    "adds a row": "AFTER INSERT ON t WHEN NEW.id < 50 BEGIN "
    "REPLACE INTO t VALUES (NEW.id + 50, NEW.a || '!', 1)",
    "adds a row before": "BEFORE INSERT ON t WHEN NEW.id < 50 BEGIN "
    "INSERT OR IGNORE INTO t VALUES (NEW.id + 50, 'before' || NEW.id, 1)",
    "touches what the new row displaces": "BEFORE INSERT ON t BEGIN UPDATE t SET n = n + 1 WHERE a = NEW.a",
    "moves what the new row displaces": "BEFORE INSERT ON t BEGIN "
    "UPDATE OR IGNORE t SET id = id + 200 WHERE a = NEW.a",
    "touches what an update displaces": "BEFORE UPDATE OF id, a ON t BEGIN "
    "UPDATE t SET n = n + 1 WHERE (a = NEW.a OR id = NEW.id) AND id <> OLD.id",
    "changes the updated row": "AFTER UPDATE ON t WHEN NEW.n < 9 BEGIN UPDATE t SET n = 9 WHERE id = NEW.id",
    "deletes the updated row": "AFTER UPDATE ON t BEGIN DELETE FROM t WHERE id = NEW.id",
    "puts a row under the old key": "AFTER UPDATE ON t WHEN OLD.id <> NEW.id BEGIN "
    "INSERT INTO t VALUES (OLD.id, 'again', 3)",
    "puts the deleted row back": "AFTER DELETE ON t WHEN OLD.n < 3 BEGIN "
    "INSERT INTO t VALUES (OLD.id, OLD.a, 7)",
}
WRITES = [
    "INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 6), (3, 'c', 0)",
    "REPLACE INTO t VALUES (4, 'c', 0)",
    "INSERT OR IGNORE INTO t VALUES (4, 'c', 0)",
    "UPDATE t SET n = n + 1",
    "UPDATE OR REPLACE t SET id = id + 10 WHERE id IN (1, 101)",
    "UPDATE OR REPLACE t SET a = 'b' WHERE id IN (2, 3, 4)",
    "DELETE FROM t WHERE id % 2 = 0",
    "REPLACE INTO t VALUES (7, 'x', 1), (7, 'y', 2), (8, 'x', 1)",
]


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_the_stream_converges_whatever_the_applications_triggers_do(
    source: Make, trigger: str, first: str, recursive: str
) -> None:
    s = source(T, f"PRAGMA recursive_triggers={recursive}")
    if first == "theirs":
        s.run(f"CREATE TRIGGER app {TRIGGERS[trigger]}; END")
    s.install()
    if first == "ours":
        s.run(f"CREATE TRIGGER app {TRIGGERS[trigger]}; END")
    model = Model(["id"], strict=False)
    for write in WRITES:
        try:
            s.run(write)
        except sqlite3.IntegrityError:
            continue
        model.apply(s.changes())
        model.check(s.rows(s.capture.describe(s.ref("t"))))


def test_cascades_are_captured(source: Make) -> None:
    s = source(
        "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE n (id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE SET NULL)",
        "PRAGMA foreign_keys=ON",
    ).install()
    s.run(
        "INSERT INTO p VALUES (1), (2)", "INSERT INTO c VALUES (1, 1), (2, 2)", "INSERT INTO n VALUES (1, 1)"
    )
    s.changes()
    s.run("DELETE FROM p WHERE id = 1", "REPLACE INTO p VALUES (2)")
    found = {(c.table, c.op, c.before and c.before["id"]) for c in s.changes()}
    assert found == {
        *(("p", "d", 1), ("c", "d", 1), ("n", "u", 1), ("p", "d", 2), ("p", "c", None), ("c", "d", 2)),
    }


def test_what_is_rolled_back_is_not_captured(source: Make) -> None:
    s = source(T).install()
    s.run("BEGIN", "INSERT INTO t VALUES (1, 'a', 0)", "ROLLBACK")
    assert s.changes() == []
    s.run("BEGIN", "INSERT INTO t VALUES (1, 'a', 0)", "SAVEPOINT s", "REPLACE INTO t VALUES (2, 'a', 0)")
    s.run("ROLLBACK TO s", "INSERT INTO t VALUES (3, 'b', 0)", "COMMIT")
    assert s.ops() == [("c", None, (1, "a", 0)), ("c", None, (3, "b", 0))]


def test_the_applications_own_counters_do_not_see_us(source: Make) -> None:
    s = source(T).install()
    cursor = s.app.execute("INSERT INTO t (a) VALUES ('a')")
    assert (cursor.lastrowid, cursor.rowcount) == (1, 1)
    assert s.app.execute("REPLACE INTO t VALUES (1, 'a', 2)").rowcount == 1
    assert s.app.execute("SELECT last_insert_rowid(), changes()").fetchone() == (1, 1)
    assert s.app.execute("INSERT INTO t (a) VALUES ('b') RETURNING id").fetchall() == [(2,)]


def test_an_open_transaction_is_not_seen_and_a_group_holds_whole_ones(source: Make) -> None:
    s = source(T).install()
    s.run("BEGIN", "INSERT INTO t VALUES (1, 'a', 0)")
    assert s.parts() == []
    s.run("INSERT INTO t VALUES (2, 'b', 0)", "COMMIT", "INSERT INTO t VALUES (3, 'c', 0)")
    (part,) = s.parts()
    assert part.complete
    assert part.rows == 3
    assert set(part.batches[0].data.column("position").to_pylist()) == {part.position.version}


def test_a_connection_that_attached_the_database_or_distrusts_schemas_is_captured_too(
    source: Make, tmp_path: Path
) -> None:
    s = source(T).install()
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as other:
        other.execute("PRAGMA trusted_schema=OFF")
        other.execute("ATTACH ? AS shop", (str(s.path),))
        other.execute("CREATE TABLE t (id)")
        other.execute("CREATE TABLE _tailrace_meta (id, seq)")
        other.execute("INSERT INTO shop.t VALUES (1, 'a', 0)")
        other.execute("REPLACE INTO shop.t VALUES (2, 'a', 0)")
    assert [op for op, _, _ in s.ops()] == ["c", "d", "c"]
