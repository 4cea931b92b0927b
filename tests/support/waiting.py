"""Waiting by condition, with a deadline: the only way a test may wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
# Deadlines are so many times as far away, on a machine that starves the tests.
PATIENCE = float(os.environ.get("TAILRACE_PATIENCE", "1"))


def wait_until(
    condition: Callable[[], Value], *, timeout: float = 60.0, interval: float = 0.02, what: str | None = None
) -> Value:
    """The first truthy value of `condition`, which is asked until the deadline; AssertionError after it.

    The deadline costs nothing where the condition holds, so it is for a machine that has much else to do.

    An AssertionError that the condition itself raises counts as "not yet", and is shown if time runs out.
    """
    timeout *= PATIENCE
    deadline = time.monotonic() + timeout
    while True:
        last: AssertionError | None = None
        try:
            if value := condition():
                return value
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} did not hold within {timeout:g} s") from last
        time.sleep(interval)
