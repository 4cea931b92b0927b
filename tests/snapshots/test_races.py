"""The race between the log and a chunk: whoever is newer wins, whichever comes first.

A transaction may be in the log before any reader sees it, be committed between the barrier and the chunk's
read, or after the read. The points of the fault tests hold the pipeline at each of these moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.oracles import Violation, mirror_rows
from tests.faults.rig import Rig
from tests.snapshots.applications import FIRST, Pen
from tests.snapshots.dice import dice
from tests.snapshots.hidden import Hidden, lonely
from tests.snapshots.reads import noted
from tests.support.postgres import Server

Make = Callable[..., Rig]
CHUNK = 500
# One chunk a batch, beside up to so many changes.
ONE: dict[str, Any] = {"chunkRows": CHUNK, "maxRowsPerTrigger": CHUNK - 1, "numPartitions": 1}
LONG = 4_000_000
# A chunk that nothing holds back any more is read within seconds, whatever else runs.
SOON = 20.0


def postgres_of(r: Rig) -> Postgres:
    assert isinstance(r.ledger, Postgres)
    return r.ledger


def hidden_before_a_chunk(r: Rig, hidden: Hidden, *statements: str) -> dict[str, Any]:
    """Hide a commit, have the log deliver it, and let the pipeline come to the chunk of that batch."""
    r.points.arm("latest", "block", least={"done": 1})
    r.start()
    r.struck("latest")
    r.points.tell("captured", str(hidden.commit(*statements)))
    r.points.arm("partitions", "note", chunks=1)
    r.points.arm("resolved", "note", chunks=1)
    r.points.go("latest")
    return r.struck("partitions")


@databases("postgres")
def test_a_chunk_waits_for_a_commit_that_the_log_has_and_no_reader_sees_also_after_a_kill(
    rig: Make, own_server: Server
) -> None:
    r = rig(server=lonely(own_server), rows=4 * CHUNK, **ONE)
    with Hidden(postgres_of(r)) as hidden:
        facts = hidden_before_a_chunk(r, hidden, "UPDATE ledger SET number = 2")
        assert facts["grown"], "the commit is in the batch of the chunk"
        held = len(noted(r))
        assert {row[1] for row in r.ledger.rows().values()} == {1}, "and nobody sees it"
        r.stays(lambda: not r.points.met("resolved"), 0.7)
        r.pipe.kill()
        r.start()
        # The new process has not heard of it before; its slot tells it again.
        r.stays(lambda: not r.points.met("resolved"), 3.0)
        assert len(noted(r)) == held, "no chunk was read meanwhile"
        hidden.show()
        r.struck("resolved", SOON)
        r.settle()
    assert {row[1] for key, row in mirror_rows(r.lake).items() if key > 0} == {2}


@pytest.mark.long
@databases("postgres")
def test_a_chunk_that_does_not_wait_brings_the_old_value_back_and_the_oracle_says_so(
    rig: Make, own_server: Server
) -> None:
    r = rig(server=lonely(own_server), rows=4 * CHUNK, seed_bug="no-barrier", **ONE)
    with Hidden(postgres_of(r)) as hidden:
        hidden_before_a_chunk(r, hidden, "UPDATE ledger SET number = 2")
        r.points.arm("flushed", "block", least={"batch": 2})
        r.struck("flushed")
        hidden.show()
        r.points.go("flushed")
        with pytest.raises(Violation) as violation:
            r.settle()
    assert violation.value.oracle == "O1"


def keys(chunk: int, chance: random.Random) -> Iterator[int]:
    """Keys of a chunk, and between them keys of those before it, no two the same."""
    begin = FIRST + chunk * CHUNK
    ahead = chance.sample(range(begin, begin + CHUNK), 9)
    behind = chance.sample(range(max(FIRST, begin - 3 * CHUNK), begin), 4) if chunk else []
    while ahead:
        yield ahead.pop()
        yield ahead.pop()
        yield behind.pop() if behind else ahead.pop()


def rounds(rig: Make, count: int, server: Server | None) -> None:
    """A race at every moment of every chunk, with writers beside it and a transaction that never ends."""
    r = rig(rows=(count + 2) * CHUNK, server=server, **ONE)
    chance = dice(r.ledger.kind, count)
    pen = Pen(count * CHUNK, chance)
    with ExitStack() as stack:
        hidden = stack.enter_context(Hidden(postgres_of(r))) if server is not None else None
        writer, idle = (stack.enter_context(closing(r.connect())) for _ in range(2))
        r.points.arm("latest", "block", least={"start": 0})
        r.start()
        chunk = r.struck("latest")["done"]
        # Not before: a slot begins when those that run have ended.
        idle.execute("BEGIN")
        idle.execute(
            f"INSERT INTO ledger VALUES ({LONG}, 1, ':long')" if hidden else "SELECT count(*) FROM ledger"
        )
        r.write(seed=chance.randrange(10**9))
        forced = 0
        for _ in range(count):
            forced += one_round(r, pen, keys(chunk, chance), writer, hidden)
            chunk += 1
            assert r.struck("latest")["done"] == chunk, "one chunk a round"
        if hidden is not None:
            assert forced >= 0.8 * count, f"the log was ahead of the readers in {forced} rounds only"
        r.points.go("latest")
        idle.execute("COMMIT")
    r.settle()
    assert (LONG in mirror_rows(r.lake)) == (server is not None)


def one_round(r: Rig, pen: Pen, touched: Iterator[int], writer: Any, hidden: Hidden | None) -> bool:
    """From one `latest` to the next; whether the log had a commit that the chunk could not have seen."""

    def write() -> None:
        for _ in range(3):
            writer.execute(pen.statement(next(touched)))

    forced = False
    end = hidden.commit(*(pen.statement(next(touched)) for _ in range(3))) if hidden else r.ledger.mark
    r.points.tell("captured", str(end))
    r.points.arm("partitions", "note", chunks=1)
    r.points.arm("resolved", "block", chunks=1)
    r.points.arm("apply.before", "block", snapshot=True)
    r.points.go("latest")
    if hidden is not None:
        forced = r.struck("partitions")["end"] >= end
        held = len(noted(r))
        r.stays(lambda: not r.points.met("resolved"), 0.03)
        assert len(noted(r)) == held
        hidden.show()
    r.struck("resolved", SOON)
    # Behind the barrier, and before the read.
    write()
    r.points.go("resolved")
    r.struck("apply.before", SOON)
    # After the read, and before anybody has it.
    write()
    r.points.arm("latest", "block")
    r.points.go("apply.before")
    return forced


@databases("postgres")
def test_in_twelve_rounds_with_commits_that_no_reader_sees_yet_the_newer_value_wins(
    rig: Make, own_server: Server
) -> None:
    rounds(rig, 12, lonely(own_server))


@pytest.mark.long
@pytest.mark.timeout(900)
@databases("sqlite")
def test_in_two_hundred_rounds_the_newer_value_wins(rig: Make) -> None:
    rounds(rig, 200, None)


@pytest.mark.long
@pytest.mark.timeout(900)
@databases("postgres")
def test_in_two_hundred_rounds_with_commits_that_no_reader_sees_yet_the_newer_value_wins(
    rig: Make, own_server: Server
) -> None:
    rounds(rig, 200, lonely(own_server))
