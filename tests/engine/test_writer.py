"""What a micro-batch asks of its sinks, and how it bears their faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.scripted import Event, batch_of
from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.gate import Gate
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.engine.writer import BatchWriter
from tailrace.model.change import ChangeBatch, Op, marker
from tailrace.model.errors import DataError, NeedsOperator, SchemaDrift, TailraceError, Transient
from tailrace.model.net import NetChanges
from tailrace.model.pack import pack
from tailrace.model.position import Position
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema
from tailrace.runtime.observer import Recorder
from tailrace.sinks.contract import Progress, Report
from tailrace.sinks.memory import MemoryFeedSink, MemoryTableSink
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.plans import Plan, PlanStore
from tailrace.spark.read import packed

ORDERS = TableRef("main", "orders")
SCHEMA = TableSchema(ORDERS, (Column("id", ColumnType("long")),), ("id",))

COMPLETE = Cursor("p", 1, 1, "g")


class Frame:
    """As much of a DataFrame as a writer touches."""

    def __init__(self, start: int, end: int, *batches: ChangeBatch, cursor: Cursor = COMPLETE) -> None:
        cursors = {str(ORDERS): cursor}
        ends = (Offset(Position("s", at), cursors) for at in (start, end))
        body = dict(zip(("start", "end"), (offset.to_json() for offset in ends), strict=True))
        rows = [packed("progress", "", 0, json.dumps(body).encode())]
        rows += [packed("changes", str(ORDERS), len(batch), pack(batch)) for batch in batches]
        self._table = pa.Table.from_batches(rows)

    def toArrow(self) -> pa.Table:
        """The packed rows."""
        return self._table


class Unsteady(MemoryTableSink):
    """A table sink that fails in passing when it is looked at, and has something to say."""

    def __init__(self, faults: int) -> None:
        super().__init__()
        self.faults = faults
        self.closed = 0

    def exists(self, target: str) -> bool:
        if self.faults:
            self.faults -= 1
            raise Transient("the store is away")
        return super().exists(target)

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        report = super().apply(target, net, progress)
        return Report(report.written, report.deleted, notes=("clean-up is put off",))

    def close(self) -> None:
        self.closed += 1


class Refusing(MemoryTableSink):
    """A table sink that cannot carry what it is given."""

    def __init__(self, error: TailraceError) -> None:
        super().__init__()
        self._error = error

    def apply(self, *_: object) -> Report:
        raise self._error


class Telling(MemoryTableSink):
    """A table sink that keeps what it was told of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: list[frozenset[str]] = []

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        self.unsettled.append(progress.unsettled)
        return super().apply(target, net, progress)


class Waiting(MemoryFeedSink):
    """A feed that waits for its receiver until it is told to hurry."""

    def __init__(self) -> None:
        super().__init__()
        self.hurried = False
        self.closed = 0

    def hurry(self) -> None:
        self.hurried = True

    def close(self) -> None:
        self.closed += 1

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        if self.hurried:
            raise Transient("gave up")
        return super().write(batches, progress)


def inserted(position: int, *ids: int) -> ChangeBatch:
    events = [Event(Op.INSERT, ORDERS, None, {"id": number}) for number in ids]
    return batch_of(SCHEMA, events, position, range(len(ids)))


def writer_of(tmp_path: Path, observer: Recorder, gate: Gate, **parts: Any) -> BatchWriter:
    spec = PipelineSpec("test", {"stateDir": str(tmp_path)}, str(tmp_path / "checkpoint"), **parts)
    return BatchWriter(spec, gate, observer)


def run(writer: BatchWriter, frame: Frame, number: int) -> None:
    writer(cast(Any, frame), number)


def test_a_passing_fault_while_looking_for_a_mirror_is_retried_and_notes_are_told(tmp_path: Path) -> None:
    sink, observer = Unsteady(faults=2), Recorder()
    writer = writer_of(tmp_path, observer, Gate(), mirrors=(Mirror(ORDERS, "orders", sink),))
    run(writer, Frame(0, 1, marker(SCHEMA, 1, 0, 0)), 0)
    run(writer, Frame(1, 2, inserted(2, 1, 2)), 1)
    writer.close()
    assert observer.count("sink.retry") == 2
    assert sink.read("orders").to_pylist() == [{"id": 1}, {"id": 2}]
    assert observer.fields("sink.note") == {"message": "clean-up is put off"}


