"""Looks at the source's load, taken beside the query: a source that answers late holds up no change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tailrace.capture.contract import Load
from tailrace.model.errors import TailraceError

SAMPLE_SECONDS = 1.0
# Without a question for so long the source is left alone.
IDLE_SECONDS = 60.0
# A look that is older says nothing of the source any more.
STALE_SECONDS = 30.0
logger = logging.getLogger("tailrace.spark")


class Sampler:
    """The newest look at the source's load: taken once a second by a thread of its own, while asked for."""

    def __init__(self, load: Callable[[], Load], *, interval: float = SAMPLE_SECONDS) -> None:
        self._load = load
        self._interval = interval
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._newest: Load | None = None
        self._taken = 0.0
        self._asked = 0.0

    def newest(self) -> Load | None:
        """The newest sample, at once; None where there is none yet, or none for long."""
        with self._guard:
            self._asked = time.monotonic()
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="tailrace-load", daemon=True)
                self._thread.start()
            return self._newest if time.monotonic() - self._taken < STALE_SECONDS else None

    def close(self) -> None:
        """Ask no more. Does not wait for an answer that is under way."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._newest = self._load()
                self._taken = time.monotonic()
            except TailraceError as error:
                # What was known stays for a while: a source that does not answer is not at rest.
                logger.debug("the source's load is not known: %s", error.message)
            except Exception:
                # This thread must not end unseen, or the last answer would count for ever.
                logger.exception("the source's load is not known")
            self._closed.wait(self._interval)
            with self._guard:
                if time.monotonic() - self._asked >= IDLE_SECONDS:
                    self._thread = self._newest = None
                    return
