"""Orders about running snapshots, which other processes leave in the state directory: pause and stop.

A pause is a file as long as it lasts. A stop is a file until an offset that Spark has committed shows it:
the offset log is the truth about what was delivered, and a stop is part of it.

A stop names the requests that it withdraws, and is written before their files go: a request may be the only
record of rows that are missing, and now the stop is. A request beside a stop that does not name it was made
after it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from tailrace.changelog.filesystem import listing, make_directory, remove
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.table import TableRef

KIND = "snapshot-order"


@dataclass(frozen=True)
class Stop:
    """An order to stop: the ids of the requests it withdraws, and those among them for whole snapshots."""

    id: str
    withdrawn: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()


class Orders:
    """Pauses and stops under `<state>/control`, one file each."""

    def __init__(self, fs: pafs.FileSystem, root: str) -> None:
        self._fs = fs
        self._directory = f"{root}/control"

    def pause(self, ref: TableRef) -> None:
        """No chunk of the table is taken until it is resumed, also of snapshots that are asked for later."""
        self._write("pause", ref)

    def resume(self, table: str) -> None:
        """End a pause."""
        remove(self._fs, self._path("pause", table))

    def stop(self, ref: TableRef, withdrawn: Iterable[str] = (), whole: Iterable[str] = ()) -> None:
        """End the snapshot of the table that runs now, where it is, and withdraw these requests."""
        before = self._stop(str(ref)) or Stop("")
        self._write(
            "stop",
            ref,
            id=uuid.uuid4().hex[:12],
            withdrawn=sorted(before.withdrawn.union(withdrawn)),
            whole=sorted(before.whole.union(whole)),
        )

    def stopped(self, table: str, order: Stop | None = None) -> None:
        """Forget a stop, or only this one: a committed offset shows it, or something newer was asked for."""
        if order is None or order == self._stop(table):
            remove(self._fs, self._path("stop", table))

    def paused(self) -> set[str]:
        """The tables that are paused."""
        return self.read()[1]

    def read(self) -> tuple[dict[str, Stop], set[str]]:
        """The stops by table, and the tables that are paused."""
        stops: dict[str, Stop] = {}
        paused: set[str] = set()
        for name in listing(self._fs, self._directory):
            what = name.partition("-")[0]
            if what not in ("stop", "pause") or not name.endswith(".json"):
                continue
            if (body := read_state(self._fs, f"{self._directory}/{name}", KIND)) is None:
                continue
            table = str(TableRef(body["schema"], body["name"]))
            if what == "pause":
                paused.add(table)
            else:
                stops[table] = _order(body)
        return stops, paused

    def _stop(self, table: str) -> Stop | None:
        body = read_state(self._fs, self._path("stop", table), KIND)
        return None if body is None else _order(body)

    def _write(self, what: str, ref: TableRef, **more: Any) -> None:
        make_directory(self._fs, self._directory)
        body = {"schema": ref.schema, "name": ref.name, **more}
        write_state(self._fs, self._path(what, str(ref)), KIND, body)

    def _path(self, what: str, table: str) -> str:
        # A table's name may hold what no file's name can.
        return f"{self._directory}/{what}-{hashlib.sha256(table.encode()).hexdigest()[:16]}.json"


def _order(body: dict[str, Any]) -> Stop:
    withdrawn, whole = frozenset(body.get("withdrawn", ())), frozenset(body.get("whole", ()))
    return Stop(body.get("id", ""), withdrawn, whole)
