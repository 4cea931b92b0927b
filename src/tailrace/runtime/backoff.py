"""How long to wait before the next try: twice as long each time, up to a limit, with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Seconds of the first wait and of the longest one."""

    first: float = 0.1
    longest: float = 30.0

    def delay(self, attempt: int) -> float:
        """The wait before try number `attempt`, counted from one: between half and the whole of its step."""
        step = min(self.longest, self.first * 2.0 ** min(attempt - 1, 30))
        return step * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
