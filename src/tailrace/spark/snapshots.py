"""Which snapshot chunks a micro-batch holds.

A table's snapshot begins when no cursor of it is in the offset, when capture of it was set up anew since its
cursor, or when someone asked for one. It then has a plan, and the offset's cursor walks through the plan's
chunks. Tables are planned one after the other, when there is room for their chunks.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence

from tailrace.capture.contract import Capture
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.partitions import ChunkRead
from tailrace.spark.plans import Plan, PlanStore


class Snapshots:
    """The snapshots of one query's tables."""

    def __init__(self, capture: Capture, plans: PlanStore, refs: Sequence[TableRef], chunk_rows: int) -> None:
        self._capture = capture
        self._plans = plans
        self._refs = {str(ref): ref for ref in refs}
        self._chunk_rows = chunk_rows
        self._begun: dict[str, Plan] = {}
        self._known: dict[str, Plan] = {}
        self.requests: dict[str, str] = {}

    def look_for_requests(self) -> None:
        """Read the requests that wait in the state directory."""
        found = self._plans.requests().items()
        self.requests = {str(ref): request for request, ref in found if str(ref) in self._refs}

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
        held: Collection[str] = (),
    ) -> dict[str, Cursor]:
        """The cursors at the end of a batch that begins at `start` and has room for so many rows.

        Nothing is read of tables that are held.

        At least one round of chunks is taken whatever the room, so that a busy log never starves a snapshot.
        """
        cursors = {table: cursor for table, cursor in start.snapshots.items() if table in self._refs}
        taken = 0
        for table, ref in self._refs.items():
            if taken >= parts and room is not None and room <= 0:
                break
            if table in held:
                continue
            cursor = self._cursor(table, ref, cursors.get(table), generations.get(ref, ""))
            if cursor.complete:
                cursors[table] = cursor
                continue
            chunks, done = self._plan(cursor.plan).chunks, cursor.next
            while done < cursor.of and (taken < parts or room is None or room >= chunks[done].rows):
                room = None if room is None else room - chunks[done].rows
                done, taken = done + 1, taken + 1
            cursors[table] = dataclasses.replace(cursor, next=done)
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
                body = plan.table.to_json()
                reads += [
                    ChunkRead(body, chunk, end.position.version, end.position.source)
                    for chunk in plan.chunks[first : cursor.next]
                ]
        return reads

    def committed(self, offset: Offset) -> None:
        """Spark has committed this offset: requests it carries are served, plans it has passed are gone."""
        for table, request in list(self.requests.items()):
            cursor = offset.snapshots.get(table)
            if cursor is not None and cursor.plan == request:
                self._plans.served(request)
                del self.requests[table]
        for table, plan in list(self._begun.items()):
            if (cursor := offset.snapshots.get(table)) is not None and cursor.plan == plan.id:
                del self._begun[table]
                kept = {c.plan for c in offset.snapshots.values()} | {p.id for p in self._begun.values()}
                self._plans.keep_only(kept)
                self._known = {name: known for name, known in self._known.items() if name in kept}

    def _cursor(self, table: str, ref: TableRef, cursor: Cursor | None, generation: str) -> Cursor:
        begun = self._begun.get(table)
        if begun is None:
            wanted = self.requests.get(table)
            if cursor is not None and cursor.generation == generation and wanted in (None, cursor.plan):
                return cursor
            described = self._capture.describe(ref)
            plan_id = wanted or f"p{uuid.uuid4().hex[:12]}"
            begun = Plan(plan_id, described, tuple(self._capture.plan(ref, rows_per_chunk=self._chunk_rows)))
            self._plans.save(begun)
            self._begun[table] = self._known[plan_id] = begun
        if cursor is not None and cursor.plan == begun.id:
            return cursor
        return Cursor(begun.id, 0, len(begun.chunks), begun.table.generation)

    def _plan(self, plan_id: str) -> Plan:
        if plan_id not in self._known:
            self._known[plan_id] = self._plans.load(plan_id)
        return self._known[plan_id]
