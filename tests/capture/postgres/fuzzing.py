"""Damage for the decoder: real streams recorded from the server, with something wrong in them.

Each history has a seed of its own, which a failure prints, and is written to a file that FUZZ_REPLAY plays
again: what a server sends is never twice the same.
"""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from tailrace.capture.postgres import PostgresConfig
from tailrace.capture.postgres.link import Link
from tailrace.capture.postgres.messages import Received, Relation, frame_of
from tailrace.capture.postgres.transactions import Assembler
from tailrace.capture.postgres.types import column_type
from tailrace.model.errors import TailraceError
from tailrace.model.position import Position
from tailrace.model.table import Column, TableRef, TableSchema
from tests.capture.postgres.streaming import CONSUMER, Source
from tests.support.postgres import Database

HEADER = 25
EDGES = (0, 1, 2, 3, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
# More than any history of a few kilobytes may ever need, and far less than a damaged length asks for.
_MOST_BYTES = 64 << 20
_TRACED = 16
_TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10,2), at timestamptz, raw bytea)",
    "CREATE TABLE whole (a int, b text, c double precision, d date)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE indexed (id int PRIMARY KEY, code uuid NOT NULL, tags text[], ok boolean)",
    "CREATE UNIQUE INDEX by_code ON indexed (code)",
    "ALTER TABLE indexed REPLICA IDENTITY USING INDEX by_code",
    "CREATE TABLE parts (id int PRIMARY KEY, kind text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE child (id int PRIMARY KEY, item int REFERENCES items)",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE moods (id int PRIMARY KEY, mood mood, big text)",
    "ALTER TABLE moods ALTER big SET STORAGE EXTERNAL",
)
_PLAIN = (
    "INSERT INTO items SELECT i, 'n' || i, i * 1.25, now(), '\\x00ff' FROM generate_series(1, 8) i",
    "UPDATE items SET name = NULL WHERE id < 3; UPDATE items SET id = 100 WHERE id = 4",
    "DELETE FROM items WHERE id > 6",
    "INSERT INTO whole VALUES (1, 'x', 'NaN', '2020-01-01'), (2, NULL, '-0', 'infinity')",
    "UPDATE whole SET b = 'y'; DELETE FROM whole WHERE a = 1",
    "INSERT INTO indexed VALUES (1, gen_random_uuid(), '{a,NULL}', true)",
    "UPDATE indexed SET code = gen_random_uuid(); DELETE FROM indexed",
    "INSERT INTO parts VALUES (1, 'a'), (150, 'b'); UPDATE parts SET id = 170 WHERE id = 1",
    "INSERT INTO moods VALUES (1, 'ok', repeat('x', 9000)); UPDATE moods SET mood = 'sad'",
    "INSERT INTO child VALUES (1, 1); TRUNCATE items CASCADE; TRUNCATE parts, whole",
    "ALTER TABLE items ADD COLUMN more int DEFAULT 7; INSERT INTO items (id) VALUES (500)",
    "SELECT pg_logical_emit_message(true, 'other', 'x')",
)
# Each large enough to be streamed before it ends: a savepoint that is rolled back, a changed table.
_STREAMED = (
    "BEGIN; INSERT INTO items SELECT i, repeat('s', 1500) FROM generate_series(1000, 1040) i",
    "SAVEPOINT one; INSERT INTO items SELECT i, repeat('a', 1500) FROM generate_series(2000, 2040) i",
    "ROLLBACK TO one; ALTER TABLE whole ADD COLUMN e int",
    "INSERT INTO whole SELECT i, repeat('w', 1500), 1, now(), i FROM generate_series(1, 40) i",
    "SAVEPOINT two; UPDATE items SET id = id + 5000 WHERE id < 1020; TRUNCATE indexed; COMMIT",
    "BEGIN; INSERT INTO items SELECT i, repeat('r', 1500) FROM generate_series(3000, 3050) i; ROLLBACK",
)


