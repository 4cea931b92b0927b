"""A fail-over with slots that the standby has too (17 and newer): what stops, and what the remedy gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.model.errors import IdentityMismatch
from tests.capture.postgres.streaming import CONSUMER, Source, background
from tests.support.postgres import Server
from tests.support.standby import Standby
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ITEMS = "CREATE TABLE items (id int PRIMARY KEY)"


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
            return standby.has("tailrace_test")

        wait_until(synced, timeout=60)
        taken = stream.position
    with own_server.admin() as admin, standby.admin() as follower:
        ((end,),) = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchall()
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: follower.execute(query, (end,)).fetchone() == (True,))
    own_server.kill()
    standby.promote()
    after = Source.__new__(Source)
    after.database, after.options, after.refs = standby.same(database), {}, source.refs
    after.capture = after.open()
    wait_until(standby.primary)

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
