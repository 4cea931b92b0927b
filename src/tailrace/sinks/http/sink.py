"""The HTTP sink: changes as lines of JSON in POSTs, each with a key by which the receiver knows a repetition.

Bodies go one after the other, each only after the one before was accepted, so order is kept. A fault in the
middle leaves the first bodies delivered; the replay sends all again under the same keys.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import Transient
from tailrace.model.render import lines
from tailrace.model.secret import mask_url
from tailrace.sinks.contract import FeedSink, Progress, Report
from tailrace.sinks.http.client import HttpClient
from tailrace.sinks.http.config import HttpConfig
from tailrace.sinks.http.encode import bodies, idempotency_key


class HttpSink(FeedSink):
    """Posts changes to `config.url`. `sleep` waits between tries; true means that it was ended by `hurry`."""

    def __init__(self, config: HttpConfig, *, sleep: Callable[[float], object] | None = None) -> None:
        self._config = config
        self._client = HttpClient(config)
        self._hurried = threading.Event()
        self._sleep = sleep or self._hurried.wait
        self._not_before = 0.0
        self._waiting: Callable[[str, float], None] | None = None

    def place(self) -> str:
        return mask_url(self._config.url)

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        now = time.monotonic()
        if now < self._not_before:
            # The engine calls again after a Transient, sooner than the server may have asked for.
            asked = f"the server asked to wait, for another {self._not_before - now:.0f} s"
            raise Transient(asked, place=self._client.place)
        deadline = now + self._config.max_elapsed
        written = 0
        for piece, (count, body) in enumerate(bodies(lines(batches), self._config.max_batch_bytes)):
            self._deliver(body, idempotency_key(progress, piece, body), deadline)
            written += count
        return Report(written=written)

    def _deliver(self, body: bytes, key: str, deadline: float) -> None:
        tries = 0
        while (fault := self._client.post(body, key)) is not None:
            limit = min(self._config.max_backoff, self._config.backoff * 2 ** min(tries, 30))
            # Never sooner than the server asked for, and never at once because it asked for nothing.
            wait = max(fault.after or 0.0, random.uniform(0, limit))  # noqa: S311
            tries += 1
            late = time.monotonic() + wait > deadline
            if not late and self._waiting is not None:
                self._waiting(f"{self._client.place}: {fault.reason}", wait)
            if late or self._sleep(wait):
                self._not_before = time.monotonic() + (fault.after or 0.0)
                raise Transient(
                    f"not delivered after {tries} tries, the last failed with {fault.reason}",
                    place=self._client.place,
                )

    def watch(self, waiting: Callable[[str, float], None]) -> None:
        self._waiting = waiting

    def flush(self) -> None:
        """Every body was accepted before `write` returned."""

    def hurry(self) -> None:
        self._hurried.set()

    def close(self) -> None:
        self._client.close()
