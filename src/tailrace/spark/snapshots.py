"""Which snapshot chunks a micro-batch holds.

A table's snapshot begins when no cursor of it is in the offset, when capture of it was set up anew since its
cursor, or when someone asked for one. It then has a plan, and the offset's cursor walks through the plan's
chunks. Tables are planned one after the other, when there is room for their chunks.

A snapshot with a condition begins when no other of its table runs, and leaves the table's generation as it
is: it brings rows and replaces nothing. A stop ends the cursor where it is, in an offset like any other, so
that a replay reads the same. A whole snapshot has no cursor before its first chunk, the one that begins the
table anew; a first snapshot that is stopped earlier still takes that chunk, for there is no table without it.

Rows of an `unread` table nobody asks for: it has a cursor without chunks, of its present generation, until
somebody does. Of a table that is `keys_only` nobody asks for more than keys; its cursor says so, and once
somebody does, it is read again.

A request's file exists until its first batch is committed (`committed` removes it). So what waits may have
begun already: its plan is the cursor's then, and it makes up for nothing that is lost from now on.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

from tailrace.capture.contract import Capture
from tailrace.model.table import TableRef
from tailrace.spark.offsets import UNREAD, Cursor, Offset
from tailrace.spark.orders import Orders, Stop
from tailrace.spark.pace import Pace, SnapshotProgress, progress_of, running
from tailrace.spark.partitions import ChunkRead
from tailrace.spark.plans import Plan, PlanStore, Request
from tailrace.spark.throttle import Round

# A plan that waited for its first chunk for so long is made anew: the table may have changed since.
STALE_SECONDS = 60.0
_NO_LIMIT = 1 << 62
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
        unread: Collection[str] = (),
        keys_only: Collection[str] = (),
    ) -> None:
        self._capture = capture
        self._plans = plans
        self._orders = orders
        self._refs = {str(ref): ref for ref in refs}
        self._unread, self._keys_only = frozenset(unread), frozenset(keys_only)
        self._chunk_rows, self._chunk_bytes = chunk_rows, chunk_bytes
        self._begun: dict[str, Plan] = {}
        self._cut: dict[str, float] = {}
        self._known: dict[str, Plan] = {}
        self._waiting: dict[str, Request] = {}
        self._paused: set[str] = set()
        self._stops: dict[str, Stop] = {}
        self._left: set[str] = set()
        self._pace = Pace()
        self._done: Offset | None = None

    @property
    def requests(self) -> dict[str, str]:
        """The requests for whole snapshots that wait, by table."""
        return {str(one.table): one.id for one in self._waiting.values() if one.where is None}

    def look_for_requests(self) -> None:
        """Read the requests and orders that wait in the state directory."""
        # Orders first: a request that is seen beside a stop, and not withdrawn by it, was made after it.
        self._stops, self._paused = self._orders.read()
        withdrawn = {request for stop in self._stops.values() for request in stop.withdrawn}
        self._waiting = {
            key: one
            for key, one in self._plans.requests().items()
            if str(one.table) in self._refs and key not in withdrawn
        }

    def again(self, start: Offset) -> None:
        """Every table needs a fresh snapshot: the log has a gap behind `start`, which is committed.

        Durable, for not all begin at once.
        """
        # What has begun by then lacks what the gap has, and must not be taken for what closes it.
        self.look_for_requests()
        self.committed(start)
        self._begun.clear()
        for table, ref in self._refs.items():
            if table not in self._unread:
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
        more: int = 0,
        room_bytes: int | None = None,
    ) -> dict[str, Cursor]:
        """The cursors at the end of a batch that begins at `start` and has room for so many rows and bytes.

        Nothing is read of tables that are held or paused, and no more than the throttle allows.

        At least one round of chunks is taken whatever the room for rows, so that a busy log never starves a
        snapshot, and at least `more` where there are so many; one chunk whatever the room for bytes.
        """
        least = max(parts, more)
        cursors = {table: cursor for table, cursor in start.snapshots.items() if table in self._refs}
        cursors.update(ended := self._stopped(cursors))
        for table in self._keys_only.intersection(cursors):
            cursors[table] = dataclasses.replace(cursors[table], keys=True)
        taken, left = 0, _NO_LIMIT if room_bytes is None else room_bytes
        for table, ref in self._refs.items():
            if taken >= least and room is not None and room <= 0:
                break
            if taken and left <= 0:
                break
            stopping = self._stop(table) is not None
            if table in ended or table in held:
                continue
            if self._is_unread(table, cursors.get(table)):
                cursors[table] = Cursor(UNREAD, 0, 0, generations.get(ref, ""))
                continue
            if table in self._paused and not stopping:
                continue
            spare = None if taken < least else room
            cursor = self._cursor(ref, cursors.get(table), generations.get(ref, ""), throttle, spare)
            if cursor is None:
                break
            if cursor.over:
                cursors[table] = cursor
                continue
            chunks, done = self._plan(cursor.plan).chunks, cursor.next
            last = min(1, cursor.of) if stopping else cursor.of
            while (
                done < last
                and (taken < least or room is None or room >= chunks[done].rows)
                and (not taken or left >= chunks[done].nbytes)
                and throttle.take(chunks[done].rows)
            ):
                room = None if room is None else room - chunks[done].rows
                left -= chunks[done].nbytes
                done, taken = done + 1, taken + 1
            if done:
                cut = stopping and done < cursor.of
                keys = table in self._keys_only
                cursors[table] = dataclasses.replace(
                    cursor, next=done, stopped=cut, short=cut or cursor.short, keys=keys
                )
            if throttle.refused is not None:
                # Nor is any other table cut into chunks meanwhile.
                break
        return cursors

    def reads(self, start: Offset, end: Offset, *, replayed: bool = False) -> list[ChunkRead]:
        """The chunks between two offsets, of the tables that are still read.

        Of a batch that is replayed, chunks are left out that a waiting whole snapshot will replace: they may
        be what the batch failed for, and it would come again for ever.
        """
        reads = []
        for table, cursor in sorted(end.snapshots.items()):
            if table not in self._refs:
                continue
            before = start.snapshots.get(table)
            first = before.next if before is not None and before.plan == cursor.plan else 0
            if first < cursor.next:
                plan = self._plan(cursor.plan)
                if replayed and self._whole(table).difference([cursor.plan, *plan.serves]):
                    logger.warning("%s is read anew, and the rest of its snapshot is left out", table)
                    self._left.add(table)
                    continue
                if plan.where is not None and table in self._stops:
                    # A condition may fail on a row; without this the batch would come again for ever.
                    logger.warning("the snapshot of %s was stopped, and the rest of it is left out", table)
                    continue
                body = plan.table.to_json()
                columns = plan.table.key if table in self._keys_only else None
                reads += [
                    ChunkRead(body, chunk, end.position.version, end.position.source, columns or None)
                    for chunk in plan.chunks[first : cursor.next]
                ]
        return reads

    def committed(self, offset: Offset) -> None:
        """Spark has committed this offset: what it carries is served, plans it has passed are gone."""
        self._done = offset
        plans = {cursor.plan for cursor in offset.snapshots.values()}
        for request in plans.intersection(self._waiting):
            self._serve(self._waiting[request])
        passed = False
        for table, plan in list(self._begun.items()):
            if (cursor := offset.snapshots.get(table)) is not None and cursor.plan == plan.id:
                del self._begun[table]
                passed = True
        if passed:
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

    def _serve(self, request: Request) -> None:
        """Its first batch is committed: it and what it was begun for as well are no longer asked for."""
        for one in (*self._plan(request.id).serves, request.id):
            self._plans.served(one)
            self._waiting.pop(one, None)
        table = str(request.table)
        self._left.discard(table)
        if request.where is None and (stop := self._stops.get(table)) is not None:
            # It was made after the stop, and replaces all that this was about.
            self._forget(table, stop)

    def _stop(self, table: str) -> Stop | None:
        """The table's stop, unless a whole snapshot was asked for after it."""
        stop = self._stops.get(table)
        return None if stop is None or table in self.requests else stop

    def _stopped(self, cursors: Mapping[str, Cursor]) -> dict[str, Cursor]:
        """The cursors that a stop changes here. Where one shows it already, its order is done with.

        A whole snapshot that was withdrawn may have been to make up for rows that are missing.
        """
        ended = {}
        for table, cursor in cursors.items():
            if (stop := self._stop(table)) is None:
                continue
            plan = self._plans.find(cursor.plan) if cursor.of else None
            conditional = plan is not None and plan.where is not None
            # Of a condition that is over `reads` may have left out the last chunks.
            stopped = cursor.stopped or conditional or not cursor.over
            missing = bool(stop.whole.difference([cursor.plan])) or not (cursor.over or conditional)
            shown = dataclasses.replace(cursor, stopped=stopped, short=cursor.short or missing)
            if shown != cursor:
                ended[table] = shown
            else:
                self._forget(table, stop)
        return ended

    def _forget(self, table: str, stop: Stop) -> None:
        # First: whoever stopped may have died before it did this.
        for request in stop.withdrawn:
            self._plans.served(request)
        self._orders.stopped(table, stop)
        del self._stops[table]

    def _is_unread(self, table: str, cursor: Cursor | None) -> bool:
        """Whether nobody asks for rows of the table, now or in what has begun."""
        asked = any(str(one.table) == table for one in self._waiting.values())
        return table in self._unread and not asked and (cursor is None or cursor.over)

    def _lacks_rows(self, table: str, cursor: Cursor) -> bool:
        """Whether rows are asked for that nobody asked for before."""
        return not cursor.whole and table not in self._unread | self._keys_only

    def _whole(self, table: str) -> set[str]:
        return {one.id for one in self._waiting.values() if one.where is None and str(one.table) == table}

    def _asked(self, table: str, cursor: Cursor) -> tuple[str, str | None] | None:
        """The snapshot that is to begin now, as its plan's id and condition; None to go on as it is."""
        fresh = self.requests.get(table)
        # One with a condition is let go on, unless chunks of it were left out for the other's sake.
        free = cursor.over or table in self._left
        if fresh not in (None, cursor.plan) and (free or self._plan(cursor.plan).where is None):
            return str(fresh), None
        for one in self._waiting.values():
            if cursor.over and one.where is not None and str(one.table) == table and one.id != cursor.plan:
                return one.id, one.where
        return None

    def _due(
        self, table: str, cursor: Cursor | None, generation: str
    ) -> tuple[str | None, str | None] | None:
        """The same for tables that need a snapshot unasked, whose plan has no id yet."""
        known = cursor is not None and cursor.generation == generation
        if cursor is not None and known and not self._lacks_rows(table, cursor):
            return self._asked(table, cursor)
        fresh = self.requests.get(table)
        if cursor is None and (stop := self._stop(table)) is not None:
            # What it withdrew is served by the chunk that is taken all the same.
            fresh = min(stop.whole, default=None)
        # The plan of a snapshot that has begun stays as it is.
        return (None if cursor is not None and cursor.plan == fresh else fresh), None

    def _cursor(
        self, ref: TableRef, cursor: Cursor | None, generation: str, throttle: Round, room: int | None
    ) -> Cursor | None:
        """The cursor to go on from; None where another is due and no table may be cut into chunks now."""
        table = str(ref)
        due, begun = self._due(table, cursor, generation), self._begun.get(table)
        if begun is not None and cursor is not None and cursor.plan == begun.id:
            return cursor
        if due is None and cursor is not None:
            # Withdrawn before it was logged, if it was begun at all.
            self._begun.pop(table, None)
            return cursor
        plan_id, where = due or (None, None)
        if begun is not None and (begun.where != where or plan_id not in (None, begun.id)):
            begun = None
        if begun is not None and time.monotonic() - self._cut[begun.id] >= STALE_SECONDS:
            fits = room is None or room >= begun.chunks[0].rows
            begun = None if fits else begun
        if begun is None:
            if not throttle.take(0):
                return None
            begun = self._begin(ref, plan_id or f"p{uuid.uuid4().hex[:12]}", where)
        if cursor is not None and begun.where is not None and begun.id not in self._plans.requests():
            # Withdrawn while the table was cut; whoever comes later sees the plan, and stops it.
            self._waiting.pop(begun.id, None)
            self._begun.pop(table, None)
            return cursor
        if cursor is not None and begun.where is not None:
            return Cursor(begun.id, 0, len(begun.chunks), cursor.generation, short=cursor.short)
        return Cursor(begun.id, 0, len(begun.chunks), begun.table.generation)

    def _begin(self, ref: TableRef, plan_id: str, where: str | None) -> Plan:
        table = self._capture.describe(ref)
        planned = self._capture.plan(ref, rows_per_chunk=self._chunk_rows, bytes_per_chunk=self._chunk_bytes)
        chunks = tuple(dataclasses.replace(chunk, where=where) for chunk in planned)
        others = self._whole(str(ref)).difference([plan_id]) if where is None else set()
        asked = self._waiting.get(plan_id)
        index = asked.index if asked is not None else ""
        plan = Plan(plan_id, table, chunks, where, tuple(sorted(others)), index)
        self._plans.save(plan)
        self._begun[str(ref)] = self._known[plan_id] = plan
        self._cut = {known.id: self._cut.get(known.id, time.monotonic()) for known in self._begun.values()}
        self._cut[plan_id] = time.monotonic()
        self._pace.note(plan, 0, time.monotonic())
        return plan

    def _plan(self, plan_id: str) -> Plan:
        if plan_id not in self._known:
            self._known[plan_id] = self._plans.load(plan_id)
        return self._known[plan_id]
