"""How far snapshots are: rows done and left by their plans' estimates, how fast, and the time left."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.plans import Plan

State = Literal["running", "paused", "stopped"]
WINDOW_SECONDS = 60.0
POINTS = 64


@dataclass(frozen=True)
class SnapshotProgress:
    """A table's snapshot that is not complete. Rows are estimates; `rate` is rows a second, lately."""

    table: str
    state: State
    chunks_done: int
    chunks: int
    rows_done: int
    rows: int
    rate: float | None = None
    seconds_left: float | None = None
    where: str | None = None


def measured(points: Sequence[tuple[float, int]], rows: int) -> tuple[float | None, float | None]:
    """The rate and the time left by what was done when; None while that cannot be told."""
    if len(points) < 2:
        return None, None
    (began, first), (ended, last) = points[0], points[-1]
    if ended <= began or last <= first:
        return None, None
    rate = (last - first) / (ended - began)
    return rate, max(0, rows - last) / rate


class Pace:
    """What was done when, lately, of every running plan."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}

    def note(self, plan: Plan, chunks: int, now: float) -> None:
        """So many chunks of the plan are committed."""
        points = self._points.setdefault(plan.id, deque(maxlen=POINTS))
        rows = plan.rows(chunks)
        if not points or points[-1][1] != rows:
            points.append((now, rows))
        while len(points) > 2 and points[0][0] < now - WINDOW_SECONDS:
            points.popleft()

    def keep_only(self, plans: Collection[str]) -> None:
        """Forget the others."""
        self._points = {plan: points for plan, points in self._points.items() if plan in plans}

    def of(self, plan: Plan) -> tuple[float | None, float | None]:
        """The plan's rate and the time left."""
        return measured(list(self._points.get(plan.id, ())), plan.rows(len(plan.chunks)))


def running(done: Offset | None, newest: Offset) -> dict[str, Cursor]:
    """The snapshots that are not over at `done`, or were stopped: the cursor of what is committed of each."""
    found = {}
    for table, cursor in newest.snapshots.items():
        before = done.snapshots.get(table) if done is not None else None
        if before is None or before.plan != cursor.plan:
            before = Cursor(cursor.plan, 0, cursor.of, cursor.generation, short=cursor.short)
        if cursor.stopped or not before.over:
            found[table] = replace(before, stopped=cursor.stopped)
    return found


def progress_of(
    cursors: Mapping[str, Cursor], plans: Mapping[str, Plan], pace: Pace, paused: Collection[str]
) -> list[SnapshotProgress]:
    """The numbers of these snapshots, by table. One whose plan is gone is told without rows."""
    told = []
    for table, cursor in sorted(cursors.items()):
        plan = plans.get(cursor.plan)
        state: State = "stopped" if cursor.stopped else "paused" if table in paused else "running"
        rate, left = pace.of(plan) if plan is not None and state == "running" else (None, None)
        told.append(
            SnapshotProgress(
                table,
                state,
                cursor.next,
                cursor.of,
                plan.rows(cursor.next) if plan is not None else 0,
                plan.rows(cursor.of) if plan is not None else 0,
                rate,
                left,
                plan.condition if plan is not None else None,
            )
        )
    return told
