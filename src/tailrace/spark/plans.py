"""Snapshot plans and requests: durable files in the state directory.

A plan fixes a table's schema and its chunks when its snapshot begins; offsets refer to it by id, so a restart
continues the same chunks. A request is a wish for a fresh snapshot that another process (`tailrace snapshot`)
left behind; its id becomes the plan's id, so that it is served exactly once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pyarrow.fs as pafs

from tailrace.capture.contract import Chunk
from tailrace.changelog.filesystem import listing, make_directory, remove
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableRef, TableSchema


@dataclass(frozen=True)
class Plan:
    """The chunks of one snapshot of one table."""

    id: str
    table: TableSchema
    chunks: tuple[Chunk, ...]


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
            "chunks": [[chunk.index, chunk.bounds, chunk.rows] for chunk in plan.chunks],
        }
        write_state(self._fs, f"{self._plans}/{plan.id}.json", "snapshot-plan", body)

    def load(self, plan_id: str) -> Plan:
        """The plan an offset refers to."""
        body = read_state(self._fs, f"{self._plans}/{plan_id}.json", "snapshot-plan")
        if body is None:
            raise StateUnreadable(
                f"the snapshot plan {plan_id} is missing from the state directory",
                remedy="restore the state directory, or start a new query with a new checkpoint and stateDir",
            )
        table = TableSchema.from_json(body["table"])
        chunks = tuple(Chunk(table.ref, index, bounds, rows) for index, bounds, rows in body["chunks"])
        return Plan(plan_id, table, chunks)

    def keep_only(self, plan_ids: set[str]) -> None:
        """Remove the plans that no offset can refer to any more."""
        for name in self._names(self._plans):
            if name.removesuffix(".json") not in plan_ids:
                remove(self._fs, f"{self._plans}/{name}")

    def request(self, ref: TableRef) -> str:
        """Ask for a fresh snapshot of a table; a waiting request for it is not doubled."""
        for waiting, table in self.requests().items():
            if table == ref:
                return waiting
        request_id = f"r{uuid.uuid4().hex[:12]}"
        make_directory(self._fs, self._requests)
        body = {"schema": ref.schema, "name": ref.name}
        write_state(self._fs, f"{self._requests}/{request_id}.json", "snapshot-request", body)
        return request_id

    def requests(self) -> dict[str, TableRef]:
        """Every waiting request, by id."""
        found = {}
        for name in self._names(self._requests):
            body = read_state(self._fs, f"{self._requests}/{name}", "snapshot-request")
            if body is not None:
                found[name.removesuffix(".json")] = TableRef(body["schema"], body["name"])
        return found

    def served(self, request_id: str) -> None:
        """Forget a request: a committed offset carries its plan."""
        remove(self._fs, f"{self._requests}/{request_id}.json")

    def _names(self, directory: str) -> list[str]:
        return sorted(name for name in listing(self._fs, directory) if name.endswith(".json"))
