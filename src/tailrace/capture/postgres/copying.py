"""A COPY out of the server, as buffers of whole rows of a bounded size, each with `framed.LEAD` before it.

Where the connection is not encrypted the protocol is spoken here, on its socket: libpq hands over a row a
call, which costs more than everything else that is done to a row. libpq is idle meanwhile and does not know
of it. Else its `pq` layer is asked. Either way nothing is done to a row but to keep it.

While the server is silent the connection is asked about now and then: a slow plan may send nothing for
minutes, a frozen server never will, and only a second connection can tell the two apart.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable, Iterator

import psycopg
from psycopg import errors
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from tailrace.capture.postgres.client import Connection, still_there
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.framed import HEADER, LEAD, unframe

_AS_IT_IS = " (ENCODING 'SQL_ASCII')"
_LENGTH = struct.Struct("!I")
# No message of the server's is longer.
_MOST = 1 << 30
# The server sends 8 kB at a time; to be woken up for each costs both sides as much as the rows do.
_PAUSE = 0.0005
Wait = Callable[[], None]


def buffers(
    config: PostgresConfig, connection: Connection, query: str, nbytes: int
) -> Iterator[tuple[bytearray, int]]:
    """What the query's COPY sends: whole rows, and how many. Ends with the COPY, or its error is raised."""
    # Such a database holds any bytes, and the server would refuse to send those that are no UTF-8.
    plain = connection.info.parameter_status("server_encoding") == "SQL_ASCII"
    text = f"COPY ({query}) TO STDOUT{_AS_IT_IS if plain else ''}".encode()
    raw = connection.pgconn
    if raw.ssl_in_use or raw.used_gssapi:
        return _by_libpq(config, connection, text, nbytes)
    return _by_socket(config, connection, text, nbytes)


def _by_socket(
    config: PostgresConfig, connection: Connection, text: bytes, nbytes: int
) -> Iterator[tuple[bytearray, int]]:
    wire = _Wire(config, connection)
    wire.send(b"Q", text + b"\0")
    wire.until(b"H")
    yield from wire.rows(nbytes)
    wire.until(b"Z")
    # Then libpq can be asked again, at the beginning of a message.
    wire.finish()


class _Wire:
    """The socket of a connection, and what was read of it and not used: it begins with a message."""

    def __init__(self, config: PostgresConfig, connection: Connection) -> None:
        self._socket = connection.pgconn.socket
        self._readable = _silence(config, connection, select.POLLIN)
        self._writable = _silence(config, connection, select.POLLOUT)
        self._left = b""
        self._over = self._short = False

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a message."""
        message = memoryview(kind + _LENGTH.pack(len(body) + 4) + body)
        while message:
            try:
                message = message[os.write(self._socket, message) :]
            except BlockingIOError:
                self._writable()
            except OSError as error:
                raise _lost(error) from None

    def until(self, kind: bytes) -> None:
        """Go past the next message of this kind."""
        while (found := self._message()) != kind:
            if found == b"Z":
                raise psycopg.OperationalError("the server ended the COPY without a result")

    def finish(self) -> None:
        """Go past what came behind the end."""
        while self._left:
            self._message()

    def rows(self, nbytes: int) -> Iterator[tuple[bytearray, int]]:
        """Rows of about `nbytes`, and how many, up to the end of the COPY."""
        while True:
            if self._left[:1] not in (b"", b"d"):
                if self._message() == b"c":
                    return
                continue
            buffer = self._filled(nbytes)
            count, end = unframe(buffer, len(buffer))
            self._left = bytes(memoryview(buffer)[end:])
            if count:
                del buffer[end:]
                yield buffer, count
            elif self._short and self._left[:1] in (b"", b"d"):
                # The first message is not whole, and nothing follows.
                raise _closed()

    def _filled(self, nbytes: int) -> bytearray:
        """What is left and what comes next: about `nbytes`, and the first message at least, if it is a row.

        Less where the server has said all, and it says why before it closes a connection.
        """
        filled = len(self._left)
        size = max(nbytes, self._end() if filled >= HEADER else HEADER)
        buffer = bytearray(max(size, filled))
        buffer[:filled] = self._left
        with memoryview(buffer) as view:
            while filled < size and not self._over and not _all_said(buffer, filled):
                with view[filled:] as room:
                    filled += self._read(room)
        self._short = filled < size
        del buffer[filled:]
        return buffer

    def _message(self) -> bytes:
        """The kind of the next message, which is gone then. An error of the server's is raised."""
        while len(self._left) < HEADER or len(self._left) < self._end():
            more = bytearray(1 << 13)
            with memoryview(more) as view:
                self._left += more[: self._read(view)]
            if self._over:
                raise _closed()
        end = self._end()
        kind, body, self._left = self._left[:1], self._left[HEADER:end], self._left[end:]
        if kind == b"E":
            raise _error(body)
        return kind

    def _end(self) -> int:
        length = int(_LENGTH.unpack_from(self._left, 1)[0])
        if not 4 <= length <= _MOST:
            raise psycopg.OperationalError("the server sent something else than messages")
        return 1 + length

    def _read(self, room: memoryview) -> int:
        """How many bytes came; none where the server has closed the connection."""
        while True:
            try:
                count = os.readv(self._socket, [room])
            except BlockingIOError:
                self._readable()
                time.sleep(_PAUSE)
            except OSError as error:
                raise _lost(error) from None
            else:
                self._over = not count
                return count


