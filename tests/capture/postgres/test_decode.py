"""The decoder alone, on messages that no server is needed for: any rows, any cuts, any damage."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.capture.postgres.messages import Received, Relation, frame_of
from tailrace.capture.postgres.transactions import Assembler
from tailrace.capture.postgres.types import column_type
from tailrace.model.change import Part
from tailrace.model.errors import DataError
from tailrace.model.position import Position
from tailrace.model.table import Column, TableRef, TableSchema
from tests.capture.postgres import wire
from tests.capture.postgres.streaming import Seen, seen
from tests.capture.postgres.wire import UNCHANGED, Table

ITEMS = Table(1, "items", ("id", "name", "note"), (True, False, False))
FULL = Table(2, "full", ("a", "b"), (True, True), "f")
NUMBERS = Table(3, "numbers", ("id", "n"), (True, False), "d", (23, 20))
HIDDEN = Table(4, "hidden", ("id",), (True,))
TABLES = (ITEMS, FULL, NUMBERS, HIDDEN)


def watch(relation: Relation) -> TableSchema | None:
    if relation.name == "hidden":
        return None
    columns = tuple(Column(c.name, column_type(c.type_oid, c.typmod)) for c in relation.columns)
    return TableSchema(TableRef("public", relation.name), columns, ("id",))


class Stream:
    """An assembler, fed with messages."""

    def __init__(self, start: int = 0, spill_bytes: int = 1 << 20) -> None:
        self.noted: list[tuple[int, int]] = []
        self.assembler = Assembler(Position("s", start), watch, self._note, spill_bytes=spill_bytes)

    def _note(self, ends: Any, xids: Any) -> None:
        self.noted += zip(np.asarray(ends).tolist(), np.asarray(xids).tolist(), strict=True)

    def feed(self, *messages: bytes) -> list[Part]:
        frame, _, _ = frame_of(Received([wire.data(message) for message in messages]))
        return list(self.assembler.feed(frame))

    def changes(self, *messages: bytes) -> list[Seen]:
        return seen(batch for part in self.feed(*messages) for batch in part.batches)


def transaction(end: int, xid: int, *messages: bytes) -> list[bytes]:
    return [wire.begin(end, xid), *messages, wire.commit(end)]


def test_every_kind_of_image_is_told_apart() -> None:
    found = Stream().changes(
        wire.relation(ITEMS),
        wire.relation(FULL),
        *transaction(
            10,
            7,
            wire.insert(ITEMS, ["1", None, "x"]),
            wire.update(ITEMS, ["1", "b", UNCHANGED]),
            wire.update(ITEMS, ["2", "b", UNCHANGED], ["1", None, None]),
            wire.insert(FULL, ["1", ""]),
            wire.update(FULL, ["2", UNCHANGED], ["1", "old"], "O"),
            wire.delete(FULL, ["2", "old"], "O"),
            wire.delete(ITEMS, ["2", None, None]),
        ),
    )
    assert [(change.table, change.op, change.before, change.after) for change in found] == [
        ("items", "c", None, {"id": "1", "name": None, "note": "x"}),
        ("items", "u", None, {"id": "1", "name": "b"}),
        ("items", "u", {"id": "1"}, {"id": "2", "name": "b"}),
        ("full", "c", None, {"a": "1", "b": ""}),
        ("full", "u", {"a": "1", "b": "old"}, {"a": "2", "b": "old"}),
        ("full", "d", {"a": "2", "b": "old"}, None),
        ("items", "d", {"id": "2"}, None),
    ]
    assert [change.seq for change in found] == list(range(7))
    assert {(change.position, change.xid) for change in found} == {(10, "7")}


def test_what_lies_before_the_start_is_skipped_but_noted() -> None:
    stream = Stream(start=20)
    messages = [wire.relation(ITEMS)]
    for end in (10, 20, 30):
        messages += transaction(end, end, wire.insert(ITEMS, [str(end), None, None]))
    assert [change.position for change in stream.changes(*messages)] == [30]
    assert stream.noted == [(10, 10), (20, 20), (30, 30)]


def test_a_transaction_of_tables_nobody_asked_for_moves_the_position_only() -> None:
    parts = Stream().feed(wire.relation(HIDDEN), *transaction(10, 1, wire.insert(HIDDEN, ["1"])))
    assert [(part.rows, part.position.version, part.complete) for part in parts] == [(0, 10, True)]


def test_a_keepalive_tells_the_end_of_the_log_only_behind_everything_else() -> None:
    frame, end, wanted = frame_of(Received([wire.data(b"B" + bytes(20)), wire.keepalive(77, True)]))
    assert (len(frame), end, wanted) == (1, 77, True)
    frame, end, wanted = frame_of(Received([wire.keepalive(77), wire.data(b"B" + bytes(20))]))
    assert (len(frame), end, wanted) == (1, 0, False)


def test_origins_types_and_messages_are_passed_over() -> None:
    noise = [b"O" + bytes(8) + b"x\0", b"Y" + bytes(4) + b"a\0b\0", b"M" + bytes(13)]
    found = Stream().changes(
        wire.relation(ITEMS),
        wire.begin(10, 1),
        *noise,
        wire.insert(ITEMS, ["1", None, None]),
        wire.commit(10),
    )
    assert [change.seq for change in found] == [0]


def test_a_subtransaction_that_was_rolled_back_leaves_no_row_and_no_number() -> None:
    found = Stream().changes(
        wire.stream_start(5),
        wire.relation(ITEMS, 5),
        wire.insert(ITEMS, ["1", None, None], 5),
        wire.insert(ITEMS, ["2", None, None], 6),
        wire.truncate(ITEMS, xid=6),
        wire.STREAM_STOP,
        wire.stream_abort(5, 6),
        wire.stream_start(5, False),
        wire.insert(ITEMS, ["3", None, None], 7),
        wire.STREAM_STOP,
        wire.stream_commit(5, 90),
    )
    assert [(change.after or {}).get("id") for change in found] == ["1", "3"]
    assert [(change.seq, change.position, change.xid) for change in found] == [(0, 90, "5"), (1, 90, "5")]


values = st.one_of(st.none(), st.text(max_size=20), st.binary(max_size=0).map(lambda _: UNCHANGED))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[Any, ...]]]:
    """Messages of some transactions, and the changes they mean."""
    messages = [wire.relation(table) for table in TABLES]
    expected: list[tuple[Any, ...]] = []
    for number in range(draw(st.integers(1, 6))):
        end, inner = (number + 1) * 100, []
        for seq in range(draw(st.integers(1, 8))):
            table = draw(st.sampled_from([ITEMS, FULL]))
            new = [draw(values.filter(lambda v: v is not UNCHANGED)), *draw(_rest(table))]
            old: list[Any] = [draw(st.text(max_size=5)) for _ in table.columns]
            kind = "O" if table is FULL else "K"
            before = dict(zip(table.columns, old, strict=True))
            if kind == "K":
                before = {"id": before["id"]}
                old = [old[0], None, None]
            after = {
                name: (before[name] if table is FULL else UNCHANGED) if value is UNCHANGED else value
                for name, value in zip(table.columns, new, strict=True)
            }
            after = {name: value for name, value in after.items() if value is not UNCHANGED}
            op = draw(st.sampled_from(["insert", "update", "move", "delete"]))
            plain = [None if value is UNCHANGED else value for value in new]
            if op == "insert":
                inner.append(wire.insert(table, plain))
                expected.append(
                    (end, seq, table.name, "c", None, dict(zip(table.columns, plain, strict=True)))
                )
            elif op == "update" and table is ITEMS:
                inner.append(wire.update(table, new))
                expected.append((end, seq, table.name, "u", None, after))
            elif op == "delete":
                inner.append(wire.delete(table, old, kind))
                expected.append((end, seq, table.name, "d", before, None))
            else:
                inner.append(wire.update(table, new, old, kind))
                expected.append((end, seq, table.name, "u", before, after))
        messages += transaction(end, number, *inner)
    return messages, expected


def _rest(table: Table) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=len(table.columns) - 1, max_size=len(table.columns) - 1)


@settings(deadline=None, max_examples=150)
@given(histories(), st.data())
def test_any_rows_in_any_frames_come_out_as_they_went_in(
    history: tuple[list[bytes], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    messages, expected = history
    cuts = sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=5)))
    stream = Stream(spill_bytes=data.draw(st.sampled_from([1, 1 << 20])))
    parts: list[Part] = []
    for first, last in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        parts += stream.feed(*messages[first:last])
    found = seen(batch for part in parts for batch in part.batches)
    assert [(c.position, c.seq, c.table, c.op, c.before, c.after) for c in found] == expected
    assert stream.assembler.between
    whole = [part.position.version for part in parts if part.complete]
    assert whole == sorted(set(whole))


def every_message() -> list[bytes]:
    return [
        *(wire.relation(table) for table in TABLES),
        *transaction(
            100,
            1,
            *(wire.insert(ITEMS, [str(n), "name", None]) for n in range(20)),
            *(wire.insert(NUMBERS, [str(n), str(n * n)]) for n in range(20)),
            wire.update(ITEMS, ["1", UNCHANGED, "x"], ["2", None, None]),
            wire.update(FULL, ["1", UNCHANGED], ["2", "y"], "O"),
            wire.delete(FULL, ["2", "y"], "O"),
        ),
        *transaction(200, 2, wire.insert(HIDDEN, ["1"]), wire.truncate(ITEMS, FULL)),
        wire.stream_start(9),
        wire.relation(ITEMS, 9),
        *(wire.insert(ITEMS, [str(n), "streamed", None], 9 + n % 3) for n in range(20)),
        wire.STREAM_STOP,
        wire.stream_abort(9, 10),
        wire.stream_commit(9, 300),
        *transaction(400, 3, wire.delete(ITEMS, ["1", None, None])),
    ]


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 1 << 20, 6])
def test_a_damaged_length_is_refused_and_makes_nothing(length: int) -> None:
    good = wire.insert(ITEMS, ["1", "hello", None])
    place = good.index(b"\0\0\0\5hello")
    bad = good[:place] + struct.pack(">I", length) + good[place + 4 :]
    stream = Stream()
    stream.feed(wire.relation(ITEMS))
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            stream.feed(*transaction(10, 1, bad))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
