"""The replication connection: messages in, status out.

libpq's connection is not for two threads at once, so every use holds a lock, and none waits while it holds
it. The stream's thread receives; the sentinel's thread sends the status, which keeps the server patient while
the consumer is slow: a walsender that cannot write still reads answers.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time

import psycopg
from psycopg import pq, sql

from tailrace.capture.postgres.client import clean, command, connect, no_answer, refusal, translated
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.messages import Received, lsn_text
from tailrace.model.errors import LogLost, NeedsOperator, SetupMissing, TailraceError, Transient

_EPOCH = 946_684_800
# Linux's SO_MEMINFO, which the socket module has no name for: bytes in use, and the most there can be.
_MEMINFO = 55
_STATUS = struct.Struct(">cqqqqB")
# A pause lets messages gather, so that one read takes many of them: read one by one they cost the server
# half as much again. While the server is busy it is the longer one, unless the socket's buffer fills up:
# Linux drops what does not fit, and the server learns of it a fifth of a second later.
_PAUSE, _LONG_PAUSE = 0.002, 0.02
_GATHER = 0.04
_FILLED = 0.4
# A read that brought less has emptied the socket.
_MUCH = 8192
_BUSY = 65_536
_HANDOVER = 1.0
_IN_USE = "55006"
_UNDEFINED = "42704"


class Link:
    """A slot that is being read, from `begin` on or from its confirmed position, whichever is later."""

    def __init__(self, config: PostgresConfig, slot: str, *, begin: int) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._connection = connect(config, replication=True)
        self._pgconn = self._connection.pgconn
        self.heard = time.monotonic()
        self._over = False
        try:
            with translated(config):
                self._as_it_is()
                self._start(slot, begin)
                self._pgconn.nonblocking = 1
        except BaseException:
            self._connection.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._socket = socket.socket(fileno=os.dup(self._pgconn.socket))

    def _as_it_is(self) -> None:
        """A database of encoding SQL_ASCII holds any bytes; the server refuses to send them as UTF-8."""
        if self._connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            self._connection.execute("SET client_encoding TO 'SQL_ASCII'")

    def _start(self, slot: str, begin: int) -> None:
        published = sql.Identifier(self._config.publication).as_string(self._connection)
        # A string of this language knows no escapes: a backslash is one, and only the quote is doubled.
        names = sql.SQL("'" + published.replace("'", "''") + "'")
        # Every server that is known streams large transactions while they run.
        chosen = sql.SQL("proto_version '2', streaming 'on', publication_names {}").format(names)
        query = sql.SQL("START_REPLICATION SLOT {} LOGICAL " + lsn_text(begin) + " ({})").format(
            sql.Identifier(slot), chosen
        )
        start = query.as_bytes(self._connection)
        result = command(self._connection, start)
        until = time.monotonic() + _HANDOVER
        while _state(result) == _IN_USE and time.monotonic() < until:
            # The walsender of a connection that was just closed lets go of the slot a moment later.
            time.sleep(_PAUSE * 10)
            result = command(self._connection, start)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._failure(result, LogLost)

    def receive(self, limit: int, wait: float) -> Received:
        """Messages that are there, up to about `limit` bytes; none if none came within `wait` seconds."""
        found = Received()
        with translated(self._config):
            if not self._drain(found, limit):
                self._poll.poll(max(0, int(wait * 1000)))
                if not self._drain(found, limit):
                    return found
            until = time.monotonic() + _GATHER
            while len(found.data) < limit and time.monotonic() < until:
                self._gather(_PAUSE if len(found.data) < _BUSY else _LONG_PAUSE)
                if not self._drain(found, limit):
                    break
            self.heard = time.monotonic()
            return found

    def _gather(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        time.sleep(_PAUSE)
        while time.monotonic() < until and self._filled() < _FILLED:
            time.sleep(_PAUSE)

    def _filled(self) -> float:
        """How much of the socket's buffer is in use; 0 where the system does not tell."""
        try:
            used, room = struct.unpack_from("II", self._socket.getsockopt(socket.SOL_SOCKET, _MEMINFO, 8))
        except OSError:
            return 0.0
        return used / room if room else 0.0

    def _drain(self, found: Received, limit: int) -> bool:
        """Whether any message was there to be added."""
        data, before = found.data, len(found)
        with self._lock:
            if self._over:
                raise self._ended()
            get, append = self._pgconn.get_copy_data, found.lengths.append
            mark = -_MUCH
            while len(data) < limit:
                length, message = get(1)
                if length > 0:
                    data += message
                    append(length)
                elif length == 0:
                    if len(data) - mark < _MUCH:
                        break
                    mark = len(data)
                    self._pgconn.consume_input()
                else:
                    # What came before the end is delivered first; asked again, libpq would not tell why.
                    self._over = True
                    if len(found) > before:
                        break
                    raise self._ended()
        return len(found) > before

    def _ended(self) -> TailraceError:
        with contextlib.suppress(psycopg.OperationalError):
            while self._pgconn.is_busy():
                if not self._poll.poll(int(self._config.timeout * 1000)):
                    return no_answer(self._config, self._config.timeout)
                self._pgconn.consume_input()
        result = self._pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return Transient(f"{self._config.name}: the server ended the replication")
        # A slot that is read cannot be dropped: what is missing is the publication.
        return self._failure(result, SetupMissing)

    def _failure(self, result: pq.abc.PGresult, lacking: type[NeedsOperator]) -> TailraceError:
        """What the server's error means, by its SQLSTATE: its words may be in any language."""
        state = _state(result)
        raw = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        words = raw.decode(errors="replace")
        told = clean(self._config, words)
        message = f"{self._config.name}: {told}"
        if state == _UNDEFINED:
            before = "tailrace setup, then " if lacking is SetupMissing else ""
            return lacking(message, remedy=f"{before}tailrace snapshot")
        if state == _IN_USE or state.startswith(("57", "53", "08", "58")):
            return Transient(message)
        if state == "55000":
            # Invalidated, or past its log: the next start looks at the slot and says which.
            return Transient(message)
        return NeedsOperator(f"{message} (SQLSTATE {state})") if state else refusal(self._config, words)

    def status(self, flush: int, *, reply: bool = False) -> None:
        """Tell the server what is durable; with `reply` it is asked for a sign of life."""
        now = int((time.time() - _EPOCH) * 1_000_000)
        body = _STATUS.pack(b"r", flush, flush, flush, now, int(reply))
        with translated(self._config), self._lock:
            if self._pgconn.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection is lost")
            self._pgconn.put_copy_data(body)
            self._pgconn.flush()

    def close(self) -> None:
        """Let go of the slot."""
        with self._lock:
            self._socket.close()
            self._connection.close()


def _state(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
