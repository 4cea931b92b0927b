"""Which delivered transactions can other connections not see yet?

The log delivers a commit before the server has made it visible, and long before where it waits for a
synchronous standby. `Recent` remembers the transactions that were delivered until a snapshot of the server
shows them all. What is confirmed to the server never passes one of them, so that after a restart the slot
sends it again and it is remembered again: a transaction below the slot's confirmed position is visible.

Snapshots name transactions in progress (`pg_current_snapshot()`); a long one that was never delivered is
nobody's concern. Visibility only grows, so whoever streams may wait once for all readers: a read that another
process begins afterwards sees the same. A process without a stream (`wait`) waits for
those running transactions that the slot has not confirmed, which it learns by a look into the slot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.messages import Ints

_HALF = 1 << 31
_WRAP = (1 << 32) - 1
_SAMPLES = 10_000
_POLL = 0.02
# Most transactions are short: a look into the slot is dear, and seldom needed.
_PATIENCE = 0.3
_SETTLE_SECONDS = 1.0
SNAPSHOT = "SELECT pg_current_snapshot()::text"
_RUNNING = """
SELECT transactionid::text::int8 FROM pg_catalog.pg_locks
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
AND pid IS DISTINCT FROM pg_backend_pid()
"""


class Recent:
    """The transactions of one process's stream. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Ints] = []
        self._xids: list[Ints] = []
        self._times: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)
        # Up to here every transaction that is not visible is remembered.
        self.passed = 0
        # The first of those that were noted last.
        self.first = 0
        # When `passed` was last known to be all there is.
        self.heard = time.time()

    def note(self, ends: Ints, xids: Ints) -> None:
        """These transactions are about to be delivered."""
        with self._lock:
            self._ends.append(ends)
            self._xids.append(xids)
            if len(ends):
                self._times.append((int(ends[-1]), time.time()))
                self.first, self.passed = int(ends[0]), int(ends[-1])
                self.heard = time.time()

    def begin(self, confirmed: int) -> None:
        """Another stream begins, at the slot's confirmed position."""
        with self._lock:
            self._ends, self._xids = [], []
            self.passed = confirmed

    def reached(self, end: int) -> None:
        """Everything up to `end` was received."""
        with self._lock:
            self.passed = max(self.passed, end)
            self.heard = time.time()

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


def running(connection: Connection) -> set[int]:
    """The transactions that run now, also those that no snapshot names yet: each holds the lock of its id."""
    return {xid for (xid,) in connection.execute(_RUNNING).fetchall()}


def wait(
    connection: Connection,
    recent: Recent,
    version: int,
    *,
    streaming: Callable[[], bool],
    peek: Callable[[Connection], set[int] | None],
    timeout: float,
) -> bool:
    """Whether a read begun now sees everything up to `version`; waits `timeout` seconds for that.

    `peek` gives the transactions that the slot would send up to there, None where that cannot be told now.
    """
    began = time.monotonic()
    waiting = running(connection)
    looked = False
    while waiting:
        if streaming() and recent.passed >= version:
            (snapshot,) = connection.execute(SNAPSHOT).fetchone() or ("1:1:",)
            recent.settle(snapshot)
            if not recent.unseen(version):
                return True
        elif not looked and time.monotonic() - began > _PATIENCE and not streaming():
            sent = peek(connection)
            if sent is not None:
                waiting &= sent
                looked = True
        waiting &= running(connection)
        if waiting and time.monotonic() - began >= timeout:
            return False
        if waiting:
            time.sleep(_POLL)
    return True


def settled(connection: Connection) -> bool:
    """Whether every transaction that runs now ends soon: then all that is in the log now is visible."""
    return wait(
        connection, Recent(), 0, streaming=lambda: False, peek=lambda _: None, timeout=_SETTLE_SECONDS
    )
