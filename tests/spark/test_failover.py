"""A fail-over under a query: it goes on where the new server has its log, and stops where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import IdentityMismatch
from tailrace.model.table import TableRef
from tailrace.runtime.history import FILE, Entry, read_history
from tailrace.spark.offsets import Offset
from tests.spark.querying import Query
from tests.support.postgres import PASSWORD, Database, Server, own_server
from tests.support.standby import Standby
from tests.support.waiting import wait_until

__all__ = ["own_server"]
pytestmark = pytest.mark.long


def made(server: Server, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database = server.database()
    database.sql("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items WITH (publish_via_partition_root)")
    return database


def promoted(server: Server) -> None:
    """The server begins a new timeline, and keeps its slots."""
    server.stop()
    (server.data / "standby.signal").touch()
    server.start()
    with server.admin() as admin:
        admin.execute("SELECT pg_promote()")
        wait_until(lambda: admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))


def insert(server: Server, database: Database, number: int) -> None:
    with server.admin(database.name, "app") as application:
        application.execute(f"INSERT INTO items VALUES ({number})".encode())


def history(state: Path) -> dict[TableRef, list[Entry]]:
    fs, root = open_filesystem(str(state / "changelog"))
    return read_history(fs, f"{root}/{FILE}")


@pytest.mark.parametrize("restart", [False, True])
def test_a_query_goes_on_with_a_server_that_took_over_behind_its_position(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    database = made(own_server, monkeypatch)
    query = Query(database, tmp_path, tables="items")
    query.until("items", "r", "1")
    database.sql("INSERT INTO items VALUES (2)")
    query.until("items", "c", "2")
    before = query.offset.position
    known = history(tmp_path)
    if restart:
        query.driver.close()
    promoted(own_server)
    insert(own_server, database, 3)
    if restart:
        query = query.restart(database, tmp_path, tables="items")
    query.until("items", "c", "3")
    assert query.offset.position.source != before.source
    assert query.offset.position.version > before.version
    assert history(tmp_path) == known != {}
    if not restart:
        # Nothing came twice, and nothing was read again.
        assert [row[1] for row in query.rows if row[1] in "rcud"] == ["r", "c", "c"]
    query.driver.close()


def test_a_query_that_is_beyond_the_place_where_the_server_took_over_stops(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = made(own_server, monkeypatch)
    query = Query(database, tmp_path, tables="items")
    query.until("items", "r", "1")
    query.driver.close()
    promoted(own_server)
    beyond = query.offset.position.at(query.offset.position.version + (1 << 24))
    later = Query(database, tmp_path, Offset(beyond, query.offset.snapshots), tables="items")
    with pytest.raises(IdentityMismatch, match="left timeline 1 at"):
        later.batch()
    later.driver.close()


@pytest.fixture
def standby(own_server: Server) -> Iterator[Standby]:
    with own_server.admin() as admin:
        if admin.info.server_version < 170000:
            pytest.skip("unavailable: PostgreSQL 17 or newer, for slots that survive a fail-over")
    following = Standby(own_server)
    yield following
    following.remove()


def test_a_running_query_goes_on_with_the_standby_that_has_its_slot(
    own_server: Server, standby: Standby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = made(own_server, monkeypatch)
    hosts = f"127.0.0.1:{own_server.port},127.0.0.1:{standby.port}"
    url = f"postgresql://tailrace@{hosts}/{database.name}?target_session_attrs=read-write"
    query = Query(database, tmp_path, tables="items", url=url)
    query.until("items", "r", "1")
    (slot,) = database.slots()

    def synced() -> bool:
        database.sql("UPDATE items SET id = id")
        query.batch()
        with own_server.admin() as admin:
            admin.execute("CHECKPOINT")
            admin.execute("SELECT pg_log_standby_snapshot()")
        return standby.has(slot)

    wait_until(synced, timeout=60)
    database.sql("INSERT INTO items VALUES (2)")
    query.until("items", "c", "2")
    with own_server.admin() as admin, standby.admin() as follower:
        ((end,),) = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchall()
        caught_up = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: follower.execute(caught_up, (end,)).fetchone() == (True,))
    source = query.offset.position.source
    own_server.kill()
    standby.promote()
    wait_until(standby.primary)
    insert(standby, database, 3)
    query.until("items", "c", "3")
    assert query.offset.position.source != source
    query.driver.close()
