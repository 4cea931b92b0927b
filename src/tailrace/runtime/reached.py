"""When positions were captured, so that another process can tell how old the newest delivered change is.

A filler keeps samples of (position, time) and saves the newest one that its consumer has acknowledged.
Everything committed before that time is delivered; what came since may not be.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import pyarrow.fs as pafs

from tailrace.changelog.statefile import read_state
from tailrace.model.errors import StateUnreadable

_SAMPLES = 10_000
_APART = 0.5


class Reached:
    """Samples of one filler. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, float]] = deque(maxlen=_SAMPLES)
        self.newest: tuple[int, float] | None = None

    def note(self, version: int) -> None:
        """Everything up to `version` is captured now."""
        if not self._waiting or self._clock() - self._waiting[-1][1] >= _APART:
            self._waiting.append((version, self._clock()))

    def acknowledged(self, version: int) -> tuple[int, float] | None:
        """The newest sample up to `version`, which the consumer has."""
        while self._waiting and self._waiting[0][0] <= version:
            self.newest = self._waiting.popleft()
        return self.newest


def behind(fs: pafs.FileSystem, path: str, kind: str, position: int) -> float | None:
    """How many seconds ago `position` was the newest one, by what a filler saved; None if it did not."""
    try:
        body = read_state(fs, path, kind)
    except StateUnreadable:
        return None
    match body:
        case {"reached": [int(version), int() | float() as at]} if version <= position:
            return max(0.0, time.time() - at)
    return None
