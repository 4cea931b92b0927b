"""Where a pipeline stands, read from outside: source, checkpoint, changelog, owner, requests.

Everything here only looks. It works while the pipeline runs and while it does not, and before it ever ran.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tailrace.capture.contract import Capture, Consumer, Lag
from tailrace.changelog.filesystem import listing, open_filesystem
from tailrace.changelog.owner import Owner, read_owner
from tailrace.engine.deadletters import DIRECTORY as LETTERS
from tailrace.engine.deadletters import DeadLetters
from tailrace.engine.documents.state import IndexState, States, Still
from tailrace.engine.heldup import HeldUp, Stopped, held_up, stopped_on
from tailrace.engine.progress import committed, lately
from tailrace.model.errors import NeedsOperator
from tailrace.model.table import TableRef, shell_name
from tailrace.runtime.filler import KIND as FILLER
from tailrace.runtime.reached import behind
from tailrace.spark import visibility, waits
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.orders import Orders
from tailrace.spark.pace import measured
from tailrace.spark.plans import Plan, PlanStore

STALE_SECONDS = 30.0
PAUSED = ", which is paused"


@dataclass(frozen=True)
class TableStatus:
    """A table's snapshot: `none` before it began, `unneeded` where the pipeline wants changes only.

    Rows are estimates of the snapshot's plan; `rate` is rows a second, lately. `where` is the condition of a
    snapshot that has one.
    """

    table: str
    snapshot: Literal["none", "unneeded", "running", "stopped", "complete"]
    chunks_done: int = 0
    chunks: int = 0
    requested: bool = False
    paused: bool = False
    rows_done: int | None = None
    rows: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    where: str | None = None
    # Why it stands still, or will be read again.
    problem: str | None = None


@dataclass(frozen=True)
class IndexStatus:
    """An index: `waiting` for its filling to begin, being filled (`filling`), or `complete`.

    How far a filling is, is told by the snapshot of its `root`. `reason` says why it is filled again, and
    `waits_for` what holds it up. `dead_letters` are documents that were passed over. `requested`: a filling
    was asked for and has not begun. `schema_hash` is that of its documents, or of those to come.

    `shown` is the complete generation that readers see, as the pipeline knows it, and `position` up to where
    it has the changes: up to `still`, where that is not None, and as far as the pipeline otherwise.
    """

    index: str
    root: str
    state: Literal["waiting", "filling", "complete"]
    generation: str | None
    rows_done: int | None = None
    rows: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    reason: str | None = None
    dead_letters: int = 0
    waits_for: str | None = None
    requested: bool = False
    schema_hash: str = ""
    sinks: tuple[str, ...] = ()
    shown: str | None = None
    position: int | None = None
    still: Still | None = None


@dataclass(frozen=True)
class Status:
    """One look at a pipeline. A value that does not exist yet is None."""

    name: str
    consumer: str
    state_directory: str
    running: str | None
    owner: str | None
    source: str | None
    head: int | None
    problem: str | None
    acknowledged: int | None
    batch: int | None
    position: int | None
    lag: Lag | None
    changelog_bytes: int
    changelog_segments: int
    consumers: list[Consumer] = field(default_factory=list)
    tables: list[TableStatus] = field(default_factory=list)
    indexes: list[IndexStatus] = field(default_factory=list)
    # Why the running pipeline takes no snapshot chunks, and which of its limits it cannot keep.
    snapshots_wait: str | None = None
    limits_unseen: list[str] = field(default_factory=list)
    # What the batch that is being read waits for.
    waits_for: str | None = None
    # What the running pipeline waits for to write, and what the last run stopped on.
    held_up: HeldUp | None = None
    stopped: Stopped | None = None


def read_status(
    capture: Capture, *, name: str, consumer: str, state: str, checkpoint: str, tables: Sequence[TableRef]
) -> Status:
    """Look at a pipeline. A source that was never set up is told in `problem`, not raised."""
    last = committed(checkpoint)
    offset = last[1] if last else None
    source: str | None = None
    head: int | None = None
    problem: str | None = None
    consumers: list[Consumer] = []
    lag: Lag | None = None
    generations: dict[TableRef, str] | None = None
    try:
        source = capture.identity()
        head = capture.head().version
        consumers = capture.consumers()
        generations = {ref: found[0] for ref, found in capture.generations().items()}
        if offset is not None:
            lag = _timed(capture.lag(capture.moved(offset.position)), state, offset.position.version)
    except NeedsOperator as error:
        problem = error.message
    fs, root = open_filesystem(state)
    tables_now = Tables(offset, PlanStore(fs, root), Orders(fs, root), checkpoint)
    files = listing(fs, f"{root}/changelog").items()
    sizes = {name: size for name, size in files if name.endswith((".seg", ".spill"))}
    owner = _owner(state)
    running = owner.describe() if owner is not None and _alive(owner) else None
    # Whoever has ended waits no longer.
    wait, unseen = waits.remembered(fs, f"{root}/{waits.THROTTLE}") if running is not None else (None, ())
    hidden, _ = waits.remembered(fs, f"{root}/{visibility.FILE}") if running is not None else (None, ())
    return Status(
        name=name,
        consumer=consumer,
        state_directory=state,
        running=running,
        owner=owner.describe() if owner is not None else None,
        source=source,
        head=head,
        problem=problem,
        acknowledged=next((c.acknowledged for c in consumers if c.name == consumer), None),
        batch=last[0] if last else None,
        position=offset.position.version if offset else None,
        lag=lag,
        changelog_bytes=sum(sizes.values()),
        changelog_segments=sum(1 for file in sizes if file.endswith(".seg")),
        consumers=consumers,
        tables=[
            replace(found, problem=_problem(ref, offset, generations) or found.problem)
            for ref, found in ((ref, tables_now.of(ref)) for ref in tables)
        ],
        indexes=_indexes(state, tables_now),
        snapshots_wait=wait.reason if wait is not None else None,
        limits_unseen=list(unseen),
        waits_for=hidden.reason if hidden is not None else None,
        held_up=held_up(state) if running is not None else None,
        stopped=stopped_on(state) if running is None else None,
    )


def _indexes(state: str, tables: Tables) -> list[IndexStatus]:
    """The indexes as the last run left them."""
    states = States(state)
    if not states.names:
        return []
    letters = Counter(letter.index for letter in DeadLetters(f"{state}/{LETTERS}").letters())
    known = ((name, states.get(name)) for name in states.names)
    return [_index(name, one, tables, letters[name]) for name, one in known if one is not None]


def _index(name: str, one: IndexState, tables: Tables, letters: int) -> IndexStatus:
    shown = one if one.complete or one.before is None else one.before
    still = shown.still if shown is not one else None
    status = IndexStatus(
        name,
        one.root,
        "waiting" if not one.generation else "complete" if one.complete else "filling",
        one.generation or None,
        reason=one.again or None,
        dead_letters=letters,
        requested=name in tables.wanted,
        schema_hash=one.schema_hash,
        sinks=one.sinks,
        shown=(shown.generation or None) if shown.complete else None,
        position=still.position if still is not None else tables.position if shown.complete else None,
        still=still,
    )
    table = tables.named(one.root)
    if status.state == "waiting" or (status.state == "filling" and not tables.reads(one.root, one.plan)):
        status = replace(status, waits_for=f"the snapshot of {one.root}" + (PAUSED if table.paused else ""))
    elif status.state == "filling" and table.snapshot == "stopped":
        status = replace(status, waits_for=f"a fresh snapshot of {one.root}: the last one was stopped")
    elif status.state == "filling" and table.snapshot == "running":
        status = replace(
            status,
            rows_done=table.rows_done,
            rows=table.rows,
            rate=table.rate,
            seconds_left=table.seconds_left,
            waits_for=f"the snapshot of {one.root}{PAUSED}" if table.paused else None,
        )
    return status


def living_owner(state: str) -> str | None:
    """The process that runs on a state directory now, as a phrase."""
    owner = _owner(state)
    return owner.describe() if owner is not None and _alive(owner) else None


def _timed(lag: Lag, state: str, position: int) -> Lag:
    """With the time since the position was the newest one, where only the run itself knew it."""
    if lag.seconds is not None:
        return lag
    if 0 in (lag.bytes, lag.changes):
        return replace(lag, seconds=0.0)
    fs, root = open_filesystem(state)
    return replace(lag, seconds=behind(fs, f"{root}/changelog/filler.json", FILLER, position))


def _owner(state: str) -> Owner | None:
    fs, root = open_filesystem(state)
    return read_owner(fs, f"{root}/changelog")


def _alive(owner: Owner) -> bool:
    return owner.heartbeat != 0 and not owner.dead and abs(time.time() - owner.heartbeat) < STALE_SECONDS


def _problem(ref: TableRef, offset: Offset | None, generations: dict[TableRef, str] | None) -> str | None:
    cursor = offset.snapshots.get(str(ref)) if offset else None
    if cursor is None or generations is None or generations.get(ref) == cursor.generation:
        return None
    if ref not in generations:
        return "stopped: it is no longer set up for capture"
    return "capture began anew: stopped until it is read again, by a start or `tailrace snapshot`"


class Tables:
    """The snapshots of a pipeline's tables, as its offsets, plans and orders tell them."""

    def __init__(self, offset: Offset | None, plans: PlanStore, orders: Orders, checkpoint: str) -> None:
        self._cursors = offset.snapshots if offset is not None else {}
        self._plans = plans
        requests = plans.requests().values()
        self._requested = {str(one.table) for one in requests if not one.index}
        self.wanted = {one.index for one in requests}
        self.position = offset.position.version if offset is not None else None
        self._paused = orders.paused()
        self._checkpoint = checkpoint

    def of(self, ref: TableRef) -> TableStatus:
        """One table's."""
        found, cursor = self.named(str(ref)), self._cursors.get(str(ref))
        missing = cursor is not None and found.snapshot in ("running", "stopped") and cursor.short
        return replace(found, problem=_missing(ref, cursor)) if missing and cursor is not None else found

    def reads(self, name: str, plan: str) -> bool:
        """Whether the table's last snapshot is that of a plan."""
        cursor = self._cursors.get(name)
        return cursor is not None and cursor.plan == plan

    def named(self, name: str) -> TableStatus:
        """The table's of this name."""
        cursor, asked, paused = self._cursors.get(name), name in self._requested, name in self._paused
        if cursor is None or cursor.of == 0:
            return TableStatus(name, "none" if cursor is None else "unneeded", requested=asked, paused=paused)
        if cursor.complete and not cursor.stopped:
            return TableStatus(name, "complete", cursor.next, cursor.of, asked, paused)
        plan = self._plans.find(cursor.plan)
        found = TableStatus(
            name,
            "stopped" if cursor.over else "running",
            cursor.next,
            cursor.of,
            asked,
            paused,
            where=plan.condition if plan is not None else None,
        )
        if plan is None:
            return found
        rate, left = (None, None) if cursor.over or paused else self._pace(name, plan)
        rows = (plan.rows(cursor.next), plan.rows(cursor.of))
        return replace(found, rows_done=rows[0], rows=rows[1], rate=rate, seconds_left=left)

    def _pace(self, table: str, plan: Plan) -> tuple[float | None, float | None]:
        cursors = ((when, offset.snapshots.get(table)) for when, offset in self._lately)
        points = [(when, plan.rows(c.next)) for when, c in cursors if c is not None and c.plan == plan.id]
        return measured(points, plan.rows(len(plan.chunks)))

    @cached_property
    def _lately(self) -> list[tuple[float, Offset]]:
        return lately(self._checkpoint)


def _missing(ref: TableRef, cursor: Cursor) -> str:
    if cursor.stopped and cursor.next < cursor.of:
        told = f"its snapshot was stopped at {cursor.next} of {cursor.of} chunks, and the rows after that are"
    else:
        told = "a snapshot of it was stopped or withdrawn, and rows may be"
    return f"incomplete: {told} missing; `tailrace snapshot --table {shell_name(ref)}` reads it anew"
