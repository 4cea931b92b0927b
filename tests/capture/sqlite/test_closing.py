"""`close` from a signal handler or another thread, in the middle of what it ends."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.capture.sqlite import SqliteCapture, SqliteConfig, acknowledge, meta
from tests.support.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def capture(shop: Shop) -> Iterator[SqliteCapture]:
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.setup(capture.resolve(["orders"]))
    yield capture
    capture.close()


def _cursor(shop: Shop) -> int:
    connection = shop.connect()
    try:
        return int(connection.execute(f"SELECT acknowledged FROM {meta.CONSUMERS}").fetchone()[0])
    finally:
        connection.close()


@pytest.mark.timeout(20)
def test_a_signal_handler_may_close_in_the_middle_of_an_acknowledgement(
    shop: Shop, capture: SqliteCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.register("one")
    shop.insert(0, 3)
    struck = []
    prune = acknowledge._prune

    def struck_prune(connection: sqlite3.Connection, log: str, deadline: float) -> bool:
        struck.append(log)
        signal.raise_signal(signal.SIGUSR1)
        return prune(connection, log, deadline)

    monkeypatch.setattr(acknowledge, "_prune", struck_prune)
    before = signal.signal(signal.SIGUSR1, lambda *_: capture.close())
    try:
        # No commit was seen, so it is written at once.
        recorded = capture.acknowledge(capture.head(), consumer="one")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert struck
    assert recorded == capture.head()
    assert _cursor(shop) == recorded.version
    assert capture._cursors._connection is None


def test_a_cursor_that_close_writes_beside_a_look_is_no_restored_backup(
    shop: Shop, capture: SqliteCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = capture.live(capture.register("one"), capture.resolve(["orders"]), consumer="one")
    shop.insert(0, 3)
    part = next(part for part in live if part is not None)
    application = shop.connect()
    application.execute("BEGIN IMMEDIATE")
    # The application has the lock, so the cursor is not written yet.
    assert capture.acknowledge(part.position, consumer="one") < part.position
    application.close()
    counter = meta.counter

    def closing_counter(connection: sqlite3.Connection) -> int:
        found = counter(connection)
        capture.close()
        return found

    monkeypatch.setattr(meta, "counter", closing_counter)
    shop.insert(3, 4)
    rest = [part.rows for part in live if part is not None]
    assert rest in ([], [1])
    assert _cursor(shop) == part.position.version
