"""Orders about running snapshots, which other processes leave in the state directory: pause and stop.

A pause is a file as long as it lasts. A stop is a file until an offset that Spark has committed shows it:
the offset log is the truth about what was delivered, and a stop is part of it. Whoever stops withdraws the
table's requests first, so a request that is seen beside a stop was made after it.
"""

from __future__ import annotations

import hashlib

import pyarrow.fs as pafs

from tailrace.changelog.filesystem import listing, make_directory, remove
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.table import TableRef

KIND = "snapshot-order"


class Orders:
    """Pauses and stops under `<state>/control`, one file each."""

    def __init__(self, fs: pafs.FileSystem, root: str) -> None:
        self._fs = fs
        self._directory = f"{root}/control"

    def pause(self, ref: TableRef) -> None:
        """No chunk of the table is taken until it is resumed, also of snapshots that are asked for later."""
        self._write("pause", ref)

    def resume(self, ref: TableRef) -> None:
        """End a pause."""
        remove(self._fs, self._path("pause", str(ref)))

    def stop(self, ref: TableRef) -> None:
        """End the snapshot of the table that runs now, where it is."""
        self._write("stop", ref)

    def stopped(self, table: str) -> None:
        """Forget a stop: a committed offset shows it, or something newer was asked for."""
        remove(self._fs, self._path("stop", table))

    def paused(self) -> set[str]:
        """The tables that are paused."""
        return self.read()[1]

    def read(self) -> tuple[set[str], set[str]]:
        """The tables whose snapshot is to be stopped, and those that are paused."""
        found: dict[str, set[str]] = {"stop": set(), "pause": set()}
        for name in listing(self._fs, self._directory):
            what = name.partition("-")[0]
            if what not in found or not name.endswith(".json"):
                continue
            if (body := read_state(self._fs, f"{self._directory}/{name}", KIND)) is not None:
                found[what].add(str(TableRef(body["schema"], body["name"])))
        return found["stop"], found["pause"]

    def _write(self, what: str, ref: TableRef) -> None:
        make_directory(self._fs, self._directory)
        body = {"schema": ref.schema, "name": ref.name}
        write_state(self._fs, self._path(what, str(ref)), KIND, body)

    def _path(self, what: str, table: str) -> str:
        # A table's name may hold what no file's name can.
        return f"{self._directory}/{what}-{hashlib.sha256(table.encode()).hexdigest()[:16]}.json"
