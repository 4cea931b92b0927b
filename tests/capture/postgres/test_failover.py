"""A fail-over with slots that the standby has too (17 and newer): what stops, and what the remedy gives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tailrace.model.errors import IdentityMismatch
from tests.capture.postgres.streaming import CONSUMER, Source, background
from tests.support.postgres import Database, Server, _free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ITEMS = "CREATE TABLE items (id int PRIMARY KEY)"
SLOT = "tailrace_test"
SYNCED = f"SELECT synced AND failover AND NOT temporary FROM pg_replication_slots WHERE slot_name = '{SLOT}'"


class Standby(Server):
    """A copy of a running server that follows it and keeps its failover slots."""

    def __init__(self, primary: Server) -> None:
        self.installed, self.environment = primary.installed, {}
        self.directory = self.installed.directory()
        self.port = _free_port()
        self._process, self._databases = None, []
        with (primary.data / "pg_hba.conf").open("a") as allowed:
            allowed.write("local replication all trust\n")
        with primary.admin() as admin:
            admin.execute("SELECT pg_reload_conf(), pg_create_physical_replication_slot('standby', true)")
        inside = self.installed.inside
        source = f"host={inside(primary.directory)} port={primary.port} user=postgres dbname=postgres"
        copy = ["-d", source, "-D", inside(self.data), "-S", "standby", "-R", "--checkpoint=fast"]
        command = self.installed.command("pg_basebackup", *copy)
        subprocess.run(command, check=True, capture_output=True, user=self.installed.user, cwd="/")
        self.start(hot_standby_feedback="on", sync_replication_slots="on", primary_conninfo=source)

    def has_the_slot(self) -> bool:
        with self.admin() as admin:
            return admin.execute(SYNCED).fetchone() == (True,)

    def promote(self) -> None:
        with self.admin() as admin:
            admin.execute("SELECT pg_promote()")


@pytest.fixture
def standby(own_server: Server) -> Iterator[Standby]:
    with own_server.admin() as admin:
        if admin.info.server_version < 170000:
            pytest.skip("unavailable: PostgreSQL 17 or newer, for slots that survive a fail-over")
    made = Standby(own_server)
    yield made
    made.remove()


def test_a_standby_that_took_over_has_the_slot_and_a_new_state_goes_on_with_it(
    own_server: Server, standby: Standby
) -> None:
    database = own_server.database()
    source = Source(database, ITEMS)
    with background(source.open(), source.start, source.refs, acknowledge=True) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: len(stream.changes) == 1)
        taken = stream.position

        def synced() -> bool:
            # A slot is kept there once the standby has all that it needs, so the primary's must move on.
            source.sql("UPDATE items SET id = id")
            with own_server.admin() as admin:
                admin.execute("CHECKPOINT")
                admin.execute("SELECT pg_log_standby_snapshot()")
            return standby.has_the_slot()

        wait_until(synced, timeout=60)
        taken = stream.position
    with own_server.admin() as admin, standby.admin() as follower:
        ((end,),) = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchall()
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: follower.execute(query, (end,)).fetchone() == (True,))
    own_server.kill()
    standby.promote()
    after = Source.__new__(Source)
    after.database, after.options, after.refs = _same(standby, database), {}, source.refs
    after.capture = after.open()
    wait_until(lambda: _primary(standby))

    # The positions of the state belong to the timeline that has ended; whether this one has them is unknown.
    with pytest.raises(IdentityMismatch, match="timeline") as caught:
        after.changes(taken, until=taken, capture=after.open())
    assert "new state directory" in (caught.value.remedy or "")

    # The remedy: a state of its own, with a snapshot, over the slot that survived.
    begin = after.open().register(CONSUMER)
    with standby.admin(database.name, "app") as application:
        application.execute("INSERT INTO items VALUES (2)")
    found = after.changes(begin, capture=after.open())
    assert [change.after for change in found if change.op == "c"] == [{"id": 2}]
    with standby.admin() as admin:
        assert admin.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (1,)


def _primary(server: Server) -> bool:
    with server.admin() as admin:
        return admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


def _same(server: Server, database: Database) -> Database:
    """The same database, on the other server."""
    there = Database.__new__(Database)
    there.server, there.name, there._connections = server, database.name, []
    return there
