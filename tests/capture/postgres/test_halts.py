"""A table that cannot go on stops alone, is told, and never goes on behind a gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.capture.contract import TABLE_STOPPED
from tailrace.capture.postgres import PostgresCapture
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import LogLost, SchemaDrift, SetupMissing, TailraceError, Transient
from tests.capture.postgres.streaming import CONSUMER, Background, Source, background, seen
from tests.support.postgres import Database, Server
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
OTHERS = "CREATE TABLE others (id int PRIMARY KEY)"


def admin(source: Source, statement: str) -> None:
    with source.database.admin() as connection:
        connection.execute(statement.encode())


def unpublish(source: Source) -> None:
    admin(source, "ALTER PUBLICATION tailrace DROP TABLE items")


def republish(source: Source) -> None:
    unpublish(source)
    admin(source, "ALTER PUBLICATION tailrace ADD TABLE items")


def unpublish_a_column(source: Source) -> None:
    admin(source, "ALTER PUBLICATION tailrace SET TABLE items (id), others")


def drop(source: Source) -> None:
    source.sql("DROP TABLE items")


def create_anew(source: Source) -> None:
    source.sql("DROP TABLE items", ITEMS)
    admin(source, "ALTER PUBLICATION tailrace ADD TABLE items")


def rename(source: Source) -> None:
    source.sql("ALTER TABLE items RENAME TO things")


HAPPENINGS = [unpublish, republish, unpublish_a_column, drop, create_anew, rename]


def names(stream: Background) -> list[tuple[str, int]]:
    return [(change.table, change.after["id"]) for change in stream.changes if change.after]


def stopped(capture: PostgresCapture) -> dict[str | None, str | None]:
    return {found.table: found.remedy for found in capture.notices() if found.code == TABLE_STOPPED}


@pytest.mark.parametrize("happens", HAPPENINGS)
def test_a_table_that_is_no_longer_published_as_it_was_stops_alone(
    database: Database, happens: Callable[[Source], None]
) -> None:
    source = Source(database, ITEMS, OTHERS, watch_interval=0.1)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
        wait_until(lambda: len(stream.changes) == 2)
        assert not stream.capture.notices()
        happens(source)
        wait_until(lambda: "public.items" in stopped(stream.capture))
        assert stopped(stream.capture)["public.items"]
        if happens in (republish, unpublish_a_column, create_anew):
            source.sql("INSERT INTO items VALUES (2)")
        source.sql("INSERT INTO others VALUES (2)")
        wait_until(lambda: ("others", 2) in names(stream))
        assert names(stream) == [("items", 1), ("others", 1), ("others", 2)]
        assert stream.error is None
        assert list(stopped(stream.capture)) == ["public.items"]


@pytest.mark.parametrize("happens", [republish, unpublish_a_column, create_anew])
def test_nothing_behind_a_gap_is_delivered_also_before_anyone_has_looked(
    database: Database, happens: Callable[[Source], None]
) -> None:
    source = Source(database, ITEMS, OTHERS, watch_interval=600.0)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1, 'one')", "INSERT INTO others VALUES (1)")
        wait_until(lambda: len(stream.changes) == 2)
        happens(source)
        source.sql("INSERT INTO items VALUES (2, 'two')", "INSERT INTO others VALUES (2)")
        wait_until(lambda: ("others", 2) in names(stream))
        assert names(stream) == [("items", 1), ("others", 1), ("others", 2)]
        assert list(stopped(stream.capture)) == ["public.items"]


def test_a_stream_without_a_table_left_ends_with_the_error(database: Database) -> None:
    source = Source(database, ITEMS, OTHERS, watch_interval=0.1)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        admin(source, "ALTER PUBLICATION tailrace DROP TABLE items")
        wait_until(lambda: stopped(stream.capture))
        admin(source, "ALTER PUBLICATION tailrace DROP TABLE others")
        wait_until(lambda: not stream.alive)
        assert isinstance(stream.error, SetupMissing)
        assert "public.items" in stream.error.message
        assert "public.others" in stream.error.message
    with pytest.raises(SetupMissing, match="no table can go on"):
        next(iter(source.open().live(source.start, source.refs, consumer=CONSUMER)))


def test_a_stopped_table_is_stopped_and_told_after_a_restart(database: Database) -> None:
    source = Source(database, ITEMS, OTHERS)
    unpublish(source)
    source.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    capture = source.open()
    assert [change.table for change in source.changes(capture=capture)] == ["others"]
    assert list(stopped(capture)) == ["public.items"]


def read(source: Source, capture: PostgresCapture, accept: dict[str, str]) -> list[tuple[str, int]]:
    """What a stream with these generations gives up to the log's present end."""
    end = source.head()
    chosen = {source.ref(name): generation for name, generation in accept.items()}
    batches: list[ChangeBatch] = []
    for part in capture.live(source.start, source.refs, consumer=CONSUMER, wait=0.1, accept=chosen):
        batches += part.batches if part is not None else ()
        if part is not None and part.complete and part.position >= end:
            break
    return [(change.table, change.after["id"]) for change in seen(batches) if change.after]


