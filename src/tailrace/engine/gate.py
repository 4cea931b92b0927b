"""The door between a request to stop and the batch that is being written.

A stop lets the running batch finish and turns the next one away, so a stopped pipeline has no half-written
batch and a restart repeats nothing. It is not held back until the query has stopped: Spark, asked to stop it,
waits until a function that it has called returns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Closed(Exception):
    """A batch that came after the stop. Its words are for whoever reads them in Spark's log."""

    def __init__(self) -> None:
        super().__init__("the pipeline is stopping: nothing of this batch was written, and it comes again")


class Gate:
    """Batches pass one at a time; `close` waits for the one inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: int | None = None
        self._closed = False
        self.finished = -1

    @property
    def closed(self) -> bool:
        """Whether a stop was asked for."""
        return self._closed

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Be inside with a batch. Closed after a stop."""
        with self._changed:
            if self._closed:
                raise Closed
            self._inside = number
        try:
            yield
            self.finished = number
        finally:
            with self._changed:
                self._inside = None
                self._changed.notify_all()

    def close(self, timeout: float | None = None) -> bool:
        """Let no further batch in and wait for the one inside; False if it took longer than `timeout`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._inside is None, timeout)

    def wait_closed(self, timeout: float) -> bool:
        """Sleep, but wake at once when a stop is asked for; True then."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout)
