"""A server that speaks another language means the same: errors are told apart by SQLSTATE."""

from __future__ import annotations

import pytest

from tailrace.capture.contract import Chunk
from tailrace.model.errors import LogLost, NeedsOperator, SetupMissing, Transient
from tests.capture.postgres.streaming import CONSUMER, Source, background
from tests.support.postgres import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
ITEMS = "CREATE TABLE items (id int PRIMARY KEY)"


@pytest.fixture
def german(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("LANGUAGE", "de")
    own_server.restart(lc_messages="C.UTF-8")
    with own_server.admin() as connection:
        result = connection.pgconn.exec_(b"SELECT nothing")
        if "existiert nicht" not in result.error_message.decode():
            pytest.skip("unavailable: a server with German messages")
    return own_server


def test_a_server_that_speaks_german_gives_the_same_errors(german: Server) -> None:
    database = german.database()
    database.sql(ITEMS, "CREATE TABLE secret (id int PRIMARY KEY)", "REVOKE ALL ON secret FROM tailrace")
    source = Source(database, tables=("items",))
    with background(source.open(), source.start, source.refs):
        wait_until(source.active)
        with pytest.raises(Transient, match="aktiv"):
            source.changes(capture=source.open())
        with pytest.raises(Transient):
            source.capture.forget(CONSUMER)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        with database.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        wait_until(lambda: not stream.alive)
        assert isinstance(stream.error, Transient), stream.error
    with background(source.open(watch_interval=60.0), source.start, source.refs) as stream:
        wait_until(source.active)
        with database.admin() as admin:
            admin.execute("DROP PUBLICATION tailrace")
        source.sql("INSERT INTO items VALUES (1)")
        if database.server_version < 180000:
            # A newer one goes on without a word, and the sentinel finds it.
            wait_until(lambda: not stream.alive)
            assert isinstance(stream.error, SetupMissing), stream.error
    with pytest.raises(SetupMissing, match="keine Berechtigung") as caught:
        source.open().setup(source.refs)
    assert "CREATE PUBLICATION" in (caught.value.remedy or "")
    with database.admin() as admin:
        admin.execute(str(caught.value.remedy).encode())
    source.capture.forget(CONSUMER)
    with pytest.raises(LogLost):
        source.changes(capture=source.open())
    (secret,) = source.capture.resolve(["secret"])
    schema, chunk = source.capture.describe(secret), Chunk(secret, 0, {})
    with pytest.raises(NeedsOperator) as denied:
        list(source.capture.snapshot(schema, chunk, position=1, seq=0))
    assert denied.value.remedy
