"""Captures that stay open in a worker from one task to the next.

A connection that is new costs the server more than a small task does: a process, its catalogue caches, and a
page fault for every page of shared memory that it has not touched yet, which a larger table has more of.
Spark's workers live for many tasks, and end after a minute without one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.capture.contract import Capture
from tailrace.spark.opening import open_capture
from tailrace.spark.options import SourceOptions


@dataclass(frozen=True)
class _Open:
    source: tuple[Any, ...]
    capture: Capture
    ending: ExitStack


_guard = threading.Lock()
# At most one: a worker's tasks are those of one pipeline, mostly.
_idle: list[_Open] = []
# A connection is its opener's: a child would speak in between.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def lent_capture(options: SourceOptions) -> Iterator[Capture]:
    """The capture that the options mean, for one task of an executor. Closed where the task fails."""
    source = (options.url, options.types, options.source_options)
    with _guard:
        found = _idle.pop() if _idle else None
    if found is not None and found.source != source:
        found.ending.close()
        found = None
    if found is None:
        with ExitStack() as ending:
            capture = open_capture(options)
            ending.callback(capture.close)
            ending.enter_context(capture.together())
            found = _Open(source, capture, ending.pop_all())
    try:
        yield found.capture
    except BaseException:
        found.ending.close()
        raise
    with _guard:
        other = _idle.pop() if _idle else None
        _idle.append(found)
    if other is not None:
        other.ending.close()
