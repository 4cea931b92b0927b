"""Rows 26 to 28: transactions that are long, large, or never happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

import psutil
import psycopg
import pytest

from tests.faults.marks import databases
from tests.faults.oracles import changes_of, mirror_rows
from tests.faults.rig import Rig

Make = Callable[..., Rig]
MEGABYTE = 1 << 20


@databases("sqlite")
def test_a_long_transaction_across_a_restart_and_short_ones_around_it_all_arrive(rig: Make) -> None:
    r = rig(rows=100)
    r.start()
    r.arrived(r.sentinel())
    r.insert(2_000_000, 10)
    with closing(r.connect()) as reader, closing(r.connect()) as writer:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM ledger").fetchone() == (111,)
        r.insert(2_000_100, 10)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE ledger SET number = 2 WHERE key < 1000050 AND key > 0")
        r.pipe.kill()
        r.start()
        # The lock is held: the restart reads, and neither waits for it nor fails because of it.
        r.arrived(2_000_109)
        writer.execute("INSERT INTO ledger VALUES (2000200, 1, ':long')")
        assert 2_000_200 not in mirror_rows(r.lake)
        writer.execute("COMMIT")
        r.insert(2_000_300, 10)
        r.arrived(2_000_309)
        assert reader.execute("SELECT count(*) FROM ledger").fetchone() == (121 - 10,)
        reader.execute("COMMIT")
    r.settle()


@databases("postgres")
def test_a_long_transaction_across_restarts_and_short_ones_inside_all_arrive_whole(rig: Make) -> None:
    r = rig(rows=100)
    r.start()
    r.arrived(r.sentinel())
    with closing(r.connect()) as writer:
        writer.execute("BEGIN")
        writer.execute("UPDATE ledger SET number = 2 WHERE key < 1000050 AND key > 0")
        r.insert(2_000_000, 10)
        r.arrived(2_000_009)
        r.caught_up()
        r.pipe.kill()
        writer.execute("INSERT INTO ledger VALUES (2000200, 1, ':long')")
        r.insert(2_000_010, 10)
        r.start()
        # What is confirmed lies after the beginning of what still runs: the server keeps it all the same.
        r.arrived(2_000_019)
        assert r.pipe.terminate()["error"] is None
        writer.execute("DELETE FROM ledger WHERE key = 1000099")
        assert 2_000_200 not in mirror_rows(r.lake)
        r.start()
        r.arrived(r.sentinel())
        writer.execute("COMMIT")
        r.insert(2_000_300, 10)
        r.arrived(2_000_309)
    r.settle()
    changes = [line["change"] for line in changes_of(r.feed)]
    assert len({c["position"] for c in changes if c["op"] == "u"}) == 1, "one transaction, one position"


@databases(long="postgres")
def test_a_first_start_waits_for_a_transaction_that_is_in_its_way(rig: Make, kind: str) -> None:
    # Longer than the five seconds that SQLite itself waits. A slot begins when those that run have ended.
    r = rig(rows=100)
    with closing(r.connect()) as writer:
        writer.execute("BEGIN IMMEDIATE" if kind == "sqlite" else "BEGIN")
        writer.execute("UPDATE ledger SET number = 2 WHERE key < 1000050")
        r.start()
        r.stays(lambda: r.pipe.process.poll() is None, 7.0)
        writer.execute("COMMIT")
    r.settle()


def large(r: Rig, rows: int) -> None:
    """One transaction of so many rows; kills while it is captured, and while it is read."""
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    begin = psutil.Process(r.pipe.process.pid).memory_info().rss
    r.points.arm("append", "kill", least={"parts": 3})
    r.insert(2_000_000, rows)
    r.pipe.died()
    r.points.arm("resolved", "block", grown=True)
    pipe = r.start()
    r.struck("resolved", timeout=120)
    # All of it is in the changelog, and nothing was given to a sink yet.
    grown = psutil.Process(pipe.process.pid).memory_info().rss - begin
    assert grown < 150 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB more than before it"
    r.points.arm("read", "kill", kind="log")
    r.points.go("resolved")
    pipe.died()
    before = r.commits()
    r.start()
    r.settle(timeout=120)
    ends = {
        line["batch"]["end"]
        for line in changes_of(r.feed)
        if (line["change"]["after"] or {}).get("note") == ":bulk"
    }
    assert len(ends) <= 2, "the snapshot's, and one batch for the whole transaction"
    assert len(r.commits()) > len(before)


@pytest.mark.long
def test_three_hundred_thousand_rows_of_one_transaction_survive_kills_in_the_middle(rig: Make) -> None:
    large(rig(rows=10, maxRowsPerTrigger=1000), 300_000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_million_rows_of_one_transaction_survive_kills_in_the_middle(rig: Make) -> None:
    large(rig(rows=10, maxRowsPerTrigger=1000), 1_000_000)


def test_ten_thousand_changes_with_one_position_are_not_parted_by_a_restart(rig: Make) -> None:
    r = rig(rows=5000, maxRowsPerTrigger=100, numPartitions=4)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    r.points.arm("read", "kill", kind="log")
    r.run("UPDATE ledger SET number = 2 WHERE key > 0", "UPDATE ledger SET number = 3 WHERE key > 0")
    r.pipe.died()
    r.start()
    r.settle()
    changed = [line for line in changes_of(r.feed) if line["change"]["op"] == "u"]
    assert len(changed) == 10_000
    assert len({line["change"]["position"] for line in changed}) == 1
    assert len({line["batch"]["end"] for line in changed}) == 1


def test_nothing_of_what_was_rolled_back_is_ever_seen(rig: Make, kind: str) -> None:
    broken: type[Exception] = sqlite3.IntegrityError if kind == "sqlite" else psycopg.IntegrityError
    r = rig(rows=20)
    with closing(r.connect()) as connection:
        connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)"
        )
    r.start()
    r.arrived(r.sentinel())
    with closing(r.connect()) as connection:
        run = connection.execute
        run("BEGIN")
        run("INSERT INTO ledger VALUES (3000001, 66, ':rolled back')")
        run("DELETE FROM ledger WHERE key = 1000001")
        run("ROLLBACK")
        r.arrived(r.sentinel())

        run("BEGIN")
        run("INSERT INTO ledger VALUES (3000002, 1, ':kept')")
        run("SAVEPOINT a")
        run("UPDATE ledger SET number = 66 WHERE key = 3000002")
        run("INSERT INTO ledger VALUES (3000003, 66, ':rolled back')")
        run("ROLLBACK TO a")
        run("INSERT INTO ledger VALUES (3000003, 1, ':kept')")
        run("COMMIT")

        if kind == "sqlite":
            run("PRAGMA foreign_keys=ON")
        run("BEGIN")
        run("INSERT INTO ledger VALUES (3000004, 66, ':failed commit')")
        run("INSERT INTO child VALUES (5)")
        with pytest.raises(broken):
            run("COMMIT")
        if kind == "sqlite":
            assert connection.in_transaction
            run("ROLLBACK")

        # A statement that fails halfway takes back only its own rows.
        run("BEGIN")
        run("INSERT INTO ledger VALUES (3000005, 1, ':kept')")
        run("SAVEPOINT b")
        with pytest.raises(broken):
            run("INSERT INTO ledger SELECT 3000006 + key % 2, 66, ':failed' FROM ledger WHERE key > 0")
        if kind == "postgres":
            # Here it takes back everything since the savepoint.
            run("ROLLBACK TO b")
        run("COMMIT")

        if kind == "postgres":
            for key, number, end in ((3000008, 66, "ROLLBACK"), (3000009, 1, "COMMIT")):
                run("BEGIN")
                run(f"INSERT INTO ledger VALUES ({key}, {number}, ':prepared')")
                run(f"PREPARE TRANSACTION 'rig{r.ledger.consumer}'")
                r.arrived(r.sentinel())
                run(f"{end} PREPARED 'rig{r.ledger.consumer}'")
    r.settle()
    images = [line["change"][side] for line in changes_of(r.feed) for side in ("before", "after")]
    assert not [image for image in images if image and image.get("number") == 66]
    kept = {key for key in mirror_rows(r.lake) if key >= 3_000_000}
    assert kept == {3_000_002, 3_000_003, 3_000_005} | ({3_000_009} if kind == "postgres" else set())
    assert 1_000_001 in mirror_rows(r.lake)
