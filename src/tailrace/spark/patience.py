"""Repeating what a passing fault stops: an application holds the source's lock, a server starts again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from tailrace.model.errors import Transient
from tailrace.runtime.backoff import Backoff

PATIENCE = 60.0
logger = logging.getLogger("tailrace.spark")
T = TypeVar("T")


def patiently(act: Callable[[], T]) -> T:
    """What `act` returns, once it does; Transient when it has failed for too long."""
    deadline, attempt, backoff = time.monotonic() + PATIENCE, 0, Backoff(longest=2.0)
    while True:
        try:
            return act()
        except Transient as error:
            if time.monotonic() >= deadline:
                raise
            attempt += 1
            logger.warning("%s; trying again", error.message)
            time.sleep(backoff.delay(attempt))
