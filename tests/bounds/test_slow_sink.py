"""A sink that is a hundred times slower than the source: the changelog fills up, and nothing else grows."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.bounds.grounds import Ground
from tests.bounds.rig import JVM_MB, Home, Running, Usage, bounded
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

SMALL, LARGE = 30_000, 300_000
TRANSACTION = 500
CHANGELOG_MB = 8
# What is published before capture pauses, and what is acknowledged and not removed yet.
SLACK_MB = 12
BODY = 65_536
CEILINGS = {"driver": 450.0, "jvm": JVM_MB, "capture": 400.0, "workers": 700.0}
# Digits that compression makes little of, in the SQL of both sources.
PADDING = " || ".join(f"CAST(i * {7919 * k} % 99999989 AS VARCHAR(10))" for k in range(1, 25))


class Receiver:
    """Takes bodies as fast as it is let, each once."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.bodies: dict[str, list[int]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer._wait()
                key = self.headers["Idempotency-Key"]
                lines = [json.loads(line) for line in body.splitlines()]
                outer.bodies[key] = [line["after"]["id"] for line in lines if line["after"]]
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._free = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def ids(self) -> list[int]:
        """What was received, in the order in which it was first received."""
        return [number for body in list(self.bodies.values()) for number in body]

    def slow(self, pause: float) -> None:
        """Take so many seconds for each body from now on."""
        self._free.clear()
        self.pause = pause

    def fast(self) -> None:
        """Take no time, from now on."""
        self._free.set()

    def _wait(self) -> None:
        self._free.wait(self.pause)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.fast()
    made.close()


@pytest.fixture
def home(tmp_path: Path, ground: Ground, receiver: Receiver) -> Iterator[Home]:
    made = Home(tmp_path, ground.url)
    made.configure(
        f'[state]\nmax_size = "{CHANGELOG_MB}MB"\n[batch]\nmax_bytes = "2MB"\n'
        f'[sinks.hook]\ntype = "http"\nurl = "{receiver.url}"\nmax_batch_bytes = {BODY}\n'
        '[[feed]]\ntables = ["items"]\nsink = "hook"'
    )
    yield made
    shutil.rmtree(made.state, ignore_errors=True)


def _written(ground: Ground, first: int, count: int) -> float:
    """Rows in small transactions; how many a second."""
    begun = time.monotonic()
    for start in range(first, first + count, TRANSACTION):
        source = ground.series(start, start + TRANSACTION - 1)
        ground.transaction(f"INSERT INTO items SELECT i, i % 7, {PADDING} FROM {source}")
    return count / (time.monotonic() - begun)


def test_a_sink_a_hundred_times_slower_holds_capture_up_and_costs_no_memory(
    ground: Ground, home: Home, receiver: Receiver
) -> None:
    ground.transaction("CREATE TABLE items (id BIGINT PRIMARY KEY, n BIGINT, padding TEXT)")
    ground.publish(["items"])
    rate = _written(ground, 1, 4 * TRANSACTION)
    # A body has about so many lines.
    pause = min(100 * (BODY // 400) / rate, 10.0)

    def behind(running: Running, first: int, count: int, full: float = 0.0) -> Usage:
        def act() -> None:
            known = len(receiver.bodies)
            receiver.slow(pause)
            _written(ground, first, count)
            wait_until(lambda: len(receiver.bodies) >= known + 10, timeout=300, what="a slow receiver")
            wait_until(lambda: running.usage.changelog >= full, timeout=300, what="a full changelog")
            receiver.fast()

        return running.phase(f"{count:,} rows for a slow sink", count, act)

    with home.running() as running:
        running.phase("begin", 4 * TRANSACTION)
        small = behind(running, 1 + 4 * TRANSACTION, SMALL)
        large = behind(running, 1 + 4 * TRANSACTION + SMALL, LARGE, full=CHANGELOG_MB)
        if ground.groups:
            # SQLite's log is pruned in small pieces, and only while somebody runs.
            wait_until(ground.settled, timeout=120, what="the pruning of the log")
        # The last batch is acknowledged with the next one, or at the end of the run.
    assert receiver.ids == list(range(1, 4 * TRANSACTION + SMALL + LARGE + 1))
    if not ground.groups:
        assert large.changelog <= CHANGELOG_MB + SLACK_MB
    bounded(small, large, ceilings=CEILINGS)
    if not ground.groups:
        wait_until(ground.settled, what="the source letting go of its log")
