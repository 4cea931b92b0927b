"""Fillings of the document store: readers see a whole one at every moment, and old ones go, crash or not."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import NeedsOperator
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig, generations
from tailrace.sinks.sqlite import sink as sink_module
from tests.sinks.documents import FIRST, MARKER, SECOND, batch, batch_of, held
from tests.sinks.test_sqlite_store import check, found, rows
from tests.support.waiting import wait_until

IDS = [f"{i:03}" for i in range(200)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not leave for later what a call would remove."""
    monkeypatch.setattr(sink_module, "_REMOVE_FOR", 600.0)
    monkeypatch.setattr(sink_module, "_REMOVE_BESIDE_WRITES", 600.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "documents.db"


@pytest.fixture
def sink(path: Path) -> Iterator[SqliteSink]:
    made = SqliteSink(SqliteStoreConfig(str(path)))
    made.ensure("customers", FIRST, {})
    yield made
    made.close()


def filling(generation: str) -> Any:
    """All documents of a filling, each with its name as its word."""
    return batch_of(1, {id_: {"of": generation} for id_ in IDS}, "customers", generation)


def marker(generation: str) -> Any:
    return replace(MARKER, generation=generation)


def fill(sink: SqliteSink, generation: str) -> None:
    sink.ensure("customers", generation, {})
    sink.write(filling(generation))


def script(root: Path, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Python in another process, with what the tests import."""
    head = """
import os, signal, sys
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig, generations, sink as module
from tests.sinks.documents import *
from tests.sinks.test_sqlite_generations import fill, filling, marker
sink = SqliteSink(SqliteStoreConfig(sys.argv[1]))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *arguments],
        cwd=root,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def only(path: Path, generation: str) -> None:
    """Of all fillings, the file has this one alone, and nothing is left of any other."""
    ((number, name),) = rows(path, "SELECT number, name FROM tailrace_generations")
    assert name == generation
    assert rows(path, "SELECT shown FROM tailrace_indexes") == [(number,)]
    assert rows(path, "SELECT number FROM tailrace_leaving") == []
    for table in ("tailrace_documents", "tailrace_entries"):
        assert rows(path, f"SELECT DISTINCT generation FROM {table}") == [(number,)]
    tables = {name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    numbered = {name for name in tables if name.startswith(("tailrace_search_", "tailrace_texts_"))}
    assert {name.split("_")[2] for name in numbered} == {str(number)}
    check(path)


READER = """
import json, sqlite3
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
scan = "SELECT document FROM documents WHERE \\"index\\" = 'customers'"
seen = []
print("ready", flush=True)
while not seen or seen[-1] != [200, ['{"of": "third"}']]:
    texts = [text for (text,) in connection.execute(scan)]
    (one,) = connection.execute(scan + " AND id = '007'")
    found = sink.search("customers", ["first OR second OR third"], limit=999, raw=True)
    hits = [hit.document for hit in found]
    for what in ([len(texts), sorted(set(texts))], [200, list(one)], [len(hits), sorted(set(hits))]):
        if not seen or seen[-1] != what:
            seen.append(what)
print(json.dumps(seen))
"""


def test_a_reader_in_another_process_sees_one_whole_filling_at_every_moment(
    sink: SqliteSink, path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many short transactions, so that the reader comes between them.
    monkeypatch.setattr(sink_module, "_REMOVE_ROWS", 7)
    monkeypatch.setattr(sink_module, "_REMOVE_MAX_ROWS", 7)
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    reader = script(root, READER, str(path))
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"ready\n"
    for generation in (SECOND, "third"):
        sink.ensure("customers", generation, {})
        for start in range(0, len(IDS), 50):
            documents = {id_: {"of": generation} for id_ in IDS[start : start + 50]}
            sink.write(batch_of(1, documents, "customers", generation))
        sink.publish("customers", marker(generation))
    shown, errors = reader.communicate(timeout=120)
    assert reader.returncode == 0, errors.decode()
    whole = [[len(IDS), [json.dumps({"of": name})]] for name in (FIRST, SECOND, "third")]
    seen = json.loads(shown)
    assert seen == [one for one in whole if one in seen]
    assert seen[-1] == whole[-1]
    only(path, "third")


def test_search_finds_what_readers_see_and_nothing_of_a_filling_beside_it(sink: SqliteSink) -> None:
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    fill(sink, SECOND)
    assert len(found(sink, FIRST, limit=1000)) == len(IDS)
    assert found(sink, SECOND) == set()
    sink.publish("customers", marker(SECOND))
    assert len(found(sink, SECOND, limit=1000)) == len(IDS)
    assert found(sink, FIRST) == set()


def test_a_reader_that_began_before_keeps_its_moment(sink: SqliteSink, path: Path) -> None:
    fill(sink, FIRST)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        texts = "SELECT DISTINCT document FROM documents"
        assert reader.execute(texts).fetchall() == [('{"of": "first"}',)]
        fill(sink, SECOND)
        sink.publish("customers", marker(SECOND))
        assert reader.execute(texts).fetchall() == [('{"of": "first"}',)]
        reader.execute("COMMIT")
        assert reader.execute(texts).fetchall() == [('{"of": "second"}',)]
    only(path, SECOND)


@pytest.mark.parametrize("when", ["before the first piece", "between two pieces", "within a piece"])
def test_a_kill_after_publishing_loses_nothing_and_the_removal_goes_on(
    sink: SqliteSink, path: Path, root: Path, when: str
) -> None:
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    stop = {
        "before the first piece": "generations.remove_some = die",
        # Into the tables of the search: ids of all other tables are gone by then.
        "between two pieces": """
module._REMOVE_ROWS = module._REMOVE_MAX_ROWS = 61
remove, count = generations.remove_some, iter(range(100))
generations.remove_some = lambda *given: die() if next(count) == 10 else remove(*given)
""",
        "within a piece": """
remove = generations.remove_some
generations.remove_some = lambda *given: (remove(*given), die())
""",
    }[when]
    child = script(root, f'fill(sink, SECOND)\n{stop}\nsink.publish("customers", marker(SECOND))', str(path))
    _, errors = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL, errors.decode()
    whole = {id_: {"of": SECOND} for id_ in IDS}
    assert held(sink) == whole
    assert sink.seeded("customers") == marker(SECOND)
    assert len(rows(path, "SELECT number FROM tailrace_leaving")) == 1
    assert found(sink, FIRST) == set()
    with pytest.raises(NeedsOperator, match="gone"):
        sink.write(batch(9, late={"of": FIRST}))
    # Whoever writes next goes on.
    sink._remove_again = 0.0
    sink.write(batch_of(2, {IDS[0]: {"of": SECOND}}, "customers", SECOND))
    assert held(sink) == whole
    only(path, SECOND)


def test_a_restart_goes_on_with_the_removal_too(sink: SqliteSink, path: Path, root: Path) -> None:
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    code = 'fill(sink, SECOND)\ngenerations.remove_some = die\nsink.publish("customers", marker(SECOND))'
    child = script(root, code, str(path))
    child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL
    sink.ensure("customers", SECOND, {})
    assert held(sink) == {id_: {"of": SECOND} for id_ in IDS}
    only(path, SECOND)


def test_a_writer_whose_filling_goes_in_the_middle_of_its_batch_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SqliteSink(SqliteStoreConfig(str(path), piece_documents=50))
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    other = SqliteSink(SqliteStoreConfig(str(path)))
    put, calls = sink_module._put, 0

    def interrupted(connection: sqlite3.Connection, some: Sequence[tuple[str, str | None]]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            with monkeypatch.context() as patch:
                patch.setattr(sink_module, "_put", put)
                fill(other, "third")
        return put(connection, some)

    monkeypatch.setattr(sink_module, "_put", interrupted)
    with pytest.raises(NeedsOperator, match=f"generation {SECOND} of index customers is gone"):
        sink.write(filling(SECOND))
    assert held(sink) == {id_: {"of": FIRST} for id_ in IDS}
    other.publish("customers", marker("third"))
    assert held(sink) == {id_: {"of": "third"} for id_ in IDS}
    only(path, "third")
    other.close()
    sink.close()


def test_a_name_that_comes_again_while_its_old_filling_is_removed_begins_empty(
    sink: SqliteSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sink, FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(generations, "leaving", lambda _: None)
        sink.drop("customers")
        sink.ensure("customers", FIRST, {})
        assert held(sink) == {}
        assert found(sink, FIRST) == set()
        sink.write(batch(1, a={"of": FIRST}))
    sink.ensure("customers", FIRST, {})
    assert held(sink) == {"a": {"of": FIRST}}
    assert found(sink, FIRST) == {"a"}
    only(path, FIRST)


def test_several_processes_that_ensure_one_filling_at_once_make_one(path: Path, root: Path) -> None:
    sink = SqliteSink(SqliteStoreConfig(str(path)))
    fill(sink, FIRST)
    sink.publish("customers", MARKER)
    fill(sink, "abandoned")
    code = """
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    sink.ensure("customers", SECOND, {})
sink.write(batch_of(1, {sys.argv[2]: {"of": SECOND}}, "customers", SECOND))
"""
    children = [script(root, code, str(path), str(number)) for number in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors.decode()
    assert held(sink) == {id_: {"of": FIRST} for id_ in IDS}
    assert set(held(sink, "customers", SECOND)) == {"0", "1", "2"}
    names = {name for (name,) in rows(path, "SELECT name FROM tailrace_generations")}
    assert names == {FIRST, SECOND}
    sink.publish("customers", marker(SECOND))
    only(path, SECOND)
    sink.close()


def test_others_write_while_a_filling_is_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, other = (SqliteSink(SqliteStoreConfig(str(path))) for _ in range(2))
    fill(sink, FIRST)
    fill(sink, SECOND)
    wrote, remove = threading.Event(), generations.remove_some
    # Piece after piece until the other has written: where it waits for the end of them, neither ends.
    monkeypatch.setattr(
        generations, "remove_some", lambda connection, rows: remove(connection, rows if wrote.is_set() else 0)
    )
    remover = threading.Thread(target=sink.publish, args=("customers", marker(SECOND)))
    remover.start()
    try:
        wait_until(lambda: other.seeded("customers"))
        other._remove_again = float("inf")
        other.write(batch_of(2, {"x": {"of": SECOND}}, "customers", SECOND))
        assert remover.is_alive()
    finally:
        wrote.set()
        remover.join(120)
    assert len(held(other)) == len(IDS) + 1
    only(path, SECOND)
    other.close()
    sink.close()
