"""The turns of a snapshot, told as events."""

from __future__ import annotations

from typing import Any

from tailrace.engine.snapshots import PROGRESS_SECONDS, SnapshotEvents


class Told:
    """An observer that keeps names and fields, and a clock."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.now = 100.0

    def event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    def names(self) -> list[str]:
        found, self.events = [name.removeprefix("snapshot.") for name, _ in self.events], []
        return found


def one(done: int, state: str = "running", **changes: Any) -> dict[str, Any]:
    numbers = {"chunks_done": done, "chunks": 10, "rows_done": done * 5, "rows": 50}
    return {"table": "main.orders", "state": state, "rate": 5.0, "seconds_left": 1.0, **numbers, **changes}


def test_a_snapshot_is_told_from_its_beginning_to_its_end() -> None:
    told = Told()
    events = SnapshotEvents(told, clock=lambda: told.now)
    events.tell([one(0, where="id > 1")])
    assert told.events[0][1]["where"] == "id > 1"
    assert told.names() == ["started"]
    events.tell([one(1)])
    assert told.names() == []
    told.now += PROGRESS_SECONDS
    events.tell([one(2)])
    assert told.events[0][1] == {
        "table": "main.orders",
        "chunks_done": 2,
        "chunks": 10,
        "rows_done": 10,
        "rows": 50,
        "rate": 5.0,
        "seconds_left": 1.0,
    }
    assert told.names() == ["progress"]
    events.tell([one(2, "paused")])
    events.tell([one(2, "paused")])
    events.tell([one(2)])
    assert told.names() == ["paused", "resumed"]
    events.tell([])
    assert told.events == [("snapshot.complete", {"table": "main.orders", "chunks": 10})]


def test_a_stopped_snapshot_is_told_once_and_is_never_complete() -> None:
    told = Told()
    events = SnapshotEvents(told, clock=lambda: told.now)
    events.tell([one(3)])
    events.tell([one(3, "stopped")])
    events.tell([one(3, "stopped")])
    events.tell([])
    assert told.names() == ["started", "stopped"]
