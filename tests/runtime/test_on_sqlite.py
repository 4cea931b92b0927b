"""The main flows again on a real SQLite file, with other processes that write, consume and are killed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.changelog.reader import read_windows
from tailrace.model.errors import (
    IdentityMismatch,
    LogLost,
    SchemaDrift,
    StateUnreadable,
    Transient,
    UsageError,
)
from tailrace.model.table import TableRef
from tailrace.runtime.checkpoint import CheckpointStore
from tailrace.runtime.filler import Filler
from tailrace.runtime.runtime import Runtime
from tests.runtime.support import drain, rows_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
ITEMS = TableRef("main", "items")
Image = dict[str, Any] | None


class Database:
    """A file with a table of rows, captured; runtimes and processes on it."""

    def __init__(self, path: Path, rows: int = 0) -> None:
        self.path = path / "source.db"
        self.state = path / "state"
        self.output = path / "output.jsonl"
        self.connection = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER)")
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO items VALUES (?, 0)", [(n,) for n in range(rows)])
        self.connection.execute("COMMIT")
        self.capture().setup([ITEMS])
        self.output.touch()

    def capture(self) -> SqliteCapture:
        return SqliteCapture(SqliteConfig(self.path, slice_rows=50, prune_seconds=0.0))

    def runtime(self, **settings: Any) -> Runtime:
        settings.setdefault("mode", "changes")
        store = CheckpointStore(str(self.state), "test")
        return Runtime(self.capture(), ["items"], store=store, consumer="test", wait=0.05, **settings)

    def insert(self, *numbers: int) -> None:
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO items VALUES (?, 1)", [(n,) for n in numbers])
        self.connection.execute("COMMIT")

    def rows(self) -> dict[int, int]:
        return dict(self.connection.execute("SELECT id, n FROM items"))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.runtime.processes", *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)

    def consumer(self, order: str) -> subprocess.Popen[bytes]:
        return self.start("consume", str(self.path), str(self.state), str(self.output), order)

    def writer(self, seed: int, seconds: float) -> subprocess.Popen[bytes]:
        return self.start("write", str(self.path), str(seed), str(seconds))

    def delivered(self) -> list[tuple[str, int, int, Image, Image]]:
        lines = self.output.read_text().split("\n")[:-1]
        return [tuple(json.loads(line)) for line in lines]

    def has_delivered(self, count: int) -> bool:
        return len(self.delivered()) > count

    def built(self) -> dict[int, int]:
        """What a consumer has that applied everything in the order it came."""
        state: dict[int, int] = {}
        for op, _, _, before, after in self.delivered():
            if op == "s":
                state.clear()
            if before:
                state.pop(before["id"], None)
            if after:
                state[after["id"]] = after["n"]
        return state


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path, rows=1500)
    yield made
    made.connection.close()


def _end(process: subprocess.Popen[bytes], sign: int = signal.SIGTERM) -> int:
    process.send_signal(sign)
    code = process.wait(60)
    if process.stderr:
        text = process.stderr.read().decode()
        process.stderr.close()
        assert code in (0, -sign), text
    return code


@contextlib.contextmanager
def _running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        if process.stderr and not process.stderr.closed:
            process.stderr.close()


@pytest.mark.parametrize("order", ["interleaved", "first"])
def test_snapshot_then_changes_with_another_process_writing_converges(database: Database, order: str) -> None:
    with _running(database.writer(1, 1.5)) as writer, _running(database.consumer(order)) as consumer:
        assert writer.wait(60) == 0
        wait_until(lambda: database.built() == database.rows())
        assert _end(consumer) == 0
    if order == "interleaved":
        _never_back_in_time(database)


def _never_back_in_time(database: Database) -> None:
    places = [(position, seq) for _, position, seq, _, _ in database.delivered()]
    assert places == sorted(places)
    newest: dict[int, int] = {}
    for op, _, _, _, after in database.delivered():
        if after and op == "r":
            assert after["n"] >= newest.get(after["id"], 0), "a snapshot row overwrote a newer change"
        if after:
            newest[after["id"]] = after["n"]


def test_killed_while_reading_and_writing_it_resumes_and_loses_nothing(database: Database) -> None:
    kills = 0
    with _running(database.writer(2, 4.0)) as writer:
        while kills < 3:
            with _running(database.consumer("interleaved")) as consumer:
                enough = len(database.delivered()) + 150
                wait_until(functools.partial(database.has_delivered, enough))
                kills += _end(consumer, signal.SIGKILL) == -signal.SIGKILL
        assert writer.wait(60) == 0
    assert kills == 3
    assert database.delivered()[-1][0] in "rcud"
    with _running(database.consumer("interleaved")) as consumer:
        wait_until(lambda: database.built() == database.rows())
        assert _end(consumer) == 0
    markers = [change for change in database.delivered() if change[0] == "s"]
    assert 1 <= len(markers) <= 2, "a snapshot is resumed, not begun again"
    everything = len(database.delivered())
    database.insert(5000)
    with _running(database.consumer("interleaved")) as consumer:
        wait_until(lambda: len(database.delivered()) > everything)
        assert _end(consumer) == 0
    assert [change[4] for change in database.delivered()[everything:]] == [{"id": 5000, "n": 1}], (
        "no repetition"
    )


def test_stopped_by_sigterm_while_it_streams_it_repeats_nothing(database: Database) -> None:
    with _running(database.writer(3, 3.0)) as writer:
        for _ in range(3):
            with _running(database.consumer("interleaved")) as consumer:
                enough = len(database.delivered()) + 150
                wait_until(functools.partial(database.has_delivered, enough))
                assert _end(consumer) == 0
        assert writer.wait(60) == 0
    with _running(database.consumer("interleaved")) as consumer:
        wait_until(lambda: database.built() == database.rows())
        assert _end(consumer) == 0
    places = [(position, seq) for _, position, seq, _, _ in database.delivered()]
    assert len(places) == len(set(places))
    _never_back_in_time(database)


def test_force_stop_gives_back_injected_delivered_buffered_and_taken_in_order(database: Database) -> None:
    runtime = database.runtime(max_rows=3)
    runtime.start()
    database.insert(*range(5000, 5007))
    delivery = runtime.poll()
    assert rows_of(delivery) == [("c", 5000), ("c", 5001), ("c", 5002)]
    assert delivery is not None
    runtime.inject([delivery.batches[0].slice(1, 1)])
    pieces = runtime.force_stop()
    assert [(piece.origin, rows_of(piece)) for piece in pieces] == [
        ("injected", [("c", 5001)]),
        ("delivered", [("c", 5000), ("c", 5001), ("c", 5002)]),
        ("buffered", [("c", 5003), ("c", 5004), ("c", 5005), ("c", 5006)]),
    ]
    runtime.start()
    assert drain(runtime) == [("c", n) for n in range(5000, 5007)]
    runtime.stop()


def test_a_failing_save_leaves_the_token_unspent_and_the_source_unacknowledged(database: Database) -> None:
    runtime = database.runtime()
    runtime.start()
    database.insert(5000)
    delivery = runtime.poll()
    assert delivery is not None
    file = database.state / "runtime" / "test" / "checkpoint.json"
    saved = file.read_bytes()
    file.unlink()
    file.mkdir()
    with pytest.raises(Transient):
        runtime.acknowledge(delivery.token)
    with pytest.raises(UsageError, match=r"^1 changes"):
        runtime.stop()
    file.rmdir()
    file.write_bytes(saved)
    runtime.acknowledge(delivery.token)
    runtime.stop()
    runtime.start()
    assert runtime.poll(0.1) is None
    runtime.stop()


def _start_and_drain(runtime: Runtime) -> None:
    runtime.start()
    drain(runtime)


def test_a_table_set_up_anew_is_read_again_and_its_changes_follow(database: Database) -> None:
    database.connection.execute("DELETE FROM items WHERE id > 2")
    runtime = database.runtime(mode="snapshot_then_changes")
    runtime.start()
    drain(runtime)
    runtime.stop()
    database.connection.execute("ALTER TABLE items ADD COLUMN more TEXT")
    database.connection.execute("UPDATE items SET n = 7, more = 'x' WHERE id = 1")
    with pytest.raises(SchemaDrift):
        _start_and_drain(runtime)
    runtime.force_stop()
    assert database.capture().setup([ITEMS])
    runtime.start()
    database.connection.execute("UPDATE items SET n = 8 WHERE id = 2")
    found = drain(runtime)
    assert [change for change in found if change[0] in "sr"] == [("s", None), ("r", 0), ("r", 1), ("r", 2)]
    assert ("u", 2) in found
    runtime.stop()
    runtime.start()
    assert drain(runtime) == []
    runtime.stop()


def test_a_table_set_up_anew_stops_a_stream_of_changes(database: Database) -> None:
    runtime = database.runtime(mode="changes")
    runtime.start()
    runtime.stop()
    database.connection.execute("ALTER TABLE items ADD COLUMN more TEXT")
    database.capture().setup([ITEMS])
    with pytest.raises((SchemaDrift, LogLost)):
        runtime.start()


def test_a_database_restored_from_a_backup_is_refused(database: Database, tmp_path: Path) -> None:
    runtime = database.runtime()
    runtime.start()
    backup = sqlite3.connect(tmp_path / "backup.db")
    database.connection.backup(backup)
    database.insert(5000, 5001)
    drain(runtime)
    runtime.stop()
    backup.backup(database.connection)
    backup.close()
    with pytest.raises((IdentityMismatch, StateUnreadable)):
        runtime.start()
    assert runtime.state == "stopped"


def test_close_ends_a_poll_that_waits_for_a_quiet_file(database: Database) -> None:
    runtime = database.runtime()
    runtime.start()
    timer = threading.Timer(0.2, runtime.close)
    timer.start()
    assert runtime.poll(60.0) is None
    timer.join()
    assert str(runtime.state) == "stopped"


def test_a_filler_cuts_a_range_where_an_earlier_life_ended_it(database: Database, tmp_path: Path) -> None:
    def filler(name: str, **settings: Any) -> Filler:
        made = Filler.open(
            database.capture(), [ITEMS], uri=str(tmp_path / name), consumer="spark", wait=0.05, **settings
        )
        made.start()
        return made

    def content(made: Filler, start: int, end: int) -> list[dict[str, Any]]:
        refs = made.changelog.plan(start, end)
        batches = [batch for window in read_windows(made.changelog.uri, refs) for batch in window]
        return [change for batch in batches for change in batch.data.to_pylist()]

    start = database.capture().register("spark")
    first = filler("one", start=start)
    database.insert(*range(5000, 5003))
    end = first.catch_up(timeout=60)
    database.insert(*range(6000, 6120))
    last = first.catch_up(timeout=60)
    expected = content(first, start.version, end)
    first.close()
    first.changelog.close()

    again = filler("two", start=start, cut=end)
    assert again.catch_up(timeout=60) == last
    assert content(again, start.version, end) == expected
    assert [change["after"]["id"] for change in content(again, end, last)] == list(range(6000, 6120))
    again.acknowledge(start.at(last))
    wait_until(lambda: database.capture().consumers()[0].acknowledged == last)
    again.close()
    again.changelog.close()
