"""A stream's offset: the position in the log, and for every table how far its snapshot is.

Both travel in one JSON object in Spark's own offset log, so a crash resumes at a chunk and a finished
snapshot is never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.model.errors import StateUnreadable
from tailrace.model.position import Position

VERSION = 1
# The plan of a table that nobody wants rows of.
UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A table's snapshot: `next` of `of` chunks of `plan` are delivered; `generation` is its capture's.

    A table that needs no snapshot has a cursor without chunks (`of` is 0). One that stands still has no
    generation: the position has passed over changes of it.

    `stopped`: no further chunk of the plan is delivered. `short`: rows of the table are missing, because its
    last whole snapshot was stopped; a snapshot with a condition leaves that as it is. `keys`: nobody has got
    all of the table's rows, or changes since, for only its keys were asked for.
    """

    plan: str
    next: int
    of: int
    generation: str
    stopped: bool = False
    short: bool = False
    keys: bool = False

    @property
    def whole(self) -> bool:
        """Whether the snapshot is one of the table's rows: not of its keys, and not none."""
        return self.plan != UNREAD and not self.keys

    @property
    def over(self) -> bool:
        """Whether no chunk of the plan is left to deliver."""
        return self.stopped or self.next >= self.of

    @property
    def complete(self) -> bool:
        """Whether the snapshot is over and no row of the table is missing."""
        return self.over and not self.short

    def to_json(self) -> dict[str, Any]:
        """The JSON object inside an offset."""
        body = {"plan": self.plan, "next": self.next, "of": self.of, "generation": self.generation}
        marks = {"stopped": self.stopped, "short": self.short, "keys": self.keys}
        return {**body, **{name: True for name, set_ in marks.items() if set_}}


@dataclass(frozen=True)
class Offset:
    """Everything up to `position`, and the chunks before each cursor, is delivered."""

    position: Position
    snapshots: dict[str, Cursor] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that Spark stores; equal offsets give equal text."""
        return {
            "v": VERSION,
            "source": self.position.source,
            "position": self.position.version,
            "snapshots": {table: cursor.to_json() for table, cursor in sorted(self.snapshots.items())},
        }

    @classmethod
    def from_json(cls, body: object) -> Offset:
        """The offset of a JSON object; StateUnreadable says what is wrong with any other."""
        if not isinstance(body, dict):
            raise StateUnreadable("an offset must be a JSON object")
        if body.get("v") != VERSION:
            raise StateUnreadable(
                f"an offset of version {body.get('v')!r} cannot be read; this Tailrace reads {VERSION}",
                remedy="use the Tailrace that wrote it, or start anew with a new checkpoint and stateDir",
            )
        position = Position.from_json({"source": body.get("source"), "version": body.get("position")})
        cursors: dict[str, Cursor] = {}
        snapshots = body.get("snapshots")
        if not isinstance(snapshots, dict):
            raise StateUnreadable("an offset must have `snapshots`")
        for table, cursor in snapshots.items():
            match cursor:
                case {"plan": str(plan), "next": int(done), "of": int(of), "generation": str(generation)} if (
                    0 <= done <= of
                ):
                    marks = (cursor.get(name) is True for name in ("stopped", "short", "keys"))
                    cursors[table] = Cursor(plan, done, of, generation, *marks)
                case _:
                    raise StateUnreadable(f"the snapshot cursor of table {table} in an offset cannot be read")
        return cls(position, cursors)
