"""With writers in other processes: soon awake, never in their way."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.capture.sqlite import SqliteCapture, SqliteConfig, wake
from tests.capture.sqlite.support import CONSUMER, Source, seen
from tests.support.waiting import wait_until

Make = Callable[..., Source]
T = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)"


def start(root: Path, verb: str, path: Path, amount: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.capture.sqlite.writers", verb, str(path), str(amount)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def latencies(s: Source, process: subprocess.Popen[str], enough: int) -> list[float]:
    """Milliseconds from just before each commit to its delivery."""
    found: list[float] = []
    assert s.position is not None
    deadline = time.monotonic() + 60
    for part in s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.5):
        now = time.monotonic_ns()
        if part is not None:
            found += [(now - int(c.after["v"])) / 1e6 for c in seen(part.batches) if c.after]
        if (
            len(found) >= enough
            or (part is None and process.poll() is not None)
            or time.monotonic() > deadline
        ):
            break
    process.communicate(timeout=60)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="unavailable: inotify")
def test_a_commit_of_another_process_arrives_within_milliseconds(source: Make, root: Path) -> None:
    s = source(T, timer=30.0).install()
    found = latencies(s, start(root, "tick", s.path, 60), 40)
    assert len(found) >= 40
    assert statistics.median(found) < 100


def test_without_file_notices_the_timer_finds_the_commit(
    source: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "_inotify", lambda _: None)
    s = source(T, timer=0.05).install()
    found = latencies(s, start(root, "tick", s.path, 20), 10)
    assert len(found) >= 10
    assert statistics.median(found) < 1000


def test_a_writer_that_never_waits_hardly_ever_meets_us(source: Make, root: Path) -> None:
    s = source(T, prune_seconds=0.2).install()
    process = start(root, "hammer", s.path, 3.0)
    assert s.position is not None
    rows = 0
    for part in s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.3):
        if part is not None:
            rows += part.rows
            s.capture.acknowledge(part.position, consumer=CONSUMER)
        elif process.poll() is not None and not s.capture._cursors.dirty:
            break
    done, failed = json.loads(process.communicate()[0])
    assert rows == done
    assert failed <= done * 0.01
    assert [c.acknowledged for c in s.capture.consumers()] == [s.capture.head().version]
    (log,) = s.app.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%log_%'").fetchone()
    assert s.app.execute(f"SELECT count(*) FROM {log}").fetchone() == (0,)


def test_numbers_are_unique_and_complete_with_two_writers_at_once(source: Make, root: Path) -> None:
    s = source(T).install()
    writers = [start(root, "tick", s.path, 25) for _ in range(2)]
    assert s.position is not None
    found = []
    for part in s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.2):
        if part is not None:
            found += seen(part.batches)
        elif all(writer.poll() is not None for writer in writers):
            break
    for writer in writers:
        writer.communicate(timeout=60)
    assert len({c.seq for c in found}) == len(found)
    assert [c.seq for c in found] == sorted(c.seq for c in found)
    assert len(found) == s.app.execute("SELECT count(*) FROM t").fetchone()[0]


def test_nothing_in_this_process_drops_the_locks_of_its_connections(source: Make, root: Path) -> None:
    s = source(T).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01)
    assert next(live) is None
    other = SqliteCapture(SqliteConfig.from_url(f"sqlite:{s.path}"))
    other.lag(other.head())
    list(
        other.snapshot(
            other.describe(s.ref("t")), other.plan(s.ref("t"), rows_per_chunk=9)[0], position=1, seq=1
        )
    )
    start(root, "tick", s.path, 1).communicate(timeout=60)
    # The last connection to leave removes the log: that process must not have taken itself for the last.
    assert s.path.with_name(f"{s.path.name}-wal").exists()
    part = wait_until(lambda: next(live), what="the commit")
    assert part is not None
    assert part.rows == 1
