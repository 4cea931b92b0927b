"""The feeds that people use, `http` and `stdout`, beside the file that the oracles read.

Rows 2 to 4, 7 to 9, 11, 12, 14, 37 and 40. A receiver that knows the keys of bodies hears every change of the
log once; who reads the output hears of some again, never of another, and never in another order.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.faults.marks import databases
from tests.faults.oracles import Violation, changes_of, feed_rows, from_log, once_each, snapshot_left
from tests.faults.rig import Rig
from tests.support.receiver import Receiver, cut_after
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
Change = dict[str, Any]


def following(made: Rig) -> Rig:
    """The rig, at work, and with its snapshot behind it."""
    made.start()
    made.arrived(made.sentinel())
    wait_until(lambda: snapshot_left(made.checkpoint) == 0, what="the whole snapshot")
    # What came with a chunk the log may tell once more.
    made.caught_up()
    return made


def printed(r: Rig) -> list[Change]:
    """What all runs printed, one after the other. A kill may tear the last line of a run."""
    outputs = sorted(r.directory.glob("stdout-*.ndjson"))
    lines = [line for path in outputs for line in path.read_bytes().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def of_the_log(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if from_log(change)]


def same(r: Rig, changes: list[Change], name: str) -> None:
    """O1 and O2 of a feed: its changes make the table, and those of the log are what the file was told.

    The file is judged by what the writers have on record.
    """
    path = r.directory / f"{name}.ndjson"
    path.write_text("".join(json.dumps({"batch": {}, "change": change}) + "\n" for change in changes))
    if feed_rows(path) != r.ledger.rows():
        raise Violation("O1", f"what {name} was told does not make the table")
    told: dict[tuple[int, int], Change] = {}
    for change in of_the_log(changes):
        if told.setdefault((change["position"], change["seq"]), change) != change:
            raise Violation("O2", f"{name} was told another change for {change}")
    wanted = of_the_log(once_each(line["change"] for line in changes_of(r.feed)))
    if list(told.values()) != wanted:
        raise Violation("O2", f"{name} was told {len(told)} changes, and the file {len(wanted)}")


def once(changes: list[Change]) -> None:
    """O2 of whoever knows what came before: no change of the log came twice."""
    places = [(change["position"], change["seq"]) for change in of_the_log(changes)]
    if again := len(places) - len(set(places)):
        raise Violation("O2", f"{again} changes came twice")


def settle(r: Rig, receiver: Receiver) -> None:
    """The rig's oracles, and those of its feeds: they are written before the mirror."""
    r.settle()
    same(r, receiver.changes, "http")
    same(r, printed(r), "stdout")


@databases(long="postgres")
@pytest.mark.parametrize(
    ("point", "facts"),
    [
        pytest.param("read", {"kind": "chunk", "chunk": 5}, id="row2-chunk", marks=pytest.mark.long),
        pytest.param("latest", {"complete": True}, id="row3-hand-over"),
    ],
)
def test_a_kill_in_the_snapshot_leaves_feeds_that_make_the_table(
    rig: Make, receiver: Receiver, point: str, facts: dict[str, Any]
) -> None:
    r = rig(rows=500, chunkRows=50, maxRowsPerTrigger=100, receiver=receiver.url)
    r.write()
    r.points.arm(point, "kill", **facts)
    r.start().died()
    r.start()
    settle(r, receiver)


@databases(long="postgres")
@pytest.mark.parametrize(
    ("point", "facts"),
    [
        pytest.param("partitions", {"grown": True}, id="row4-offset-logged", marks=pytest.mark.long),
        pytest.param("http.after", {}, id="row7-accepted"),
        pytest.param("stdout.after", {}, id="row7-printed", marks=pytest.mark.long),
        pytest.param("flushed", {}, id="row8-flushed", marks=pytest.mark.long),
        pytest.param("written", {}, id="row8-written"),
        pytest.param("commit", {}, id="row9-commit", marks=pytest.mark.long),
    ],
)
def test_a_kill_at_this_point_tells_a_receiver_that_knows_keys_every_change_once(
    rig: Make, receiver: Receiver, point: str, facts: dict[str, Any]
) -> None:
    r = following(rig(rows=100, receiver=receiver.url))
    r.write()
    before = len(receiver.keys)
    r.points.arm(point, "kill", **facts)
    r.pipe.died()
    r.start()
    settle(r, receiver)
    once(receiver.changes)
    again = len(receiver.keys) - len(set(receiver.keys))
    # A batch in which the log goes on without a row sends nothing, and may be the one that is struck.
    if point not in ("flushed", "written"):
        assert (again > 0) == point.endswith(".after"), "only what was sent before comes again"
    assert len(receiver.keys) > before