def recorded(database: Database) -> list[bytes]:
    """What the server sends for every kind of change, streamed transactions among them."""
    # The smallest that the server takes, so that a small transaction streams already.
    source = Source(database, *_TABLES)
    database.sql(*_PLAIN, *_STREAMED)
    end = source.head().version
    low = database.url("?options=-c%20logical_decoding_work_mem%3D64kB")
    link = Link(PostgresConfig.from_url(low), f"tailrace_{CONSUMER}", begin=0)
    found: list[bytes] = []
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            received = list(link.receive(1 << 20, 0.2))
            found += received
            alive = [m for m in received if m[:1] == b"k"]
            if alive and int.from_bytes(alive[-1][1:9], "big") >= end:
                break
            link.status(0, reply=True)
    finally:
        link.close()
    return found


def kinds_of(messages: Sequence[bytes]) -> set[str]:
    """The kinds of change among them."""
    return {chr(m[HEADER]) for m in messages if m[:1] == b"w"}


def watch(relation: Relation) -> TableSchema | None:
    if relation.name in ("child", "hidden"):
        return None
    columns = tuple(Column(c.name, column_type(c.type_oid, c.typmod)) for c in relation.columns)
    names = [column.name for column in columns]
    key = tuple(c.name for c in relation.columns if c.key)
    if len(set(names)) != len(names):
        # Two columns of one name: the catalog, which the product asks here, never has that.
        raise TailraceError("two columns of one name")
    return TableSchema(TableRef(relation.namespace, relation.name), columns, key)


def _edge(source: random.Random, width: int) -> bytes:
    value = source.choice(EDGES) if source.random() < 0.8 else source.getrandbits(8 * width)
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")


def _by_structure(source: random.Random, message: bytearray) -> None:
    """Damage a field, not just a byte: a length, a count, a kind, an id."""
    body = HEADER
    kind = chr(message[body]) if len(message) > body else ""
    tuples = [at for at in range(body + 1, len(message) - 2) if message[at] in b"NKO"]
    texts = [at for at in range(body + 1, len(message) - 4) if message[at] in b"tnu"]
    match source.randrange(6):
        case 0 if texts:
            # The length of a value, by a little or by everything.
            at = source.choice(texts) + 1
            (length,) = struct.unpack(">I", message[at : at + 4])
            near = (length + source.choice((-1, 1, -4, 4))) & 0xFFFFFFFF
            message[at : at + 4] = struct.pack(">I", near) if source.random() < 0.5 else _edge(source, 4)
        case 1 if texts:
            message[source.choice(texts)] = source.choice(b"tnubXNKO\0")
        case 2 if tuples:
            at = source.choice(tuples)
            message[at] = source.choice(b"NKOX")
        case 3 if tuples:
            at = source.choice(tuples) + 1
            message[at : at + 2] = _edge(source, 2)
        case 4 if len(message) > body + 5:
            # An id of a transaction or table, or the position of a commit.
            at = body + source.choice((1, 5, 2, 10) if kind in "IUDTRSAcBC" else (1,))
            message[at : at + 4] = _edge(source, 4)
        case _ if len(message) > body:
            message[body] = source.choice(b"BCIUDRTSEcAOYMX")


def _by_bytes(source: random.Random, message: bytearray) -> None:
    match source.randrange(4):
        case 0 if message:
            message[source.randrange(len(message))] = source.randrange(256)
        case 1 if message:
            del message[source.randrange(len(message)) :]
        case 2:
            message[source.randint(0, len(message)) :] = source.randbytes(source.randrange(40))
        case _ if len(message) > 4:
            at = source.randrange(len(message) - 3)
            message[at : at + 4] = _edge(source, 4)


