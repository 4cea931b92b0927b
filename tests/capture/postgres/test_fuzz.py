"""Whatever bytes come, the decoders read them or refuse them with the product's own error, in little memory.

FUZZ_SECONDS sets the budget (60 for all of this file, 600 in the long tests), FUZZ_SEED the first seed,
FUZZ_REPLAY names a history that a failure kept.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.capture.postgres import names
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.copytext import CopyText
from tailrace.capture.postgres.framed import LEAD, unframe
from tailrace.capture.postgres.publication import names as quoted_names
from tailrace.capture.postgres.slots import consumer_of, slot_name
from tailrace.capture.postgres.types import from_text
from tailrace.model.errors import DataError, TailraceError
from tailrace.model.secret import Secret
from tailrace.model.table import ColumnType, TableRef, quote
from tests.capture.postgres import fuzzing, wire
from tests.capture.postgres.test_decode import every_message
from tests.support.postgres import Database, Server

LONG = 600
_KINDS = (
    "string", "boolean", "short", "integer", "long", "float", "double", "binary", "date",
    "timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(38,0)", "decimal(38,38)",
)  # fmt: skip
_TEXTS = (
    b"", b"0", b"-1", b"1e400", b"NaN", b"-Infinity", b"infinity", b"t", b"f", b"\\x00ff", b"\\x0", b"\\",
    b"2020-02-30", b"0001-01-01 BC", b"99999-12-31", b"2020-01-01 00:00:00.123456+00", b"24:00:00",
    b"9" * 40, b"0." + b"9" * 40, b"\xff\xfe", "ÄΩ漢🦀".encode(), b"\0", b" 1", b"1 ", b"+1", b"1_000",
)  # fmt: skip
_AWKWARD = (
    '"',
    '""',
    ".",
    "\\",
    "'",
    "%",
    "%s",
    ";",
    "--",
    "/*",
    "$1",
    "{}",
    " ",
    "\t",
    "\n",
    "é",
    "漢",
    "🦀",
    "*",
)


@pytest.fixture(scope="module")
def stream(postgres: Server) -> list[bytes]:
    """A recorded stream with every kind of message in it."""
    database = postgres.database()
    messages = fuzzing.recorded(database)
    database.drop()
    assert fuzzing.kinds_of(messages) >= set("BCRIUDTSEcAY")
    return messages


def test_the_recorded_stream_is_read_whole(stream: list[bytes]) -> None:
    for seed in range(20):
        fuzzing.decode(stream, random.Random(seed))


def test_a_damaged_stream_is_refused_or_read(stream: list[bytes], tmp_path: Path) -> None:
    passed, refused = fuzzing.fuzz(stream, fuzzing.seconds(0.55), tmp_path)
    assert refused > 0
    assert passed + refused > 20


def test_damaged_messages_are_refused_or_read(tmp_path: Path) -> None:
    if kept := os.environ.get("FUZZ_REPLAY"):
        fuzzing.replay(kept)
    # Many times quicker than what a server sends, for there is little of it.
    messages = [wire.data(message) for message in every_message()]
    passed, refused = fuzzing.fuzz(messages, fuzzing.seconds(0.15), tmp_path)
    assert refused > 20
    assert passed > 0


def _value(source: random.Random) -> bytes:
    made = bytearray(source.choice(_TEXTS))
    for _ in range(source.choice((0, 0, 1, 3))):
        at = source.randint(0, len(made))
        made[at:at] = source.choice((source.randbytes(1), source.choice(_TEXTS), b"\\", b"-", b":", b"."))
    return bytes(made)


def texts_of_types(budget: float) -> int:
    """Any text as any type: nothing raised, nothing lost, every value valid."""
    done = 0
    for seed in fuzzing.seeds(budget):
        source = random.Random(seed)
        kind = ColumnType(source.choice(_KINDS))
        values = [None if source.random() < 0.1 else _value(source) for _ in range(source.randrange(12))]
        try:
            typed, exact = from_text(pa.array(values, pa.binary()), kind)
            typed.validate(full=True)
            tags = exact.to_pylist() if exact is not None else [None] * len(values)
            for value, kept, tag in zip(values, typed.is_valid().to_pylist(), tags, strict=True):
                assert (value is None) == (not kept and tag is None), (kind, value, tag)
        except BaseException:
            print(f"FUZZ_SEED={seed}")  # noqa: T201
            raise
        done += 1
    return done


def copies(budget: float) -> int:
    """Any bytes as rows of a COPY: as many rows as lines, or refused."""
    done = 0
    for seed in fuzzing.seeds(budget):
        source = random.Random(seed)
        width = source.choice((1, 2, 5))
        lines = [
            b"\t".join(_value(source).replace(b"\n", b"").replace(b"\0", b"") for _ in range(width))
            for _ in range(source.randrange(1, 9))
        ]
        data = b"\n".join(lines) + (b"\n" if source.random() < 0.9 else b"")
        try:
            for column in CopyText(width).read(data):
                column.validate(full=True)
        except DataError:
            pass
        except BaseException:
            print(f"FUZZ_SEED={seed}: {data!r}")  # noqa: T201
            raise
        done += 1
    return done


def frames(budget: float) -> int:
    """Messages of a COPY, whole, cut off or damaged: the rows that are there, in order, and no others."""
    done = 0
    for seed in fuzzing.seeds(budget):
        source = random.Random(seed)
        rows = [
            _value(source).replace(b"\n", b"").replace(b"\0", b"") + b"\n" for _ in range(source.randrange(9))
        ]
        data = bytearray(b"".join(b"d" + struct.pack("!I", len(row) + 4) + row for row in rows))
        damaged = bool(data) and source.random() < 0.3
        if damaged:
            data[source.randrange(len(data))] = source.randrange(256)
        cut = source.randrange(len(data) + 1)
        try:
            count, end = unframe(data, cut)
            assert end <= cut
            if not damaged:
                assert data[:end] == b"".join(LEAD + row for row in rows[:count])
                following = len(rows[count]) + 5 if count < len(rows) else 0
                assert not following or cut < end + following
        except BaseException:
            print(f"FUZZ_SEED={seed}: {bytes(data)!r}")  # noqa: T201
            raise
        done += 1
    return done


def _name(source: random.Random) -> str:
    made = "".join(source.choice((*_AWKWARD, "a", "B", "1")) for _ in range(source.randint(1, 20)))
    while len(made.encode()) > 63:
        made = made[:-1]
    return made


def identifiers(database: Database, budget: float) -> int:
    """Any name, quoted, is that very name to the server; written down, it is found again."""
    config = PostgresConfig(Secret(""), "x")
    done = 0
    for seed in fuzzing.seeds(budget):
        source = random.Random(seed)
        ref = TableRef(_name(source), _name(source))
        try:
            # The statement has two columns, whose names the server gives back.
            cursor = database.app.execute(f"SELECT 1 AS {quote(ref.schema)}, 2 AS {quote(ref.name)}".encode())
            assert [column.name for column in cursor.description or ()] == [ref.schema, ref.name]
            parsed = database.app.execute("SELECT parse_ident(%s)", (quoted_names([ref]),)).fetchone()
            assert parsed == ([ref.schema, ref.name],)
            readings = list(names._readings(quoted_names([ref])))
            assert readings[0] == (ref.schema, ref.name)
            try:
                slot = slot_name(config, ref.name)
                assert consumer_of(slot) == ref.name
            except TailraceError:
                assert len(ref.name.encode()) > 18
        except BaseException:
            print(f"FUZZ_SEED={seed}: {ref!r}")  # noqa: T201
            raise
        done += 1
    return done


def test_any_text_fits_its_type_or_is_kept_as_it_is() -> None:
    assert texts_of_types(fuzzing.seconds(0.1)) > 20


def test_any_bytes_are_rows_of_a_copy_or_refused() -> None:
    assert copies(fuzzing.seconds(0.1)) > 20
    assert frames(fuzzing.seconds(0.05)) > 20


def test_any_name_is_quoted_and_found_again(database: Database) -> None:
    assert identifiers(database, fuzzing.seconds(0.1)) > 20


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_damage_is_refused_for_ten_minutes(stream: list[bytes], database: Database, tmp_path: Path) -> None:
    passed, refused = fuzzing.fuzz(stream, fuzzing.seconds(0.7, LONG), tmp_path)
    assert refused > passed > 0
    assert texts_of_types(fuzzing.seconds(0.1, LONG))
    assert copies(fuzzing.seconds(0.1, LONG))
    assert frames(fuzzing.seconds(0.05, LONG))
    assert identifiers(database, fuzzing.seconds(0.1, LONG))
