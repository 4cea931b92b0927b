"""A micro-batch that is one large transaction reaches its sinks in pieces, each change once and in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tailrace.capture.contract import Capture
from tailrace.capture.scripted import Event, batch_of
from tailrace.changelog.log import Changelog
from tailrace.engine.gate import Gate
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.engine.writer import BatchWriter
from tailrace.model.change import ChangeBatch, Op, Part, marker
from tailrace.model.errors import NeedsOperator
from tailrace.model.net import NetChanges, net
from tailrace.model.pack import pack
from tailrace.model.position import Position
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema
from tailrace.runtime.observer import Recorder
from tailrace.sinks.contract import Progress, Report, TableSink
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.memory import MemoryFeedSink, MemoryTableSink
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.partitions import Slice
from tailrace.spark.read import packed, read_slice

ORDERS = TableRef("main", "orders")
COLUMNS = (Column("id", ColumnType("long")), Column("n", ColumnType("long")))
SCHEMA = TableSchema(ORDERS, COLUMNS, ("id",), generation="g")
ROWS = 10
# The parts of the transaction at position 2: each is a window of its own. Rows are inserted, then updated.
PARTS = 6


class Frame:
    """The packed view of one batch, as the tasks of Spark give it."""

    def __init__(self, changelog: Changelog, *more: ChangeBatch, before: str = "p", after: str = "p") -> None:
        cursors = ({str(ORDERS): Cursor(plan, 1, 1, "g")} for plan in (before, after))
        ends = [Offset(Position("s", at), found) for at, found in zip((1, 2), cursors, strict=True)]
        progress = {"start": ends[0].to_json(), "end": ends[1].to_json()}
        windows = tuple(changelog.plan(1, 2))
        assert len(windows) == PARTS
        part = Slice(windows, (), (ORDERS,), progress, referred=True)
        rows = list(read_slice(part, "packed", changelog.uri, cast(Capture, None)))
        rows += [packed("changes", str(ORDERS), len(batch), pack(batch)) for batch in more]
        self._table = pa.Table.from_batches(rows)

    def toArrow(self) -> pa.Table:
        """The packed rows."""
        return self._table


def _changes(part: int) -> ChangeBatch:
    ids = range(ROWS * (part % 3), ROWS * (part % 3) + ROWS)
    op = Op.INSERT if part < 3 else Op.UPDATE
    old = [None if part < 3 else {"id": i, "n": part - 3} for i in ids]
    events = [Event(op, ORDERS, before, {"id": i, "n": part}) for before, i in zip(old, ids, strict=True)]
    return batch_of(SCHEMA, events, 2, range(part * ROWS, part * ROWS + ROWS))


@pytest.fixture
def changelog(tmp_path: Path) -> Iterator[Changelog]:
    """One transaction that was spilled with every part."""
    with Changelog.open(str(tmp_path / "changelog"), owner_name="o", source="s", spill_bytes=1) as log:
        log.begin(Position("s", 1))
        for part in range(PARTS):
            log.append(Part((_changes(part),), Position("s", 2), complete=part == PARTS - 1))
        log.flush()
        yield log


class Noting(MemoryTableSink):
    """Notes what it is given, and breaks off when it is told to."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.parts: list[int] = []
        self.skipped: list[int] = []
        self.most = most

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        if len(self.parts) >= self.most:
            raise NeedsOperator("broken off")
        report = super().apply(target, net, progress)
        (self.skipped if report.skipped else self.parts).append(progress.part)
        return report


def _writer(tmp_path: Path, sink: TableSink, feeds: Sequence[Feed] = (), size: int = 1) -> BatchWriter:
    options = {"stateDir": str(tmp_path), "maxBytesPerTrigger": str(size)}
    mirrors = (Mirror(ORDERS, "orders", sink),)
    spec = PipelineSpec("t", options, str(tmp_path / "checkpoint"), mirrors=mirrors, feeds=tuple(feeds))
    return BatchWriter(spec, Gate(), Recorder())


def _run(writer: BatchWriter, frame: Frame) -> None:
    writer(cast(Any, frame), 0)
    writer.close()


