"""How many rows of snapshots a micro-batch takes where nobody said."""

from __future__ import annotations

from tailrace.model.position import Position
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.room import Room


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def at(version: int) -> Offset:
    return Offset(Position("s", version), {})


def test_a_batch_takes_what_the_last_one_read_in_two_seconds_within_bounds() -> None:
    clock = Clock()
    room = Room(clock)
    assert room.chunks == 0
    read_in_seconds_and_then = [(10, 1.0, 20), (20, 0.5, 80), (80, 0.1, 256), (256, 0.1, 256), (3, 100.0, 0)]
    for number, (read, seconds, then) in enumerate(read_in_seconds_and_then):
        room.begun(at(number), read)
        clock.now += seconds
        room.committed(at(number))
        assert room.chunks == then


def test_a_batch_without_chunks_and_one_that_is_not_over_say_nothing() -> None:
    clock = Clock()
    room = Room(clock)
    room.begun(at(1), 0)
    clock.now += 0.1
    room.committed(at(1))
    assert room.chunks == 0
    room.begun(at(2), 4)
    clock.now += 0.1
    room.committed(at(1))
    assert room.chunks == 0
    room.committed(at(2))
    assert room.chunks == 16


def test_a_limit_that_was_given_is_kept_for_snapshots_too() -> None:
    given = {"url": "sqlite:shop.db", "tables": "orders"}
    assert SourceOptions.parse(given).roomy
    assert not SourceOptions.parse({**given, "maxRowsPerTrigger": "200000"}).roomy
    assert not SourceOptions.parse({**given, "maxBytesPerTrigger": "1000"}).roomy
    # Whoever collects a batch has it in memory as a whole.
    assert not SourceOptions.parse({**given, "view": "packed"}).roomy
    assert not SourceOptions.parse({**given, "view": "net"}).roomy
