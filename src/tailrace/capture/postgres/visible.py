"""Which delivered transactions can other connections not see yet?

The log delivers a commit before the server has made it visible, and long before where it waits for a
synchronous standby. `Recent` remembers the transactions that were delivered until a snapshot of the server
shows them all. What is confirmed to the server never passes one of them, so that after a restart the slot
sends it again and it is remembered again: a transaction below the slot's confirmed position is visible.

Snapshots name transactions in progress (`pg_current_snapshot()`); a long one that was never delivered is
nobody's concern.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import numpy as np

from tailrace.capture.postgres.messages import Ints

_HALF = 1 << 31
_WRAP = (1 << 32) - 1
_SAMPLES = 10_000


class Recent:
    """The transactions of one process's stream. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Ints] = []
        self._xids: list[Ints] = []
        self._times: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)

    def note(self, ends: Ints, xids: Ints) -> None:
        """These transactions are about to be delivered."""
        with self._lock:
            self._ends.append(ends)
            self._xids.append(xids)
            if len(ends):
                self._times.append((int(ends[-1]), time.time()))

    def forget(self) -> None:
        """Another stream begins."""
        with self._lock:
            self._ends, self._xids = [], []

    def unseen(self, version: int) -> bool:
        """Whether one up to `version` is not known to be visible."""
        with self._lock:
            return any(len(ends) and int(ends[0]) <= version for ends in self._ends)

    def settle(self, snapshot: str) -> None:
        """Forget what a snapshot shows. `snapshot` is the text of `pg_current_snapshot()`."""
        hidden, beyond = _parsed(snapshot)
        with self._lock:
            if not self._ends:
                return
            ends, xids = np.concatenate(self._ends), np.concatenate(self._xids)
            # Ids wrap around at 32 bits, and one that is not older than the snapshot's end is in progress.
            running = np.isin(xids, hidden) | (((xids - beyond) & _WRAP) < _HALF)
            self._ends = [ends[running]] if running.any() else []
            self._xids = [xids[running]] if running.any() else []

    def delivered_since(self, version: int) -> float | None:
        """When the oldest transaction after `version` was delivered, as far as it is remembered."""
        with self._lock:
            return next((at for end, at in self._times if end > version), None)


def _parsed(snapshot: str) -> tuple[list[int], int]:
    _, beyond, running = snapshot.split(":")
    return [int(xid) & _WRAP for xid in running.split(",") if xid], int(beyond) & _WRAP


def running(snapshot: str) -> set[int]:
    """The transactions that are in progress in a snapshot, by their full ids."""
    return {int(xid) for xid in snapshot.split(":")[2].split(",") if xid}
