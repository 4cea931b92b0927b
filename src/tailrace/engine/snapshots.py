"""The progress of snapshots as events, from what the source reports of them.

snapshot.started ─▶ snapshot.progress, again and again ─▶ snapshot.complete
                ╰─▶ snapshot.paused, snapshot.resumed ─╯╰▶ snapshot.stopped
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tailrace.runtime.observer import Observer

PROGRESS_SECONDS = 5.0
NUMBERS = ("chunks_done", "chunks", "rows_done", "rows")


class SnapshotEvents:
    """Tells of every turn of a snapshot, and of its progress every few seconds."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._known: dict[str, Mapping[str, Any]] = {}
        self._told: dict[str, float] = {}

    def tell(self, report: Iterable[Mapping[str, Any]]) -> None:
        """What is running now; a snapshot that is in it no more is complete."""
        now = {str(one["table"]): one for one in report}
        for table, one in now.items():
            before = self._known.get(table)
            if before is None and one["state"] != "stopped":
                self._event("started", one, *(["where"] if one.get("where") else []))
            self._turn(one, "running" if before is None else before["state"])
            if before is not None and one["state"] == "running" and self._due(one, before):
                self._event("progress", one, "rate", "seconds_left")
        for table, before in self._known.items():
            if table not in now and before["state"] != "stopped":
                self._observer.event("snapshot.complete", table=table, chunks=before["chunks"])
        self._known = now

    def _turn(self, one: Mapping[str, Any], before: str) -> None:
        if one["state"] != before:
            self._event({"running": "resumed"}.get(one["state"], one["state"]), one)

    def _due(self, one: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
        moved = one["chunks_done"] != before["chunks_done"]
        return moved and self._clock() - self._told.get(one["table"], 0.0) >= PROGRESS_SECONDS

    def _event(self, what: str, one: Mapping[str, Any], *more: str) -> None:
        self._told[one["table"]] = self._clock()
        self._observer.event(
            f"snapshot.{what}", table=one["table"], **{name: one[name] for name in (*NUMBERS, *more)}
        )
