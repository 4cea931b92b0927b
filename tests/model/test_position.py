"""Positions are ordered within one source and refused across two."""

from __future__ import annotations

import pytest

from tailrace.model.errors import IdentityMismatch, StateUnreadable
from tailrace.model.position import MAX_VERSION, Position


def test_positions_of_one_source_are_ordered_by_version() -> None:
    low, high = Position("a", 1), Position("a", 2)
    assert low < high
    assert low <= high
    assert high > low
    assert high >= low
    assert max(low, high) == high


def test_positions_of_two_sources_are_never_compared() -> None:
    for compare in ("__lt__", "__le__", "__gt__", "__ge__"):
        with pytest.raises(IdentityMismatch):
            getattr(Position("a", 1), compare)(Position("b", 2))


def test_a_position_reads_back_from_json() -> None:
    position = Position("sqlite:1", MAX_VERSION)
    assert Position.from_json(position.to_json()) == position


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"source": "a"},
        {"source": 1, "version": 1},
        {"source": "a", "version": True},
        {"source": "a", "version": "7"},
        {"source": "a", "version": -1},
        {"source": "a", "version": 2**63},
    ],
)
def test_anything_else_is_refused_as_a_position(body: object) -> None:
    with pytest.raises(StateUnreadable):
        Position.from_json(body)
