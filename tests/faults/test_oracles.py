"""O5, the oracles themselves: a seeded bug that they let pass is a bug of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.app.refilling import Refills
from tailrace.model.table import TableRef
from tests.faults.documents import Documents
from tests.faults.marks import databases
from tests.faults.oracles import Violation, changes_of, final_state, mirror_rows, snapshot_left
from tests.faults.rig import Rig
from tests.faults.test_delivery import LIMIT, held_up
from tests.faults.test_feeds import following, once, settle
from tests.support.documents.polling import Polling
from tests.support.receiver import Receiver
from tests.support.waiting import wait_until

Make = Callable[..., Rig]


def caught(rig: Rig, *oracles: str, timeout: float = 60.0) -> None:
    """It runs, everything arrives, and one of these oracles says no."""
    with pytest.raises(Violation) as violation:
        rig.settle(timeout)
    assert violation.value.oracle in oracles, str(violation.value)
    assert rig.pipe.process.poll() is None, rig.pipe.tail()


def looked(rig: Rig) -> None:
    """The oracle has seen what is so now: one look of it began after ours."""
    seen = rig.sampler.samples
    wait_until(lambda: rig.sampler.samples >= seen + 2, what="a look of the oracle")


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
    looked(r)
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


def test_a_row_that_comes_and_goes_within_one_batch_is_no_violation(rig: Make) -> None:
    r = rig(rows=50)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    versions = r.delta_version()
    # The mirror has nothing to write for it, and so no version that could show that it was heard of.
    r.run("INSERT INTO ledger VALUES (3000001, 1, ':brief')", "DELETE FROM ledger WHERE key = 3000001")
    r.caught_up()
    assert r.delta_version() == versions
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
    r.start()
    wait_until(r.commits)
    # Spark commits a batch that the mirror has not written, and the source hears of it.
    r.insert(2_000_001, 1)
    r.caught_up()
    looked(r)
    with pytest.raises(Violation, match=r"O3: .* was acknowledged before the mirror had"):
        r.sampler.check()
    # It is written with the batch after it, which does not excuse it.
    r.insert(2_000_002, 1)
    wait_until(lambda: 2_000_001 in mirror_rows(r.lake), what="the row that was acknowledged")
    with pytest.raises(Violation, match=r"O3: .* was acknowledged before the mirror had"):
        r.sampler.check()
    # What it has replied to and not written is gone with it.
    r.caught_up()
    r.pipe.kill()
    r.start()
    r.insert(2_000_003, 1)
    r.caught_up()
    r.insert(2_000_004, 1)
    wait_until(lambda: 2_000_003 in mirror_rows(r.lake), what="the batch after what was lost")
    with pytest.raises(Violation, match=r"O1: .* missing .*2000002"):
        final_state(r.ledger, r.lake, r.feed)


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
    r.caught_up()
    # With an old batch the rows of the snapshot are there again, and no sentinel is left to wait for.
    with pytest.raises(Violation, match="O1"):
        final_state(r.ledger, r.lake, r.feed)


@databases(long="postgres")
def test_the_last_row_of_a_chunk_that_is_lost_is_caught(rig: Make) -> None:
    r = rig(rows=500, chunkRows=100, maxRowsPerTrigger=100, seed_bug="lose-last-row")
    r.start()
    caught(r, "O1")
    assert r.points.happened("lose-last-row")


@databases(long="postgres")
def test_a_transaction_split_over_two_batches_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="split-transaction")
    r.start()
    r.arrived(r.sentinel())
    r.insert(2_000_000, 10)
    # Before anything else is written: what is held back is the end of this transaction, and comes with the
    # sentinel. The table is right in the end: only how it came is wrong.
    wait_until(lambda: r.points.happened("split-transaction"), what="the seeded bug")
    caught(r, "O2")


def rolled_back(rig: Rig) -> dict[str, Any]:
    """A row that a writer rolled back to a savepoint, of a key that is there now with another number."""
    there = rig.ledger.rows()
    for line in rig.journals[0].read_text().splitlines():
        for key, number, op in json.loads(line).get("lost", ()):
            if op != "d" and key in there and there[key][1] != number:
                return {"key": key, "number": number}
    raise AssertionError("nothing was rolled back")


@pytest.mark.long
def test_a_row_that_was_rolled_back_and_applied_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="apply-rolled-back")
    r.start()
    r.write(limit=200)
    r.finish()
    r.arrived(r.sentinel())
    r.points.tell("rolled-back", json.dumps(rolled_back(r)))
    caught(r, "O1", "O2")
    assert r.points.happened("apply-rolled-back")


FAMILY = (
    "INSERT INTO words VALUES (1, 'one'), (2, 'two')",
    "INSERT INTO lines VALUES (1, 1000001, 1), (2, 1000001, 2), (3, 1000002, 1)",
)


def documented(rig: Make, bug: str | None, settings: str = "", **more: Any) -> tuple[Rig, Documents]:
    """A pipeline with documents, filled, with a bug in it."""
    r = rig(rows=10, documents=settings, seed_bug=bug, **more)
    r.run(*FAMILY)
    r.start()
    wait_until(lambda: snapshot_left(r.checkpoint) == 0, what="the whole snapshot")
    r.arrived(r.sentinel())
    r.caught_up()
    assert r.documents is not None
    return r, r.documents


@databases(long="postgres")
def test_an_old_parent_that_is_skipped_is_caught(rig: Make) -> None:
    r, documents = documented(rig, "skip-old-parent")
    documents.check()
    r.run("UPDATE lines SET of = 1000003 WHERE id = 1")
    caught(r, "O1")


@pytest.mark.long
def test_a_delete_of_a_document_that_is_forgotten_is_caught(rig: Make) -> None:
    r, _ = documented(rig, "forget-delete")
    r.run("DELETE FROM ledger WHERE key = 1000004")
    caught(r, "O1")
    assert r.points.happened("forget-delete")


@pytest.mark.long
def test_a_document_of_an_older_version_over_a_newer_one_is_caught(rig: Make) -> None:
    r, _ = documented(rig, "older-wins", late=True)
    for number in (2, 3):
        r.run(f"UPDATE ledger SET number = {number} WHERE key = 1000004")
        r.arrived(r.sentinel())
    caught(r, "O1")


REFUSED = f"UPDATE ledger SET note = '{'x' * 500}' WHERE key = 1000003"


@pytest.mark.long
def test_a_rejected_document_on_record_is_no_violation(rig: Make) -> None:
    r, documents = documented(rig, None, 'on_error = "skip"', store={"max_document_bytes": 400})
    r.run(REFUSED)
    r.arrived(r.sentinel())
    r.caught_up()
    assert documents.letters() == ("1000003",)
    documents.check(without=documents.letters())


@pytest.mark.long
def test_a_rejected_document_that_is_swallowed_is_caught(rig: Make) -> None:
    bug = "swallow-rejected"
    r, documents = documented(rig, bug, 'on_error = "skip"', store={"max_document_bytes": 400})
    r.run(REFUSED)
    r.arrived(r.sentinel())
    r.caught_up()
    assert r.points.happened(bug)
    with pytest.raises(Violation, match="1000003") as violation:
        documents.check(without=documents.letters())
    assert violation.value.oracle == "O1"


def served_too_early(r: Rig, documents: Documents) -> None:
    """Somebody reads all the time while the index is filled again."""
    roots = {documents.index: TableRef(r.ledger.schema, "ledger")}
    control = Refills(lambda: roots, str(r.state), str(r.checkpoint))
    with Polling(documents.read).reading() as reader:
        r.points.arm("ensured")
        control.ask([documents.index])
        r.struck("ensured")
        wait_until(lambda: reader.lost, what="a reader that misses documents")
        r.points.go("ensured")
        r.arrived(r.sentinel())


@pytest.mark.long
def test_a_half_filled_index_that_is_served_is_caught(rig: Make) -> None:
    r, documents = documented(rig, "half-filled", chunkRows=3, maxRowsPerTrigger=3)
    with pytest.raises(AssertionError, match="documents were not there"):
        served_too_early(r, documents)
    assert r.points.happened("half-filled")


@pytest.mark.long
def test_a_body_that_comes_again_under_another_key_is_caught(rig: Make, receiver: Receiver) -> None:
    r = following(rig(rows=50, receiver=receiver.url, seed_bug="other-keys"))
    r.points.arm("http.after", "kill")
    r.insert(2_000_000, 10)
    r.pipe.died()
    r.start()
    # Who does not look at keys sees nothing wrong.
    settle(r, receiver)
    with pytest.raises(Violation, match="O2: 10 changes came twice"):
        once(receiver.changes)


@databases(long="postgres")
def test_an_acknowledgement_that_never_comes_is_caught(rig: Make) -> None:
    r = rig(rows=50, seed_bug="never-acknowledge")
    r.start()
    r.arrived(r.sentinel())
    # What never comes takes all the time there is.
    caught(r, "O4", timeout=10.0)


@databases(long="postgres")
def test_a_capture_that_does_not_pause_before_a_full_changelog_is_caught(rig: Make) -> None:
    r = rig(rows=10, maxChangelogBytes=LIMIT, seed_bug="no-pause")
    with pytest.raises(Violation, match="O6: the changelog has"):
        held_up(r, "apply.before")


@databases(long="postgres")
def test_a_kill_in_which_nothing_was_killed_fails(rig: Make) -> None:
    r = rig(rows=10)
    # A point that this run does not come to, and a run that has ended by itself.
    r.points.arm("read", "kill", kind="chunk", chunk=99)
    pipe = r.start(once=True)
    with pytest.raises(AssertionError, match="before read"):
        r.struck("read")
    assert pipe.ended()["error"] is None
    with pytest.raises(AssertionError):
        pipe.died()
    with pytest.raises(AssertionError, match="nothing to kill"):
        pipe.kill()
