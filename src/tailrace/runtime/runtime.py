"""One capture's life: `idle → running → stopping → stopped`, and nothing acknowledged that was not confirmed.

`Runtime` pulls from a capture on demand: no thread of its own, nothing read ahead beyond one part. The log
comes through `feed`, tables through `snapshots`, both are packed by `intake`; what was handed out is in the
`delivery.Ledger` until it is acknowledged; `opening` and `beginning` are a start's steps. Every error is
counted and told to the observer under a name, `runtime.<method>.<what>`, and then raised.

Call it from one thread. A second call while one runs is a UsageError; `close` may come from anywhere, a
signal handler included, and ends a running call. `state`, `counters`, `unconfirmed` and `lag` may be read at
any time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from tailrace.capture.contract import Capture, Lag
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import Transient, UsageError
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime.beginning import Beginning, Mode
from tailrace.runtime.checkpoint import Checkpoint, CheckpointStore, Order
from tailrace.runtime.delivery import Counters, Delivery, Item, Ledger, Piece, Token
from tailrace.runtime.intake import Intake
from tailrace.runtime.notices import Notices
from tailrace.runtime.observer import Observer, Silence, told
from tailrace.runtime.opening import Opening

State = Literal["idle", "running", "stopping", "stopped"]


class Runtime:
    """See the module's text. `poll`, `acknowledge`, and the rest raise errors of `tailrace.model.errors`."""

    def __init__(
        self,
        capture: Capture,
        tables: Sequence[TableRef | str],
        *,
        store: CheckpointStore,
        consumer: str,
        mode: Mode = "snapshot_then_changes",
        order: Order | Sequence[Order] = "interleaved",
        max_rows: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        rows_per_chunk: int | None = None,
        schema_retention: float | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.time,
        wait: float = 0.1,
        visible_timeout: float = 30.0,
    ) -> None:
        self._capture = capture
        self._store = store
        self._consumer = consumer
        self._streams = mode != "snapshot"
        self._observer: Observer = observer or Silence()
        self._notices = Notices(self._observer)
        self._clock = clock
        self._opening = Opening(
            capture,
            tuple(tables),
            store=store,
            consumer=consumer,
            mode=mode,
            order=order,
            max_rows=max(1, max_rows),
            max_bytes=max_bytes,
            rows_per_chunk=rows_per_chunk or max(1, max_rows),
            schema_retention=schema_retention,
            observer=self._observer,
            clock=clock,
            wait=wait,
            visible_timeout=visible_timeout,
        )
        self._busy = threading.Lock()
        self._caller: int | None = None
        self._closed = threading.Event()
        self._state: State = "idle"
        self._ledger = Ledger(budget=max_bytes)
        self._intake: Intake | None = None
        self._checkpoint: Checkpoint | None = None
        self._token: Token | None = None
        self._numbers = 0
        self._owed: Position | None = None
        self._barrier = 0
        self.counters = Counters()
        self.errors: Counter[str] = Counter()

    @property
    def state(self) -> State:
        """Where in its life it is."""
        return self._state

    @property
    def committed_count(self) -> int:
        """How many changes were ever confirmed, over all runs, up to the checkpoint's position."""
        return self._checkpoint.committed if self._checkpoint else 0

    @property
    def position(self) -> Position | None:
        """The confirmed position; None before the first start."""
        return self._checkpoint.position if self._checkpoint else None

    @property
    def snapshot_complete(self) -> float | None:
        """When the last chunk of the snapshot was confirmed, in seconds since 1970."""
        return self._checkpoint.snapshot_complete if self._checkpoint else None

    @property
    def unconfirmed(self) -> int:
        """Delivered and not acknowledged, taken and not delivered, injected."""
        return self._ledger.pending + (self._intake.pending if self._intake else 0)

    @property
    def inside(self) -> bool:
        """Whether a unit was delivered in part, and the rest of it is to follow."""
        return self._ledger.open

    def holds_part(self, token: Token) -> bool:
        """Whether the token belongs to the part last delivered of a unit that is not whole yet."""
        return token is self._token and self._ledger.open

    @property
    def finished(self) -> bool:
        """Whether a snapshot without a stream was delivered and confirmed to its end."""
        return self._intake is not None and self._intake.finished and not self._ledger.entries

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def lag(self) -> Lag:
        """How far the confirmed position trails the source. Asked on a connection of its own."""
        if not self._capture.capabilities.lag or self._checkpoint is None:
            return Lag()
        return self._capture.lag(self._checkpoint.position)

    def setup(self, tables: Sequence[TableRef]) -> list[str]:
        """Install what capture needs; never while running."""
        with self._call("setup", "idle", "stopped"):
            return self._capture.setup(tables)

    def teardown(self, tables: Sequence[TableRef] | None = None) -> list[str]:
        """Remove what capture installed; never while running."""
        with self._call("teardown", "idle", "stopped"):
            return self._capture.teardown(tables)

    def start(self) -> Beginning:
        """Begin or go on; says how. A start that fails leaves nothing open and the state as it was."""
        with self._call("start", "idle", "stopped"):
            with self._named("start.config"):
                if self._closed.is_set():
                    raise UsageError("the runtime is closed", remedy="make a new one")
                order = self._opening.judge()
            try:
                opened = self._opening.open(order, self._barrier, self._named)
            except BaseException:
                self._store.release()
                raise
            self._checkpoint, self._intake = opened.checkpoint, opened.intake
            self._ledger.clear()
            self._token, self._owed, self._barrier = None, None, opened.checkpoint.committed
            self.counters = Counters()
            self._state = "running"
            how, at = opened.beginning.how, opened.checkpoint.position.version
            self._observer.event("runtime.started", how=how, position=at)
            return opened.beginning

    def poll(self, timeout: float = 1.0) -> Delivery | None:
        """The next delivery, or None if nothing came in time, the snapshot is finished, or it was closed.

        One delivery is out at a time, or the parts of one large unit. With a timeout of zero, what was taken
        already is given without taking more. After a Transient error the same call goes on where it was.
        """
        with self._call("poll", "running"):
            if self._ledger.entries and not self._ledger.open:
                with self._named("poll.unconfirmed"):
                    raise UsageError(
                        f"{self._ledger.pending} delivered changes are not acknowledged",
                        remedy="acknowledge the delivery, or the rest of it, before the next poll",
                    )
            intake = self._running()
            self.counters.last_poll = self._clock()
            inside, deadline = self._ledger.open, time.monotonic() + timeout
            try:
                with self._named("poll.source"):
                    items = intake.pack(inside=inside, deadline=deadline, ended=self._closed.is_set)
            finally:
                self.counters.deduplicated = intake.feed.deduplicated
                self._notices.tell(self._capture.notices())
            return None if self._closed.is_set() else self._deliver(items, inside)

    def _deliver(self, items: list[Item], inside: bool) -> Delivery | None:
        rows = sum(item.rows for item in items)
        if rows == 0 and not inside:
            # The source moved on without touching our tables: there is nobody to wait for.
            self._ledger.add(items)
            try:
                self._confirm(0)
            except BaseException:
                self._ledger.clear()
                self._running().give_back(items)
                raise
            return None
        if not items:
            return None
        self._ledger.add(items)
        self._numbers += 1
        self._token = Token(self._numbers)
        self.counters.polled += rows
        self.counters.last_event = self._clock()
        batches = tuple(batch for item in items for batch in item.batches)
        return Delivery(batches, items[-1].position, self._token, items[-1].last)

    def acknowledge(self, token: Token, count: int | None = None) -> Token | None:
        """Everything delivered, or its first `count` changes in delivery order, is durable at the consumer.

        Saved before it is believed: a save that fails leaves the token unspent. The position moves past whole
        transactions only. Returns the token for the rest, None if nothing is left.
        """
        with self._call("acknowledge", "running"):
            with self._named("acknowledge.token"):
                if self._token is None or token is not self._token:
                    raise UsageError("this token was spent, or belongs to another delivery")
                if self._ledger.open:
                    raise UsageError(
                        "this is a part of a large transaction: its parts are acknowledged together",
                        remedy="poll until a delivery is complete, and acknowledge that one",
                    )
                pending = self._ledger.pending
                if count is not None and not 0 < count <= pending:
                    raise UsageError(f"{count} changes cannot be acknowledged of {pending} that are pending")
            self._confirm(pending if count is None else count)
            if not self._ledger.entries:
                self._token = None
                return None
            self._numbers += 1
            self._token = Token(self._numbers)
            return self._token

    def _confirm(self, count: int) -> None:
        assert self._checkpoint is not None  # noqa: S101 - running
        confirmed = self._ledger.confirm(count)
        old = self._checkpoint
        cursors = {**old.cursors, **{cursor.table: cursor for cursor in confirmed.cursors}}
        read = {str(cursor.table): cursor.generation for cursor in confirmed.cursors if cursor.complete}
        new = replace(
            old,
            position=confirmed.position or old.position,
            cursors=cursors,
            committed=old.committed + confirmed.whole,
            generations={**old.generations, **read},
            snapshot_rows=self._running().snapshots.rows if confirmed.cursors else old.snapshot_rows,
        )
        if old.snapshotting and not new.snapshotting:
            new = replace(new, snapshot_complete=self._clock())
        if new != old or count:
            with self._named("acknowledge.save"):
                self._store.save(new)
        self._checkpoint, self._barrier = new, new.committed
        self._ledger.apply(confirmed)
        if count:
            self.counters.committed += count
            self.counters.last_commit = self._clock()
        if old.snapshotting and not new.snapshotting:
            self._observer.event("runtime.snapshot.complete", position=new.position.version)
        if new.position > old.position:
            self._owed = new.position
        self._pay()

    def _pay(self) -> None:
        """Tell the source what is durable. A passing fault is told and tried again with the next call."""
        if self._owed is None or not self._streams or self._checkpoint is None or self._closed.is_set():
            return
        try:
            with self._named("acknowledge.source"):
                recorded = self._capture.acknowledge(self._owed, consumer=self._consumer)
            if self._intake is not None:
                self._intake.feed.settle(recorded.version)
        except Transient:
            return
        self._owed = None
        if recorded.version > self._checkpoint.acknowledged:
            self._checkpoint = replace(self._checkpoint, acknowledged=recorded.version)

    def inject(self, batches: Sequence[ChangeBatch]) -> None:
        """Have changes delivered that the source did not send: next, between two transactions."""
        with self._call("inject", "running"):
            intake = self._running()
            if any(len(batch) for batch in batches):
                intake.inject(tuple(batches), intake.feed.position)

    def stop(self) -> None:
        """End a run of which everything is confirmed; refused otherwise, saying how much is not."""
        with self._call("stop", "idle", "running", "stopped"):
            if self._state == "running":
                with self._named("stop.unconfirmed"):
                    if self.unconfirmed:
                        raise UsageError(
                            f"{self.unconfirmed} changes are not confirmed",
                            remedy="poll(0) and acknowledge until nothing is left, or use force_stop()",
                        )
                self._end()
            self._state = "stopped"

    def force_stop(self) -> list[Piece]:
        """End at once; every unconfirmed change comes back, in order: the caller takes over duplicates."""
        with self._call("stop", "idle", "running", "stopped"):
            if self._state != "running":
                self._state = "stopped"
                return []
            injected, buffered = self._running().rest()
            pieces = [*injected, *self._ledger.pieces(), *buffered]
            self._end()
            return pieces

    def close(self, timeout: float = 5.0) -> None:
        """End whatever runs, from any thread, for good. What was not confirmed comes again after a start."""
        self._closed.set()
        self._capture.close()
        if self._caller == threading.get_ident():
            return  # A signal handler inside a call: that call ends by itself and cleans up.
        if self._busy.acquire(timeout=timeout):
            try:
                if self._state == "running":
                    self._end()
            finally:
                self._busy.release()

    def _end(self) -> None:
        self._state = "stopping"
        try:
            self._release()
            self._ledger.clear()
            self._token = None
        finally:
            self._state = "stopped"
            self._observer.event("runtime.stopped")

    def _release(self) -> None:
        intake, self._intake = self._intake, None
        try:
            if intake is not None:
                intake.close()
        finally:
            self._store.release()

    def _running(self) -> Intake:
        assert self._intake is not None  # noqa: S101 - `_call` let only a running one through
        return self._intake

    @contextmanager
    def _call(self, method: str, *states: State) -> Iterator[None]:
        """One call at a time, and only in the states it is made for."""
        with self._named(f"{method}.state"):
            if self._state == "stopping":
                raise UsageError("the runtime is stopping" if method == "start" else "it is already stopping")
        with self._named(f"{method}.busy"):
            if not self._busy.acquire(blocking=False):
                raise UsageError("another call is running: one at a time")
        self._caller = threading.get_ident()
        try:
            with self._named(f"{method}.state"):
                if self._state not in states:
                    what = "already started" if method == "start" else f"not running but {self._state}"
                    raise UsageError(f"{method}: the runtime is {what}")
            yield
        finally:
            if self._closed.is_set() and self._state == "running":
                self._end()
            self._caller = None
            self._busy.release()

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.errors[f"runtime.{name}"] += 1
            told(self._observer, f"runtime.{name}", error)
            raise
