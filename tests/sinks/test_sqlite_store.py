"""The document store: one file that anyone reads, that several processes write, and that can be searched."""

from __future__ import annotations

import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import ConfigError, NeedsOperator, Transient, UsageError
from tailrace.sinks.contract import DocumentReport
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig, client, generations
from tailrace.sinks.sqlite import sink as sink_module
from tests.sinks.documents import FIRST, MARKER, batch, batch_of, held, versions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "documents.db"


@pytest.fixture
def sink(path: Path) -> Iterator[SqliteSink]:
    made = SqliteSink(SqliteStoreConfig(str(path)))
    made.ensure("customers", FIRST, {"name": "text"})
    yield made
    made.close()


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def check(path: Path) -> None:
    """The words of every generation are exactly those of its documents, and the file is whole."""
    with closing(sqlite3.connect(path)) as connection:
        for (number,) in connection.execute("SELECT number FROM tailrace_generations").fetchall():
            table = generations.search_table(number)
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
            stored = f"SELECT e.id, t.words FROM {generations.texts_table(number)} AS t"
            stored += " JOIN tailrace_entries AS e ON e.number = t.number AND e.generation = ?"
            built = f"SELECT id, {client.words_of('document')} AS words FROM tailrace_documents"
            built += " WHERE generation = ? AND words IS NOT NULL"
            assert dict(connection.execute(stored, (number,)).fetchall()) == dict(
                connection.execute(built, (number,)).fetchall()
            )
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def found(sink: SqliteSink, *words: str, **more: Any) -> set[str]:
    return {hit.id for hit in sink.search("customers", words, **more)}


def test_anyone_reads_the_documents_and_no_deleted_one(sink: SqliteSink, path: Path) -> None:
    sink.write(batch(3, a={"n": 1}, b={"n": 2}))
    sink.write(batch(4, b=None))
    assert rows(path, 'SELECT "index", id, version, document FROM documents') == [
        ("customers", "a", 3, '{"n": 1}')
    ]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_documents_are_looked_up_and_scanned_by_index_never_by_reading_all(path: Path) -> None:
    sink = SqliteSink(SqliteStoreConfig(str(path)))
    for index in ("customers", "orders"):
        sink.ensure(index, FIRST, {})
        sink.write(batch_of(1, {str(i): {"n": i} for i in range(50)}, index))
    sink.close()

    def plan(where: str) -> list[str]:
        return [row[3] for row in rows(path, f"EXPLAIN QUERY PLAN SELECT * FROM documents WHERE {where}")]

    index = "SEARCH i USING PRIMARY KEY (name=?)"
    one = "SEARCH d USING PRIMARY KEY (generation=? AND id=?)"
    assert plan("\"index\" = 'orders' AND id = '7'") == [index, one]
    # The rows come in the order of their ids: no sorting.
    assert plan("\"index\" = 'orders' ORDER BY id") == [index, "SEARCH d USING PRIMARY KEY (generation=?)"]
    assert plan("id = '7'") == ["SCAN i", one]
    count = 'SELECT "index", count(*) FROM documents GROUP BY "index"'
    assert rows(path, count) == [("customers", 50), ("orders", 50)]


def test_strings_at_any_depth_are_found_and_nothing_else_is(sink: SqliteSink, path: Path) -> None:
    sink.write(
        batch(
            1,
            a={"name": "Ada Lovelace", "orders": [{"items": [{"product": {"title": "Difference Engine"}}]}]},
            b={"name": "Grace Hopper", "count": 1906, "vip": True, "none": None},
        )
    )
    assert found(sink, "lovelace") == {"a"}
    assert found(sink, "engine", "ADA") == {"a"}
    assert found(sink, "engine", "grace") == set()
    for no in ("name", "1906", "true", "null"):
        assert found(sink, no) == set()
    check(path)


