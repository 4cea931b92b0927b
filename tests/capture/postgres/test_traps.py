"""Traps of PostgreSQL that no other file's tests walk into, and the map of them all (`traps.py`)."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.capture.postgres import PostgresCapture, snapshot
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import IdentityMismatch, LogLost, NeedsOperator, SchemaDrift, SetupMissing
from tailrace.model.table import quote
from tests.capture.postgres.reading import batches, described, read_all, rows
from tests.capture.postgres.streaming import CONSUMER, Seen, Source, background, seen
from tests.capture.postgres.traps import TRAPS, Trap
from tests.support.postgres import Database, Server
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
SLOT = "tailrace_test"


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_every_trap_has_tests_that_exist(trap: Trap) -> None:
    assert trap.proved
    for test in trap.proved:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_no_slot_is_made_before_there_is_a_publication(database: Database) -> None:
    database.sql(ITEMS)
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    with pytest.raises(SetupMissing, match="no publication") as caught:
        capture.register(CONSUMER)
    assert caught.value.remedy == "tailrace setup"
    assert database.slots() == []


def test_a_slot_older_than_its_publication_stops_with_the_remedy_and_is_not_retried(
    database: Database,
) -> None:
    source = Source(database, ITEMS)
    with database.admin() as admin:
        admin.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
        admin.execute("DROP PUBLICATION tailrace")
        admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        source.sql("INSERT INTO items VALUES (1)")
    source.publish()
    source.sql("INSERT INTO items VALUES (2)")
    with pytest.raises((SetupMissing, LogLost, NeedsOperator)) as caught:
        source.changes(capture=source.open())
    assert "snapshot" in str(caught.value.remedy)


def test_why_the_server_ended_a_stream_is_told_also_where_changes_came_right_before(
    database: Database,
) -> None:
    source = Source(database, ITEMS)
    known = {ref: generation for ref, (generation, _) in source.capture.generations().items()}
    source.sql("INSERT INTO items SELECT generate_series(1, 100)")
    with database.admin() as admin:
        admin.execute("DROP PUBLICATION tailrace")
        source.sql("INSERT INTO items VALUES (1000)")
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items WITH (publish_via_partition_root = true)")
    if database.server_version >= 180000:
        # It leaves out what had no publication, without an error: the table's generation tells of the gap.
        with pytest.raises(SchemaDrift, match="set up anew"):
            next(iter(source.open().live(source.start, source.refs, consumer=CONSUMER, accept=known)))
        return
    # Nothing is looked at but the log: what the stream itself meets is what counts here.
    with pytest.raises(SetupMissing, match="publication") as caught:
        source.changes(capture=source.open())
    assert caught.value.remedy


def test_the_key_under_a_full_identity_is_the_catalogs_though_the_log_flags_every_column(
    database: Database,
) -> None:
    source = Source(
        database,
        "CREATE TABLE items (a text, b int, c text, PRIMARY KEY (c, a))",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "CREATE TABLE bare (a text, b int)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
    )
    source.sql("INSERT INTO items VALUES ('a', 1, 'c')", "INSERT INTO bare VALUES ('a', 1)")
    keys = {b.table.ref.name: b.table.key for part in source.parts() for b in part.batches}
    assert keys == {"items": ("c", "a"), "bare": ()}


def test_generated_columns_are_in_neither_snapshot_nor_stream(database: Database) -> None:
    source = Source(
        database,
        "CREATE TABLE items (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, name text)",
    )
    source.sql("INSERT INTO items (id, name) VALUES (1, 'a')", "UPDATE items SET id = 2, name = 'b'")
    assert [change.after for change in source.changes()] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    (images,) = read_all(PostgresConfig.from_url(database.url()), "items")
    assert images == [{"id": 2, "name": "b"}]
    names = [column.name for column in source.capture.describe(source.ref("items")).columns]
    assert names == ["id", "name"]


def test_a_partition_that_is_added_later_is_captured_and_rows_move_into_it(database: Database) -> None:
    source = Source(
        database,
        "CREATE TABLE items (id int, part int, name text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE items_1 PARTITION OF items FOR VALUES IN (1)",
    )
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1, 1, 'a')")
        wait_until(lambda: len(stream.changes) == 1)
        source.sql(
            # Its columns stand in another order, and it once had one more.
            "CREATE TABLE items_2 (name text, gone int, part int NOT NULL, id int NOT NULL)",
            "ALTER TABLE items_2 DROP COLUMN gone",
            "ALTER TABLE items ATTACH PARTITION items_2 FOR VALUES IN (2)",
            "UPDATE items SET part = 2",
            "INSERT INTO items_2 (id, part, name) VALUES (3, 2, 'direct')",
        )
        wait_until(lambda: len(stream.changes) == 4)
        assert [change.plain for change in stream.changes] == [
            ("items", "c", None, {"id": 1, "part": 1, "name": "a"}),
            ("items", "d", {"id": 1, "part": 1}, None),
            ("items", "c", None, {"id": 1, "part": 2, "name": "a"}),
            ("items", "c", None, {"id": 3, "part": 2, "name": "direct"}),
        ]
    (images,) = read_all(PostgresConfig.from_url(database.url()), "items")
    assert sorted(image["id"] for image in images) == [1, 3]


def test_a_publication_that_names_partitions_by_themselves_is_not_taken_for_the_roots(
    database: Database,
) -> None:
    database.sql(
        "CREATE TABLE items (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE items_1 PARTITION OF items DEFAULT",
    )
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items")
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    refs = capture.resolve(["items"])
    # `pg_publication_tables` lists the leaf here; the log would carry its name.
    assert [f.code for f in capture.coverage(refs) if f.severity == "error"]
    with pytest.raises(SetupMissing) as caught:
        capture.setup(refs)
    assert "publish_via_partition_root = true" in str(caught.value.remedy)


def test_two_consumers_read_the_same_log_and_neither_moves_the_others_position(database: Database) -> None:
    source = Source(database, ITEMS)
    other = source.open()
    begin = other.register("other")
    source.sql("INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)")
    taken = source.parts(acknowledge=True)[-1].position
    # Without a stream an acknowledgement moves the slot itself.
    wait_until(lambda: not source.active())
    source.capture.acknowledge(taken, consumer=CONSUMER)
    assert {c.name: c.acknowledged for c in other.consumers()} == {
        CONSUMER: taken.version,
        "other": begin.version,
    }
    with contextlib.closing(other.live(begin, source.refs, consumer="other", wait=0.2)) as live:  # type: ignore[type-var]
        found: list[Any] = []
        while len(found) < 2:
            part = next(live)
            found += [change.after for change in seen(part.batches)] if part is not None else []
    assert found == [{"id": 1, "name": None}, {"id": 2, "name": None}]


NAMES = (
    *(
        "order",
        "it's",
        "two words",
        "UPPER",
        "Mixed",
        "dot.ted",
        "üñí😀",
        'q"uote',
        "100%",
        "%s",
        "back\\slash",
    ),
    *("semi; DROP TABLE items; --", "tab\tbed", "new\nline", "$1", "{}", "a" * 63),
)


def test_names_of_any_characters_are_published_streamed_and_read(database: Database) -> None:
    listed = [f"{quote('s ' + name[:61])}.{quote(name)}" for name in NAMES]
    source = Source(
        database,
        *(f"CREATE SCHEMA {quote('s ' + name[:61])}" for name in NAMES),
        *(
            f"CREATE TABLE {table} ({quote(name)} int PRIMARY KEY, v text)"
            for table, name in zip(listed, NAMES, strict=True)
        ),
    )
    config = PostgresConfig.from_url(database.url())
    with database.admin() as admin:
        admin.execute(
            "; ".join(
                f"GRANT USAGE ON SCHEMA {quote('s ' + name[:61])} TO tailrace" for name in NAMES
            ).encode()
        )
    with psycopg.ClientCursor(database.app) as cursor:
        for table, name in zip(listed, NAMES, strict=True):
            cursor.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')".encode())
            cursor.execute(f"UPDATE {table} SET v = 'c' WHERE {quote(name)} = 2".encode())
    changes = source.changes()
    for name in NAMES:
        assert [c.plain for c in changes if c.table == name] == [
            (name, "c", None, {name: 1, "v": "a"}),
            (name, "c", None, {name: 2, "v": "b"}),
            (name, "u", None, {name: 2, "v": "c"}),
        ]
        found = described(config, name, "s " + name[:61])
        plan = snapshot.plan(config, found.ref, 1)
        read = [row for chunk in plan for row in rows(batches(config, found, chunk))]
        assert read == [{name: 1, "v": "a"}, {name: 2, "v": "c"}]


def test_two_tables_of_one_name_in_two_schemas_are_told_apart_in_stream_and_snapshot(
    database: Database,
) -> None:
    source = Source(
        database, "CREATE SCHEMA other", ITEMS, "CREATE TABLE other.items (id int PRIMARY KEY, size int)"
    )
    source.sql("INSERT INTO items VALUES (1, 'a')", "INSERT INTO other.items VALUES (1, 5)")
    found = {
        (b.table.ref.schema, tuple(b.data.column("after").to_pylist()[0].values()))
        for part in source.parts()
        for b in part.batches
    }
    assert found == {("public", (1, "a")), ("other", (1, 5))}


def test_columns_added_with_a_default_read_the_same_by_snapshot_as_later_changes_say(
    database: Database,
) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items VALUES (1, 'a')")
    source.transaction(
        "ALTER TABLE items ADD COLUMN more int NOT NULL DEFAULT 7",
        "ALTER TABLE items DROP COLUMN name",
        "ALTER TABLE items ADD COLUMN name varchar(5) DEFAULT 'new'",
        "UPDATE items SET id = 2",
        "INSERT INTO items VALUES (3)",
    )
    (images,) = read_all(PostgresConfig.from_url(database.url()), "items")
    assert [change.after for change in source.changes()] == [{"id": 1, "name": "a"}, *images]
    assert images == [{"id": 2, "more": 7, "name": "new"}, {"id": 3, "more": 7, "name": "new"}]


def applied(changes: Iterable[Seen]) -> dict[str, dict[Any, dict[str, Any]]]:
    """The tables that the changes make, each row once."""
    tables: dict[str, dict[Any, dict[str, Any]]] = {}
    for change in changes:
        rows = tables.setdefault(change.table, {})
        if change.op == "t":
            rows.clear()
        if change.before is not None:
            assert change.before["id"] in rows
            del rows[change.before["id"]]
        elif change.op == "u":
            assert change.after is not None
            assert change.after["id"] in rows
        if change.after is not None:
            assert change.op != "c" or change.after["id"] not in rows
            rows[change.after["id"]] = change.after
    return tables


def test_every_way_to_write_a_row_is_one_change_of_it(database: Database) -> None:
    source = Source(
        database,
        ITEMS,
        "CREATE TABLE parts (id int PRIMARY KEY,"
        " item int REFERENCES items ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.name = upper(NEW.name); RETURN NEW; END $$",
        "CREATE TRIGGER loud BEFORE INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION loud()",
    )
    with database.app.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        copy.write("1\ta\n2\tb\n3\tc\n4\td\n")
    source.sql(
        "INSERT INTO parts SELECT i * 10, i FROM generate_series(1, 4) i",
        "INSERT INTO items VALUES (1, 'x'), (5, repeat('toast', 100000)) ON CONFLICT (id)"
        " DO UPDATE SET name = excluded.name || '!'",
        "INSERT INTO items VALUES (1, 'never') ON CONFLICT DO NOTHING",
        "WITH gone AS (DELETE FROM items WHERE id = 2 RETURNING *)"
        " INSERT INTO items SELECT 6, name FROM gone",
        "UPDATE items SET id = 7 WHERE id = 3",
        "MERGE INTO items USING (VALUES (4, 'merged'), (8, 'made')) v (id, name) ON items.id = v.id"
        " WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.name)",
        "DO $$ BEGIN FOR i IN 100..110 LOOP BEGIN INSERT INTO items VALUES (i, 's');"
        " IF i % 2 = 0 THEN RAISE division_by_zero; END IF;"
        " EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$",
        # A rewrite moves every row and changes none.
        "CLUSTER items USING items_pkey",
        "VACUUM FULL parts",
    )
    source.transaction("DELETE FROM items WHERE id = 1", "INSERT INTO items VALUES (1, 'again')")
    expected = {
        "items": {i: {"id": i, "name": name} for i, name in database.rows("SELECT id, name FROM items")},
        "parts": {i: {"id": i, "item": item} for i, item in database.rows("SELECT id, item FROM parts")},
    }
    assert applied(source.changes()) == expected
    assert set(expected["parts"]) == {30, 40}


def test_a_prepared_transaction_comes_when_it_is_committed_and_never_when_it_is_rolled_back(
    database: Database,
) -> None:
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs, acknowledge=True) as stream:
        source.sql(
            "BEGIN; INSERT INTO items VALUES (1, 'a'); PREPARE TRANSACTION 'one'",
            "BEGIN; INSERT INTO items VALUES (2, 'b'); PREPARE TRANSACTION 'two'",
            "INSERT INTO items VALUES (3, 'c')",
        )
        wait_until(lambda: len(stream.changes) == 1)
        # Neither stalls what comes after it, nor is it confirmed away.
        stream.capture.wait_visible(stream.position, 10)
        source.sql("ROLLBACK PREPARED 'two'", "COMMIT PREPARED 'one'")
        wait_until(lambda: len(stream.changes) == 2)
        assert [change.after for change in stream.changes] == [
            {"id": 3, "name": "c"},
            {"id": 1, "name": "a"},
        ]


def test_changes_that_were_replicated_from_elsewhere_are_captured_too(database: Database) -> None:
    source = Source(database, ITEMS)
    with database.admin() as admin:
        admin.execute("SELECT pg_replication_origin_create(%s)", (database.name,))
        admin.execute("SELECT pg_replication_origin_session_setup(%s)", (database.name,))
        admin.execute("SET session_replication_role = replica")
        admin.execute("INSERT INTO items VALUES (1, 'from afar')")
        admin.execute("SELECT pg_replication_origin_session_reset()")
        admin.execute("SELECT pg_replication_origin_drop(%s)", (database.name,))
    assert [change.after for change in source.changes()] == [{"id": 1, "name": "from afar"}]


@pytest.mark.long
def test_a_standby_is_refused_by_name_whatever_is_asked_of_it(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS)
    own_server.stop()
    (own_server.data / "standby.signal").touch()
    own_server.start()
    capture = source.open()
    for ask in (
        capture.identity,
        capture.head,
        lambda: capture.register("another"),
        lambda: source.parts(until=source.start),
    ):
        with pytest.raises((IdentityMismatch, NeedsOperator), match="standby") as caught:
            ask()
        assert caught.value.remedy == "name the primary in the URL"
    assert "standby" in {finding.code for finding in capture.coverage(source.refs)}
    assert [consumer.name for consumer in capture.consumers()] == [CONSUMER]


@pytest.mark.long
def test_transaction_ids_beyond_32_bits_are_told_apart_from_those_that_run(own_server: Server) -> None:
    own_server.stop()
    installed = own_server.installed
    command = installed.command("pg_resetwal", "-e", "5", "-D", installed.inside(own_server.data))
    subprocess.run(command, check=True, capture_output=True, user=installed.user, cwd="/")
    own_server.start()
    source = Source(own_server.database(), ITEMS)
    assert source.database.rows("SELECT pg_current_xact_id()::text::numeric > 5 * 4294967296") == [(True,)]
    idle = source.database.connect()
    idle.execute("BEGIN; INSERT INTO items VALUES (99)")
    with background(source.open(), source.start, source.refs, acknowledge=True) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: len(stream.changes) == 1)
        stream.capture.wait_visible(stream.position, 10)
        wait_until(lambda: source.confirmed() >= stream.changes[0].position)
        # Another process, which has no stream, tells it from the running one by a look into the slot.
        stream.close()
        later = source.open()
        later.register(CONSUMER)
        later.wait_visible(stream.position, 10)
    idle.execute("COMMIT")
    assert [change.after for change in source.changes(stream.position)] == [{"id": 99, "name": None}]


def test_a_chunk_read_while_the_stream_runs_is_never_older_than_what_was_delivered(
    database: Database,
) -> None:
    source = Source(database, ITEMS, "INSERT INTO items VALUES (1, '0')")
    config = PostgresConfig.from_url(database.url())
    table = described(config, "items")
    (chunk,) = snapshot.plan(config, table.ref, 10)
    writer = database.connect()
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.001):
            number += 1
            writer.execute("UPDATE items SET name = %s", (str(number),))

    thread = threading.Thread(target=write)
    with background(source.open(), source.start, source.refs) as stream:
        thread.start()
        try:
            for _ in range(8):
                begun = stream.position
                wait_until(lambda begun=begun: stream.position > begun)  # type: ignore[misc]
                # Batches are kept before their position is: what was delivered up to it is all there.
                position, delivered = stream.position, stream.changes
                stream.capture.wait_visible(position, 10)
                (image,) = rows(batches(config, table, chunk))
                newest = max(
                    int(c.after["name"]) for c in delivered if c.after and c.position <= position.version
                )
                assert int(image["name"]) >= newest
        finally:
            stop.set()
            thread.join()


def _end_a_page(source: Source) -> None:
    """The log's last record ends where a page does. A record is 55 bytes longer than its message."""
    with source.database.admin() as admin:
        (at,) = admin.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone() or (0,)
        left = 8192 - at % 8192
        size = left - 55 + (8192 - 24 if left < 1000 else 0)
        admin.execute("SELECT pg_logical_emit_message(false, 't', repeat('.', %s))", (size,))


def _end_a_segment(source: Source) -> None:
    """As a server with `archive_timeout` does that has nothing to do."""
    with source.database.admin() as admin:
        admin.execute("SELECT pg_switch_wal()")


@pytest.mark.parametrize("end", [_end_a_page, _end_a_segment])
def test_all_of_a_log_that_ends_with_a_page_is_visible_although_nobody_writes(
    own_server: Server, end: Callable[[Source], None]
) -> None:
    own_server.restart(autovacuum="off")
    source = Source(own_server.database(), ITEMS)
    ends = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8, (pg_current_wal_flush_lsn() - '0/0')::int8"

    def ended() -> bool:
        inserted, flushed = source.database.rows(ends)[0]
        if inserted == flushed:
            # Not yet, or the server itself has written since, as it does now and then.
            end(source)
        return inserted - flushed in (24, 40)

    for _ in range(3):
        wait_until(ended)
        before = source.database.rows(ends)
        position = source.start.at(source.capture.seen())
        source.capture.wait_visible(position, 2)
        assert source.changes(until=source.capture.head()) == []
        if source.database.rows(ends) == before:
            return
    pytest.fail("the server wrote each time")
