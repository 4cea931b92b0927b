"""What the log brings: operations, images, transactions, and where a reader goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace.capture.postgres import publication
from tailrace.capture.postgres.client import Connection
from tailrace.model.errors import SchemaDrift
from tests.capture.postgres.streaming import CONSUMER, Source, background
from tests.support.postgres import Database
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, note text)"


def row(identifier: int, name: str | None = None, note: str | None = None) -> dict[str, Any]:
    return {"id": identifier, "name": name, "note": note}


def test_every_operation_comes_in_order_with_its_images(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql(
        "INSERT INTO items VALUES (1, 'a'), (2, NULL)",
        "UPDATE items SET name = 'b' WHERE id = 1",
        "UPDATE items SET id = 3 WHERE id = 2",
        "DELETE FROM items WHERE id = 1",
        "TRUNCATE items",
    )
    assert [change.plain for change in source.changes()] == [
        ("items", "c", None, row(1, "a")),
        ("items", "c", None, row(2)),
        ("items", "u", None, row(1, "b")),
        ("items", "u", {"id": 2}, row(3)),
        ("items", "d", {"id": 1}, None),
        ("items", "t", None, None),
    ]


def test_a_full_identity_brings_whole_rows_before(database: Database) -> None:
    source = Source(database, ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL")
    source.sql(
        "INSERT INTO items VALUES (1, 'a', 'n')",
        "UPDATE items SET name = 'b'",
        "DELETE FROM items",
    )
    assert [change.plain for change in source.changes()][1:] == [
        ("items", "u", row(1, "a", "n"), row(1, "b", "n")),
        ("items", "d", row(1, "b", "n"), None),
    ]


def test_an_identity_by_index_brings_its_columns(database: Database) -> None:
    source = Source(
        database,
        "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL UNIQUE, note text)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX items_name_key",
    )
    source.sql("INSERT INTO items VALUES (1, 'a', 'n')", "UPDATE items SET name = 'b'", "DELETE FROM items")
    assert [change.plain for change in source.changes()][1:] == [
        ("items", "u", {"name": "a"}, row(1, "b", "n")),
        ("items", "d", {"name": "b"}, None),
    ]


@pytest.mark.parametrize("full", [False, True])
def test_a_large_value_that_did_not_change_is_absent_not_null(database: Database, full: bool) -> None:
    source = Source(database, ITEMS, "ALTER TABLE items ALTER note SET STORAGE EXTERNAL")
    if full:
        source.sql("ALTER TABLE items REPLICA IDENTITY FULL")
    large = "x" * 20_000
    source.sql(
        f"INSERT INTO items VALUES (1, 'a', '{large}'), (2, 'b', NULL)",
        "UPDATE items SET name = 'c'",
        "UPDATE items SET id = id + 10 WHERE id = 1",
    )
    changes = [change for change in source.changes() if change.op == "u"]
    if full:
        assert changes[0].after == row(1, "c", large)
        assert changes[2].before == row(1, "c", large)
        assert changes[2].after == row(11, "c", large)
    else:
        assert changes[0].after == {"id": 1, "name": "c"}
        assert changes[1].after == row(2, "c", None)
        assert changes[2].before == {"id": 1}
        assert changes[2].after == {"id": 11, "name": "c"}


def test_two_equal_rows_of_a_table_without_a_key_are_two(database: Database) -> None:
    source = Source(database, "CREATE TABLE items (n int)", "ALTER TABLE items REPLICA IDENTITY FULL")
    source.sql("INSERT INTO items VALUES (1), (1)", "DELETE FROM items")
    assert [(change.op, change.before or change.after) for change in source.changes()] == [
        ("c", {"n": 1}),
        ("c", {"n": 1}),
        ("d", {"n": 1}),
        ("d", {"n": 1}),
    ]


def test_a_transaction_is_one_part_with_one_position_over_all_tables(database: Database) -> None:
    source = Source(database, ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    source.sql("INSERT INTO items VALUES (0)", "INSERT INTO other VALUES (0)")
    source.transaction(
        "INSERT INTO items VALUES (1)", "INSERT INTO other VALUES (1)", "INSERT INTO items VALUES (2)"
    )
    source.sql("INSERT INTO items VALUES (3)")
    parts = [part for part in source.parts() if part.rows]
    assert [part.rows for part in parts] == [1, 1, 3, 1]
    positions = [part.position.version for part in parts]
    assert positions == sorted(set(positions))
    changes = source.changes()
    assert [(c.table, c.seq) for c in changes][2:5] == [("items", 0), ("other", 1), ("items", 2)]
    assert len({change.xid for change in changes}) == 4


def test_interleaved_transactions_come_in_the_order_of_their_commits(database: Database) -> None:
    source = Source(database, ITEMS)
    late = database.connect()
    with late.transaction():
        late.execute("INSERT INTO items VALUES (1)")
        source.sql("INSERT INTO items VALUES (2)")
        late.execute("INSERT INTO items VALUES (3)")
    assert [change.after["id"] for change in source.changes() if change.after] == [2, 1, 3]


def test_what_was_rolled_back_is_not_seen(database: Database) -> None:
    source = Source(database, ITEMS)
    with database.app.transaction(force_rollback=True):
        source.sql("INSERT INTO items VALUES (1)")
    source.transaction(
        "INSERT INTO items VALUES (2)",
        "SAVEPOINT s",
        "INSERT INTO items VALUES (3)",
        "ROLLBACK TO s",
        "INSERT INTO items VALUES (4)",
    )
    assert [change.after for change in source.changes()] == [row(2), row(4)]


def test_a_truncation_names_every_table_of_its_cascade(database: Database) -> None:
    source = Source(database, ITEMS, "CREATE TABLE parts (id int PRIMARY KEY, item int REFERENCES items)")
    source.transaction(
        "INSERT INTO items VALUES (1)", "TRUNCATE items CASCADE", "INSERT INTO items VALUES (2)"
    )
    assert [(change.table, change.op) for change in source.changes()] == [
        ("items", "c"),
        ("items", "t"),
        ("parts", "t"),
        ("items", "c"),
    ]


def test_partitions_come_in_the_name_of_their_root(database: Database) -> None:
    source = Source(
        database,
        "CREATE TABLE items (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE items_1 PARTITION OF items FOR VALUES IN (1)",
        "CREATE TABLE items_2 PARTITION OF items FOR VALUES IN (2)",
    )
    source.sql("INSERT INTO items VALUES (1, 1)", "UPDATE items SET part = 2")
    # A row that moves leaves one partition and enters another.
    assert [change.plain for change in source.changes()] == [
        ("items", "c", None, {"id": 1, "part": 1}),
        ("items", "d", {"id": 1, "part": 1}, None),
        ("items", "c", None, {"id": 1, "part": 2}),
    ]


def test_names_that_need_quotes_are_captured(database: Database) -> None:
    source = Source(
        database,
        'CREATE TABLE "x""; DROP TABLE y; --" ("order" int PRIMARY KEY, "it\'s" text, "Ü.b" text)',
        'CREATE SCHEMA "Other"',
        'CREATE TABLE "Other".items (id int PRIMARY KEY)',
        ITEMS,
    )
    source.sql(
        "INSERT INTO \"x\"\"; DROP TABLE y; --\" VALUES (1, 'a', 'b')",
        'INSERT INTO "Other".items VALUES (1)',
        "INSERT INTO items VALUES (2)",
    )
    assert [change.plain for change in source.changes()] == [
        ('x"; DROP TABLE y; --', "c", None, {"order": 1, "it's": "a", "Ü.b": "b"}),
        ("items", "c", None, {"id": 1}),
        ("items", "c", None, row(2)),
    ]


def test_columns_that_change_are_decoded_by_the_schema_of_their_position(database: Database) -> None:
    source = Source(database, "CREATE TABLE items (id int PRIMARY KEY, name text)")
    source.sql("INSERT INTO items VALUES (1, '1')")
    source.transaction(
        "INSERT INTO items VALUES (2, '2')",
        "ALTER TABLE items ADD COLUMN more int DEFAULT 7",
        "INSERT INTO items VALUES (3, '3')",
    )
    source.sql(
        "ALTER TABLE items RENAME COLUMN name TO label",
        "INSERT INTO items VALUES (4, '4', 4)",
        "ALTER TABLE items ALTER label TYPE int USING label::int",
        "INSERT INTO items VALUES (5, 5, 5)",
        "ALTER TABLE items DROP COLUMN more",
        "INSERT INTO items VALUES (6, 6)",
    )
    expected = [
        {"id": 1, "name": "1"},
        {"id": 2, "name": "2"},
        {"id": 3, "name": "3", "more": 7},
        {"id": 4, "label": "4", "more": 4},
        {"id": 5, "label": 5, "more": 5},
        {"id": 6, "label": 6},
    ]
    # The same after a restart: the log itself says how each row looked.
    assert [change.after for change in source.changes()] == expected
    assert [change.after for change in source.changes(capture=source.open())] == expected
    batch = source.parts()[-2].batches
    assert all(b.table.generation == source.capture.describe(b.table.ref).generation for b in batch)


def test_the_schema_in_the_stream_is_the_one_that_describe_gives(database: Database) -> None:
    source = Source(
        database,
        "CREATE DOMAIN price AS numeric(8,2) NOT NULL",
        "CREATE TABLE items (b int, a int, cost price, t text NOT NULL, twice int GENERATED ALWAYS AS (a * 2)"
        " STORED, PRIMARY KEY (a, b))",
    )
    source.sql("INSERT INTO items VALUES (1, 2, 3.5, 'x')")
    (part,) = [part for part in source.parts() if part.rows]
    assert part.batches[0].table == source.capture.describe(source.ref("items"))
    assert part.batches[0].table.key == ("a", "b")


def test_a_clean_restart_brings_nothing_again(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)")
    parts = source.parts(acknowledge=True)
    again = source.open()
    assert [part.rows for part in source.parts(parts[-1].position, capture=again)] in ([], [0])


def test_a_restart_goes_on_after_what_was_taken_whatever_was_acknowledged(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql(*(f"INSERT INTO items VALUES ({number})" for number in range(5)))
    taken = [part for part in source.parts() if part.rows][1].position
    assert source.confirmed() <= source.start.version
    later = source.changes(taken, capture=source.open())
    assert [change.after for change in later] == [row(2), row(3), row(4)]


def test_only_acknowledged_transactions_are_confirmed(database: Database) -> None:
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)")
        wait_until(lambda: len(stream.changes) == 2)
        first = source.start.at(stream.changes[0].position)
        assert source.confirmed() == source.start.version
        stream.capture.acknowledge(first, consumer=CONSUMER)
        wait_until(lambda: source.confirmed() == first.version)


def test_the_slot_moves_on_while_the_watched_tables_are_idle(database: Database) -> None:
    source = Source(database, ITEMS, "CREATE TABLE noise (n int)", tables=("items",))
    with background(source.open(), source.start, source.refs, acknowledge=True):
        source.sql("INSERT INTO noise SELECT generate_series(1, 1000)")
        head = source.head().version
        wait_until(lambda: source.confirmed() >= head)


def test_a_table_that_nobody_asked_for_is_not_delivered(database: Database) -> None:
    source = Source(database, ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    source.refs = [source.ref("items")]
    source.transaction("INSERT INTO other VALUES (1)", "INSERT INTO items VALUES (1)")
    source.sql("INSERT INTO other VALUES (2)")
    assert [(change.table, change.seq) for change in source.changes()] == [("items", 1)]


def test_a_renamed_table_stops_the_stream_by_name(database: Database) -> None:
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        source.sql("ALTER TABLE items RENAME TO things", "INSERT INTO things VALUES (2)")
        wait_until(lambda: not stream.alive)
        assert isinstance(stream.error, SchemaDrift)
        assert "things" in str(stream.error)


def test_close_ends_a_running_stream_within_its_wait(database: Database) -> None:
    source = Source(database, ITEMS)
    capture = source.open()
    ended = threading.Event()

    def read() -> None:
        for _ in capture.live(source.start, source.refs, consumer=CONSUMER, wait=0.3):
            pass
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    capture.close()
    assert ended.wait(5)
    thread.join()
    wait_until(lambda: not source.active())


def test_lag_is_told_in_bytes_and_is_zero_at_the_head(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items VALUES (1)")
    lag = source.capture.lag(source.start)
    assert lag.bytes is not None
    assert lag.bytes > 0
    assert source.capture.lag(source.head()).bytes == 0


def test_tables_that_the_log_describes_are_looked_up_without_new_connections(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [f"t{n}" for n in range(5)]
    source = Source(database, *(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in tables))
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO t0 VALUES (0)")
        wait_until(lambda: stream.changes)
        made: list[object] = []
        connect = Connection.connect

        def counted(*given: Any, **named: Any) -> Connection:
            made.append(given)
            return connect(*given, **named)

        monkeypatch.setattr(Connection, "connect", counted)
        for table in tables:
            source.sql(f"ALTER TABLE {table} ADD n int", f"INSERT INTO {table} VALUES (1, 2)")
        wait_until(lambda: len(stream.changes) == 1 + len(tables))
        assert made == []


def test_the_first_changes_of_many_tables_ask_of_each_table_for_itself_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = 20
    source = Source(database, *(f"CREATE TABLE t{n} (id int PRIMARY KEY)" for n in range(tables)))
    source.sql(*(f"INSERT INTO t{n} VALUES ({n})" for n in range(tables)))
    asked, read = [], publication.read

    def counted(*given: Any, **named: Any) -> publication.Publication | None:
        found = read(*given, **named)
        asked.append(len(found.members) if found is not None else 0)
        return found

    monkeypatch.setattr(publication, "read", counted)
    assert [change.after for change in source.changes()] == [{"id": n} for n in range(tables)]
    assert asked.count(1) == tables
    # The stream's beginning and its sentinel look at all of them, a few times each.
    assert sum(asked) < tables * tables / 2
