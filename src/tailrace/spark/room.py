"""How many chunks of snapshots a micro-batch may hold where nobody set a limit: what takes about two seconds.

A batch costs Spark about as much as reading a hundred thousand rows, so small ones halve the speed; a long
one makes the changes wait that come meanwhile. The time that the last batch took tells how many chunks are
neither. Chunks, and not rows: those of every table take about as long, for they are cut by rows and bytes.
The time is that between two batches; a trigger of a fixed interval is a part of it, and lets nothing grow.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tailrace.spark.offsets import Offset

TARGET_SECONDS = 2.0
# At most so many chunks, and so many times more than in the batch before.
MOST, STEP = 256, 4


class Room:
    """The chunks for the next batch; none beyond its limit of rows at the beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: tuple[Offset, int, float] | None = None
        self.chunks = 0

    def begun(self, end: Offset, chunks: int) -> None:
        """The batch that ends there, with so many chunks, is being read."""
        self._running = (end, chunks, self._clock())

    def committed(self, offset: Offset) -> None:
        """Spark has committed everything up to there."""
        if self._running is None or self._running[0] != offset:
            return
        _, chunks, begun = self._running
        self._running = None
        if chunks:
            seconds = max(self._clock() - begun, 0.001)
            self.chunks = min(int(chunks / seconds * TARGET_SECONDS), STEP * chunks, MOST)