@databases(long="postgres")
def test_a_kill_while_a_reply_is_on_the_way_sends_the_same_body_under_the_same_key(
    rig: Make, receiver: Receiver
) -> None:
    r = following(rig(rows=100, receiver=receiver.url))
    held = receiver.hold()
    r.insert(2_000_000, 50)
    assert held.taken.wait(60)
    r.pipe.kill()
    held.go.set()
    (headers, body), sent = receiver.requests[-1], len(receiver.requests)
    r.start()
    wait_until(lambda: len(receiver.requests) > sent, what="the body once more")
    again, same_body = receiver.requests[sent]
    assert again["Idempotency-Key"] == headers["Idempotency-Key"]
    assert same_body == body
    settle(r, receiver)
    once(receiver.changes)


@pytest.mark.long
def test_sigterm_inside_a_request_ends_soon_and_well_and_nothing_is_repeated(
    rig: Make, receiver: Receiver
) -> None:
    r = following(rig(rows=100, receiver=receiver.url))
    held = receiver.hold()
    r.insert(2_000_000, 50)
    assert held.taken.wait(60)
    r.pipe.process.terminate()
    r.stays(lambda: r.pipe.process.poll() is None, 0.3)
    begun = time.monotonic()
    held.go.set()
    assert r.pipe.ended(timeout=60)["error"] is None
    assert time.monotonic() - begun < 30
    r.start()
    settle(r, receiver)
    assert len(receiver.keys) == len(set(receiver.keys)), "not one body came twice"
    once(printed(r))


@pytest.mark.long
def test_bodies_of_a_frozen_process_that_thaws_tell_a_receiver_that_knows_keys_nothing(
    rig: Make, receiver: Receiver
) -> None:
    r = rig(rows=100, lease=2.0, receiver=receiver.url)
    r.impatient()
    first = following(r).pipe
    r.points.arm("http.before", "block", grown=True)
    r.insert(2_000_000, 50)
    r.struck("http.before")
    r.freeze(first)
    second = r.start()
    r.write(limit=100)
    r.finish()
    settle(r, receiver)
    held, sent = receiver.changes, len(receiver.keys)
    r.points.go("http.before")
    first.signal(signal.SIGCONT)
    assert first.ended()["error"] is not None
    assert len(receiver.keys) > sent, "it had something to say"
    assert receiver.changes == held
    assert second.process.poll() is None
    settle(r, receiver)
    once(receiver.changes)


@pytest.mark.long
def test_requests_that_are_cut_and_answers_that_are_lost_tell_every_change_once(
    rig: Make, receiver: Receiver
) -> None:
    r = following(rig(rows=100, receiver=receiver.url))
    receiver.script = [cut_after(b""), 204, cut_after(b"HTTP/1.1 20"), 503, 204]
    receiver.torn = 2
    r.insert(2_000_000, 50)
    wait_until(lambda: not receiver.script, what="the end of the cuts")
    settle(r, receiver)
    assert receiver.torn == 0
    assert len(receiver.keys) - len(set(receiver.keys)) == 3, "what was lost or refused was sent again"
    once(receiver.changes)
    once(printed(r))


@databases(long="postgres")
def test_an_outage_of_a_receiver_acknowledges_nothing_while_it_lasts_and_nothing_is_lost(
    rig: Make, receiver: Receiver
) -> None:
    r = following(rig(rows=100, receiver=receiver.url))
    r.caught_up()
    sent, cursor = len(receiver.keys), r.cursor()
    receiver.down = True
    r.insert(2_000_000, 50)
    wait_until(lambda: len(receiver.keys) > sent + 5, what="some tries")
    assert len(set(receiver.keys[sent:])) == 1, "the first body, and none before it is taken"
    # A log may go on where nothing of the table is in it.
    assert (cursor or 0) <= (r.cursor() or 0) < r.ledger.mark
    assert r.pipe.process.poll() is None
    receiver.down = False
    settle(r, receiver)
    once(receiver.changes)
    once(printed(r))


@databases(long="postgres")
def test_batches_delivered_three_times_shuffled_and_by_twins_tell_a_receiver_every_change_once(
    rig: Make, receiver: Receiver
) -> None:
    manners = {"times": 3, "shuffled": True, "twins": True}
    r = following(rig(rows=100, numPartitions=4, manners=manners, receiver=receiver.url))
    before = len(receiver.changes)
    r.write(limit=300, keys=5)
    r.finish()
    settle(r, receiver)
    # In the snapshot a chunk may be another one each time it is read.
    once(receiver.changes[before:])
    assert len(receiver.keys) > 2 * len(set(receiver.keys)), "each came three times"
