"""Up to where a table's snapshot may have seen the log, until the log has come there.

A chunk is read after the log's position that it is delivered with, so it may lack a row that the log still
updates before it deletes it. This outlives the process, for the log may come there in another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tailrace.changelog.filesystem import open_filesystem
from tailrace.changelog.statefile import read_state, write_state
from tailrace.sinks.contract import Progress

FILE, KIND = "seen.json", "seen-by-snapshots"


class Seen:
    """The snapshots of one pipeline. Belongs to the thread that writes batches."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._known: dict[str, int] | None = None

    def settle(self, progress: Progress, seen: Mapping[str, int]) -> Progress:
        """The progress with all tables that are unsettled; remembers, durably, what its chunks have seen."""
        known = self._read() if self._known is None else self._known
        self._known = known = {table: at for table, at in known.items() if at > progress.start}
        if any(at > known.get(table, 0) for table, at in seen.items()):
            known.update((table, max(at, known.get(table, 0))) for table, at in seen.items())
            fs, root = open_filesystem(self._state_dir)
            write_state(fs, f"{root}/{FILE}", KIND, {"tables": known})
        return replace(progress, unsettled=progress.unsettled.union(known))

    def _read(self) -> dict[str, int]:
        fs, root = open_filesystem(self._state_dir)
        saved = read_state(fs, f"{root}/{FILE}", KIND)
        return {} if saved is None else dict(saved["tables"])
