"""What holds a pipeline up, and what it stopped on: small files in the state directory, for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import TailraceError
from tailrace.spark.waits import Wait, remember, remembered

WAITS, STOPPED = "sinks.json", "stopped.json"


@dataclass(frozen=True)
class HeldUp:
    """Why nothing goes on, and since when (ISO 8601, UTC).

    `sink` is what is waited for; None where it may be something else that a batch needs.
    """

    sink: str | None
    reason: str
    since: str


@dataclass(frozen=True)
class Stopped:
    """The error that the last run ended with: its kind, its message, and when (ISO 8601, UTC)."""

    error: str
    message: str
    time: str


class HoldUps:
    """Writes it down for one run. Threads may share it. Of several waits the oldest is told."""

    def __init__(self, state_dir: str) -> None:
        self._where = open_filesystem(state_dir) if state_dir else None
        self._waits: dict[str, Wait] = {}
        self._told: Wait | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A run begins: what the last one said is over."""
        if self._where is not None:
            fs, root = self._where
            for name in (WAITS, STOPPED):
                remember(fs, f"{root}/{name}", None)

    def waiting(self, sink: str, reason: str) -> None:
        """Something is waited for; without a name it is told only where no sink is known to be."""
        with self._lock:
            if sink or not self._waits:
                known = self._waits.get(sink)
                new = Wait(sink, reason, time.time())
                self._waits[sink] = new if known is None else replace(known, reason=reason)
                self._tell()

    def over(self, sinks: Collection[str]) -> None:
        """Nothing waits for these any more."""
        if self._waits:
            with self._lock:
                self._waits = {name: wait for name, wait in self._waits.items() if name not in sinks}
                self._tell()

    def stopped(self, error: TailraceError) -> None:
        """The run ends with an error."""
        if self._where is not None:
            fs, root = self._where
            message = f"{error.place}: {error.message}" if error.place else error.message
            wait = Wait(type(error).__name__, message, time.time())
            remember(fs, f"{root}/{STOPPED}", wait)

    def _tell(self) -> None:
        first = min(self._waits.values(), key=lambda wait: wait.since, default=None)
        if self._where is not None and first != self._told:
            fs, root = self._where
            remember(fs, f"{root}/{WAITS}", first)
            self._told = first


def held_up(state_dir: str) -> HeldUp | None:
    """What the process that runs said last. It means nothing once that has ended."""
    fs, root = open_filesystem(state_dir)
    wait, _ = remembered(fs, f"{root}/{WAITS}")
    return None if wait is None else HeldUp(wait.kind or None, wait.reason, _iso(wait.since))


def stopped_on(state_dir: str) -> Stopped | None:
    """The error that ended the last run, where it ended with one."""
    fs, root = open_filesystem(state_dir)
    wait, _ = remembered(fs, f"{root}/{STOPPED}")
    return None if wait is None else Stopped(wait.kind, wait.reason, _iso(wait.since))


def _iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
