"""O5, the oracles themselves: a seeded bug that they let pass is a bug of theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.marks import databases
from tests.faults.oracles import Violation, changes_of
from tests.faults.rig import Rig
from tests.support.waiting import wait_until

Make = Callable[..., Rig]


def caught(rig: Rig, *oracles: str, timeout: float = 60.0) -> None:
    with pytest.raises(Violation) as violation:
        rig.settle(timeout)
    assert violation.value.oracle in oracles, str(violation.value)


def test_an_acknowledgement_before_the_batch_is_durable_is_caught(rig: Make) -> None:
    # Acknowledged segments are kept, or the pipeline may end on its own missing log before the oracle looks.
    r = rig(rows=50, seed_bug="acknowledge-early", retention=3600)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    before = r.cursor() or 0
    r.points.arm("apply.before", "block", grown=True)
    r.insert(2_000_000, 10)
    r.struck("apply.before")
    wait_until(lambda: (r.cursor() or 0) > before, what="the early acknowledgement")
    # The oracle must have seen it too while the batch was held back: one look that began after ours.
    seen = r.sampler.samples
    wait_until(lambda: r.sampler.samples >= seen + 2, what="a look of the oracle")
    r.points.go("apply.before")
    caught(r, "O3")


@databases(long="postgres")
def test_the_same_wait_without_the_bug_is_no_violation(rig: Make) -> None:
    r = rig(rows=50)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    r.points.arm("apply.before", "block", grown=True)
    r.insert(2_000_000, 10)
    r.struck("apply.before")
    before = r.cursor()
    r.stays(lambda: r.cursor() == before, 0.5)
    r.points.go("apply.before")
    r.settle()


@databases(long="postgres")
def test_one_dropped_change_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="drop-one")
    r.start()
    r.arrived(r.sentinel())
    r.write(limit=60)
    r.finish()
    assert r.points.happened("drop-one")
    caught(r, "O1", "O2")


@databases(long="postgres")
def test_a_dropped_change_that_was_superseded_is_caught_by_the_history(rig: Make) -> None:
    r = rig(seed_bug="drop-one")
    r.start()
    r.arrived(r.sentinel())
    r.write(limit=300, keys=2)
    r.finish()
    assert r.points.happened("drop-one")
    caught(r, "O2")


@databases(long="postgres")
def test_an_old_key_that_stays_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="keep-old-key")
    r.start()
    r.arrived(r.sentinel())
    r.run("UPDATE ledger SET key = 3000007 WHERE key = 1000007")
    caught(r, "O1")


@databases(long="postgres")
def test_a_skipped_chunk_is_caught(rig: Make) -> None:
    r = rig(rows=500, chunkRows=100, maxRowsPerTrigger=100, seed_bug="skip-chunk")
    r.start()
    caught(r, "O1")
    assert r.points.happened("skip-chunk")


@databases(long="postgres")
def test_a_sink_that_replies_before_it_has_written_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="reply-early")
    r.points.arm("written", "kill", batch=2)
    r.start()
    wait_until(r.commits)
    r.insert(2_000_001, 1)
    wait_until(lambda: 1 in r.commits())
    r.insert(2_000_002, 1)
    r.pipe.died()
    r.start()
    # What is lost never comes, so here the time runs out.
    caught(r, "O1", "O3", timeout=4.0)


def numbers(rig: Rig) -> set[int]:
    """The numbers that the feed has told of the key that is updated."""
    images = [line["change"]["after"] for line in changes_of(rig.feed)]
    return {image["number"] for image in images if image and image["key"] == 1000007}


@databases(long="postgres")
def test_a_mirror_that_does_not_know_old_batches_is_caught(rig: Make) -> None:
    r = rig(rows=50, late=True, seed_bug="no-record")
    r.start()
    r.arrived(r.sentinel())
    for number in (2, 3, 4):
        r.run(f"UPDATE ledger SET number = {number} WHERE key = 1000007")
        # Once it is in the feed its batch has begun, so the next one comes in a batch of its own.
        wait_until(lambda wanted=number: wanted in numbers(r))  # type: ignore[misc]
    caught(r, "O1", "O2")
