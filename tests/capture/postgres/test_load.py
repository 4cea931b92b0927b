"""How busy a server is, and what the least privileged role may know of it."""

from __future__ import annotations

import pytest

from tailrace.capture.contract import Load
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.postgres.load import Standbys
from tailrace.model.errors import Transient
from tests.support.postgres import SETTINGS, Database, Server
from tests.support.standby import Standby
from tests.support.waiting import wait_until

CONSUMER = "shop"
GRANT = 'GRANT pg_read_all_stats TO "tailrace"'


def capture_of(database: Database) -> PostgresCapture:
    return PostgresCapture(PostgresConfig.from_url(database.url()))


def others(database: Database) -> int:
    """Sessions of others, as the superuser counts them."""
    with database.admin() as admin:
        row = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND usename <> 'tailrace' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_the_least_privileged_role_counts_sessions_and_says_what_it_may_not_know(own_server: Server) -> None:
    database = own_server.database()
    capture = capture_of(database)
    before = others(database)
    assert wait_until(lambda: capture.load(CONSUMER)).connections == before
    more = [database.connect() for _ in range(3)]
    found = capture.load(CONSUMER)
    assert found.connections == before + 3
    assert found.max_connections == int(SETTINGS["max_connections"])
    assert found.active is None
    assert found.remedy == GRANT
    # That no standby is connected anybody may know.
    assert (found.standby_bytes, found.standby_seconds) == (0, 0.0)
    for connection in more:
        connection.close()
    wait_until(lambda: capture.load(CONSUMER).connections == before)
    capture.close()


def test_the_remedy_shows_sessions_at_work_but_not_our_own(own_server: Server) -> None:
    database = own_server.database()
    with own_server.admin() as admin:
        admin.execute(GRANT)
    capture = capture_of(database)
    assert capture.load(CONSUMER).active == 0
    assert capture.load(CONSUMER).remedy is None
    busy = database.connect()
    lock = database.connect()
    database.sql("CREATE TABLE items (id int PRIMARY KEY)")
    lock.autocommit = False
    lock.execute("LOCK TABLE items")
    pid = busy.info.backend_pid
    # It waits for a lock, and so is at work for as long as the test wants.
    busy.pgconn.send_query(b"SELECT * FROM items")
    with database.admin() as admin:
        wait_until(
            lambda: (
                admin.execute(
                    "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", (pid,)
                ).fetchone()
                == ("Lock",)
            )
        )
    assert capture.load(CONSUMER).active == 1
    lock.rollback()
    capture.close()


def test_log_that_our_slot_keeps_is_told_with_its_state(database: Database) -> None:
    database.sql("CREATE TABLE items (id int PRIMARY KEY, body text)")
    database.publish("items")
    capture = capture_of(database)
    assert capture.load(CONSUMER).retained is None
    capture.register(CONSUMER)
    before = capture.load(CONSUMER)
    assert before.retained is not None
    database.sql("INSERT INTO items SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i")
    after = capture.load(CONSUMER)
    assert after.retained is not None
    assert after.retained > before.retained + 1_000_000
    assert after.log_status in ("reserved", "extended")
    capture.close()


def test_a_standby_that_does_not_replay_is_seen_by_bytes_and_by_time(own_server: Server) -> None:
    database = own_server.database()
    database.sql("CREATE TABLE items (id int PRIMARY KEY, body text)")
    standby = Standby(own_server)
    try:
        blind, capture = capture_of(database), capture_of(database)
        found = blind.load(CONSUMER)
        assert (found.standby_bytes, found.standby_seconds, found.remedy) == (None, None, GRANT)
        with own_server.admin() as admin:
            admin.execute(GRANT)
        wait_until(lambda: capture.load(CONSUMER).standby_bytes == 0)
        with standby.admin() as there:
            there.execute("SELECT pg_wal_replay_pause()")
            wait_until(
                lambda: there.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",)
            )
            database.sql("INSERT INTO items SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i")

            def behind() -> Load | None:
                found = capture.load(CONSUMER)
                return found if (found.standby_bytes or 0) > 1_000_000 else None

            wait_until(behind)
            # The server's own number stands still with the standby; ours does not.
            wait_until(lambda: (capture.load(CONSUMER).standby_seconds or 0) > 1.0)
            there.execute("SELECT pg_wal_replay_resume()")
        wait_until(lambda: capture.load(CONSUMER).standby_bytes == 0)
        assert capture.load(CONSUMER).standby_seconds == 0.0
        blind.close()
        capture.close()
    finally:
        standby.remove()


def test_time_behind_counts_from_when_the_log_passed_the_standbys_place() -> None:
    now = 100.0
    standbys = Standbys(clock=lambda: now)
    assert standbys.behind(1000, []) == (0, 0.0)
    assert standbys.behind(1000, [(1000, None)]) == (0, 0.0)
    now += 5
    assert standbys.behind(2000, [(1000, None), (2000, 3.0)]) == (1000, 0.0)
    now += 5
    assert standbys.behind(3000, [(1000, None), (2500, 0.5)]) == (2000, 5.0)
    assert standbys.behind(3000, [(2000, 0.5), (3000, None)]) == (1000, 0.5)
    now += 7
    assert standbys.behind(3000, [(2999, None)]) == (1, 7.0)
    assert standbys.behind(3000, [(2999, 60.0)]) == (1, 60.0)
    assert standbys.behind(3000, [(3000, 60.0)]) == (0, 0.0)


def test_a_server_that_does_not_answer_is_an_error_and_not_a_load(own_server: Server) -> None:
    capture = capture_of(own_server.database())
    own_server.stop()
    with pytest.raises(Transient):
        capture.load(CONSUMER)
    own_server.start()
    assert capture.load(CONSUMER).connections is not None
    capture.close()
