"""Faults of server, network and slot: nothing is lost, and what cannot go on says why."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.sentinel import Sentinel
from tailrace.model.errors import (
    IdentityMismatch,
    LogLost,
    SchemaDrift,
    SetupMissing,
    TailraceError,
    Transient,
)
from tests.capture.postgres.streaming import CONSUMER, Background, Source, background
from tests.support.postgres import PASSWORD, Database, Server
from tests.support.proxy import proxy_to
from tests.support.waiting import wait_until

# Servers are killed, frozen, promoted and replaced here.
pytestmark = pytest.mark.long

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
SLOT = "tailrace_test"


def ids(source: Source, **how: Any) -> list[int]:
    return [change.after["id"] for change in source.changes(**how) if change.after]


def streamed(stream: Background) -> list[int]:
    return [change.after["id"] for change in stream.changes if change.after]


def ended(stream: Background, kind: type[TailraceError], timeout: float = 15) -> TailraceError:
    wait_until(lambda: not stream.alive, timeout=timeout, what="the stream's end")
    assert isinstance(stream.error, kind), stream.error
    assert PASSWORD not in str(stream.error)
    return stream.error


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_restarts_loses_nothing(own_server: Server, how: str) -> None:
    database = own_server.database()
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)")
        wait_until(lambda: len(stream.changes) == 2)
        recorded = stream.capture.acknowledge(stream.position, consumer=CONSUMER)
        getattr(own_server, how)()
        ended(stream, Transient)
    own_server.start()
    # What acknowledge said is on record must still be, though a crash forgets what was confirmed last.
    assert source.confirmed() >= recorded.version
    with own_server.admin(database.name, "app") as application:
        application.execute("INSERT INTO items VALUES (3)")
    assert ids(source, start=stream.position, capture=source.open()) == [3]


def test_what_is_on_record_outlives_a_crash_also_after_a_checkpoint(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    watch = Sentinel._watch

    def counted(sentinel: Sentinel, connection: Connection) -> None:
        nonlocal looks
        watch(sentinel, connection)
        looks += 1

    monkeypatch.setattr(Sentinel, "_watch", counted)
    database = own_server.database()
    source = Source(database, ITEMS, watch_interval=0.05)
    recorded = -1
    with (
        # Of connections that end with the server.
        contextlib.suppress(psycopg.OperationalError),
        own_server.admin(database.name) as admin,
        own_server.admin(database.name) as other,
        background(source.open(), source.start, source.refs) as stream,
    ):
        # A checkpoint writes a slot only where more of it has changed than what is confirmed. While this
        # transaction runs, nothing else does.
        other.execute("BEGIN")
        other.execute("INSERT INTO items VALUES (0)")
        for number in range(1, 4):
            source.sql(f"INSERT INTO items VALUES ({number})")
            wait_until(lambda: len(stream.changes) == number)  # noqa: B023
            stream.capture.acknowledge(stream.position, consumer=CONSUMER)
            wait_until(lambda: source.confirmed() >= stream.position.version)
            seen = looks
            wait_until(lambda: looks >= seen + 3)  # noqa: B023
            admin.execute("CHECKPOINT")
            wait_until(lambda: looks >= seen + 6)  # noqa: B023
        recorded = stream.capture.acknowledge(stream.position, consumer=CONSUMER).version
        own_server.kill()
        ended(stream, Transient)
    own_server.start()
    assert source.confirmed() >= recorded >= 0


def test_what_is_on_record_outlives_a_crash_also_where_nothing_was_streamed(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
    wait_until(lambda: not source.active())
    recorded = source.open().acknowledge(stream.position, consumer=CONSUMER)
    assert source.confirmed() >= stream.position.version
    own_server.kill()
    own_server.start()
    assert source.confirmed() >= recorded.version


def test_a_server_can_shut_down_while_changes_are_not_acknowledged(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS, watch_interval=60.0)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        # It wants everything confirmed first, and asks again and again.
        own_server.stop()
        ended(stream, Transient)


def test_a_frozen_server_is_given_up_in_time(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS, timeout=1.5)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        own_server.freeze()
        try:
            error = ended(stream, Transient)
        finally:
            own_server.thaw()
    assert "not answered" in str(error)
    assert ids(source, capture=source.open()) == [1]


def test_a_silent_but_living_server_is_not_given_up(database: Database) -> None:
    source = Source(database, ITEMS, timeout=1.5)
    beats = 0
    for part in source.open().live(source.start, source.refs, consumer=CONSUMER, wait=0.2):
        beats += part is None
        if beats == 15:
            break


def test_a_killed_walsender_is_a_passing_fault(database: Database) -> None:
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        with database.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        ended(stream, Transient)


@pytest.mark.parametrize("place", [3_000, 9_000, 20_000, 40_000])
def test_a_connection_cut_inside_a_message_repeats_nothing_and_loses_nothing(
    database: Database, place: int
) -> None:
    source = Source(database, ITEMS)
    source.sql(*(f"INSERT INTO items VALUES ({n}, repeat('x', 100))" for n in range(300)))
    head = source.head()
    with proxy_to(database.server.port) as proxy:
        capture = source.open(database.url(port=proxy.port))
        proxy.cut_after(place)
        with background(capture, source.start, source.refs) as stream:
            error = ended(stream, TailraceError)
        assert proxy.cuts
    assert isinstance(error, Transient)
    before = streamed(stream)
    after = ids(source, start=stream.position, capture=source.open())
    assert before + after == list(range(300))
    assert stream.position < head


def test_a_slot_that_another_process_reads_is_waited_for(database: Database) -> None:
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs):
        wait_until(source.active)
        with pytest.raises(Transient, match="active"):
            source.changes(capture=source.open())


def test_back_pressure_keeps_the_connection_alive(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items SELECT n, repeat('x', 500) FROM generate_series(1, 60000) n")
    impatient = database.url("?options=-c%20wal_sender_timeout%3D1000")
    waited: list[bool] = []

    def slow() -> None:
        if not waited:
            waited.append(True)
            with database.admin() as admin:
                admin.execute("SELECT pg_sleep(4)")

    capture = source.open(impatient, batch_bytes=100_000)
    with background(capture, source.start, source.refs, slow=slow) as stream:
        source.sql("INSERT INTO items VALUES (0)")
        wait_until(lambda: sum(len(batch) for batch in stream.batches) == 60_001, timeout=30)
        assert stream.error is None
        assert waited


def drop(source: Source) -> None:
    with source.database.admin() as admin:
        admin.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")


def recreate(source: Source) -> None:
    drop(source)
    with source.database.admin() as admin:
        admin.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")


def other_plugin(source: Source) -> None:
    drop(source)
    with source.database.admin() as admin:
        admin.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')")


def physical(source: Source) -> None:
    drop(source)
    with source.database.admin() as admin:
        admin.execute(f"SELECT pg_create_physical_replication_slot('{SLOT}', true)")


def other_database(source: Source) -> None:
    drop(source)
    with source.database.server.admin() as admin:
        admin.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")


@pytest.mark.parametrize(
    ("happens", "kind", "words"),
    [
        (drop, LogLost, "no replication slot"),
        (recreate, LogLost, "made again"),
        (other_plugin, IdentityMismatch, "test_decoding"),
        (physical, IdentityMismatch, "physical"),
        (other_database, IdentityMismatch, "belongs to database"),
    ],
)
def test_a_slot_that_is_not_ours_any_more_stops_with_the_remedy(
    database: Database, happens: Callable[[Source], None], kind: type[TailraceError], words: str
) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items VALUES (1)")
    happens(source)
    capture = source.open()
    with pytest.raises(kind, match=words) as caught:
        source.changes(capture=capture)
    assert caught.value.remedy
    with database.admin() as admin:
        slots = admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            (SLOT,),
        ).fetchall()
    assert len(slots) == (0 if happens is drop else 1)


def test_a_slot_whose_log_was_removed_stops_with_the_remedy(own_server: Server) -> None:
    own_server.restart(max_slot_wal_keep_size="1MB", wal_keep_size="0", checkpoint_timeout="1h")
    source = Source(own_server.database(), ITEMS)
    with own_server.admin() as admin:
        for _ in range(4):
            admin.execute("SELECT pg_switch_wal()")
            admin.execute("SELECT pg_logical_emit_message(false, 'x', 'y')")
        admin.execute("CHECKPOINT")
    with pytest.raises(LogLost, match="max_slot_wal_keep_size") as caught:
        source.changes()
    assert "--on-data-loss snapshot" in (caught.value.remedy or "")
    assert "slot" in {f.code for f in source.capture.coverage(source.refs) if f.severity == "error"}


def test_a_promoted_server_is_refused_by_its_timeline(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS)
    source.sql("INSERT INTO items VALUES (1)")
    delivered = source.parts()[-1].position
    old = source.open()
    assert old.acknowledge(source.start, consumer=CONSUMER) <= source.start
    own_server.stop()
    (own_server.data / "standby.signal").touch()
    own_server.start()
    with own_server.admin() as admin:
        with pytest.raises(IdentityMismatch, match="standby"):
            source.open().identity()
        admin.execute("SELECT pg_promote()")
    with pytest.raises(IdentityMismatch, match="timeline") as caught:
        source.changes(until=source.start, capture=source.open())
    assert "snapshot" in (caught.value.remedy or "")
    # A capture that knew the timeline before goes on with the one that is.
    with pytest.raises(IdentityMismatch, match="timeline"):
        old.acknowledge(delivered, consumer=CONSUMER)
    moved = old.moved(delivered)
    assert moved.source != delivered.source
    old.acknowledge(moved, consumer=CONSUMER)
    assert next(one.acknowledged for one in old.consumers()) == moved.version


def test_another_server_is_refused(database: Database, own_server: Server) -> None:
    source = Source(database, ITEMS)
    other = Source(own_server.database(), ITEMS)
    with pytest.raises(IdentityMismatch):
        other.changes(source.start, until=other.start)


def test_a_server_older_than_the_state_is_refused(database: Database) -> None:
    source = Source(database, ITEMS)
    ahead = source.start.at(source.start.version + (1 << 40))
    with pytest.raises(IdentityMismatch, match="backup"):
        source.changes(ahead, until=source.start)


def unpublish(source: Source) -> None:
    with source.database.admin() as admin:
        admin.execute("ALTER PUBLICATION tailrace DROP TABLE items")


def drop_publication(source: Source) -> None:
    with source.database.admin() as admin:
        admin.execute("DROP PUBLICATION tailrace")


def republish(source: Source) -> None:
    with source.database.admin() as admin:
        admin.execute(
            "BEGIN; ALTER PUBLICATION tailrace DROP TABLE items;"
            "ALTER PUBLICATION tailrace ADD TABLE items; COMMIT"
        )


def drop_table(source: Source) -> None:
    source.sql("DROP TABLE items", ITEMS)


@pytest.mark.parametrize(
    ("happens", "kind"),
    [
        (unpublish, SetupMissing),
        (drop_publication, SetupMissing),
        (republish, SchemaDrift),
        (drop_table, SetupMissing),
    ],
)
def test_what_is_no_longer_published_stops_a_running_stream(
    database: Database, happens: Callable[[Source], None], kind: type[TailraceError]
) -> None:
    source = Source(database, ITEMS, watch_interval=0.2)
    with background(source.open(), source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        happens(source)
        error = ended(stream, kind)
        assert error.remedy


def test_a_commit_that_waits_for_a_standby_is_delivered_but_not_visible_yet(own_server: Server) -> None:
    # By a restart: of a reload nobody tells when every process has taken it up.
    own_server.restart(synchronous_standby_names="nobody", synchronous_commit="local")
    source = Source(own_server.database(), ITEMS)
    source.sql("INSERT INTO items VALUES (0)")
    writer = source.database.connect()
    writer.execute("SET synchronous_commit = on")
    idle = source.database.connect()
    idle.execute("BEGIN; INSERT INTO items VALUES (99)")
    with (
        own_server.admin() as admin,
        background(source.open(), source.start, source.refs, acknowledge=True) as stream,
    ):
        pid = writer.info.backend_pid
        writer.pgconn.send_query(b"INSERT INTO items VALUES (1)")
        wait_until(lambda: streamed(stream) == [0, 1])
        assert source.database.rows("SELECT id FROM items") == [(0,)]
        with pytest.raises(Transient, match="visible"):
            stream.capture.wait_visible(stream.position, 0.3)
        # Acknowledged all the same: the server must not hear of it before everyone sees it.
        assert source.confirmed() < stream.changes[1].position
        # A new process learns of it again, without a stream and with one.
        stream.close()
        later = source.open()
        later.register(CONSUMER)
        with pytest.raises(Transient, match="visible"):
            later.wait_visible(stream.position, 0.6)
        again = Background(source.open(), stream.position, source.refs, acknowledge=True)
        wait_until(source.active)
        wait_until(lambda: again.capture._recent.unseen(stream.position.version))
        with pytest.raises(Transient, match="visible"):
            again.capture.wait_visible(stream.position, 0.3)
        admin.execute("SELECT pg_cancel_backend(%s)", (pid,))
        again.capture.acknowledge(stream.position, consumer=CONSUMER)
        # The transaction that was never delivered still runs, and stalls nobody.
        again.capture.wait_visible(stream.position, 5)
        assert (1,) in source.database.rows("SELECT id FROM items")
        wait_until(lambda: source.confirmed() >= stream.position.version)
        again.close()
        later.wait_visible(stream.position, 5)


def test_no_message_has_the_password(database: Database) -> None:
    source = Source(database, ITEMS)
    told = [repr(source.capture._config), str(source.capture._config)]
    wrong = database.url().replace("canary", "wrong%2Dcanary")
    for url in (wrong, database.url(port=1), database.url("?sslmode=verify-full&sslrootcert=/nowhere")):
        with pytest.raises(TailraceError) as caught:
            source.open(url).identity()
        told += [str(caught.value), repr(caught.value)]
    for text in told:
        assert not re.search("canary", text)


def test_a_long_transaction_that_was_never_delivered_stalls_no_reader(database: Database) -> None:
    source = Source(database, ITEMS)
    idle = database.connect()
    idle.execute("BEGIN; INSERT INTO items VALUES (99)")
    source.sql("INSERT INTO items VALUES (1)")
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(lambda: stream.changes)
        stream.capture.wait_visible(stream.position, 2)
    restarted = source.open()
    restarted.register(CONSUMER)
    restarted.wait_visible(stream.position, 2)
    source.open().wait_visible(stream.position, 2)
    with pytest.raises(Transient, match="visible"):
        restarted.wait_visible(stream.position.at(1 << 50), 0.2)
    idle.execute("ROLLBACK")
