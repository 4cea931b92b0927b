"""A snapshot killed again and again, at any moment: whole at the end, and no finished chunk read twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.oracles import snapshot_left
from tests.faults.rig import Rig
from tests.snapshots.applications import Pen, Scribbler
from tests.snapshots.dice import dice
from tests.snapshots.reads import ServerLog, every_chunk, noted, read_again
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
CHUNK = 100
START = 300.0


def killed_inside(r: Rig, chance: random.Random) -> None:
    """Kill the pipeline at any moment after it has begun to read chunks; it must still have some to read."""
    before = len(noted(r))
    wanted = before + chance.randint(1, 6)
    pipe = r.start()
    wait_until(
        lambda: len(noted(r)) >= wanted or pipe.process.poll() is not None,
        timeout=START,
        interval=0.003,
        what=f"chunk read {wanted}",
    )
    threading.Event().wait(chance.uniform(0.0, 0.06))
    pipe.kill()
    assert len(noted(r)) >= wanted, "it was killed before it read a chunk"
    assert snapshot_left(r.checkpoint) != 0, "it was killed after its snapshot"


def killed_and_restarted(rig: Make, kills: int, *how: Any, chunks: int = 15) -> Rig:
    rows = kills * chunks * CHUNK
    r = rig(*how, rows=rows, chunkRows=CHUNK, maxRowsPerTrigger=3 * CHUNK)
    chance = dice(r.ledger.kind, kills, *how)
    server = ServerLog(r.ledger) if isinstance(r.ledger, Postgres) else None
    r.write(seed=chance.randrange(10**9))
    with Scribbler(r, Pen(rows, chance)):
        for _ in range(kills):
            killed_inside(r, chance)
        r.start()
        wait_until(lambda: snapshot_left(r.checkpoint) == 0, timeout=START, what="the whole snapshot")
    r.settle(timeout=START)
    for reads in [noted(r)] + ([server.reads()] if server is not None else []):
        assert every_chunk(r, reads)
        assert abs(reads[0][0] - noted(r)[0][0]) < 10, "the witnesses' clocks differ"
        assert not read_again(r, reads), "a finished chunk was read twice"
    return r


def restarted_without_rights(r: Rig) -> None:
    """It cannot be repeated now, so a restart that goes on did not try to."""
    assert r.pipe.terminate()["error"] is None
    held = len(noted(r))
    if isinstance(r.ledger, Postgres):
        r.ledger.admin("REVOKE SELECT ON ledger FROM tailrace")
    r.insert(5_000_000, 50)
    r.start()
    r.settle(timeout=START)
    assert len(noted(r)) == held


@pytest.mark.long
@databases("postgres")
def test_a_snapshot_killed_three_times_is_whole_and_no_finished_chunk_was_read_twice(rig: Make) -> None:
    killed_and_restarted(rig, 3, chunks=12)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_snapshot_killed_twenty_times_is_whole_and_no_finished_chunk_was_read_twice(rig: Make) -> None:
    restarted_without_rights(killed_and_restarted(rig, 20))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
@databases("postgres")
def test_a_snapshot_of_sparks_killed_five_times_is_whole_and_no_finished_chunk_was_read_twice(
    rig: Make,
) -> None:
    restarted_without_rights(killed_and_restarted(rig, 5, "spark"))
