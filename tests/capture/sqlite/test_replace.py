"""REPLACE removes rows without telling: every form of it is seen, and nothing that only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.capture.sqlite.support import Source

Make = Callable[..., Source]
PEOPLE = "CREATE TABLE people (id INTEGER PRIMARY KEY, mail TEXT UNIQUE, age INTEGER)"


def test_replace_on_the_primary_key_deletes_the_old_row_and_inserts_the_new(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 10)", "REPLACE INTO people VALUES (1, 'b', 11)")
    assert s.ops() == [("c", None, (1, "a", 10)), ("d", (1, "a", 10), None), ("c", None, (1, "b", 11))]


def test_replace_on_a_second_unique_index_deletes_the_row_of_another_key(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 10), (2, 'b', 20)")
    s.ops()
    s.run("INSERT OR REPLACE INTO people VALUES (3, 'a', 30)")
    assert s.ops() == [("d", (1, "a", 10), None), ("c", None, (3, "a", 30))]


def test_one_row_may_displace_two(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 10), (2, 'b', 20)")
    s.ops()
    s.run("INSERT OR REPLACE INTO people VALUES (1, 'b', 30)")
    assert sorted(map(str, s.ops()[:2])) == sorted(
        map(str, [("d", (1, "a", 10), None), ("d", (2, "b", 20), None)])
    )
    assert s.app.execute("SELECT * FROM people").fetchall() == [(1, "b", 30)]


def test_a_replace_of_many_rows_sees_each(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    s.ops()
    s.run("REPLACE INTO people VALUES (4, 'a', 4), (5, 'b', 5), (4, 'c', 6)")
    assert s.ops() == [
        ("d", (1, "a", 1), None),
        ("c", None, (4, "a", 4)),
        ("d", (2, "b", 2), None),
        ("c", None, (5, "b", 5)),
        ("d", (3, "c", 3), None),
        ("d", (4, "a", 4), None),
        ("c", None, (4, "c", 6)),
    ]


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_recursive_triggers_neither_double_nor_lose_a_delete(source: Make, recursive: str) -> None:
    s = source(PEOPLE).install()
    s.run(f"PRAGMA recursive_triggers={recursive}", "INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2)")
    s.ops()
    s.run("REPLACE INTO people VALUES (3, 'a', 3)", "UPDATE OR REPLACE people SET mail = 'a' WHERE id = 2")
    assert s.ops() == [
        ("d", (1, "a", 1), None),
        ("c", None, (3, "a", 3)),
        ("d", (3, "a", 3), None),
        ("u", (2, "b", 2), (2, "a", 2)),
    ]


def test_update_or_replace_of_the_key_deletes_the_row_it_lands_on(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2)")
    s.ops()
    s.run("UPDATE OR REPLACE people SET id = 2 WHERE id = 1")
    assert s.ops() == [("d", (2, "b", 2), None), ("u", (1, "a", 1), (2, "a", 1))]


def test_update_or_replace_through_the_name_rowid_is_seen(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2)")
    s.ops()
    s.run("UPDATE OR REPLACE people SET rowid = 2 WHERE rowid = 1")
    assert s.ops() == [("d", (2, "b", 2), None), ("u", (1, "a", 1), (2, "a", 1))]


def test_or_ignore_and_upsert_delete_nothing(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1)")
    s.ops()
    s.run(
        "INSERT OR IGNORE INTO people VALUES (1, 'z', 9)", "INSERT OR IGNORE INTO people VALUES (7, 'a', 9)"
    )
    assert s.ops() == []
    s.run("INSERT INTO people VALUES (1, 'q', 5) ON CONFLICT DO NOTHING")
    s.run("INSERT INTO people VALUES (1, 'q', 5) ON CONFLICT (id) DO UPDATE SET age = excluded.age")
    assert s.ops() == [("u", (1, "a", 1), (1, "a", 5))]
    s.run("INSERT INTO people VALUES (2, 'b', 2)", "UPDATE OR IGNORE people SET mail = 'a' WHERE id = 2")
    assert s.ops() == [("c", None, (2, "b", 2))]


def test_what_or_ignore_left_behind_is_never_taken_for_a_deleted_row(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1), (2, 'b', 2)")
    s.run(
        "INSERT OR IGNORE INTO people VALUES (1, 'z', 9)", "INSERT OR IGNORE INTO people VALUES (2, 'z', 9)"
    )
    s.ops()
    s.run("UPDATE people SET id = 10 WHERE id = 1", "DELETE FROM people WHERE id = 2")
    s.run("INSERT INTO people VALUES (1, 'c', 3)")
    assert s.ops() == [
        ("u", (1, "a", 1), (10, "a", 1)),
        ("d", (2, "b", 2), None),
        ("c", None, (1, "c", 3)),
    ]


def test_the_shadow_stays_small_under_endless_or_ignore(source: Make) -> None:
    s = source(PEOPLE).install()
    s.app.executemany("INSERT INTO people VALUES (?, ?, 0)", [(i, f"m{i}") for i in range(500)])
    s.app.executemany("INSERT OR IGNORE INTO people VALUES (?, ?, 0)", [(i, f"m{i}") for i in range(500)])
    (shadow,) = s.app.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%shadow%'").fetchone()
    assert s.app.execute(f"SELECT count(*) FROM {shadow}").fetchone()[0] < 20


def test_a_failed_insert_changes_nothing(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, 'a', 1)")
    s.ops()
    for clause in ("", "OR FAIL", "OR ABORT"):
        with pytest.raises(Exception, match="UNIQUE"):
            s.run(f"INSERT {clause} INTO people VALUES (1, 'b', 2)")
    s.run("INSERT INTO people VALUES (2, 'b', 2)")
    assert s.ops() == [("c", None, (2, "b", 2))]


def test_nulls_in_a_unique_index_do_not_collide(source: Make) -> None:
    s = source(PEOPLE).install()
    s.run("INSERT INTO people VALUES (1, NULL, 1)", "REPLACE INTO people VALUES (2, NULL, 2)")
    assert s.ops() == [("c", None, (1, None, 1)), ("c", None, (2, None, 2))]


@pytest.mark.parametrize(
    ("index", "old", "new"),
    [
        ("CREATE UNIQUE INDEX i ON t (a) WHERE b > 0", "(1, 'x', 1)", "(2, 'x', 5)"),
        ("CREATE UNIQUE INDEX i ON t (lower(a))", "(1, 'X', 1)", "(2, 'x', 5)"),
        ("CREATE UNIQUE INDEX i ON t (a COLLATE NOCASE DESC)", "(1, 'X', 1)", "(2, 'x', 5)"),
        ("CREATE UNIQUE INDEX i ON t (a || ',' /* ( */, b % 2)", "(1, 'x', 1)", "(2, 'x', 5)"),
        ("CREATE UNIQUE INDEX i ON t (substr(a, 1, 1)) WHERE a IS NOT NULL", "(1, 'xy', 1)", "(2, 'xz', 5)"),
        ('CREATE UNIQUE INDEX i ON t (CASE WHEN b > 0 THEN "a" ELSE [id] END)', "(1, 'x', 1)", "(2, 'x', 5)"),
        ("CREATE UNIQUE INDEX i ON t (CAST(a AS text) COLLATE NOCASE)", "(1, 'X', 1)", "(2, 'x', 5)"),
        ('CREATE UNIQUE INDEX i ON t (a) WHERE t.b > 0 AND "t" . b < 9.5', "(1, 'x', 1)", "(2, 'x', 2)"),
    ],
)
def test_partial_expression_and_collated_indexes_displace_rows_too(
    source: Make, index: str, old: str, new: str
) -> None:
    s = source("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)", index).install()
    s.run(f"INSERT INTO t VALUES {old}")
    s.ops()
    s.run(f"REPLACE INTO t VALUES {new}")
    assert [op for op, _, _ in s.ops()] == ["d", "c"]
    s.run(f"INSERT INTO t VALUES {old} ON CONFLICT DO NOTHING", "INSERT INTO t VALUES (3, 'other', -1)")
    assert [op for op, _, _ in s.ops()] == ["c"]
    s.run("UPDATE OR REPLACE t SET (a, b) = (SELECT a, b FROM t WHERE id = 2) WHERE id = 3")
    assert [op for op, _, _ in s.ops()] == ["d", "u"]


@pytest.mark.parametrize("default", ["'x'", '"x"', "x", "('x')", "(lower('X'))"])
@pytest.mark.parametrize("tail", ["", " WITHOUT ROWID"])
def test_a_null_that_replace_turns_into_the_default_displaces_the_row_that_has_it(
    source: Make, default: str, tail: str
) -> None:
    s = source(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT NOT NULL DEFAULT {default} UNIQUE, x TEXT){tail}"
    ).install()
    s.run("INSERT INTO t VALUES (1, 'x', 'X'), (2, 'y', 'Y')")
    s.ops()
    s.run("INSERT OR REPLACE INTO t VALUES (3, NULL, 'Z')")
    assert s.ops() == [("d", (1, "x", "X"), None), ("c", None, (3, "x", "Z"))]
    s.run("UPDATE OR REPLACE t SET u = NULL WHERE id = 2")
    assert s.ops() == [("d", (3, "x", "Z"), None), ("u", (2, "y", "Y"), (2, "x", "Y"))]


def test_rows_outside_a_partial_index_are_left_alone(source: Make) -> None:
    s = source(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)",
        "CREATE UNIQUE INDEX i ON t (a) WHERE b > 0",
    ).install()
    s.run("INSERT INTO t VALUES (1, 'x', 0), (2, 'x', 1)", "REPLACE INTO t VALUES (3, 'x', 0)")
    assert [op for op, _, _ in s.ops()] == ["c", "c", "c"]


def test_an_update_into_a_partial_index_displaces_its_row(source: Make) -> None:
    s = source(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)",
        "CREATE UNIQUE INDEX i ON t (a) WHERE b > 0",
    ).install()
    s.run("INSERT INTO t VALUES (1, 'x', 0), (2, 'x', 1)")
    s.ops()
    s.run("UPDATE OR REPLACE t SET b = 1 WHERE id = 1")
    assert s.ops() == [("d", (2, "x", 1), None), ("u", (1, "x", 0), (1, "x", 1))]


def test_a_key_equal_only_by_collation_is_deleted_as_it_was_spelled(source: Make) -> None:
    s = source("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID").install()
    s.run("INSERT INTO t VALUES ('a', 1)", "REPLACE INTO t VALUES ('A', 2)", "UPDATE t SET k = 'a'")
    assert s.ops() == [
        ("c", None, ("a", 1)),
        ("d", ("a", 1), None),
        ("c", None, ("A", 2)),
        ("u", ("A", 2), ("a", 2)),
    ]


def test_replace_finds_its_rows_by_the_indexes_and_not_by_scanning(source: Make) -> None:
    s = source(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT)",
        "CREATE UNIQUE INDEX i ON t (a COLLATE NOCASE)",
        "CREATE UNIQUE INDEX j ON t (lower(b))",
        "CREATE UNIQUE INDEX k ON t (c) WHERE c > 'c'",
    ).install()
    steps: list[int] = []
    rows = [(i, f"a{i}", f"b{i}", f"c{i}") for i in range(3000)]
    s.run("BEGIN")
    s.app.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    s.run("COMMIT")
    s.app.set_progress_handler(lambda: steps.append(1), 100)
    s.run("REPLACE INTO t VALUES (5000, 'A7', 'B8', 'c9')")
    s.app.set_progress_handler(None, 0)
    assert len(steps) < 50
    assert [op for op, _, _ in s.ops()][-4:] == ["d", "d", "d", "c"]