def _all_said(buffer: bytearray, filled: int) -> bool:
    """Whether ReadyForQuery came: no text has zeros in it, and no other message has so many.

    A notice may stand behind it.
    """
    return buffer.rfind(b"Z\0\0\0\5", max(0, filled - 4096), filled) >= 0


def _closed() -> psycopg.OperationalError:
    return psycopg.OperationalError("the server closed the connection unexpectedly")


def _lost(error: OSError) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"the connection is lost: {error.strerror}")


def _error(body: bytes) -> psycopg.Error:
    """The server's error, as the driver would have it."""
    fields = {part[0]: part[1:] for part in body.split(b"\0") if part}
    state = fields.get(ord("C"), b"").decode(errors="replace")
    try:
        kind = errors.lookup(state)
    except KeyError:
        kind = psycopg.DatabaseError
    told = fields.get(ord("M"), b"").decode(errors="replace")
    return kind(told, info=dict(fields))


def _by_libpq(
    config: PostgresConfig, connection: Connection, text: bytes, nbytes: int
) -> Iterator[tuple[bytearray, int]]:
    raw = connection.pgconn
    silence = _silence(config, connection, select.POLLIN)

    def wait() -> None:
        silence()
        raw.consume_input()

    raw.send_query(text)
    while raw.flush():
        select.select([], [raw.socket], [], 1)
    _expect(connection, ExecStatus.COPY_OUT, wait)
    # Copied at once: rows kept as objects would cost three times as much, most of it the garbage collector's.
    get, kept, count, room = raw.get_copy_data, bytearray(), 0, nbytes
    while True:
        size, row = get(1)
        if size > 0:
            kept += LEAD
            kept += row
            count += 1
            room -= size
            if room <= 0:
                yield kept, count
                kept, count, room = bytearray(), 0, nbytes
        elif size == 0:
            wait()
        else:
            break
    _expect(connection, ExecStatus.COMMAND_OK, wait)
    if count:
        yield kept, count
    _finish(connection, wait)


def _expect(connection: Connection, status: ExecStatus, wait: Wait) -> None:
    raw = connection.pgconn
    while raw.is_busy():
        wait()
    result = raw.get_result()
    if result is None or result.status != status:
        if result is None:
            raise psycopg.OperationalError("the server ended the COPY without a result")
        raise error_from_result(result, encoding="utf-8")


def _finish(connection: Connection, wait: Wait) -> None:
    raw, result = connection.pgconn, True
    while result:
        while raw.is_busy():
            wait()
        result = raw.get_result() is not None


def _silence(config: PostgresConfig, connection: Connection, wanted: int) -> Wait:
    """Waits until the socket can be read or written; raises where the server is gone or frozen."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, wanted)
    process = connection.pgconn.backend_pid

    def wait() -> None:
        while not poll.poll(config.timeout * 1000):
            still_there(config, process)

    return wait