def test_words_follow_updates_and_deletes(sink: SqliteSink, path: Path) -> None:
    sink.write(batch(1, a={"s": "old words"}, b={"s": "old friends"}))
    sink.write(batch(2, a={"s": "new words"}, b=None))
    assert found(sink, "old") == set()
    assert found(sink, "words") == found(sink, "new") == {"a"}
    sink.write(batch(1, a={"s": "late"}, b={"s": "late"}))
    assert found(sink, "late") == set()
    sink.write(batch(3, b={"s": "back"}))
    assert found(sink, "back") == {"b"}
    sink.drop("customers")
    with pytest.raises(UsageError, match="customers"):
        found(sink, "back")
    sink.ensure("customers", FIRST, {})
    assert found(sink, "back") == found(sink, "words") == set()
    sink.write(batch(1, a={"s": "again"}))
    assert found(sink, "again") == {"a"}
    check(path)


def test_words_are_right_after_any_changes(sink: SqliteSink, path: Path) -> None:
    dice = random.Random(11)
    vocabulary = ["red", "green", "blue", "Straße", "naïve", "東京", "x\0y", 'q"uote', "\\u0000", "tab\t"]
    current: dict[str, list[str] | None] = {}
    for version in range(1, 60):
        some = {
            id_: None if dice.random() < 0.3 else dice.choices(vocabulary, k=dice.randint(0, 4))
            for id_ in dice.sample("abcdefghijkl", dice.randint(1, 9))
        }
        sink.write(batch_of(version, some))
        current |= some
    expected = {id_: words for id_, words in current.items() if words is not None}
    assert held(sink) == expected
    for word in ("red", "green", "blue", "strasse", "Straße", "naive", "東京"):
        written = {"naive": "naïve"}.get(word, word)
        assert found(sink, word) == {id_ for id_, words in expected.items() if written in words}
    # What is behind an escaped NUL is found as well.
    assert found(sink, "y") == {id_ for id_, words in expected.items() if "x\0y" in words}
    check(path)


def test_a_document_that_comes_again_as_it_is_keeps_its_words_and_gets_its_version(
    sink: SqliteSink, path: Path
) -> None:
    sink.write(batch(1, a={"s": "same"}, b={"s": "other"}))
    number = rows(path, "SELECT shown FROM tailrace_indexes")[0][0]
    segments = f"SELECT count(*) FROM {generations.search_table(number)}_data"
    before = rows(path, segments)
    sink.write(batch(2, a={"s": "same"}, b={"s": "other"}))
    assert rows(path, segments) == before
    assert versions(sink) == {"a": 2, "b": 2}
    assert found(sink, "same") == {"a"}
    check(path)


def test_better_matches_come_first_and_matches_are_shown(sink: SqliteSink) -> None:
    filler = " ".join(f"word{i}" for i in range(60))
    sink.write(batch(1, long={"s": f"{filler} engine {filler}"}, short={"s": "Engine"}, twin={"s": "engine"}))
    hits = sink.search("customers", ["engine"])
    assert [hit.id for hit in hits] == ["short", "twin", "long"]
    assert hits[0].score == hits[1].score > hits[2].score
    assert hits[0].excerpt == (("Engine", True),)
    assert ("engine", True) in hits[2].excerpt
    assert len("".join(text for text, _ in hits[2].excerpt)) < 300
    assert json.loads(hits[0].document) == {"s": "Engine"}
    assert [hit.id for hit in sink.search("customers", ["engine"], limit=1)] == ["short"]


def test_words_are_taken_literally_unless_raw(sink: SqliteSink) -> None:
    sink.write(batch(1, a={"s": 'ada "the" OR-gate'}, b={"s": "grace near"}, c={"s": "or"}))
    assert found(sink, "ada", "OR", "grace") == set()
    assert found(sink, "OR") == {"a", "c"}
    assert found(sink, '"the"') == found(sink, "ada the") == {"a"}
    assert found(sink, "grac*") == set()
    assert found(sink, "words:grace") == set()
    for odd in ('"', "(", "*", "^", "", "ä'\"", "-", "NEAR(", "a\0"):
        found(sink, odd)
    assert found(sink, "ada", "OR", "grace", raw=True) == {"a", "b"}
    assert found(sink, "grac*", raw=True) == {"b"}
    for bad in ("(", '"', "AND", "other:x", "ada OR"):
        with pytest.raises(UsageError, match="full-text") as error:
            sink.search("customers", [bad], raw=True)
        assert "--raw" in str(error.value.remedy)


