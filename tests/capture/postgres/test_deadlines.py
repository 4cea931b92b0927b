"""No call waits longer than `timeout` for a silent server, whoever makes it; one that works is waited for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.postgres.client import command, connect, session
from tailrace.model.errors import TailraceError, Transient
from tests.capture.postgres.streaming import CONSUMER, Source, background
from tests.support.postgres import Database, Server
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
# Longer than what a loaded machine may take for a question, much shorter than for ever.
TIMEOUT, FOR_EVER = 3.0, 25.0


def took(call: Callable[[], object]) -> float:
    """How long it took to fail."""
    began = time.monotonic()
    with pytest.raises(Transient, match=r"not answered|timeout"):
        call()
    return time.monotonic() - began


def test_a_frozen_server_is_given_up_though_the_reader_asks_it_for_its_lag(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS, timeout=TIMEOUT)
    capture = source.open()

    def lag() -> None:
        with contextlib.suppress(TailraceError):
            capture.lag(source.start)

    with background(capture, source.start, source.refs, wait=0.2, between=lag) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        own_server.freeze()
        try:
            wait_until(lambda: not stream.alive, timeout=FOR_EVER, what="the stream's end")
        finally:
            own_server.thaw()
    assert isinstance(stream.error, Transient)
    assert "not answered" in str(stream.error)


@pytest.mark.long
def test_several_threads_that_ask_a_frozen_server_wait_for_one_deadline(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS, timeout=TIMEOUT)
    with background(source.open(), source.start, source.refs) as stream:
        wait_until(source.active)
        stream.capture.head()
        own_server.freeze()
        try:
            assert took(stream.capture.head) < FOR_EVER
            wait_until(lambda: not stream.alive, timeout=FOR_EVER, what="the stream's end")
            # Nobody reads any more: a new connection is tried, and given up too.
            assert took(stream.capture.head) < FOR_EVER
        finally:
            own_server.thaw()


@pytest.mark.long
@pytest.mark.parametrize("patient", [False, True], ids=["quick", "patient"])
def test_a_question_to_a_frozen_server_ends(own_server: Server, patient: bool) -> None:
    config = PostgresConfig.from_url(own_server.database().url(), {"timeout": TIMEOUT})
    with session(config, patient=patient) as connection:
        own_server.freeze()
        try:
            assert took(lambda: connection.execute("SELECT 1")) < FOR_EVER
        finally:
            own_server.thaw()


@pytest.mark.long
def test_a_command_of_a_frozen_servers_replication_ends(own_server: Server) -> None:
    config = PostgresConfig.from_url(own_server.database().url(), {"timeout": TIMEOUT})
    with connect(config, replication=True) as connection:
        own_server.freeze()
        try:
            assert took(lambda: command(connection, b"IDENTIFY_SYSTEM")) < FOR_EVER
        finally:
            own_server.thaw()


def test_work_that_takes_longer_is_waited_for_and_a_quick_question_is_not(database: Database) -> None:
    config = PostgresConfig.from_url(database.url(), {"timeout": 1.0})
    with session(config, patient=True) as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(2.5)").fetchone() == (1,)
    with session(config) as connection:
        assert took(lambda: connection.execute("SELECT pg_sleep(20)")) < 15


@pytest.mark.long
def test_a_stream_ends_soon_though_the_server_does_not_answer(own_server: Server) -> None:
    source = Source(own_server.database(), ITEMS, timeout=30.0, watch_interval=0.1)
    capture: PostgresCapture = source.open()
    with background(capture, source.start, source.refs, acknowledge=True) as stream:
        source.sql("INSERT INTO items VALUES (1)")
        wait_until(lambda: stream.changes)
        own_server.freeze()
        try:
            capture.acknowledge(stream.position.at(stream.position.version + 1), consumer=CONSUMER)
            time.sleep(0.3)
            began = time.monotonic()
            stream.close()
            assert time.monotonic() - began < 8
        finally:
            own_server.thaw()
