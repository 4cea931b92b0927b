"""A COPY out of the server, as buffers of whole rows of a bounded size.

The `pq` layer hands over a row a message; nothing is done to a row here but to keep it. While the server is
silent the connection is asked about now and then: a slow plan may send nothing for minutes, a frozen server
never will, and only a second connection can tell the two apart.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from tailrace.capture.postgres.client import Connection, still_there
from tailrace.capture.postgres.config import PostgresConfig

_AS_IT_IS = " (ENCODING 'SQL_ASCII')"
Wait = Callable[[], None]


def buffers(
    config: PostgresConfig, connection: Connection, query: str, *, rows: int, nbytes: int
) -> Iterator[tuple[bytearray, int]]:
    """What the query's COPY sends: whole rows, and how many. Ends with the COPY, or its error is raised."""
    raw = connection.pgconn
    wait = _waiting(config, connection)
    # Such a database holds any bytes, and the server would refuse to send those that are no UTF-8.
    plain = connection.info.parameter_status("server_encoding") == "SQL_ASCII"
    raw.send_query(f"COPY ({query}) TO STDOUT{_AS_IT_IS if plain else ''}".encode())
    _finish_sending(connection)
    _expect(connection, ExecStatus.COPY_OUT, wait)
    # Copied at once: rows kept as objects would cost three times as much, most of it the garbage collector's.
    get, kept, count, room = raw.get_copy_data, bytearray(), 0, nbytes
    while True:
        size, row = get(1)
        if size > 0:
            kept += row
            count += 1
            room -= size
            if room <= 0 or count >= rows:
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


def _finish_sending(connection: Connection) -> None:
    raw = connection.pgconn
    while raw.flush():
        select.select([], [raw.socket], [], 1)


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


def _waiting(config: PostgresConfig, connection: Connection) -> Wait:
    raw = connection.pgconn
    poll = select.poll()
    poll.register(raw.socket, select.POLLIN)
    process = raw.backend_pid

    def wait() -> None:
        while not poll.poll(config.timeout * 1000):
            still_there(config, process)
        raw.consume_input()

    return wait
