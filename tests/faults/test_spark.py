"""The same kills on Spark itself: driver, JVM, runner and workers are frozen and killed together.

One life with the most telling faults is in `make test`; each row by itself is in `make test-long`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.marks import databases
from tests.faults.oracles import changes_of
from tests.faults.pipe import gone
from tests.faults.rig import Rig
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
CHUNKS: dict[str, Any] = {"rows": 1000, "chunkRows": 100, "maxRowsPerTrigger": 200}
START = 300.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def places(rig: Rig) -> list[tuple[int, int]]:
    return [(line["change"]["position"], line["change"]["seq"]) for line in changes_of(rig.feed)]


def killed_at(rig: Rig, point: str, **facts: Any) -> dict[str, Any]:
    """Start, and kill everything while one process is at the point."""
    rig.points.arm(point, "block", **facts)
    pipe = rig.start()
    found = rig.struck(point, timeout=START)
    names = [process.name() for process in pipe.tree]
    assert "java" in names, names
    assert found["pid"] in {process.pid for process in pipe.tree}
    pipe.kill()
    return found


@databases(long=("sqlite", "postgres"))
def test_a_life_with_kills_in_snapshot_commit_and_worker_and_a_clean_stop_ends_equal(rig: Make) -> None:
    r = rig("spark", master="local[2,4]", **CHUNKS)
    r.write()

    struck = killed_at(r, "read", kind="chunk", chunk=5)
    done = {line["change"]["after"]["key"] for line in changes_of(r.feed) if line["change"]["op"] == "r"}
    assert done, "chunks before it were delivered"

    struck = killed_at(r, "flushed", least={"batch": 6})
    assert struck["batch"] not in r.commits()
    before, version = places(r), r.delta_version()

    # The batch comes again, and in it a worker is killed: another one reads the same rows.
    r.points.arm("read", "kill", kind="log")
    r.points.arm("flushed", "block", batch=struck["batch"])
    pipe = r.start()
    worker = r.struck("read", timeout=START)["pid"]
    r.struck("flushed")
    assert worker != pipe.process.pid
    wait_until(lambda: gone(worker), what="the end of the worker")
    assert r.delta_version() == version, "the mirror knows the batch"
    again = places(r)[len(before) :]
    assert again == before[-len(again) :], "a replay, and nothing else"
    r.points.arm("apply.before", "block", grown=True)
    r.points.go("flushed")

    r.struck("apply.before")
    pipe.process.terminate()
    r.stays(lambda: pipe.process.poll() is None, 0.3)
    begun = time.monotonic()
    r.points.go("apply.before")
    assert pipe.ended(timeout=60)["error"] is None
    assert time.monotonic() - begun < 30
    stopped = places(r)

    r.start()
    r.settle(timeout=START)
    assert not set(places(r)[len(stopped) :]) & set(stopped), "a clean stop repeats nothing"
    snapshot = [line["change"]["after"]["key"] for line in changes_of(r.feed) if line["change"]["op"] == "r"]
    assert set(range(1_000_000, 1_001_000)) <= set(snapshot)
    assert sum(key in done for key in snapshot) == len(done), "a finished chunk is not read twice"


@pytest.mark.long
@pytest.mark.parametrize(
    ("point", "facts"),
    [
        pytest.param("initial", {}, id="row1-initial"),
        pytest.param("read", {"kind": "chunk", "chunk": 0}, id="row2-first-chunk"),
        pytest.param("read", {"kind": "chunk", "chunk": 7}, id="row2-chunk"),
        pytest.param("read", {"kind": "chunk", "chunk": 9}, id="row3-last-chunk"),
        pytest.param("latest", {"complete": True}, id="row3-hand-over"),
        pytest.param("partitions", {"grown": True}, id="row4-offset-logged"),
        pytest.param("read", {"kind": "log"}, id="row4-read"),
        pytest.param("apply.after", {"grown": True}, id="row7-applied"),
        pytest.param("flushed", {"least": {"batch": 5}}, id="row8-flushed"),
        pytest.param("commit", {}, id="row9-commit"),
        pytest.param("latest", {"complete": True, "least": {"start": 400}}, id="row9-committed"),
    ],
)
def test_a_kill_at_this_point_loses_nothing(rig: Make, point: str, facts: dict[str, Any]) -> None:
    r = rig("spark", **CHUNKS)
    r.write()
    killed_at(r, point, **facts)
    r.start()
    r.settle(timeout=START)


@pytest.mark.long
def test_a_kill_after_the_commit_rewrites_nothing_and_the_source_is_told_after(rig: Make) -> None:
    r = rig("spark", rows=100)
    r.start()
    r.arrived(r.sentinel(), START)
    r.caught_up()
    r.points.arm("apply.after", "block", grown=True)
    r.insert(2_000_000, 50)
    r.points.arm("latest", "block", least={"start": r.struck("apply.after")["end"]})
    r.points.go("apply.after")
    end = r.struck("latest")["start"]
    r.pipe.kill()
    held = (r.delta_version(), r.feed.read_bytes(), r.commits())
    assert (r.cursor() or 0) < end
    r.start()
    r.caught_up(timeout=START)
    assert (r.delta_version(), r.feed.read_bytes(), r.commits()) == held
    r.settle()


@pytest.mark.long
def test_a_second_spark_is_refused_and_a_frozen_one_is_succeeded_and_fenced(rig: Make) -> None:
    r = rig("spark", rows=100, lease=3.0)
    first = r.start()
    r.arrived(r.sentinel(), START)
    outcome = r.start().ended(timeout=START)
    assert outcome["error"] == "StateOwned"
    assert first.process.poll() is None
    r.points.arm("apply.before", "block", grown=True)
    r.insert(2_000_000, 20)
    r.struck("apply.before")
    r.freeze(first)
    second = r.start()
    r.write(limit=300)
    r.finish()
    r.settle(timeout=START)
    held = (r.delta_version(), len(changes_of(r.feed)), r.cursor())
    r.points.go("apply.before")
    first.signal(signal.SIGCONT)
    assert first.ended(timeout=START)["error"] is not None
    assert (r.delta_version(), len(changes_of(r.feed)), r.cursor()) == held
    assert second.process.poll() is None
    r.settle(timeout=START)


@pytest.mark.long
@pytest.mark.parametrize("rows", [10_000, 300_000])
def test_a_large_transaction_survives_a_kill_while_it_is_read(rig: Make, rows: int) -> None:
    r = rig("spark", rows=10, maxRowsPerTrigger=1000)
    r.start()
    r.arrived(r.sentinel(), START)
    r.points.arm("read", "block", kind="log")
    r.insert(2_000_000, rows)
    r.struck("read", timeout=START)
    r.pipe.kill()
    r.start()
    r.settle(timeout=START)
