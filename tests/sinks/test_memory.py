"""The memory sinks keep the contract that users' tests rely on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.model.errors import DataError, SchemaDrift, UsageError
from tailrace.model.net import NetChanges, net
from tailrace.sinks.contract import Progress
from tailrace.sinks.memory import MemoryFeedSink, MemoryTableSink
from tests.model.changes import batch_of, table_of

TABLE = table_of({"id": "long", "name": "string"})


def changes(*rows: tuple[str, Any, Any], table: Any = TABLE, **more: Any) -> NetChanges:
    items = [
        {"op": op, "position": 1, "seq": i, "before": b, "after": a, **more}
        for i, (op, b, a) in enumerate(rows)
    ]
    return net([batch_of(table, items)])


def row(i: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": i, "name": name}


def test_a_table_is_kept_and_replays_are_refused() -> None:
    sink = MemoryTableSink()
    first = changes(("c", None, row(1)), ("c", None, row(2)))
    sink.apply("t", first, Progress("p", 0, 1))
    report = sink.apply("t", changes(("d", row(1), None), ("u", row(2), row(3))), Progress("p", 1, 2))
    assert (report.written, report.deleted) == (1, 2)
    assert sink.apply("t", first, Progress("p", 0, 1)).skipped
    assert sink.read("t").to_pylist() == [row(3)]


def test_rows_that_lack_columns_are_completed_or_refused() -> None:
    sink = MemoryTableSink()
    sink.apply("t", changes(("c", None, row(1, "kept"))), Progress("p", 0, 1))
    sink.apply("t", changes(("u", None, row(1, None)), after_absent=["name"]), Progress("p", 1, 2))
    assert sink.read("t").to_pylist() == [row(1, "kept")]
    lone = changes(("u", None, row(2, None)), after_absent=["name"])
    with pytest.raises(DataError, match="name"):
        sink.apply("t", lone, Progress("p", 2, 3))
    # Its chunk may bring it.
    sink.apply("t", lone, Progress("p", 2, 3, unsettled=frozenset({str(TABLE.ref)})))
    assert sink.read("t").to_pylist() == [row(1, "kept")]


def test_columns_are_added_and_dropped_ones_stay_until_a_reset() -> None:
    sink = MemoryTableSink()
    sink.apply("t", changes(("c", None, row(1))), Progress("p", 0, 1))
    wider = table_of({"id": "long", "name": "string", "n": "integer"})
    sink.apply("t", changes(("c", None, {**row(2), "n": 1}), table=wider), Progress("p", 1, 2))
    assert sink.read("t").to_pylist() == [{**row(1), "n": None}, {**row(2), "n": 1}]
    gone = replace(changes(("c", None, row(3)), ("u", None, row(2, "b"))), dropped=frozenset({"n"}))
    sink.apply("t", gone, Progress("p", 2, 3))
    assert sink.read("t").to_pylist()[1:] == [{**row(2, "b"), "n": 1}, {**row(3), "n": None}]
    for other in (wider, table_of({"id": "long", "name": "binary"})):
        image = dict.fromkeys((c.name for c in other.columns), None) | {"id": 4}
        with pytest.raises(SchemaDrift):
            sink.apply("t", changes(("c", None, image), table=other), Progress("p", 3, 4))
    sink.apply("t", changes(("t", None, None), ("c", None, row(3))), Progress("p", 3, 4))
    assert sink.read("t").to_pylist() == [row(3)]


def test_a_feed_is_collected_in_order() -> None:
    sink = MemoryFeedSink()
    sink.write(
        [batch_of(TABLE, [{"op": "c", "position": 1, "seq": 0, "after": row(1)}])], Progress("p", 0, 1)
    )
    assert json.loads(sink.text[0])["after"] == row(1)
    assert sink.flushed == 0
    sink.flush()
    assert sink.flushed == 1


def test_a_table_nobody_wrote_is_named() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        MemoryTableSink().read("nowhere")
