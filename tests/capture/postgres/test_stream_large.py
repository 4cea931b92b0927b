"""Transactions that the server streams while they run, and those larger than memory is given to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import Transient
from tests.capture.postgres.streaming import Source, background
from tests.support.postgres import Database
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
STREAMED = "?options=-c%20logical_decoding_work_mem%3D64kB"
MANY = 20_000


def insert(first: int, count: int = MANY) -> str:
    return f"INSERT INTO items SELECT n, 'name ' || n FROM generate_series({first}, {first + count - 1}) n"


def large(database: Database, *ddl: str, **options: Any) -> Source:
    source = Source(database, *(ddl or (ITEMS,)), **options)
    source.capture = source.open(database.url(STREAMED))
    return source


def test_a_large_transaction_comes_at_its_commit_in_parts_and_in_order(database: Database) -> None:
    source = large(database, batch_bytes=200_000, spill_bytes=1_000_000)
    with background(source.capture, source.start, source.refs) as stream:
        writer = database.connect()
        with writer.transaction():
            writer.execute(insert(0))
            writer.execute("INSERT INTO items SELECT -n, 'more' FROM generate_series(1, 100) n")
            source.sql("INSERT INTO items VALUES (1000000, 'small')")
            wait_until(lambda: stream.changes)
            assert [change.after for change in stream.changes] == [{"id": 1000000, "name": "small"}]
        wait_until(lambda: len(stream.changes) == MANY + 101)
        found = stream.changes[1:]
    assert [change.seq for change in found] == list(range(MANY + 100))
    assert [change.after["id"] for change in found if change.after] == [*range(MANY), *range(-1, -101, -1)]
    assert len({change.position for change in found}) == 1
    again = source.open(database.url(STREAMED))
    parts = [part for part in source.parts(capture=again) if part.rows > 1]
    assert len(parts) > 1
    assert [part.complete for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_large_transaction_that_is_rolled_back_is_never_seen(database: Database) -> None:
    source = large(database)
    with database.app.transaction(force_rollback=True):
        source.sql(insert(0))
    source.transaction(insert(0, 10), "SAVEPOINT a", insert(10), "ROLLBACK TO a", insert(10, 5))
    source.transaction(
        insert(100_000),
        "SAVEPOINT a",
        insert(200_000),
        "SAVEPOINT b",
        insert(300_000),
        "RELEASE b",
        "TRUNCATE items",
        "ROLLBACK TO a",
        insert(400_000, 3),
    )
    ids = [change.after["id"] for change in source.changes() if change.after]
    assert ids == [*range(15), *range(100_000, 100_000 + MANY), 400_000, 400_001, 400_002]


def test_streamed_and_plain_deliveries_number_their_rows_alike(database: Database) -> None:
    source = large(database, ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    source.transaction(
        insert(0),
        "INSERT INTO other VALUES (1)",
        "SAVEPOINT a",
        insert(50_000),
        "ROLLBACK TO a",
        insert(90_000, 7),
    )
    streamed = source.changes()
    plain = source.changes(capture=source.open(database.url("?options=-c%20logical_decoding_work_mem%3D1GB")))
    assert streamed == plain
    assert len(streamed) == MANY + 8


def test_two_large_transactions_side_by_side_come_apart(database: Database) -> None:
    source = large(database)
    one, two = database.connect(), database.connect()
    one.execute("BEGIN")
    two.execute("BEGIN")
    for step in range(4):
        one.execute(insert(step * 5000, 5000))
        two.execute(insert(1_000_000 + step * 5000, 5000))
    two.execute("COMMIT")
    one.execute("COMMIT")
    ids = [change.after["id"] for change in source.changes() if change.after]
    assert ids == [*range(1_000_000, 1_020_000), *range(20_000)]


def test_columns_may_change_inside_a_large_transaction(database: Database) -> None:
    source = large(database)
    source.sql("INSERT INTO items VALUES (-1, 'before')")
    source.transaction(insert(0), "ALTER TABLE items ADD COLUMN extra int DEFAULT 5", insert(50_000))
    source.sql("INSERT INTO items VALUES (-2, 'after', 6)")
    changes = source.changes()
    assert changes[MANY].after == {"id": MANY - 1, "name": f"name {MANY - 1}"}
    assert changes[MANY + 1].after == {"id": 50_000, "name": "name 50000", "extra": 5}
    assert changes[-1].after == {"id": -2, "name": "after", "extra": 6}


def test_what_does_not_fit_in_memory_goes_to_disk_and_leaves_nothing(
    database: Database, tmp_path: Path
) -> None:
    source = large(database, spill_bytes=100_000, spill_directory=str(tmp_path))
    source.transaction(insert(0))
    assert len(source.changes()) == MANY
    assert list(tmp_path.iterdir()) == []
    gone = source.open(database.url(STREAMED), spill_directory=str(tmp_path / "nowhere"))
    with pytest.raises(Transient, match="could not be put aside"):
        source.changes(capture=gone)


def test_a_large_transaction_across_a_restart_is_whole(database: Database) -> None:
    source = large(database)
    writer = database.connect()
    with writer.transaction():
        writer.execute(insert(0, 10_000))
        capture = source.open(database.url(STREAMED))
        with background(capture, source.start, source.refs, acknowledge=True) as stream:
            source.sql("INSERT INTO items VALUES (-1, 'meanwhile')")
            wait_until(lambda: stream.changes)
            done = stream.changes[0].position
            wait_until(lambda: source.confirmed() >= done)
        # What goes on in the log beside the tables is acknowledged too, until the stream ends.
        middle = source.start.at(source.confirmed())
        writer.execute(insert(10_000, 10_000))
    ids = [change.after["id"] for change in source.changes(middle) if change.after]
    assert ids == list(range(20_000))


@pytest.mark.long
def test_a_million_rows_in_one_transaction_stay_within_bounds(database: Database) -> None:
    source = Source(database, ITEMS)
    source.transaction(insert(0, 1_000_000))
    rows = 0
    largest = 0
    for part in source.parts():
        rows += part.rows
        largest = max(largest, part.nbytes)
    assert rows == 1_000_000
    assert largest < 64 << 20
