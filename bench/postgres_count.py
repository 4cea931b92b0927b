"""The contestant that only counts: what the server gives to the simplest client there can be.

The same plugin and options as Tailrace's; of each message it looks at one byte, and keeps nothing.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import pq

from bench.contestant import Answer, serve
from bench.postgres_data import PUBLICATION
from bench.postgres_server import ROLE

_SLOT = "bench_count"
# 'w', three numbers of 8 bytes, then pgoutput's message.
_KIND = 25
_ROWS = frozenset(b"IUD")
# Closed only after the figures are taken: the server's process ends with its connection.
_open: list[psycopg.Connection[Any]] = []


def prepare(port: int, database: str, **_: Any) -> None:
    """A slot before the writes."""
    with _connect(port, database) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))


def drain(port: int, database: str, rows: int, **_: Any) -> Answer:
    """Read until every row was seen."""
    connection = _connect(port, database, replication="database")
    _open.append(connection)
    pgconn = connection.pgconn
    begun = time.perf_counter()
    result = pgconn.exec_(
        f"START_REPLICATION SLOT {_SLOT} LOGICAL 0/0 (proto_version '2', streaming 'on',"
        f" publication_names '{PUBLICATION}')".encode()
    )
    if result.status != pq.ExecStatus.COPY_BOTH:
        raise RuntimeError(result.error_message.decode(errors="replace"))
    get, wanted, kind = pgconn.get_copy_data, _ROWS, _KIND
    count, first = 0, 0.0
    while count < rows:
        length, message = get(0)
        if length < 0:
            raise RuntimeError("the server ended the replication")
        if length > kind and message[kind] in wanted:
            count += 1
            if count == 1:
                first = time.perf_counter()
    ended = time.perf_counter()
    return {"rows": count, "seconds": ended - begun, "sustained": ended - first}


def finish(**_: Any) -> None:
    """Let go of the slot."""
    while _open:
        _open.pop().close()


def _connect(port: int, database: str, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(host="127.0.0.1", port=port, user=ROLE, dbname=database, autocommit=True, **more)


if __name__ == "__main__":
    serve({"prepare": prepare, "drain": drain, "finish": finish})
