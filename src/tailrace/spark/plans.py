"""Snapshot plans and requests: durable files in the state directory.

A plan fixes a table's schema and its chunks when its snapshot begins; offsets refer to it by id, so a restart
continues the same chunks. A request is a wish for a snapshot that another process (`tailrace snapshot`) left
behind; its id becomes the plan's id, so that it is served exactly once.

A request's file exists until its first batch is committed: whoever finds it must ask whether it has begun,
for then it no longer makes up for what is lost now. `served` removes it, called by whoever has seen the
commit (`spark.snapshots`), or once a stop that names it is durable (`spark.orders`).
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import pyarrow.fs as pafs

from tailrace.capture.contract import Chunk
from tailrace.changelog.filesystem import listing, make_directory, remove
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableRef, TableSchema

# The condition of a snapshot that an index asked for: like any with a condition it replaces nothing.
EVERY_ROW = "1 = 1"


@dataclass(frozen=True)
class Plan:
    """The chunks of one snapshot of one table; with `where`, of the rows for which that is true.

    `serves`: other requests that waited for the same when it began, and are served with it. `index`: the one
    that alone is to have its rows.
    """

    id: str
    table: TableSchema
    chunks: tuple[Chunk, ...]
    where: str | None = None
    serves: tuple[str, ...] = ()
    index: str = ""

    @property
    def condition(self) -> str | None:
        """The condition that a person gave."""
        return None if self.index else self.where

    def rows(self, chunks: int) -> int:
        """About how many rows the first so many chunks have. A condition is not in the estimate."""
        return self._rows[min(chunks, len(self.chunks))]

    @cached_property
    def _rows(self) -> list[int]:
        return list(accumulate((chunk.rows for chunk in self.chunks), initial=0))


@dataclass(frozen=True)
class Request:
    """A wish for a snapshot of a table, or of its rows for which `where` is true, or for an `index` alone.

    One that is `remembered` need not wait for a table that is not read any more: who made it knows what it is
    for, and asks again.
    """

    id: str
    table: TableRef
    where: str | None = None
    asked: float = 0.0
    index: str = ""
    remembered: bool = False


class PlanStore:
    """Plans and requests under `<state>/snapshots` and `<state>/requests`."""

    def __init__(self, fs: pafs.FileSystem, root: str) -> None:
        self._fs = fs
        self._plans = f"{root}/snapshots"
        self._requests = f"{root}/requests"

    def save(self, plan: Plan) -> None:
        """Make the plan durable, before any offset refers to it."""
        make_directory(self._fs, self._plans)
        body = {
            "table": plan.table.to_json(),
            "chunks": [[chunk.index, chunk.bounds, chunk.rows, chunk.nbytes] for chunk in plan.chunks],
            "where": plan.where,
            "serves": list(plan.serves),
            "index": plan.index,
        }
        write_state(self._fs, f"{self._plans}/{plan.id}.json", "snapshot-plan", body)

    def load(self, plan_id: str) -> Plan:
        """The plan an offset refers to."""
        plan = self.find(plan_id)
        if plan is None:
            raise StateUnreadable(
                f"the snapshot plan {plan_id} is missing from the state directory",
                remedy="restore the state directory, or start a new query with a new checkpoint and stateDir",
            )
        return plan

    def find(self, plan_id: str) -> Plan | None:
        """The plan, or None where it is not there: for those who only look, while it may be removed."""
        body = read_state(self._fs, f"{self._plans}/{plan_id}.json", "snapshot-plan")
        if body is None:
            return None
        table, where = TableSchema.from_json(body["table"]), body.get("where")
        # A plan of an older version does not know the sizes.
        chunks = tuple(
            Chunk(table.ref, index, bounds, rows, where, nbytes=nbytes[0] if nbytes else 0)
            for index, bounds, rows, *nbytes in body["chunks"]
        )
        return Plan(plan_id, table, chunks, where, tuple(body.get("serves", ())), body.get("index", ""))

    def keep_only(self, plan_ids: set[str]) -> None:
        """Remove the plans that no offset can refer to any more."""
        for name in self._names(self._plans):
            if name.removesuffix(".json") not in plan_ids:
                remove(self._fs, f"{self._plans}/{name}")

    def request(
        self, ref: TableRef, where: str | None = None, *, index: str = "", remembered: bool = False
    ) -> str:
        """Ask for a snapshot of a table; a waiting request for the same is not doubled.

        One that has begun counts for nothing: what is missing since would be missing in it too. With `index`
        all rows are read, for that index alone. One that is `remembered` is so no longer once somebody asks
        for the same who does not.
        """
        where = EVERY_ROW if index else where
        planned = {name.removesuffix(".json") for name in self._names(self._plans)}
        wish, waiting = (ref, where, index), self.requests().values()
        same = {one.id: one for one in waiting if (one.table, one.where, one.index) == wish}
        begun = self._served_by(planned.intersection(same))
        for known, one in same.items():
            if known not in begun:
                if one.remembered and not remembered:
                    self._write(dataclasses.replace(one, remembered=False))
                return known
        request = Request(f"r{uuid.uuid4().hex[:12]}", ref, where, time.time(), index, remembered)
        make_directory(self._fs, self._requests)
        self._write(request)
        return request.id

    def _write(self, request: Request) -> None:
        body = {
            "schema": request.table.schema,
            "name": request.table.name,
            "where": request.where,
            "asked": request.asked,
            "index": request.index,
            "remembered": request.remembered,
        }
        write_state(self._fs, f"{self._requests}/{request.id}.json", "snapshot-request", body)

    def requests(self) -> Mapping[str, Request]:
        """Every waiting request by id, in the order in which they were made."""
        found = []
        for name in self._names(self._requests):
            body = read_state(self._fs, f"{self._requests}/{name}", "snapshot-request")
            if body is not None:
                ref = TableRef(body["schema"], body["name"])
                request_id, asked = name.removesuffix(".json"), body.get("asked", 0.0)
                index, remembered = body.get("index", ""), bool(body.get("remembered", False))
                found.append(Request(request_id, ref, body.get("where"), asked, index, remembered))
        return {request.id: request for request in sorted(found, key=lambda one: one.asked)}

    def fresh(self, begun: Collection[str] = ()) -> set[TableRef]:
        """The tables for which a whole snapshot waits: it will replace everything known of them.

        Not the ones that have `begun`, by the ids of their plans, and are not committed yet.
        """
        waiting, begun = self.requests().values(), self._served_by(begun)
        return {request.table for request in waiting if request.where is None and request.id not in begun}

    def forget_remembered(self, read: Collection[str]) -> None:
        """Remove the requests of tables that are not among those `read`, where that is safe."""
        for request in self.requests().values():
            if request.remembered and str(request.table) not in read:
                self.served(request.id)

    def served(self, request_id: str) -> None:
        """Forget a request: a committed offset carries its plan, or a stop names it."""
        remove(self._fs, f"{self._requests}/{request_id}.json")

    def _served_by(self, plan_ids: Collection[str]) -> set[str]:
        """The requests that end with the first batch of one of these plans."""
        plans = [plan for plan_id in plan_ids if (plan := self.find(plan_id)) is not None]
        return {*plan_ids, *(request for plan in plans for request in plan.serves)}

    def _names(self, directory: str) -> list[str]:
        return sorted(name for name in listing(self._fs, directory) if name.endswith(".json"))
