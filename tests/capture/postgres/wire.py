"""pgoutput's messages, written the way the server writes them: an encoder of its own, for the tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

UNCHANGED = object()
EPOCH = 946_684_800_000_000
Value = str | bytes | None | object


@dataclass(frozen=True)
class Table:
    """A table of text columns; `keys` says which belong to the replica identity."""

    oid: int
    name: str
    columns: tuple[str, ...]
    keys: tuple[bool, ...]
    identity: str = "d"
    types: tuple[int, ...] = ()


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else struct.pack(">I", xid)


def relation(table: Table, xid: int | None = None) -> bytes:
    body = b"R" + _xid(xid) + struct.pack(">I", table.oid) + _text("public") + _text(table.name)
    body += table.identity.encode() + struct.pack(">H", len(table.columns))
    types = table.types or (25,) * len(table.columns)
    for name, key, oid in zip(table.columns, table.keys, types, strict=True):
        body += bytes([key]) + _text(name) + struct.pack(">Ii", oid, -1)
    return body


def row(values: Sequence[Value]) -> bytes:
    body = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            body += b"n"
        elif value is UNCHANGED:
            body += b"u"
        else:
            raw = value.encode() if isinstance(value, str) else value
            assert isinstance(raw, bytes)
            body += b"t" + struct.pack(">I", len(raw)) + raw
    return body


def insert(table: Table, new: Sequence[Value], xid: int | None = None) -> bytes:
    return b"I" + _xid(xid) + struct.pack(">I", table.oid) + b"N" + row(new)


def update(
    table: Table,
    new: Sequence[Value],
    old: Sequence[Value] | None = None,
    kind: str = "K",
    xid: int | None = None,
) -> bytes:
    before = b"" if old is None else kind.encode() + row(old)
    return b"U" + _xid(xid) + struct.pack(">I", table.oid) + before + b"N" + row(new)


def delete(table: Table, old: Sequence[Value], kind: str = "K", xid: int | None = None) -> bytes:
    return b"D" + _xid(xid) + struct.pack(">I", table.oid) + kind.encode() + row(old)


def truncate(*tables: Table, xid: int | None = None) -> bytes:
    oids = b"".join(struct.pack(">I", table.oid) for table in tables)
    return b"T" + _xid(xid) + struct.pack(">IB", len(tables), 0) + oids


def begin(end: int, xid: int, ts: int = EPOCH) -> bytes:
    return b"B" + struct.pack(">QqI", end - 1, ts - EPOCH, xid)


def commit(end: int, ts: int = EPOCH) -> bytes:
    return b"C\0" + struct.pack(">QQq", end - 1, end, ts - EPOCH)


def stream_start(xid: int, first: bool = True) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def stream_commit(xid: int, end: int, ts: int = EPOCH) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, end - 1, end, ts - EPOCH)


def stream_abort(xid: int, part: int) -> bytes:
    return b"A" + struct.pack(">II", xid, part)


STREAM_STOP = b"E"


def data(message: bytes, end: int = 0) -> bytes:
    """A message as CopyBoth carries it."""
    return b"w" + struct.pack(">QQq", end, end, 0) + message


def keepalive(end: int, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", end, 0, reply)
