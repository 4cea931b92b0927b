"""The steps of a start, in their order, each under its name.

Configuration, owner, committed count, position, connection, where to begin; then the checkpoint is made
durable before anything is delivered, and the log is proved to be continuable. Nothing stays open if a step
fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

from tailrace.capture.contract import Capture
from tailrace.model.errors import SetupMissing, StateUnreadable, TailraceError
from tailrace.model.table import TableRef
from tailrace.runtime import guard
from tailrace.runtime.beginning import Beginning, Mode, begin, judge, renewed
from tailrace.runtime.checkpoint import Checkpoint, CheckpointStore, Order, committed_of
from tailrace.runtime.feed import Feed
from tailrace.runtime.intake import Intake
from tailrace.runtime.observer import Observer
from tailrace.runtime.snapshots import Snapshots

_log = logging.getLogger(__name__)
Named = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Opened:
    """What a start made."""

    beginning: Beginning
    checkpoint: Checkpoint
    intake: Intake


@dataclass(frozen=True)
class Opening:
    """A runtime's settings, and what they mean at a start."""

    capture: Capture
    configured: tuple[TableRef | str, ...]
    store: CheckpointStore
    consumer: str
    mode: Mode
    order: Order | Sequence[Order]
    max_rows: int
    max_bytes: int
    rows_per_chunk: int
    schema_retention: float | None
    observer: Observer
    clock: Callable[[], float]
    wait: float
    visible_timeout: float

    @property
    def streams(self) -> bool:
        """Whether the log is read at all."""
        return self.mode != "snapshot"

    def judge(self) -> Order:
        """The snapshot's order, if the configuration makes sense."""
        return judge(self.mode, self.order, self.configured, self.capture.capabilities)

    def open(self, order: Order, barrier: int, named: Named) -> Opened:
        """All steps. `barrier` is how many changes this process has seen committed."""
        with named("start.owner"):
            self.store.acquire()
        with named("start.checkpoint"):
            body = self.store.read()
        with named("start.committed_count"):
            committed = 0 if body is None else committed_of(body)
        with named("start.barrier"):
            if committed < barrier:
                raise StateUnreadable(
                    f"the checkpoint counts {committed} committed changes, this process committed {barrier}",
                    remedy="an older checkpoint was put in its place: start a new process to go on from it",
                )
        with named("start.position"):
            loaded = None if body is None else Checkpoint.from_json(body)
        with named("start.connect"):
            tables = self._connect(loaded)
            generations = self._generations(tables, loaded)
        with named("start.begin"):
            # Without tables there is nothing to snapshot, whatever the mode.
            mode = self.mode if self.configured else "changes"
            beginning = begin(loaded, mode, order, tables, self.capture.capabilities)
            known = loaded.generations if loaded else {}
            beginning, fresh = renewed(beginning, known, generations, mode)
        self._warn(beginning, fresh)
        checkpoint = self._record(loaded, beginning, order, generations, named)
        with named("start.connect"):
            # What the checkpoint knows, or will read behind the barrier, may have begun after its position.
            approved = generations if loaded is not None or beginning.cursors else {}
            return Opened(beginning, checkpoint, self._intake(checkpoint, tables, order, approved))

    def _generations(self, tables: list[TableRef], loaded: Checkpoint | None) -> dict[TableRef, str]:
        """Each table's capture now. One that stands still alone keeps what it had, so that it is not read."""
        with self.capture.together():
            found = {ref: self.capture.describe(ref).generation for ref in tables}
        if not (self.streams and self.capture.capabilities.partial):
            return found
        known = loaded.generations if loaded is not None else {}
        if unset := [str(ref) for ref in tables if not found[ref] and str(ref) not in known]:
            raise SetupMissing(f"not set up for capture: {', '.join(unset)}", remedy="tailrace setup")
        return {ref: generation or known[str(ref)] for ref, generation in found.items()}

    def _connect(self, loaded: Checkpoint | None) -> list[TableRef]:
        """Prove the source, and find the tables: the configured ones, or every one that can be captured."""
        if loaded is not None:
            guard.same_source(self.capture, loaded.position.source)
            if self.streams:
                position, acknowledged = loaded.position, loaded.acknowledged
                guard.not_older(self.capture, self.consumer, position=position, acknowledged=acknowledged)
        if not self.configured:
            found = self.capture.tables()
            findings = {
                finding.table for finding in self.capture.coverage(found) if finding.severity == "error"
            }
            return [ref for ref in found if str(ref) not in findings]
        named = self.capture.resolve([name for name in self.configured if isinstance(name, str)])
        given = [ref for ref in self.configured if isinstance(ref, TableRef)]
        return list(dict.fromkeys([*given, *named]))

    def _warn(self, beginning: Beginning, fresh: list[TableRef]) -> None:
        if beginning.how == "snapshot again":
            _log.warning("This source cannot resume a snapshot: it is taken again from the start.")
            self.observer.event("runtime.start.snapshot_again")
        for ref in fresh:
            _log.warning("Capture of %s began anew: the table is read again.", ref)
            self.observer.event("runtime.start.table_again", table=str(ref))
        if self.schema_retention is None and self.capture.capabilities.schema_events:
            _log.warning("No retention is set for the schema history: it grows without end.")
            self.observer.event("runtime.start.schema_retention")

    def _record(
        self,
        loaded: Checkpoint | None,
        beginning: Beginning,
        order: Order,
        generations: dict[TableRef, str],
        named: Named,
    ) -> Checkpoint:
        """The checkpoint to go on from, durable before anything is delivered; a new one takes its "now"."""
        with named("start.connect"):
            known = {consumer.name for consumer in self.capture.consumers()} if self.streams else set()
            at = self.capture.register(self.consumer) if self.streams else self.capture.head()
        unread = {ref for ref, cursor in beginning.cursors.items() if not cursor.complete}
        settled = {str(ref): generation for ref, generation in generations.items() if ref not in unread}
        if loaded is None:
            kind = self.capture.kind
            acknowledged = at.version if self.streams else 0
            made = Checkpoint(
                kind, at, order, beginning.cursors, generations=settled, acknowledged=acknowledged
            )
        else:
            settled = {**loaded.generations, **settled}
            made = replace(loaded, order=order, cursors=beginning.cursors, generations=settled)
        if made == loaded:
            return made
        try:
            with named("start.save"):
                self.store.save(made)
        except BaseException:
            if self.streams and self.consumer not in known:
                # A cursor that nobody will move would make the source keep its log for ever.
                with suppress(TailraceError):
                    self.capture.forget(self.consumer)
            raise
        return made

    def _intake(
        self, checkpoint: Checkpoint, tables: list[TableRef], order: Order, approved: dict[TableRef, str]
    ) -> Intake:
        history = None
        if self.streams and self.capture.capabilities.schema_events:
            source = checkpoint.position.source
            history = self.store.history(source, self.schema_retention, self.observer)
        feed = Feed(
            self.capture,
            tables,
            consumer=self.consumer,
            start=checkpoint.position,
            wait=self.wait,
            accept=approved,
            history=history,
        )
        if self.streams:
            feed.probe()
        snapshots = Snapshots(
            self.capture,
            checkpoint.cursors,
            rows=checkpoint.snapshot_rows,
            rows_per_chunk=self.rows_per_chunk,
            visible_timeout=self.visible_timeout,
            observer=self.observer,
            clock=self.clock,
        )
        return Intake(
            feed, snapshots, mode=self.mode, order=order, max_rows=self.max_rows, max_bytes=self.max_bytes
        )
