"""How many rows of snapshots a micro-batch may hold where nobody set a limit: what takes about two seconds.

A batch costs Spark about as much as reading a hundred thousand rows, so small ones halve the speed; a long
one makes the changes wait that come meanwhile. The time that the last batch took tells how many rows are
neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tailrace.spark.offsets import Offset

TARGET_SECONDS = 2.0
# At most so many times more than at the beginning, and than in the batch before.
MOST, STEP = 50, 4


class Room:
    """The rows for the next batch; it begins with `least`."""

    def __init__(self, least: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._clock = clock
        self._running: tuple[Offset, int, float] | None = None
        self.rows = least

    def begun(self, end: Offset, rows: int) -> None:
        """The batch that ends there, with so many rows of snapshots, is being read."""
        self._running = (end, rows, self._clock())

    def committed(self, offset: Offset) -> None:
        """Spark has committed everything up to there."""
        if self._running is None or self._running[0] != offset:
            return
        _, rows, begun = self._running
        self._running = None
        if not rows:
            return
        seconds = max(self._clock() - begun, 0.001)
        fitting = int(rows / seconds * TARGET_SECONDS)
        self.rows = max(self._least, min(fitting, STEP * self.rows, MOST * self._least))