EXPECTED = [{"id": i, "n": 3 + i // ROWS} for i in range(3 * ROWS)]


def test_a_large_transaction_reaches_mirrors_and_feeds_in_pieces_in_the_order_of_the_log(
    tmp_path: Path, changelog: Changelog
) -> None:
    sink, feed = Noting(), MemoryFeedSink()
    sink.ensure("orders", SCHEMA)
    writer = _writer(tmp_path, sink, [Feed(frozenset({ORDERS}), feed)])
    _run(writer, Frame(changelog))
    assert sink.parts == [10, 20, 30, 40, 50, 0]
    assert sink.read("orders").sort_by("id").to_pylist() == EXPECTED
    assert [json.loads(line)["seq"] for line in feed.text] == list(range(PARTS * ROWS))
    assert feed.flushed == PARTS
    assert writer.rows == PARTS * ROWS
    assert writer.batches == 1


def test_pieces_hold_as_much_as_a_batch_may(tmp_path: Path, changelog: Changelog) -> None:
    sink = Noting()
    sink.ensure("orders", SCHEMA)
    _run(_writer(tmp_path, sink, size=2 * changelog.plan(1, 2)[0].bytes), Frame(changelog))
    assert sink.parts == [20, 40, 0]
    assert sink.read("orders").sort_by("id").to_pylist() == EXPECTED


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("applied", range(1, PARTS))
def test_a_batch_that_broke_off_between_pieces_is_completed_wherever_the_replay_is_cut(
    tmp_path: Path, changelog: Changelog, applied: int, size: int
) -> None:
    sink = Noting(most=applied)
    sink.ensure("orders", SCHEMA)
    broken = _writer(tmp_path, sink)
    with pytest.raises(NeedsOperator, match="broken off"):
        _run(broken, Frame(changelog))
    broken.close()
    sink.most = 100
    _run(_writer(tmp_path, sink, size=size * changelog.plan(1, 2)[0].bytes), Frame(changelog))
    assert sink.read("orders").sort_by("id").to_pylist() == EXPECTED
    # What is in with the pieces before is not written again.
    assert len(sink.skipped) == applied // size


def test_a_snapshot_that_begins_in_the_batch_makes_its_pieces_void(
    tmp_path: Path, changelog: Changelog
) -> None:
    sink = Noting()
    read = [Event(Op.READ, ORDERS, None, {"id": 7, "n": 7})]
    rows = batch_of(SCHEMA, read, 2, [1 << 62])
    _run(_writer(tmp_path, sink), Frame(changelog, marker(SCHEMA, 2, (1 << 62) - 1, 0), rows, after="q"))
    assert sink.parts == [0]
    assert sink.read("orders").to_pylist() == [{"id": 7, "n": 7}]


@pytest.fixture(params=["memory", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TableSink:
    return MemoryTableSink() if request.param == "memory" else DeltaSink(DeltaConfig(str(tmp_path / "lake")))


def test_a_sink_takes_each_piece_once_and_the_end_of_the_batch_with_the_last(tables: TableSink) -> None:
    tables.ensure("orders", SCHEMA)
    pieces = [net([_changes(part)]) for part in range(PARTS)]
    progress = [Progress("t", 1, 2, part=(part + 1) * ROWS % (PARTS * ROWS)) for part in range(PARTS)]

    def apply(part: int) -> bool:
        return tables.apply("orders", pieces[part], progress[part]).skipped

    assert [apply(part) for part in (0, 1, 0, 1, 2)] == [False, False, True, True, False]
    # The batch before it, once more, is not what comes next.
    assert not tables.apply("orders", pieces[3], replace(progress[3], part=35)).skipped
    assert [apply(part) for part in (3, 4, 5)] == [False] * 3
    assert tables.read("orders").sort_by("id").to_pylist() == EXPECTED
    assert [apply(part) for part in range(PARTS)] == [True] * PARTS
    # The next batch that comes in pieces.
    following = Progress("t", 2, 3, part=5)
    assert not tables.apply("orders", pieces[0], following).skipped
    assert tables.apply("orders", pieces[0], following).skipped
    assert tables.apply("orders", pieces[0], progress[1]).skipped


def test_positions_that_begin_anew_with_a_snapshot_have_pieces_of_their_own(tables: TableSink) -> None:
    tables.ensure("orders", SCHEMA)
    tables.apply("orders", net([_changes(0)]), Progress("t", 8, 9, part=10))
    reset = net([marker(SCHEMA, 1, 0, 0)])
    tables.apply("orders", reset, Progress("t", 0, 1, {str(ORDERS): ("q", 1)}))
    assert not tables.apply("orders", net([_changes(0)]), Progress("t", 1, 2, part=10)).skipped
    assert tables.read("orders").num_rows == ROWS