def test_sinks_are_closed_with_the_writer(tmp_path: Path) -> None:
    table, feed = Unsteady(faults=0), Waiting()
    mirrors, feeds = (Mirror(ORDERS, "orders", table),), (Feed(frozenset({ORDERS}), feed),)
    writer = writer_of(tmp_path, Recorder(), Gate(), mirrors=mirrors, feeds=feeds)
    writer.close()
    assert (table.closed, feed.closed) == (1, 1)


def test_a_stop_reaches_a_feed_that_waits_and_the_batch_is_given_up(tmp_path: Path) -> None:
    feed, gate, observer = Waiting(), Gate(), Recorder()
    writer = writer_of(tmp_path, observer, gate, feeds=(Feed(frozenset({ORDERS}), feed),))
    with gate.batch(0):
        gate.close(0)
        writer.hurry()
        with pytest.raises(Transient, match="gave up"):
            writer._write(cast(Any, Frame(0, 1, inserted(1, 1))), 0)
    writer.close()
    assert observer.count("sink.retry") == 0


def begun(directory: Path) -> tuple[PlanStore, Cursor]:
    """A request whose snapshot has begun and is not committed yet."""
    plans = PlanStore(*open_filesystem(str(directory)))
    request = plans.request(ORDERS)
    plans.save(Plan(request, SCHEMA, tuple(Chunk(ORDERS, index, {}, 1) for index in range(3))))
    return plans, Cursor(request, 1, 3, "g")


@pytest.mark.parametrize(
    "error", [DataError("a value does not fit", remedy="mend it"), SchemaDrift("table main.orders changed")]
)
def test_a_batch_is_not_left_to_the_snapshot_that_begins_in_it(tmp_path: Path, error: TailraceError) -> None:
    plans, cursor = begun(tmp_path)
    mirrors = (Mirror(ORDERS, "orders", Refusing(error)),)
    writer = writer_of(tmp_path, Recorder(), Gate(), mirrors=mirrors)
    frame = Frame(0, 1, marker(SCHEMA, 1, 0, 0), inserted(1, 1), cursor=cursor)
    with pytest.raises(type(error), match=error.message):
        run(writer, frame, 0)
    # What an operator asks for now is another snapshot, and the batch can be left to that.
    assert plans.request(ORDERS) != cursor.plan
    run(writer, frame, 0)
    writer.close()


def test_a_mirror_that_is_gone_is_not_left_to_a_snapshot_that_has_begun(tmp_path: Path) -> None:
    _, cursor = begun(tmp_path)
    mirrors = (Mirror(ORDERS, "orders", MemoryTableSink()),)
    writer = writer_of(tmp_path, Recorder(), Gate(), mirrors=mirrors)
    with pytest.raises(NeedsOperator, match="is gone"):
        run(writer, Frame(0, 1, inserted(1, 1), cursor=cursor), 0)
    writer.close()


def test_a_change_of_schema_asks_for_a_snapshot_beside_the_one_that_begins_in_its_batch(
    tmp_path: Path,
) -> None:
    plans, cursor = begun(tmp_path)
    sink = Refusing(SchemaDrift("table main.orders changed"))
    mirrors = (Mirror(ORDERS, "orders", sink, schema_changes="snapshot"),)
    writer = writer_of(tmp_path, observer := Recorder(), Gate(), mirrors=mirrors)
    for _ in range(2):
        run(writer, Frame(0, 1, marker(SCHEMA, 1, 0, 0), inserted(1, 1), cursor=cursor), 0)
    writer.close()
    assert len(plans.requests().keys() - {cursor.plan}) == 1
    assert observer.count("mirror.snapshot") == 1


@pytest.mark.parametrize(
    ("cursor", "unsettled"),
    [
        (Cursor("p", 1, 1, "new"), set()),
        (Cursor("p", 1, 1, "old"), {str(ORDERS)}),
        (Cursor("p", 1, 1, ""), {str(ORDERS)}),
        (Cursor("p", 1, 2, "new"), {str(ORDERS)}),
    ],
)
def test_a_table_that_is_to_be_read_again_may_lack_rows_that_its_log_speaks_of(
    tmp_path: Path, cursor: Cursor, unsettled: set[str]
) -> None:
    table, sink = replace(SCHEMA, generation="new"), Telling()
    sink.ensure("orders", table)
    writer = writer_of(tmp_path, Recorder(), Gate(), mirrors=(Mirror(ORDERS, "orders", sink),))
    events = [Event(Op.INSERT, ORDERS, None, {"id": 1})]
    run(writer, Frame(1, 2, batch_of(table, events, 2, [0]), cursor=cursor), 0)
    writer.close()
    assert sink.unsettled == [unsettled]