def damaged(source: random.Random, messages: Sequence[bytes]) -> list[bytes]:
    """A stretch of the history with one to five things wrong in it."""
    first = source.randrange(len(messages)) if source.random() < 0.5 else 0
    made = list(messages[first : first + source.choice((20, 60, len(messages)))])
    if first:
        # Without its description a table's rows are refused at once.
        made = [m for m in messages[:first] if m[HEADER : HEADER + 1] == b"R"] + made
    for _ in range(source.choice((1, 1, 1, 2, 5))):
        at = source.randrange(len(made))
        message = bytearray(made[at])
        match source.randrange(10):
            case 0:
                made.insert(at, made[source.randrange(len(made))])
            case 1 if len(made) > 1:
                del made[at]
            case 2:
                other = source.randrange(len(made))
                made[at], made[other] = made[other], made[at]
            case 3 | 4 | 5:
                _by_bytes(source, message)
                made[at] = bytes(message)
            case _:
                _by_structure(source, message)
                made[at] = bytes(message)
    return made


def decode(messages: Sequence[bytes], source: random.Random) -> None:
    """Read a history in two pieces, and look at every value that comes out."""
    spill = source.choice((1, 1 << 20))
    assembler = Assembler(Position("s", 0), watch, lambda *_: None, spill_bytes=spill)
    cut = source.randrange(len(messages) + 1)
    try:
        for piece in (messages[:cut], messages[cut:]):
            frame, _, _ = frame_of(Received(piece))
            for part in assembler.feed(frame):
                for batch in part.batches:
                    batch.data.validate(full=True)
    finally:
        assembler.close()


class Bounds:
    """Memory that a history may take: at times by every allocation, always by Arrow's and the system's."""

    def __init__(self) -> None:
        self._arrow = pa.default_memory_pool().max_memory()
        self._resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check(self, work: Callable[[], None], *, traced: bool) -> None:
        if traced:
            tracemalloc.start()
        try:
            work()
        finally:
            peak = tracemalloc.get_traced_memory()[1] if traced else 0
            if traced:
                tracemalloc.stop()
        arrow = (pa.default_memory_pool().max_memory() or 0) - (self._arrow or 0)
        resident = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._resident) << 10
        assert peak < _MOST_BYTES, f"{peak} bytes were allocated"
        assert arrow < _MOST_BYTES, f"{arrow} bytes of Arrow's were allocated"
        # All histories together, and what the interpreter keeps.
        assert resident < 4 * _MOST_BYTES, f"the process grew by {resident} bytes"


def seconds(share: float, default: float = 60) -> float:
    """A share of the budget, which FUZZ_SECONDS sets."""
    return share * float(os.environ.get("FUZZ_SECONDS", default))


def seeds(budget: float) -> Iterator[int]:
    """Seeds until the time is over; FUZZ_SEED names one to begin with."""
    first = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(2**31))
    deadline = time.monotonic() + budget
    number = first
    while time.monotonic() < deadline or number == first:
        yield number
        number += 1


def fuzz(messages: Sequence[bytes], budget: float, directory: Path) -> tuple[int, int]:
    """How many histories came through, and how many were refused; any other outcome is an error."""
    passed = refused = 0
    bounds = Bounds()
    for seed in seeds(budget):
        source = random.Random(seed)
        history = damaged(source, messages)
        try:
            bounds.check(
                lambda history=history, source=source: decode(history, source),  # type: ignore[misc]
                traced=seed % _TRACED == 0,
            )
            passed += 1
        except TailraceError:
            refused += 1
        except BaseException:
            kept = directory / f"fuzz-{seed}.json"
            kept.write_text(json.dumps([base64.b64encode(message).decode() for message in history]))
            print(f"FUZZ_SEED={seed}; the history alone: FUZZ_REPLAY={kept}")  # noqa: T201
            raise
    return passed, refused


def replay(path: str) -> None:
    """Read a history that a failure kept, whole and cut at every message."""
    history = [base64.b64decode(text) for text in json.loads(Path(path).read_text())]
    for seed in range(200):
        try:
            decode(history, random.Random(seed))
        except TailraceError:
            continue
