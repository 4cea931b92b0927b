"""What a capture lives with is told when it begins, now and then while it lasts, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from tailrace.capture.contract import Finding
from tailrace.runtime.observer import Observer

REMIND_SECONDS = 600.0
_log = logging.getLogger(__name__)


class Notices:
    """What was told already. For one thread."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer, self._clock = observer, clock
        self._told: dict[tuple[str, str | None], float] = {}

    def tell(self, found: Iterable[Finding]) -> None:
        """These are the capture's notices now."""
        now = self._clock()
        lasting = {(notice.code, notice.table): notice for notice in found}
        for key, notice in lasting.items():
            if key not in self._told or now - self._told[key] >= REMIND_SECONDS:
                self._told[key] = now
                remedy = f" Remedy: {notice.remedy}" if notice.remedy else ""
                _log.warning("%s.%s", notice.message, remedy)
                self._observer.event(
                    "source.notice",
                    severity=notice.severity,
                    code=notice.code,
                    table=notice.table,
                    message=notice.message,
                    remedy=notice.remedy,
                )
        for code, table in [key for key in self._told if key not in lasting]:
            del self._told[code, table]
            _log.warning("Over: %s%s.", code, f" of {table}" if table else "")
            self._observer.event("source.notice.over", code=code, table=table)
