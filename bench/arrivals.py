"""When rows came to somebody who waits for them. All processes of a machine have one monotonic clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from bench.contestant import Answer

PATIENCE = 60.0


class Arrivals:
    """Keys of rows, and the moments they came at."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._moments: dict[int, float] = {}
        self._failed: BaseException | None = None

    def came(self, keys: Iterable[int]) -> None:
        """These are here now."""
        now = time.perf_counter()
        with self._news:
            for key in keys:
                self._moments.setdefault(key, now)
            self._news.notify_all()

    def failed(self, error: BaseException) -> None:
        """Nothing more will come."""
        with self._news:
            self._failed = error
            self._news.notify_all()

    def wait(self, key: int, **_: Any) -> Answer:
        """When it came, as soon as it has."""
        with self._news:
            if not self._news.wait_for(lambda: key in self._moments or self._failed, PATIENCE):
                raise RuntimeError(f"row {key} did not come within {PATIENCE:.0f} seconds")
            if self._failed is not None:
                raise self._failed
            return {"moment": self._moments[key]}
