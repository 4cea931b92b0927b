"""The thread beside a stream: it answers the server while the consumer is slow, and watches slot and tables.

It sends the status at an interval well below the server's patience, with what is acknowledged and visible to
everyone (`visible.py`) as the flushed position. Once in a while it looks whether the publication still has
the watched tables as they were, and whether the slot is at risk. A fault of a table stops that table
(`halts.py`), any other one is raised by the stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from tailrace.capture.postgres import publication, slots
from tailrace.capture.postgres.client import Connection, NoAnswer, connect, no_answer, translated
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.halts import Halts, changed
from tailrace.capture.postgres.link import Link
from tailrace.capture.postgres.publication import Member
from tailrace.capture.postgres.visible import SNAPSHOT, Recent
from tailrace.model.errors import SetupMissing, TailraceError, Transient
from tailrace.model.table import TableRef

_TICK = 0.1
_FAREWELL = 2.0
Answer = TypeVar("Answer")


class Ended(Transient):
    """The stream is over, and nothing can be asked beside it."""


class Sentinel:
    """One stream's. `acknowledged` may be set from any thread; `failure` is what the stream must raise."""

    def __init__(
        self,
        config: PostgresConfig,
        link: Link,
        recent: Recent,
        *,
        slot: str,
        members: Mapping[TableRef, Member],
        halts: Halts,
        confirmed: int,
        interval: float,
    ) -> None:
        self._config, self._link, self._recent = config, link, recent
        self._slot, self._members, self._halts = slot, members, halts
        self._interval = interval
        self._acknowledged = self.flushed = confirmed
        self._wake = threading.Event()
        self._closing = self._ended = False
        self._asking = threading.Lock()
        self._connection: Connection | None = None
        self._sent = self._watched = time.monotonic()
        self.failure: TailraceError | None = None
        self._seen: slots.Slot | None = None
        # What the server has on record even if it crashes, and what it has by the next look.
        self.kept = self._coming = 0
        self._thread = threading.Thread(target=self._run, name="tailrace-sentinel", daemon=True)
        self._thread.start()

    def acknowledge(self, version: int) -> None:
        """Everything up to `version` is durable downstream."""
        if version > self._acknowledged:
            self._acknowledged = version
            self._wake.set()

    def look(self) -> None:
        """Look at the server soon.

        One that shuts down wants everything confirmed first, and would wait for us without an end.
        """
        self._watched = 0.0
        self._wake.set()

    def close(self) -> None:
        """End the thread, which first tells the server what is acknowledged if that is quick."""
        self._closing = True
        self._wake.set()
        self._thread.join(_FAREWELL)
        connection = self._connection
        if self._thread.is_alive() and connection is not None:
            connection.abandoned = True
            self._thread.join(_FAREWELL)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.wait(_TICK if self._acknowledged > self.flushed else self._pause())
                self._wake.clear()
                self._turn()
            if self.failure is None:
                self._guarded(self._advance)
        finally:
            with self._asking:
                self._ended = True
                if self._connection is not None:
                    self._connection.close()

    def _pause(self) -> float:
        due = min(self._sent + self._interval, self._watched + self._config.watch_interval)
        return max(0.01, due - time.monotonic())

    def _turn(self) -> None:
        self._guarded(self._advance)
        if time.monotonic() - self._watched >= self._config.watch_interval and not self._closing:
            self._watched = time.monotonic()
            self._guarded(lambda: self.ask(self._watch))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except TailraceError as error:
            self.failure = error
        except Exception as error:
            self.failure = Transient(f"watching the stream failed: {type(error).__name__}")

    def _advance(self) -> None:
        wanted = self._acknowledged
        if wanted > self.flushed:
            if self._recent.unseen(wanted):
                self.ask(self._settle)
            if not self._recent.unseen(wanted):
                self.flushed = wanted
                self._send()
                return
        if time.monotonic() - self._sent >= self._interval:
            self._send()

    def _send(self) -> None:
        self._sent = time.monotonic()
        self._link.status(self.flushed)

    def ask(self, question: Callable[[Connection], Answer]) -> Answer:
        """Ask the server something over the sentinel's connection, from any thread.

        A server that does not answer in time is the stream's failure too, whoever asked: the thread that
        reads may be the one that waits here, and so never see how silent the server is.
        """
        timeout = self._config.timeout
        try:
            if not self._asking.acquire(timeout=timeout):
                raise no_answer(self._config, timeout)
            try:
                if isinstance(self.failure, NoAnswer):
                    raise no_answer(self._config, timeout)
                return self._asked(question)
            finally:
                self._asking.release()
        except NoAnswer as error:
            self.failure = self.failure or error
            raise

    def _asked(self, question: Callable[[Connection], Answer]) -> Answer:
        if self._ended:
            raise Ended("the stream has ended")
        if self._connection is not None:
            try:
                with translated(self._config):
                    return question(self._connection)
            except NoAnswer:
                raise
            except Transient:
                self._connection.close()
        # A server that takes no new connection is as good as gone.
        self._connection = connect(self._config)
        with translated(self._config):
            return question(self._connection)

    def _settle(self, connection: Connection) -> None:
        (snapshot,) = connection.execute(SNAPSHOT).fetchone() or ("1:1:",)
        self._recent.settle(snapshot)

    def _watch(self, connection: Connection) -> None:
        found = publication.read(connection, self._config.publication)
        if found is None:
            raise SetupMissing(
                "the publication was dropped", remedy="tailrace setup, then tailrace snapshot --table '*'"
            )
        if not found.complete:
            raise SetupMissing(
                "the publication no longer publishes every operation by root",
                remedy="tailrace setup, then tailrace snapshot --table '*'",
            )
        for ref, fault in changed(found, self._members).items():
            # What is published again is behind a gap at once; what is not published sends nothing more.
            self._halts.stop(ref, fault, 0 if ref in found.members else slots.end(connection))
        self._halts.raise_if_all()
        slot = slots.find(connection, self._slot)
        if slot is None:
            raise slots.missing(self._slot)
        self._halts.risks = slots.risks(slot, self._config)
        self._keep(slots.checked(slot, connection))
        self._settle(connection)

    def _keep(self, slot: slots.Slot) -> None:
        """What the server has written of the slot, which it does where `restart_lsn` moves.

        With it goes what was confirmed until then. A checkpoint is no sign: what is confirmed alone does not
        make it write a slot. The new one shows a moment before it is written, so the next look counts it.
        """
        self.kept = max(self.kept, self._coming)
        restart = slot.restart or 0
        before, self._seen = self._seen, slot
        self._coming = max(self._coming, restart)
        if before is not None and restart > (before.restart or 0):
            self._coming = max(self._coming, before.confirmed or 0)
