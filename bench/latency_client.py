"""The contestant that only listens: when a row leaves the server."""

from __future__ import annotations

import select
import struct
import threading
from typing import Any

import psycopg
from psycopg import pq

from bench.arrivals import Arrivals
from bench.contestant import Answer, serve
from bench.postgres_data import PUBLICATION
from bench.postgres_server import ROLE

_SLOT = "latency_client"
# 'w', three numbers of 8 bytes, then pgoutput's message: 'I', the table, 'N', how many columns, 't', length.
_KIND, _FIRST = 25, 25 + 1 + 4 + 1 + 2 + 1
_arrivals = Arrivals()
_open: list[psycopg.Connection[Any]] = []


def listen(port: int, database: str, **_: Any) -> None:
    """Begin to read from now on."""
    connection = psycopg.connect(
        host="127.0.0.1", port=port, user=ROLE, dbname=database, autocommit=True, replication="database"
    )
    _open.append(connection)
    connection.execute(f"CREATE_REPLICATION_SLOT {_SLOT} TEMPORARY LOGICAL pgoutput")
    result = connection.pgconn.exec_(
        f"START_REPLICATION SLOT {_SLOT} LOGICAL 0/0 (proto_version '2',"
        f" publication_names '{PUBLICATION}')".encode()
    )
    if result.status != pq.ExecStatus.COPY_BOTH:
        raise RuntimeError(result.error_message.decode(errors="replace"))
    threading.Thread(target=_read, args=(connection.pgconn,), daemon=True).start()


def _read(pgconn: Any) -> None:
    try:
        while True:
            length, message = pgconn.get_copy_data(1)
            if length < 0:
                return
            if length == 0:
                # A blocking read would hold the interpreter's lock, and the question would never be read.
                select.select([pgconn.socket], [], [])
                pgconn.consume_input()
            elif length > _KIND and message[_KIND] == ord("I"):
                (size,) = struct.unpack_from("!i", message, _FIRST)
                _arrivals.came([int(bytes(message[_FIRST + 4 : _FIRST + 4 + size]))])
    except BaseException as error:
        _arrivals.failed(error)


def rest(**_: Any) -> Answer:
    """It ends with its process."""
    return {}


if __name__ == "__main__":
    serve({"listen": listen, "wait": _arrivals.wait, "rest": rest})
