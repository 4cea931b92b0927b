"""The object behind `tailrace.capture(...)`: a runtime as a context manager and an iterator of deliveries.

    with capture_stream(capture, ["orders"], state_dir="state") as stream:
        for delivery in stream:
            write(delivery.batches)
            stream.acknowledge(delivery.token)

Leaving the block closes everything; what was not acknowledged comes again. Passing faults of the source are
retried with backoff while iterating, so a loop ends only when a snapshot is finished, the stream is closed,
or an error needs somebody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from tailrace.capture.contract import Capture
from tailrace.model.errors import Transient
from tailrace.model.table import TableRef
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.beginning import Mode
from tailrace.runtime.checkpoint import CheckpointStore, Order
from tailrace.runtime.delivery import Delivery, Token
from tailrace.runtime.observer import Observer
from tailrace.runtime.runtime import Runtime


class CaptureStream:
    """Deliveries of one capture, one after the other. See the module's text."""

    def __init__(self, runtime: Runtime, *, poll: float = 1.0, backoff: Backoff | None = None) -> None:
        self.runtime = runtime
        self._poll = poll
        self._backoff = backoff or Backoff()
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        self.runtime.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        attempt = 0
        while self._going() and self.runtime.state == "running":
            try:
                delivery = self.runtime.poll(self._poll)
            except Transient:
                if self._ending.is_set():
                    return
                attempt += 1
                self._ending.wait(self._backoff.delay(attempt))
                continue
            attempt = 0
            if delivery is not None:
                yield delivery
            elif self.runtime.finished:
                return

    def _going(self) -> bool:
        # Parts of a large transaction are acknowledged by the last one's token: to end between them would
        # deliver the first ones again.
        return not self._ending.is_set() or (self.runtime.inside and not self.runtime.closed)

    def acknowledge(self, token: Token, count: int | None = None) -> Token | None:
        """What was delivered with this token is durable; see `Runtime.acknowledge`.

        The token of a part of a large transaction may be given too: it waits for the last part's.
        """
        if self.runtime.holds_part(token):
            return token
        return self.runtime.acknowledge(token, count)

    def finish(self) -> None:
        """Begin nothing more: the iteration ends when what is being handled is acknowledged.

        For a SIGTERM handler. Takes at most as long as one poll, or the rest of a large transaction that was
        delivered in part; nothing is delivered twice afterwards.
        """
        self._ending.set()

    def close(self) -> None:
        """End at once, from any thread; a running iteration ends too. What is unconfirmed comes again."""
        self._ending.set()
        self.runtime.close()


def capture_stream(
    capture: Capture,
    tables: Sequence[TableRef | str],
    *,
    state_dir: str,
    consumer: str = "default",
    mode: Mode = "snapshot_then_changes",
    order: Order = "interleaved",
    max_rows: int = 10_000,
    rows_per_chunk: int | None = None,
    schema_retention: float | None = None,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.time,
    poll: float = 1.0,
    backoff: Backoff | None = None,
) -> CaptureStream:
    """A stream of a capture's changes with its checkpoint under `state_dir`, one for each consumer's name."""
    runtime = Runtime(
        capture,
        tables,
        store=CheckpointStore(state_dir, consumer),
        consumer=consumer,
        mode=mode,
        order=order,
        max_rows=max_rows,
        rows_per_chunk=rows_per_chunk,
        schema_retention=schema_retention,
        observer=observer,
        clock=clock,
    )
    return CaptureStream(runtime, poll=poll, backoff=backoff)