def test_an_unknown_index_names_those_there_are(sink: SqliteSink, tmp_path: Path) -> None:
    sink.ensure("orders", FIRST, {})
    with pytest.raises(UsageError, match="no index order") as error:
        sink.search("order", ["x"])
    assert error.value.remedy == "its indexes: customers, orders"
    with pytest.raises(ConfigError, match="no document store") as missing:
        SqliteSink(SqliteStoreConfig(str(tmp_path / "none.db"))).search("order", ["x"])
    assert "tailrace run" in str(missing.value.remedy)
    assert not (tmp_path / "none.db").exists()


def test_what_is_not_json_is_rejected_and_the_rest_is_written(path: Path) -> None:
    sink = SqliteSink(SqliteStoreConfig(str(path), max_document_bytes=5000, piece_documents=4))
    sink.ensure("customers", FIRST, {})
    texts: dict[str, str | None] = {
        "broken": '{"a":',
        "cut": '{"a":1}\0{"b":2}',
        "empty": "",
        "deep": "[" * 2400 + "]" * 2400,
        "long": json.dumps("x" * 5000),
        "json5": "{a:1}",
    }
    good = {f"good{i}": {"n": i} for i in range(9)}
    report = sink.write(batch_of(1, {**good, **texts, "gone": None}))
    assert (report.written, report.deleted) == (9, 1)
    reasons = {one.id: one.reason for one in report.rejected}
    assert reasons.keys() == texts.keys()
    assert "5,000 bytes" in reasons["long"]
    assert all("JSON" in reason for id_, reason in reasons.items() if id_ != "long")
    assert held(sink) == good
    check(path)
    sink.close()


@pytest.mark.long
def test_a_document_of_fifty_megabytes_is_kept_and_searched(sink: SqliteSink, path: Path) -> None:
    big(sink, json.dumps({"blob": "x" * 52_000_000, "s": "needle"}))
    check(path)


@pytest.mark.long
def test_a_document_of_nine_million_words_is_kept_and_searched(sink: SqliteSink, path: Path) -> None:
    big(sink, json.dumps({"rows": ["needle", *("hay stack" for _ in range(4_500_000))]}))
    check(path)


def big(sink: SqliteSink, text: str) -> None:
    assert len(text) > 50_000_000
    report = sink.write(batch_of(1, {"big": text, "small": {"s": "needle"}}))
    assert report == DocumentReport(written=2)
    assert sink.read("customers").column("document")[0].as_py() == text
    assert found(sink, "needle") == {"big", "small"}
    sink.write(batch_of(2, {"big": None}))
    assert found(sink, "needle") == {"small"}


def test_a_batch_is_cut_by_number_and_by_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    put = sink_module._put

    def counted(connection: sqlite3.Connection, rows: Sequence[tuple[str, str | None]]) -> Any:
        sizes.append(len(rows))
        return put(connection, rows)

    monkeypatch.setattr(sink_module, "_put", counted)
    sink = SqliteSink(SqliteStoreConfig(str(path), piece_documents=4, piece_bytes=30))
    sink.ensure("customers", FIRST, {})
    documents = {f"{i:02}": [1] if i < 9 else ["x" * 50] if i < 11 else None for i in range(20)}
    assert sink.write(batch_of(1, documents)) == DocumentReport(11, 9)
    assert sizes == [4, 4, 1, 1, 1, 4, 4, 1]
    assert len(held(sink)) == 11
    sink.close()


