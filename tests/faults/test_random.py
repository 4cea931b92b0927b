"""Faults at random moments, with writers that never rest. The seed is printed; TAILRACE_SEED repeats a run.

TAILRACE_SOAK is how many seconds each engine gets, 300 by default.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.faults.rig import Rig

Make = Callable[..., Rig]
SOAK = float(os.environ.get("TAILRACE_SOAK", "300"))
SEED = int(os.environ.get("TAILRACE_SEED", str(random.SystemRandom().randrange(10**9))))
POINTS = [
    "initial",
    "latest",
    "planned",
    "partitions",
    "resolved",
    "read",
    "commit",
    "feed.before",
    "feed.after",
    "apply.before",
    "apply.after",
    "flushed",
]
pytestmark = pytest.mark.long


@pytest.mark.timeout(SOAK + 900)
@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.spark)])
def test_any_mix_of_kills_stops_and_freezes_ends_equal(rig: Make, engine: str) -> None:
    sys.stdout.write(f"TAILRACE_SEED={SEED}\n")
    dice = random.Random(f"{SEED} {engine}")
    slow = 12.0 if engine == "spark" else 1.0
    r = rig(engine, rows=3000, chunkRows=200, maxRowsPerTrigger=400, lease=1.0)
    pause = threading.Event()
    # One kill is sure to come in the middle of something; the others come when they come.
    r.points.arm("feed.before", "block")
    r.start()
    r.struck("feed.before", timeout=60 * slow)
    r.pipe.kill()
    end, rounds, kills = time.monotonic() + SOAK, 0, 0
    while time.monotonic() < end:
        for _ in range(2):
            r.write(seed=dice.randrange(10**9), keys=dice.choice((3, 30)))
        for _ in range(dice.randrange(1, 4)):
            kills += fault(r, dice, slow, pause)
        if dice.random() < 0.3:
            r.insert(5_000_000 + rounds * 20_000, dice.choice((10, 20_000)))
        if dice.random() < 0.2:
            r.sabotage_writer(dice)
        r.start()
        r.settle(timeout=180)
        if dice.random() < 0.5:
            assert r.pipe.terminate()["error"] is None
        else:
            r.pipe.kill()
            kills += 1
        rounds += 1
    assert rounds
    assert kills >= rounds, f"{kills} kills in {rounds} rounds prove little"


def fault(r: Rig, dice: random.Random, slow: float, pause: threading.Event) -> int:
    """One run that ends badly, or well; how many were killed."""
    way = dice.random()
    if way < 0.4:
        point = dice.choice(POINTS)
        r.points.arm(point, "block")
        pipe = r.start()
        begun = time.monotonic()
        while not r.points.met(point) and time.monotonic() - begun < 4 * slow:
            pause.wait(0.01)
        r.points.disarm(point)
        pipe.kill()
        return 1
    pipe = r.start()
    pause.wait(dice.uniform(0.2, 3.0) * slow)
    if way < 0.8:
        pipe.kill()
        return 1
    if way < 0.9:
        pipe.process.send_signal(signal.SIGTERM)
        pipe.process.wait(timeout=120)
        pipe.clear()
        return 0
    pipe.signal(signal.SIGSTOP)
    pause.wait(dice.uniform(0.1, 2.0))
    pipe.signal(signal.SIGCONT)
    pause.wait(dice.uniform(0.1, 1.0) * slow)
    pipe.kill()
    return 1
