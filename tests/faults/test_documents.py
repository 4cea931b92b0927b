"""Rows 6, 7, 29 and 38 to 40 for documents: a store of them beside the mirror, judged by a naive rebuild."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disks import fill
from tests.faults.documents import Documents
from tests.faults.marks import databases
from tests.faults.oracles import snapshot_left
from tests.faults.rig import Rig
from tests.faults.test_random import SEED
from tests.snapshots.reads import every_chunk, noted, read_again
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
CHUNKS: dict[str, Any] = {"rows": 60, "chunkRows": 10, "maxRowsPerTrigger": 20, "documents": ""}
FAMILY = (
    "INSERT INTO words VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "INSERT INTO lines VALUES (1, 1000001, 1), (2, 1000001, 2), (3, 1000002, 3), (4, 1000003, 1)",
)


def documents(r: Rig) -> Documents:
    assert r.documents is not None
    return r.documents


def ready(r: Rig) -> Rig:
    """It runs, the index is filled, and nothing is on its way."""
    r.run(*FAMILY)
    r.start()
    wait_until(lambda: snapshot_left(r.checkpoint) == 0, what="the whole snapshot")
    arrive(r)
    return r


def arrive(r: Rig) -> None:
    """What was written until now is in the mirror and in the store, and acknowledged."""
    r.arrived(r.sentinel())
    r.caught_up()


@databases(long="postgres")
def test_rows_that_change_between_resolve_and_build_give_documents_at_least_as_new(rig: Make) -> None:
    r = ready(rig(rows=10, documents=""))
    r.points.arm("build", "block")
    r.run("UPDATE lines SET word = 3 WHERE of = 1000001")
    assert r.struck("build")["documents"] == 1
    r.run("UPDATE lines SET of = 1000004 WHERE id = 1", "DELETE FROM ledger WHERE key = 1000001")
    r.run("UPDATE words SET text = 'drei' WHERE id = 3")
    r.points.arm("flushed", "block")
    r.points.go("build")
    r.struck("flushed")
    # Its row is gone, and so is it, though the batch tells of a change to a line alone.
    assert "1000001" not in documents(r).versions()
    r.points.go("flushed")
    r.settle()


@databases(long="postgres")
def test_a_kill_after_the_store_has_the_documents_and_before_its_reply_changes_nothing(rig: Make) -> None:
    r = ready(rig(rows=10, documents=""))
    r.points.arm("document.after", "kill")
    r.run("UPDATE lines SET of = 1000002 WHERE of = 1000001")
    r.pipe.died()
    version, held = r.points.facts("document.after")["version"], documents(r).found().to_pydict()
    assert documents(r).versions()["1000001"] == version
    assert (r.cursor() or 0) < version, "it was not acknowledged"
    r.points.arm("flushed", "block")
    r.start()
    r.struck("flushed")
    assert documents(r).found().to_pydict() == held
    r.points.go("flushed")
    r.settle()


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        "ensured",
        "build",
        "document.before",
        "document.after",
        "documents.flushed",
        "publish.before",
        "publish.after",
        "flushed",
        "written",
    ],
)
def test_a_kill_during_filling_or_publication_repeats_no_finished_chunk_and_loses_nothing(
    rig: Make, point: str
) -> None:
    r = rig(**CHUNKS)
    r.run(*FAMILY)
    r.points.arm(point, "kill")
    r.start().died()
    r.run("DELETE FROM ledger WHERE key = 1000002", "UPDATE lines SET of = 1000059 WHERE id = 1")
    r.points.arm(point, "kill")
    r.start().died()
    r.start()
    r.settle()
    assert every_chunk(r, noted(r))
    if point != "ensured":
        # What was read before the index was on record is read for it once more.
        assert not read_again(r, noted(r))


# Keys that come and go and change, children that move, parents that go, all in one transaction.
MIXED = (
    "INSERT INTO ledger VALUES (3000007, 1, ':a')",
    "DELETE FROM ledger WHERE key = 3000007",
    "INSERT INTO ledger VALUES (3000007, 2, ':b')",
    "UPDATE ledger SET key = 3000008 WHERE key = 3000007",
    "INSERT INTO lines VALUES (10, 3000007, 1), (11, 3000008, 2), (12, 3000009, 3)",
    "UPDATE lines SET of = 3000008 WHERE id = 10",
    "UPDATE lines SET id = 20, of = 1000005 WHERE id = 1",
    "INSERT INTO lines VALUES (1, 1000006, 2)",
    "DELETE FROM lines WHERE id = 2",
    "UPDATE ledger SET key = 3000099 WHERE key = 1000002",
    "DELETE FROM ledger WHERE key = 1000003",
    "DELETE FROM words WHERE id = 3",
    "UPDATE words SET id = 3 WHERE id = 2",
)
ROWS = {
    "words": "INSERT INTO words VALUES (5, 'five')",
    "lines": "INSERT INTO lines VALUES (5, 1000001, 5)",
    "ledger": "INSERT INTO ledger VALUES (3000005, {number}, ':five')",
}


@pytest.mark.long
def test_all_that_can_happen_to_rows_in_one_batch_leaves_the_right_documents(rig: Make, kind: str) -> None:
    r = ready(rig(rows=10, documents=""))
    # A key that was given away is taken again, and so is the one it became.
    again = ("INSERT INTO ledger VALUES (3000007, 3, ':c')", "UPDATE ledger SET key = 7 WHERE key = 3000008")
    r.run(*MIXED, *again, "INSERT INTO ledger VALUES (3000008, 4, ':d')")
    arrive(r)
    documents(r).check()
    for table, row in ROWS.items():
        emptied = f"TRUNCATE {table}" if kind == "postgres" else f"DELETE FROM {table}"
        r.run(row.format(number=1), emptied, row.format(number=2))
        arrive(r)
        documents(r).check()
    r.sampler.check()
    assert r.pipe.terminate()["error"] is None


@databases(long="postgres")
def test_of_mixed_answers_the_passing_are_tried_again_and_the_poison_is_written_down(rig: Make) -> None:
    store = {"max_document_bytes": 400, "busy_timeout": 0.1}
    r = ready(rig(rows=10, documents='on_error = "skip"', store=store))
    before = documents(r).versions()
    with closing(sqlite3.connect(documents(r).store, isolation_level=None)) as other:
        # 429: another writer has the store, and every write of the batch is refused for now.
        other.execute("BEGIN IMMEDIATE")
        r.points.arm("document.before")
        r.run(
            f"UPDATE ledger SET note = '{'x' * 500}' WHERE key = 1000003",
            "UPDATE ledger SET number = 7 WHERE key = 1000004",
            "INSERT INTO ledger VALUES (3000005, 1, ':never seen')",
            "DELETE FROM ledger WHERE key = 3000005",
            "DELETE FROM ledger WHERE key = 1000005",
        )
        version = r.struck("document.before")["version"]
        r.points.arm("document.before", version=version)
        r.points.go("document.before")
        # The first time it failed for all: it is the same batch that comes again.
        wait_until(lambda: r.points.met("document.before"), what="another attempt")
        assert documents(r).versions() == before
        assert (r.cursor() or 0) < version, "it was not acknowledged"
        other.execute("ROLLBACK")
    r.points.go("document.before")
    r.caught_up()
    now = documents(r).versions()
    assert now["1000004"] == version
    assert not {"3000005", "1000005"} & now.keys()
    assert now["1000003"] == before["1000003"], "it has its last good one"
    documents(r).check(without=("1000003",))
    lines = (r.directory / "deadletters" / "documents.ndjson").read_text().splitlines()
    letters = [json.loads(line) for line in lines]
    assert [(one["index"], one["id"], one["version"]) for one in letters] == [("ledger", "1000003", version)]
    assert "x" * 10 not in lines[0]
    r.run("UPDATE ledger SET note = 'short', number = 8 WHERE key = 1000003")
    r.settle()


@pytest.mark.long
def test_writes_of_old_batches_that_arrive_after_newer_ones_change_no_document(rig: Make) -> None:
    r = rig(**CHUNKS, late=True)
    ready(r)
    for number in range(6):
        r.run(
            f"UPDATE lines SET of = {1_000_001 + number % 3} WHERE id = 1",
            f"DELETE FROM ledger WHERE key = {1_000_001 + number}",
        )
        r.arrived(r.sentinel())
    r.settle()


@pytest.mark.long
def test_documents_of_batches_delivered_three_times_and_shuffled_are_the_same(rig: Make) -> None:
    r = ready(rig(**CHUNKS, numPartitions=4, manners={"times": 3, "shuffled": True, "twins": True}))
    r.write(limit=100, keys=5)
    r.run(*MIXED)
    r.finish()
    r.settle()


POINTS = [
    "ensured",
    "build",
    "document.before",
    "document.after",
    "publish.before",
    "publish.after",
    "retired",
    "flushed",
    "written",
    "latest",
    "partitions",
    "commit",
]


# The oracle of histories has numbers rise.
NUMBERS = itertools.count(100)


def some_changes(dice: random.Random) -> list[str]:
    """A transaction of a few statements over all tables."""

    def line() -> int:
        return dice.randrange(1, 40)

    def parent() -> int:
        return dice.choice((1_000_000, 1_000_001, 1_000_002, 1_000_030, 3_000_050, 3_000_051))

    makers: list[Callable[[], str]] = [
        lambda: (
            f"INSERT INTO lines VALUES ({line()}, {parent()}, {dice.randrange(1, 4)})"
            " ON CONFLICT (id) DO UPDATE SET of = excluded.of"
        ),
        lambda: f"DELETE FROM lines WHERE id = {line()}",
        lambda: f"UPDATE lines SET of = {parent()} WHERE id = {line()}",
        lambda: f"UPDATE words SET text = 'w{line()}' WHERE id = {dice.randrange(1, 4)}",
        lambda: f"DELETE FROM ledger WHERE key = {parent()}",
        lambda: f"INSERT INTO ledger VALUES ({parent()}, {next(NUMBERS)}, ':x') ON CONFLICT (key) DO NOTHING",
    ]
    # One that stays: of a transaction that comes to nothing the mirror has no record to tell it by.
    number = next(NUMBERS)
    stays = f"INSERT INTO ledger VALUES ({4_000_000 + number}, {number}, ':x')"
    return [stays, *(dice.choice(makers)() for _ in range(dice.randrange(1, 6)))]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("round_", range(3))
def test_documents_survive_kills_at_any_point(rig: Make, round_: int) -> None:
    sys.stdout.write(f"TAILRACE_SEED={SEED}\n")
    dice = random.Random(f"{SEED} {round_}")
    r = rig(**CHUNKS)
    r.run(*FAMILY)
    struck = 0
    for _ in range(8):
        point = dice.choice(POINTS)
        r.points.arm(point, "kill")
        pipe = r.start()
        for _ in range(dice.randrange(1, 6)):
            r.run(*some_changes(dice))
        try:
            wait_until(lambda: pipe.process.poll() is not None, timeout=8, what="the kill")  # noqa: B023
            pipe.died()
            struck += 1
        except AssertionError:
            r.points.disarm(point)
            pipe.kill()
        for _ in range(dice.randrange(0, 3)):
            r.run(*some_changes(dice))
        if dice.random() < 0.4:
            r.start()
            r.settle()
            r.pipe.kill()
    r.start()
    r.settle()
    assert struck >= 3, f"{struck} of 8 kills came at a point that was reached"


@databases(long="postgres")
def test_a_full_disk_of_the_store_acknowledges_nothing_and_heals_when_space_is_freed(
    rig: Make, disk: Path
) -> None:
    r = ready(rig(rows=10, documents="", store={"path": str(disk / "docs.db")}))
    held = documents(r).found().to_pydict()
    ballast = fill(disk)
    before = r.cursor()
    r.insert(2_000_000, 2000)
    r.points.arm("document.before", "block")
    r.struck("document.before")
    r.points.go("document.before")
    r.stays(lambda: r.cursor() == before, 1.0)
    assert r.pipe.process.poll() is None, "it waits"
    assert documents(r).found().to_pydict() == held, "nothing is half there"
    ballast.unlink()
    r.settle()


@pytest.mark.long
def test_a_kill_while_the_disk_of_the_store_is_full_leaves_no_torn_document(rig: Make, disk: Path) -> None:
    r = ready(rig(rows=10, documents="", store={"path": str(disk / "docs.db")}))
    ballast = fill(disk)
    r.points.arm("document.before", "kill")
    r.insert(2_000_000, 2000)
    r.pipe.died()
    pipe, before = r.start(), r.cursor()
    r.stays(lambda: r.cursor() == before, 1.0)
    if pipe.process.poll() is None:
        pipe.kill()
    else:
        assert pipe.ended()["error"] is not None, "it says that it cannot go on"
    ballast.unlink()
    r.start()
    r.settle()
