"""Connections that stay open in a worker from one task to the next, and what becomes of dead ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tailrace.capture.contract import Capture
from tailrace.model.errors import Transient
from tailrace.model.table import ColumnType
from tailrace.spark import lending
from tailrace.spark.lending import lent_capture
from tailrace.spark.options import SourceOptions
from tests.support.postgres import Database, Server, database, own_server, postgres
from tests.support.waiting import wait_until

__all__ = ["database", "own_server", "postgres"]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """What this process has kept from before, or keeps, is nobody else's."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    for one in lending._idle:
        one.ending.close()
    lending._idle.clear()


def options(database: Database) -> SourceOptions:
    return SourceOptions.parse({"url": database.socket_url(), "tables": "*"})


def backend(capture: Capture) -> int:
    (batch,) = capture.query("SELECT pg_backend_pid()", (), (("pid", ColumnType("long")),))
    found: int = batch.column(0)[0].as_py()
    return found


def task(database: Database) -> int:
    with lent_capture(options(database)) as capture:
        return backend(capture)


def test_tasks_of_one_source_share_a_connection(database: Database) -> None:
    assert task(database) == task(database)


def test_a_connection_that_died_between_two_tasks_is_made_again(own_server: Server) -> None:
    database = own_server.database()
    first = task(database)
    database.close()
    own_server.restart()
    # Within the time that it is trusted blindly it may fail; the query's own patience is for that.
    wait_until(lambda: _survives(database), what="a task")
    assert task(database) != first


def _survives(database: Database) -> bool:
    try:
        return bool(task(database))
    except Transient:
        return False


def test_a_connection_that_was_ended_while_it_lay_idle_fails_no_task(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.capture.postgres.kept._TRUSTED", 0.0)
    first = task(database)
    ended = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {first}"
    with database.admin() as admin:
        admin.execute(f"SELECT pg_terminate_backend({first})")
        wait_until(lambda: admin.execute(ended).fetchone() == (0,), what="the end of the connection")
    assert task(database) != first


def test_a_task_that_fails_leaves_no_connection_behind(database: Database) -> None:
    first = task(database)
    with pytest.raises(ZeroDivisionError), lent_capture(options(database)):
        raise ZeroDivisionError
    assert not lending._idle
    assert task(database) != first


def test_another_source_gets_a_connection_of_its_own_and_ends_the_one_before(
    postgres: Server, database: Database
) -> None:
    first = task(database)
    other = postgres.database()
    try:
        with lent_capture(options(other)) as capture:
            (batch,) = capture.query("SELECT current_database()", (), (("name", ColumnType("string")),))
            assert batch.column(0)[0].as_py() == other.name
        assert len(lending._idle) == 1
        wait_until(
            lambda: database.rows(f"SELECT FROM pg_stat_activity WHERE pid = {first}") == [],
            what="the end of the first connection",
        )
    finally:
        _forget()
        other.drop()


def test_two_tasks_at_once_never_share_a_connection(database: Database) -> None:
    with lent_capture(options(database)) as one, lent_capture(options(database)) as other:
        assert backend(one) != backend(other)
    assert len(lending._idle) == 1


def test_a_child_process_does_not_speak_over_its_parents_connection(database: Database) -> None:
    task(database)
    child = os.fork()
    if not child:
        os._exit(len(lending._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(lending._idle) == 1
