"""Offsets read back from Spark's log, and refuse what they cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.model.errors import StateUnreadable
from tailrace.model.position import Position
from tailrace.spark.offsets import Cursor, Offset

OFFSET = Offset(
    Position("sqlite:x", 7), {"main.b": Cursor("p2", 1, 3, "g"), "main.a": Cursor("p1", 2, 2, "g")}
)


def test_an_offset_reads_back_and_equal_ones_give_equal_text() -> None:
    assert Offset.from_json(json.loads(json.dumps(OFFSET.to_json()))) == OFFSET
    other = Offset(OFFSET.position, dict(reversed(OFFSET.snapshots.items())))
    assert json.dumps(other.to_json()) == json.dumps(OFFSET.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": None},
        {"position": -1},
        {"position": "7"},
        {"source": None},
        {"snapshots": None},
        {"snapshots": {"t": {"plan": "p", "next": 3, "of": 2, "generation": "g"}}},
        {"snapshots": {"t": {"plan": "p"}}},
    ],
)
def test_an_offset_that_cannot_be_read_is_an_error_and_never_the_beginning(change: dict[str, Any]) -> None:
    with pytest.raises(StateUnreadable):
        Offset.from_json({**OFFSET.to_json(), **change})


def test_something_else_than_an_object_is_refused() -> None:
    with pytest.raises(StateUnreadable):
        Offset.from_json("latest")
