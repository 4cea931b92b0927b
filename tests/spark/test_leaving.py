"""The process that reads the source ends with its query, whatever it was doing when it was told to."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.changelog import log
from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.owner import read_owner
from tailrace.changelog.recovery import recover
from tailrace.model.errors import TailraceError
from tailrace.spark.driver import StreamDriver
from tailrace.spark.options import SourceOptions
from tailrace.spark.source import open_capture
from tests.support.shop import Shop
from tests.support.waiting import wait_until

# Told to end between taking a lock and the block that gives it back, while another thread waits for the lock
# and holds what closing needs.
BETWEEN = """
import os, signal, threading
from tailrace.spark.leaving import close_when_told

inner, outer, waits = threading.RLock(), threading.Lock(), threading.Event()

class Taken:
    def __enter__(self):
        inner.acquire()
        threading.Thread(target=other, daemon=True).start()
        waits.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    def __exit__(self, *_):
        inner.release()

def other():
    with outer:
        waits.set()
        with inner:
            pass

def close():
    with outer:
        print("closed", flush=True)

close_when_told(close)
print("ready", flush=True)
with Taken():
    pass
threading.Event().wait()
"""
# Closing waits for ever.
STUCK = """
import threading
from tailrace.spark import leaving

leaving.LEAVE_SECONDS = 0.3
leaving.close_when_told(threading.Event().wait)
print("ready", flush=True)
threading.Event().wait()
"""
# What Spark's runner does: one call after the other, and `stop` where one fails.
QUERY = """
import sys
from pyspark.sql.streaming.datasource import ReadMaxRows
from tailrace.spark.source import TailraceSource

url, state = sys.argv[1:]
source = TailraceSource({"url": url, "tables": "orders", "stateDir": state})
reader = source.streamReader(source.schema())
try:
    start = reader.initialOffset()
    while True:
        end = reader.latestOffset(start, ReadMaxRows(1000))
        reader.partitions(start, end)
        print("ready", flush=True)
        start = end
finally:
    reader.stop()
"""


def released(state: Path) -> bool:
    owner = read_owner(*open_filesystem(str(state / "changelog")))
    assert owner is not None
    return owner.heartbeat == 0


@contextmanager
def ready(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_is_told_to_end_while_it_takes_a_lock_closes_and_ends() -> None:
    with ready(BETWEEN) as process:
        said, _ = process.communicate(timeout=15)
        assert said == "closed\n"
        assert process.returncode == 0


def test_a_process_that_cannot_close_is_ended_and_says_where_it_stood() -> None:
    with ready(STUCK) as process:
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "most recent call first" in told


def test_a_query_that_is_told_to_end_lets_go_of_its_state(shop: Shop, tmp_path: Path) -> None:
    shop.insert(0, 10)
    state = tmp_path / "state"
    with ready(QUERY, shop.url, str(state)) as process:
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=15)
        assert (process.returncode, told) == (0, "")
    assert released(state)


def test_a_query_that_is_told_to_end_while_it_opens_its_state_lets_go_of_it(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned, told = threading.Event(), threading.Event()

    def slowly(*arguments: Any, **named: Any) -> Any:
        owned.set()
        assert told.wait(30)
        return recover(*arguments, **named)

    monkeypatch.setattr(log, "recover", slowly)
    options = {"url": shop.url, "tables": "orders", "stateDir": str(tmp_path / "state")}
    query = StreamDriver(SourceOptions.parse(options), open_capture)

    def call() -> None:
        with contextlib.suppress(TailraceError):
            query.latest(query.initial(), max_rows=None, max_bytes=None)

    with ThreadPoolExecutor(2) as threads:
        call_done = threads.submit(call)
        assert owned.wait(30)
        left = threads.submit(query.leave)
        wait_until(lambda: query._closed)
        told.set()
        left.result(30)
        call_done.result(30)
    assert released(tmp_path / "state")
