"""Rows 16, 39 and 40: a slow sink, and batches that come late, often and in any order."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from tests.faults.marks import databases
from tests.faults.oracles import Violation
from tests.faults.rig import Rig
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
MEGABYTE = 1 << 20
# What the changelog may hold, and the bytes of one of the transactions that a slow sink lets pile up.
LIMIT, EACH = 200_000, 400_000


def changelog_bytes(rig: Rig) -> int:
    folder = rig.state / "changelog"
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".seg", ".spill"))


@databases(long="postgres")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("apply.before", id="mirror"),
        pytest.param("feed.before", id="feed", marks=pytest.mark.long),
        pytest.param("document.before", id="store", marks=pytest.mark.long),
    ],
)
def test_a_slow_sink_pauses_capture_within_its_bounds_and_nothing_is_lost(rig: Make, point: str) -> None:
    r = rig(rows=10, maxChangelogBytes=LIMIT, documents="" if point == "document.before" else None)
    held_up(r, point)
    r.points.go(point)
    r.settle()
    assert changelog_bytes(r) < LIMIT + EACH, "it is within its bound again"


def full(r: Rig, limit: int) -> int:
    """The size of the changelog, once it is full and stands still."""
    size = changelog_bytes(r)
    assert size > limit
    r.stays(lambda: changelog_bytes(r) == size, 1.0)
    return size


def within(what: str, size: int, bound: int) -> bool:
    """O6 of one thing."""
    if size > bound:
        raise Violation("O6", f"{what} has {size:,} bytes and may have {bound:,}")
    return True


def held_up(r: Rig, point: str) -> None:
    """O6: a sink that takes nothing, and what piles up before it."""
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    r.points.arm(point, "block")
    process = psutil.Process(r.pipe.process.pid)
    begin = process.memory_info().rss
    r.write(limit=300)
    sizes, tops = [], []
    # Twenty transactions of 400 KB, about 40 times what the changelog may hold.
    for number in range(20):
        r.insert(2_000_000 + 10_000 * number, 200, note=":" + "y" * 2000)
        sizes.append(changelog_bytes(r))
        tops.append(process.memory_info().rss)
    r.finish()
    paused = wait_until(lambda: full(r, LIMIT), timeout=120, what="a full changelog that grows no more")
    # A group that has begun is let in, and from SQLite all that came meanwhile is one: there it is all of it.
    most = 20 if r.ledger.kind == "sqlite" else 10
    within("the changelog", max(*sizes, paused), LIMIT + most * EACH)
    head = len(r.ledger.rows())
    r.insert(3_000_000, 200, note=":" + "z" * 2000)
    r.stays(lambda: within("the changelog", size := changelog_bytes(r), paused) and size == paused, 1.0)
    assert len(r.ledger.rows()) == head + 200, "the application is not held up"
    within("memory", max(tops) - begin, 100 * MEGABYTE)


@databases(long="postgres")
def test_old_batches_that_arrive_after_newer_ones_change_nothing(rig: Make) -> None:
    r = rig(rows=500, chunkRows=100, maxRowsPerTrigger=100, late=True)
    r.start()
    r.write(limit=300, keys=5)
    r.finish()
    r.settle()


@databases(long="postgres")
def test_batches_delivered_three_times_shuffled_and_by_twins_leave_the_same_state(rig: Make) -> None:
    manners = {"times": 3, "shuffled": True, "twins": True}
    r = rig(rows=500, chunkRows=100, maxRowsPerTrigger=100, numPartitions=4, manners=manners)
    r.start()
    r.write(limit=300, keys=5)
    r.finish()
    r.settle()
    r.pipe.kill()
    r.start()
    r.settle()