def test_it_pickles_as_settings_and_is_opened_where_it_arrives(sink: SqliteSink) -> None:
    sink.write(batch(1, a={"n": 1}))
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301
    assert copy._connection is None
    copy.write(batch(2, b={"n": 2}))
    assert held(sink) == held(copy) == {"a": {"n": 1}, "b": {"n": 2}}
    copy.close()


def test_a_forked_process_opens_its_own_connection(sink: SqliteSink) -> None:
    sink.write(batch(1, a={"n": 1}))
    child = os.fork()
    if not child:
        code = 1
        try:
            sink.write(batch(2, b={"n": 2}))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    sink.write(batch(3, c={"n": 3}))
    assert set(held(sink)) == {"a", "b", "c"}


WRITER = """
import sys
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.sinks.documents import FIRST, batch_of
path, part = sys.argv[1], int(sys.argv[2])
sink = SqliteSink(SqliteStoreConfig(path, piece_documents=7))
sink.ensure("customers", FIRST, {})
for version in (3, 1, 2):
    # Three parts have different ids, the fourth has all of them once more.
    ids = [i for i in range(120) if part == 3 or i % 3 == part]
    some = {str(i): None if i % 5 == version % 5 else {"v": version, "s": f"word{i}"} for i in ids}
    report = sink.write(batch_of(version, some))
    assert report.written + report.deleted + report.stale == len(ids)
sink.close()
"""


def test_several_processes_create_the_store_and_write_to_it_at_once(path: Path, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(part)],
            cwd=root,
            env=environment,
            stderr=subprocess.PIPE,
        )
        for part in range(4)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors.decode()
    sink = SqliteSink(SqliteStoreConfig(str(path)))
    expected = {str(i): {"v": 3, "s": f"word{i}"} for i in range(120) if i % 5 != 3}
    assert held(sink) == expected
    assert found(sink, "word7") == {"7"}
    assert found(sink, "word8") == set()
    check(path)
    sink.close()


def test_another_writer_that_stays_is_a_passing_fault_and_nothing_is_half_done(path: Path) -> None:
    sink = SqliteSink(SqliteStoreConfig(str(path), busy_timeout=0.05))
    sink.ensure("customers", FIRST, {})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Transient, match="locked"):
            sink.write(batch(1, a={"n": 1}))
        assert held(sink) == {}
        other.execute("ROLLBACK")
    sink.write(batch(1, b={"n": 1}))
    assert held(sink) == {"b": {"n": 1}}
    sink.close()


def test_a_reader_in_the_middle_of_its_work_does_not_stop_writers(sink: SqliteSink, path: Path) -> None:
    sink.write(batch(1, a={"n": 1}))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = "SELECT count(*) FROM documents"
        assert reader.execute(count).fetchone() == (1,)
        sink.write(batch(2, b={"n": 1}))
        assert reader.execute(count).fetchone() == (1,)
        reader.execute("COMMIT")
        assert reader.execute(count).fetchone() == (2,)


def test_deletes_are_forgotten_after_the_horizon_and_not_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("tailrace.sinks.sqlite.sink.time.time", lambda: now)
    monkeypatch.setattr(sink_module, "_PRUNE_EVERY", 0.0)
    sink = SqliteSink(SqliteStoreConfig(str(path), remember_deletes=100))
    sink.ensure("customers", FIRST, {})
    sink.write(batch(5, a={"n": 1}, b={"n": 1}))
    sink.write(batch(6, a=None))
    now = 1099.0
    assert sink.write(batch(5, a={"n": 1})).stale == 1
    now = 1101.0
    sink.write(batch(7, b={"n": 2}))
    assert rows(path, "SELECT id FROM tailrace_entries") == [("b",)]
    assert sink.write(batch(5, a={"n": 1})).written == 1
    check(path)
    sink.close()


