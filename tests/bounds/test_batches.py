"""A micro-batch that somebody collects holds no more bytes than it may: of snapshots, and of the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.partitions import Slice
from tailrace.spark.source import open_capture
from tests.bounds.grounds import Ground

VALUE = 100_000
ROWS = 12


@pytest.fixture
def drivers(ground: Ground, tmp_path: Path) -> Iterator[Any]:
    """Queries over a table of large values, each closed at the end."""
    ground.transaction("CREATE TABLE items (id INTEGER PRIMARY KEY, body TEXT)")
    ground.publish(["items"])
    made: list[StreamDriver] = []

    def make(**options: str) -> StreamDriver:
        given = {"url": ground.url, "tables": "items", "stateDir": str(tmp_path / "state"), "view": "packed"}
        made.append(StreamDriver(SourceOptions.parse({**given, **options}), open_capture))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _fill(ground: Ground, first: int) -> None:
    # Not to be compressed: sizes are judged by the files of the source.
    dice = random.Random(first)
    rows = ((number, dice.randbytes(VALUE // 2).hex()) for number in range(first, first + ROWS))
    ground.put("INSERT INTO items VALUES ({}, {})", rows)


def _tasks(query: StreamDriver, start: Offset, max_bytes: int) -> Iterator[tuple[Offset, list[Slice]]]:
    """The ends of the batches of a bounded run, with their tasks."""
    query.prepare_available_now()
    while (end := query.latest(start, max_rows=200_000, max_bytes=max_bytes)) != start:
        yield end, query.partitions(start, end, single=False)
        start = end


def test_a_batch_takes_as_many_chunks_of_a_snapshot_as_fit_in_it(ground: Ground, drivers: Any) -> None:
    _fill(ground, 0)
    query = drivers(chunkBytes=str(2 * VALUE))
    batches = list(_tasks(query, query.initial(), max_bytes=5 * VALUE))
    taken = [sum(len(part.chunks) for part in tasks) for _, tasks in batches]
    # A value a chunk, for two are a little more than it may have; four or five a batch.
    assert sum(taken) >= ROWS
    assert max(taken) == 4
    assert batches[-1][0].snapshots[next(iter(batches[-1][0].snapshots))].complete


def test_a_chunk_that_is_larger_than_a_batch_comes_alone(ground: Ground, drivers: Any) -> None:
    _fill(ground, 0)
    query = drivers(chunkBytes=str(2 * VALUE))
    batches = list(_tasks(query, query.initial(), max_bytes=1))
    assert {sum(len(part.chunks) for part in tasks) for _, tasks in batches if tasks} == {1}
    assert batches[-1][0].snapshots[next(iter(batches[-1][0].snapshots))].complete


@pytest.mark.parametrize("view", ["packed", "envelope"])
def test_a_transaction_larger_than_a_batch_is_only_referred_to_where_it_would_be_collected(
    ground: Ground, drivers: Any, view: str
) -> None:
    limits = {"maxBytesPerTrigger": str(3 * VALUE), "startingOffsets": "latest", "view": view}
    query = drivers(**limits)
    start = query.initial()
    _fill(ground, 0)
    ((_, tasks),) = [one for one in _tasks(query, start, max_bytes=3 * VALUE) if one[1]]
    assert sum(window.rows for part in tasks for window in part.windows) == ROWS
    assert [part.referred for part in tasks if part.windows] == [view == "packed"] * len(tasks)
