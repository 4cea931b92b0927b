"""A table written, moved and truncated while its snapshot is read: the mirror is equal at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.oracles import snapshot_left
from tests.faults.rig import Rig
from tests.snapshots.churn import Churn, equal, fill, partitioned, risen
from tests.snapshots.dice import dice
from tests.snapshots.reads import noted
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
KINDS = {"insert", "update", "delete", "rekey", "move", "truncate"}


def done(r: Rig) -> float:
    """Which part of the chunks is committed."""
    left = snapshot_left(r.checkpoint)
    if left is None:
        return 0.0
    body = json.loads((r.checkpoint / "offsets" / str(max(r.commits()))).read_text().splitlines()[2])
    return 1.0 - left / float(sum(cursor["of"] for cursor in body["snapshots"].values()))


def churned(rig: Make, rows: int, *how: Any, timeout: float = 60.0) -> None:
    r = rig(*how, chunkRows=rows // 50, maxRowsPerTrigger=rows // 20)
    chance = dice(r.ledger.kind, rows, *how)
    partitioned(r, rows)
    r.run(*fill(r, rows))
    with Churn(r, rows, chance) as writer:
        pipe = r.start()

        def reached(part: float) -> bool:
            assert pipe.process.poll() is None, pipe.tail()
            return done(r) >= part

        for part in (0.4, 0.7):
            wait_until(lambda part=part: reached(part), timeout=timeout, what=f"{part} of the chunks")  # type: ignore[misc]
            writer.truncate = done(r) < 1
        wait_until(lambda: reached(1.0), timeout=timeout, what="the whole snapshot")
        writer.snapshot = False
        seen = writer.transactions
        wait_until(lambda: writer.transactions > seen + 20, what="writes behind the snapshot")
    # About fifty: the chunks of a large table are cut by a sample of its keys.
    assert len(noted(r)) >= 30
    assert set(writer.done) >= KINDS, f"not all of it was done during the snapshot: {writer.done}"
    r.arrived(r.sentinel(), timeout)
    r.caught_up(timeout)
    assert equal(r) > rows // 4
    assert writer.graves
    assert not risen(r.feed, writer.graves), "what was gone came back"
    if rows <= 100_000:
        # It reads every line of the feed.
        r.sampler.check()


@pytest.mark.long
def test_fifty_thousand_rows_that_are_churned_during_their_snapshot_are_mirrored_exactly(rig: Make) -> None:
    churned(rig, 50_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_rows_that_are_churned_during_their_snapshot_are_mirrored_exactly(rig: Make) -> None:
    churned(rig, 1_000_000, timeout=900)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_two_hundred_thousand_rows_that_are_churned_during_sparks_snapshot_are_mirrored_exactly(
    rig: Make,
) -> None:
    churned(rig, 200_000, "spark", timeout=600)