def test_a_table_goes_on_behind_a_gap_only_for_who_knows_its_new_generation(database: Database) -> None:
    source = Source(database, ITEMS, OTHERS)
    before = {ref.name: generation for ref, (generation, _) in source.capture.generations().items()}
    source.sql("INSERT INTO items VALUES (1)")
    unpublish(source)
    source.sql("INSERT INTO items VALUES (2)")
    admin(source, "ALTER PUBLICATION tailrace ADD TABLE items")
    source.sql("INSERT INTO items VALUES (3)", "INSERT INTO others VALUES (3)")
    after = {ref.name: generation for ref, (generation, _) in source.capture.generations().items()}
    assert before["items"] != after["items"]
    capture = source.open()
    assert read(source, capture, before) == [("others", 3)]
    assert "set up anew" in capture.notices()[0].message
    # The same capture remembers it, also where nobody names a generation.
    assert read(source, capture, after) == [("items", 1), ("items", 3), ("others", 3)]
    assert not capture.notices()


def test_a_capture_remembers_what_it_read_where_nobody_names_a_generation(database: Database) -> None:
    source = Source(database, ITEMS, OTHERS)
    capture = source.open()
    assert read(source, capture, {}) == []
    republish(source)
    source.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    assert read(source, capture, {}) == [("others", 1)]
    assert list(stopped(capture)) == ["public.items"]


@pytest.mark.parametrize(
    ("happens", "kind"), [(unpublish, SetupMissing), (republish, SchemaDrift), (drop, SetupMissing)]
)
def test_the_only_table_ends_the_stream(
    database: Database, happens: Callable[[Source], None], kind: type[TailraceError]
) -> None:
    source = Source(database, ITEMS, watch_interval=0.1)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        happens(source)
        wait_until(lambda: not stream.alive)
        assert isinstance(stream.error, kind)
        assert stream.error.remedy


def test_a_table_whose_capture_began_later_stops_alone(database: Database) -> None:
    database.sql(ITEMS, OTHERS)
    with database.admin() as connection:
        connection.execute(f"ALTER DATABASE {database.name} OWNER TO tailrace")
        connection.execute("ALTER TABLE items OWNER TO tailrace; ALTER TABLE others OWNER TO tailrace")
    database.sql("GRANT ALL ON SCHEMA public TO tailrace")
    source = Source(database, tables=("others",))
    later = source.capture.resolve(["items"])
    source.capture.setup(later)
    source.refs = source.capture.resolve(["*"])
    admin(source, "INSERT INTO items VALUES (1); INSERT INTO others VALUES (1)")
    capture = source.open()
    assert read(source, capture, {}) == [("others", 1)]
    assert "began after" in capture.notices()[0].message
    with pytest.raises(LogLost, match="began after"):
        next(iter(source.open().live(source.start, later, consumer=CONSUMER)))


def codes(stream: Background) -> list[str]:
    return [found.code for found in stream.capture.notices()]


def test_log_beyond_the_budget_is_told_while_a_stream_runs_and_when_it_is_over(database: Database) -> None:
    source = Source(database, ITEMS, watch_interval=0.1, wal_budget=2 << 20)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        assert codes(stream) == []
        source.sql("INSERT INTO items SELECT n, repeat('x', 400) FROM generate_series(1, 9000) n")
        wait_until(lambda: codes(stream) == ["wal_budget"], timeout=20)
        (told,) = [c for c in source.open().consumers() if c.name == CONSUMER]
        assert (told.retained or 0) > 2 << 20
        assert "budget" in (told.risk or "")
        with database.admin() as admin:
            # What a slot needs moves on when the server notes what runs, as it does every few seconds.
            def over() -> bool:
                admin.execute("CHECKPOINT")
                stream.capture.acknowledge(stream.position, consumer=CONSUMER)
                source.sql("UPDATE items SET name = '' WHERE id = 1")
                return codes(stream) == []

            wait_until(over, timeout=30)
        assert stream.error is None


@pytest.mark.long
def test_a_slot_that_loses_its_log_while_it_is_read_is_told_and_then_ends_the_stream(
    own_server: Server,
) -> None:
    own_server.restart(max_slot_wal_keep_size="1MB", wal_keep_size="0", checkpoint_timeout="1h")
    source = Source(own_server.database(), ITEMS, watch_interval=0.1)
    capture = source.open()
    with background(capture, source.start, source.refs) as stream, own_server.admin() as admin:
        wait_until(source.active)

        def told() -> bool:
            admin.execute("SELECT pg_switch_wal()")
            admin.execute("SELECT pg_logical_emit_message(false, 'x', 'y')")
            return bool({"slot_at_risk", "slot_lost"} & set(codes(stream))) or not stream.alive

        wait_until(told, timeout=20)

        def ended() -> bool:
            admin.execute("CHECKPOINT")
            return not stream.alive

        wait_until(ended, timeout=30)
        assert isinstance(stream.error, Transient | LogLost), stream.error
    with pytest.raises(LogLost, match="invalid") as caught:
        source.changes(capture=source.open())
    assert "--on-data-loss snapshot" in (caught.value.remedy or "")
    (told_consumer,) = [c for c in source.open().consumers() if c.name == CONSUMER]
    assert "invalid" in (told_consumer.risk or "")


@pytest.mark.long
def test_a_slot_that_was_given_up_because_nobody_read_it_says_so(own_server: Server) -> None:
    database = own_server.database()
    if database.server_version < 180000:
        pytest.skip("unavailable: PostgreSQL 18, which gives up idle slots")
    source = Source(database, ITEMS)
    own_server.restart(idle_replication_slot_timeout="1s")
    with own_server.admin() as admin:

        def given_up() -> bool:
            admin.execute("CHECKPOINT")
            query = "SELECT invalidation_reason FROM pg_replication_slots"
            return admin.execute(query).fetchone() == ("idle_timeout",)

        wait_until(given_up, timeout=30)
    with pytest.raises(LogLost, match="idle_replication_slot_timeout, which is 1s"):
        source.changes(capture=source.open(), until=source.start)
