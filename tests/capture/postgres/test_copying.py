"""The protocol of a COPY on the socket: what stands between, behind and instead of its rows."""

from __future__ import annotations

import socket
import struct
import threading
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tailrace.capture.postgres.client import session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.copying import _Wire, buffers
from tailrace.capture.postgres.framed import LEAD
from tests.support.postgres import Database

NOTICE = b"SNOTICE\0C00000\0Mhello\0\0"


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


END = message(b"c") + message(b"C", b"COPY 3\0") + message(b"Z", b"T")


def read(sent: bytes, nbytes: int = 100, *, close: bool = False) -> tuple[list[int], bytes]:
    """The sizes of the buffers, and all rows, of what a server sends."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection: Any = SimpleNamespace(pgconn=SimpleNamespace(socket=ours.fileno(), backend_pid=0))
    config: Any = SimpleNamespace(timeout=10)

    def send() -> None:
        theirs.sendall(sent)
        if close:
            theirs.close()

    sending = threading.Thread(target=send)
    sending.start()
    try:
        wire = _Wire(config, connection)
        found = [bytes(buffer) for buffer, _ in wire.rows(nbytes)]
        wire.until(b"Z")
        wire.finish()
        return [len(buffer) for buffer in found], b"".join(found).replace(LEAD, b"")
    finally:
        sending.join()
        ours.close()
        theirs.close()


def test_notices_between_the_rows_make_no_buffer_grow() -> None:
    rows = [b"r%dx\tabc\n" % number for number in range(3000)]
    noisy = b"".join(
        message(b"d", row) + (message(b"N", NOTICE) if not number % 10 else b"")
        for number, row in enumerate(rows)
    )
    sizes, text = read(noisy + END, 1000)
    assert text == b"".join(rows)
    # Whoever goes past a notice reads a little more.
    assert max(sizes) < 10_000


def test_a_row_may_be_larger_than_a_buffer() -> None:
    rows = [b"a\n", b"x" * 5000 + b"\n", b"b\n"]
    sizes, text = read(b"".join(message(b"d", row) for row in rows) + END)
    assert text == b"".join(rows)
    assert max(sizes) < 5200


def test_what_stands_behind_the_end_is_gone_past() -> None:
    assert read(message(b"d", b"1\n") + END + message(b"N", NOTICE))[1] == b"1\n"
    assert read(message(b"d", b"1\n") + END + message(b"S", b"TimeZone\0UTC\0"))[1] == b"1\n"
    assert read(END)[1] == b""


@pytest.mark.parametrize(
    ("sent", "close", "told"),
    [
        (b"d" + struct.pack("!I", 900) + b"1\n" + END, False, "closed"),
        (b"d" + struct.pack("!I", 2**31) + b"1\n" + END, False, "closed"),
        (b"d" + struct.pack("!I", 3) + b"1\n" + END, False, "closed"),
        (message(b"d", b"1\n")[:-1], True, "closed"),
        (b"", True, "closed"),
        (message(b"d", b"1\n") + message(b"E", b"SFATAL\0C57P01\0Mshutting down\0\0"), True, "shutting down"),
    ],
)
def test_what_is_no_copy_is_an_error_and_never_a_wait(sent: bytes, close: bool, told: str) -> None:
    with pytest.raises(psycopg.Error, match=told):
        read(sent, close=close)


@pytest.fixture
def config(database: Database) -> PostgresConfig:
    return PostgresConfig.from_url(database.url())


def test_a_function_that_raises_notices_is_heard_by_nobody_and_the_connection_goes_on(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE FUNCTION loud(i int) RETURNS int LANGUAGE plpgsql AS"
        " $$BEGIN RAISE NOTICE 'row %', i; RETURN i; END$$",
        "GRANT EXECUTE ON FUNCTION loud(int) TO tailrace",
    )
    with session(config) as connection:
        found = list(buffers(config, connection, "SELECT loud(i) FROM generate_series(1, 5000) i", 4000))
        assert sum(count for _, count in found) == 5000
        assert max(len(data) for data, _ in found) < 20_000
        assert connection.execute("SELECT 7").fetchone() == (7,)