def test_a_file_that_was_removed_under_the_pipeline_is_noticed(sink: SqliteSink, path: Path) -> None:
    sink.write(batch(1, a={"n": 1}))
    for file in path.parent.glob("documents.db*"):
        file.unlink()
    with pytest.raises(NeedsOperator, match="replaced"):
        sink.write(batch(2, b={"n": 1}))
    sink.ensure("customers", FIRST, {})
    assert sink.seeded("customers") is None
    sink.write(batch(2, b={"n": 1}))
    assert held(sink) == {"b": {"n": 1}}


def test_a_killed_writer_leaves_whole_documents_only(path: Path, root: Path) -> None:
    code = """
import os, sys
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig, sink as module
from tests.sinks.documents import FIRST, batch_of
sink = SqliteSink(SqliteStoreConfig(sys.argv[1]))
sink.ensure("customers", FIRST, {})
sink.write(batch_of(1, {"a": {"s": "one"}}))
module._STORE = "SELECT die()"
sink._connection.create_function("die", 0, lambda: os._exit(9))
sink.write(batch_of(2, {"a": {"s": "two"}, "b": {"s": "two"}}))
"""
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=root, env=environment, timeout=60, check=False
    )
    assert done.returncode == 9
    sink = SqliteSink(SqliteStoreConfig(str(path)))
    assert held(sink) == {"a": {"s": "one"}}
    check(path)
    sink.write(batch(2, a={"s": "two"}))
    assert found(sink, "two") == {"a"}
    check(path)
    sink.close()


def test_another_file_is_not_taken_for_a_store(tmp_path: Path) -> None:
    other = tmp_path / "shop.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE documents (x)")
        connection.commit()
    text = tmp_path / "notes.txt"
    text.write_text("no database at all " * 100)
    for place in (other, text):
        with pytest.raises(ConfigError, match="not a document store"):
            SqliteSink(SqliteStoreConfig(str(place))).ensure("customers", FIRST, {})
        with pytest.raises(ConfigError, match="not a document store"):
            SqliteSink(SqliteStoreConfig(str(place))).search("customers", ["x"])
    with pytest.raises(ConfigError, match="directory"):
        SqliteSink(SqliteStoreConfig(str(tmp_path / "no" / "d.db"))).ensure("customers", FIRST, {})


def test_a_store_of_a_newer_version_is_refused(sink: SqliteSink, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(ConfigError, match="newer"):
        SqliteSink(SqliteStoreConfig(str(path))).ensure("customers", FIRST, {})


def test_a_store_of_the_first_format_is_refused_with_what_to_do(sink: SqliteSink, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=1")
    calls: list[Callable[[SqliteSink], object]] = [
        lambda other: other.ensure("customers", FIRST, {}),
        lambda other: other.search("customers", ["x"]),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="format 1") as error:
            call(SqliteSink(SqliteStoreConfig(str(path))))
        assert f"remove {path}" in str(error.value.remedy)


def test_a_library_without_full_text_search_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "modules", lambda _: {"json_each"})
    with pytest.raises(ConfigError, match="lacks FTS5") as error:
        SqliteSink(SqliteStoreConfig(str(path))).ensure("customers", FIRST, {})
    assert "Python" in str(error.value.remedy)


def test_making_one_opens_nothing(path: Path) -> None:
    SqliteSink(SqliteStoreConfig(str(path))).close()
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_index_and_its_generations_need_names(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        SqliteSink(SqliteStoreConfig(str(path))).ensure(name, FIRST, {})
    with pytest.raises(ConfigError, match="name"):
        SqliteSink(SqliteStoreConfig(str(path))).ensure("customers", name, {})


def test_unusual_names_of_indexes_work(sink: SqliteSink, path: Path) -> None:
    for name in ("it's", 'a "quoted" one', "ünïcode", "a.b-c", "select"):
        sink.ensure(name, FIRST, {})
        sink.write(batch_of(1, {"a": {"s": "needle"}}, name))
        assert [hit.id for hit in sink.search(name, ["needle"])] == ["a"]
        sink.publish(name, MARKER)
        assert sink.seeded(name) == MARKER
        sink.drop(name)
        assert sink.seeded(name) is None
    check(path)
