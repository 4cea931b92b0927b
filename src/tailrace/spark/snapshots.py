"""Which snapshot chunks a micro-batch holds.

A table's snapshot begins when no cursor of it is in the offset, when capture of it was set up anew since its
cursor, or when someone asked for one. It then has a plan, and the offset's cursor walks through the plan's
chunks. Tables are planned one after the other, when there is room for their chunks.

A snapshot with a condition begins when no other of its table runs, and leaves the table's generation as it
is: it brings rows and replaces nothing. A stop ends the cursor where it is, in an offset like any other, so
that a replay reads the same. A whole snapshot has no cursor before its first chunk, the one that begins the
table anew; a first snapshot that is stopped earlier still takes that chunk, for there is no table without it.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

from tailrace.capture.contract import Capture
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.orders import Orders
from tailrace.spark.pace import Pace, SnapshotProgress, progress_of, running
from tailrace.spark.partitions import ChunkRead
from tailrace.spark.plans import Plan, PlanStore, Request
from tailrace.spark.throttle import Round

logger = logging.getLogger("tailrace.spark")


class Snapshots:
    """The snapshots of one query's tables."""

    def __init__(
        self,
        capture: Capture,
        plans: PlanStore,
        orders: Orders,
        refs: Sequence[TableRef],
        *,
        chunk_rows: int,
        chunk_bytes: int | None = None,
    ) -> None:
        self._capture = capture
        self._plans = plans
        self._orders = orders
        self._refs = {str(ref): ref for ref in refs}
        self._chunk_rows, self._chunk_bytes = chunk_rows, chunk_bytes
        self._begun: dict[str, Plan] = {}
        self._known: dict[str, Plan] = {}
        self._waiting: dict[str, Request] = {}
        self._paused: set[str] = set()
        self._stops: set[str] = set()
        self._pace = Pace()
        self._done: Offset | None = None

    @property
    def requests(self) -> dict[str, str]:
        """The requests for whole snapshots that wait, by table."""
        return {str(one.table): one.id for one in self._waiting.values() if one.where is None}

    def look_for_requests(self) -> None:
        """Read the requests and orders that wait in the state directory."""
        # Orders first: whoever stops withdraws requests before, and none of those may be seen beside it.
        self._stops, self._paused = self._orders.read()
        found = self._plans.requests()
        self._waiting = {key: one for key, one in found.items() if str(one.table) in self._refs}
        for table, plan in list(self._begun.items()):
            # Begun and never logged, or it would be committed: withdrawn, it need not be.
            if plan.id.startswith("r") and plan.id not in found:
                del self._begun[table]

    def again(self) -> None:
        """Every table needs a fresh snapshot: the log has a gap. Durable, for not all begin at once."""
        self._begun.clear()
        for ref in self._refs.values():
            self._plans.request(ref)
        self.look_for_requests()

    def advance(
        self,
        start: Offset,
        generations: Mapping[TableRef, str],
        *,
        room: int | None,
        parts: int,
        throttle: Round,
        held: Collection[str] = (),
    ) -> dict[str, Cursor]:
        """The cursors at the end of a batch that begins at `start` and has room for so many rows.

        Nothing is read of tables that are held or paused, and no more than the throttle allows.

        At least one round of chunks is taken whatever the room, so that a busy log never starves a snapshot.
        """
        cursors = {table: cursor for table, cursor in start.snapshots.items() if table in self._refs}
        cursors.update(ended := self._stopped(cursors))
        taken = 0
        for table, ref in self._refs.items():
            if taken >= parts and room is not None and room <= 0:
                break
            stopping = table in self._stops
            if table in ended or table in held or (table in self._paused and not stopping):
                continue
            cursor = self._cursor(table, ref, cursors.get(table), generations.get(ref, ""))
            if cursor.over:
                cursors[table] = cursor
                continue
            chunks, done = self._plan(cursor.plan).chunks, cursor.next
            last = min(1, cursor.of) if stopping else cursor.of
            while (
                done < last
                and (taken < parts or room is None or room >= chunks[done].rows)
                and throttle.take(chunks[done].rows)
            ):
                room = None if room is None else room - chunks[done].rows
                done, taken = done + 1, taken + 1
            if done:
                cut = stopping and done < cursor.of
                cursors[table] = dataclasses.replace(
                    cursor, next=done, stopped=cut, short=cut or cursor.short
                )
            if throttle.refused is not None:
                # Nor is any other table cut into chunks meanwhile.
                break
        return cursors

    def reads(self, start: Offset, end: Offset) -> list[ChunkRead]:
        """The chunks between two offsets, of the tables that are still read."""
        reads = []
        for table, cursor in sorted(end.snapshots.items()):
            if table not in self._refs:
                continue
            before = start.snapshots.get(table)
            first = before.next if before is not None and before.plan == cursor.plan else 0
            if first < cursor.next:
                plan = self._plan(cursor.plan)
                if plan.where is not None and table in self._stops:
                    # A condition may fail on a row; without this the batch would come again for ever.
                    logger.warning("the snapshot of %s was stopped, and the rest of it is left out", table)
                    continue
                body = plan.table.to_json()
                reads += [
                    ChunkRead(body, chunk, end.position.version, end.position.source)
                    for chunk in plan.chunks[first : cursor.next]
                ]
        return reads

    def committed(self, offset: Offset) -> None:
        """Spark has committed this offset: what it carries is served, plans it has passed are gone."""
        self._done = offset
        plans = {cursor.plan for cursor in offset.snapshots.values()}
        for request in plans.intersection(self._waiting):
            self._plans.served(request)
            del self._waiting[request]
        for table, plan in list(self._begun.items()):
            if (cursor := offset.snapshots.get(table)) is not None and cursor.plan == plan.id:
                del self._begun[table]
                kept = plans | {p.id for p in self._begun.values()}
                self._plans.keep_only(kept)
                self._pace.keep_only(kept)
                self._known = {name: known for name, known in self._known.items() if name in kept}
        now = time.monotonic()
        for cursor in offset.snapshots.values():
            if not cursor.over and cursor.plan in self._known:
                self._pace.note(self._known[cursor.plan], cursor.next, now)

    def progress(self, newest: Offset) -> list[SnapshotProgress]:
        """How far each running snapshot is, by what is committed; `newest` says what has begun."""
        cursors = running(self._done, newest)
        plans = {cursor.plan: self._plan(cursor.plan) for cursor in cursors.values()}
        return progress_of(cursors, plans, self._pace, self._paused)

    def _stopped(self, cursors: Mapping[str, Cursor]) -> dict[str, Cursor]:
        """The cursors that a stop ends here. One that is over is committed, and its order is done with."""
        ended = {}
        for table in self._stops.intersection(cursors):
            cursor = cursors[table]
            if cursor.over:
                self._orders.stopped(table)
                self._stops.discard(table)
            else:
                whole = self._plan(cursor.plan).where is None
                ended[table] = dataclasses.replace(cursor, stopped=True, short=whole or cursor.short)
        return ended

    def _asked(self, table: str, cursor: Cursor) -> tuple[str, str | None] | None:
        """The snapshot that is to begin now, as its plan's id and condition; None to go on as it is."""
        fresh = self.requests.get(table)
        if fresh not in (None, cursor.plan) and (cursor.over or self._plan(cursor.plan).where is None):
            return str(fresh), None
        for one in self._waiting.values():
            if cursor.over and one.where is not None and str(one.table) == table and one.id != cursor.plan:
                return one.id, one.where
        return None

    def _cursor(self, table: str, ref: TableRef, cursor: Cursor | None, generation: str) -> Cursor:
        begun = self._begun.get(table)
        if begun is None:
            if cursor is None or cursor.generation != generation:
                plan_id = self.requests.get(table) or f"p{uuid.uuid4().hex[:12]}"
                begun = self._begin(ref, plan_id, None)
            elif (asked := self._asked(table, cursor)) is not None:
                begun = self._begin(ref, *asked)
            else:
                return cursor
        if cursor is not None and cursor.plan == begun.id:
            return cursor
        if cursor is not None and begun.where is not None:
            return Cursor(begun.id, 0, len(begun.chunks), cursor.generation, short=cursor.short)
        return Cursor(begun.id, 0, len(begun.chunks), begun.table.generation)

    def _begin(self, ref: TableRef, plan_id: str, where: str | None) -> Plan:
        table = self._capture.describe(ref)
        planned = self._capture.plan(ref, rows_per_chunk=self._chunk_rows, bytes_per_chunk=self._chunk_bytes)
        chunks = tuple(dataclasses.replace(chunk, where=where) for chunk in planned)
        plan = Plan(plan_id, table, chunks, where)
        self._plans.save(plan)
        self._begun[str(ref)] = self._known[plan_id] = plan
        self._pace.note(plan, 0, time.monotonic())
        return plan

    def _plan(self, plan_id: str) -> Plan:
        if plan_id not in self._known:
            self._known[plan_id] = self._plans.load(plan_id)
        return self._known[plan_id]
