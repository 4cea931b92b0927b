"""One micro-batch: packed Arrow batches from Spark, out to every feed and mirror.

The same batch may come again after a crash, with the same progress; sinks skip what they already have. A
passing fault of a sink is retried here, inside the batch, so that nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.documents.indexes import Batch, Indexes
from tailrace.engine.documents.state import States
from tailrace.engine.followed import Followed
from tailrace.engine.gate import Closed, Gate
from tailrace.engine.heldup import HoldUps
from tailrace.engine.progress import logged
from tailrace.engine.quarantine import Quarantine
from tailrace.engine.readers import Readers
from tailrace.engine.received import Received, received
from tailrace.engine.schemas import Schemas, Steps, whole
from tailrace.engine.seen import Seen
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import DataError, NeedsOperator, SchemaDrift, Transient
from tailrace.model.evolve import drift
from tailrace.model.net import net
from tailrace.model.table import SchemaChange, TableRef, shell_name
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.observer import Observer
from tailrace.sinks.contract import DocumentReport, Progress, Report
from tailrace.sinks.fanout import FanOut
from tailrace.spark.options import MAX_BYTES
from tailrace.spark.plans import PlanStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARALLEL_TABLES = 2
BACKOFF = Backoff(first=0.2)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Written:
    """What was written: changes, changes by table, rows and deletes of mirrors, documents. Pieces add up."""

    rows: int = 0
    tables: Counter[str] = field(default_factory=Counter)
    written: int = 0
    deleted: int = 0
    documents: int = 0

    def __add__(self, other: _Written) -> _Written:
        return _Written(
            self.rows + other.rows,
            Counter(
                {name: self.tables[name] + other.tables[name] for name in {**self.tables, **other.tables}}
            ),
            self.written + other.written,
            self.deleted + other.deleted,
            self.documents + other.documents,
        )


class BatchWriter:
    """The function a query gives to foreachBatch."""

    def __init__(self, spec: PipelineSpec, gate: Gate, observer: Observer) -> None:
        self._spec = spec
        self._gate = gate
        self._observer = observer
        self._quarantine = Quarantine(spec.dead_letters) if spec.on_error == "skip" else None
        self._changelog = f"{spec.options.get('stateDir', '')}/changelog"
        self._piece_bytes = int(spec.options.get("maxBytesPerTrigger", MAX_BYTES))
        self._seen = Seen(spec.options.get("stateDir", ""))
        self._schemas = Schemas(spec.options.get("stateDir", ""), observer)
        self._indexes = Indexes(spec, observer) if spec.indexes else None
        self._readers = Readers(spec.options.get("stateDir", ""))
        self._followed: Followed | None = None
        self._told: dict[TableRef, str] = {}
        self._pool = ThreadPoolExecutor(PARALLEL_TABLES, thread_name_prefix="tailrace-mirror")
        self.hold_ups = HoldUps(spec.options.get("stateDir", ""))
        self._document_sinks = {"", *(name for index in spec.indexes for name in index.sinks)}
        for feed in spec.feeds:
            feed.sink.watch(partial(self._waiting, feed.called))
        for index in spec.indexes:
            if isinstance(index.sink, FanOut):
                for name, sink in index.sink.sinks.items():
                    sink.watch(partial(self._waiting, name))
            else:
                index.sink.watch(partial(self._waiting, "".join(index.sinks[:1])))
        self.error: BaseException | None = None
        self.batches = 0
        self.rows = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            with self._gate.batch(number):
                self._write(frame, number)
        except Closed:
            raise
        except BaseException as error:
            # The JVM makes text of it; whoever runs the pipeline wants the error itself.
            self.error = error
            raise

    def prepare(self) -> None:
        """Before the query starts: see that mirrors, feeds and indexes are, or will be, as they should."""
        self.hold_ups.begin()
        if state := self._spec.options.get("stateDir"):
            self._followed = Followed(state, self._spec.checkpoint, self._spec.mirrors, self._spec.feeds)
            self._tell_requested(self._patiently(self._followed.begin))
        if self._indexes is not None:
            indexes = self._indexes
            self._patiently(lambda: indexes.prepare(logged(self._spec.checkpoint)))
        elif state := self._spec.options.get("stateDir"):
            # What indexes miss that are disabled nobody can tell.
            States(state).keep_only(set())

    def hurry(self) -> None:
        """A stop was asked for: sinks give up waiting for their destination."""
        for feed in self._spec.feeds:
            feed.sink.hurry()
        for index in self._spec.indexes:
            index.sink.hurry()

    def close(self) -> None:
        """End the threads and let go of the destinations."""
        self._pool.shutdown(wait=True)
        for mirror in self._spec.mirrors:
            mirror.sink.close()
        for feed in self._spec.feeds:
            feed.sink.close()
        if self._indexes is not None:
            self._indexes.close()

    def _write(self, frame: DataFrame, number: int) -> None:
        begun = time.monotonic()
        found = received(frame.toArrow(), self._spec.name, self._changelog)
        if (followed := self._followed) is not None:
            self._tell_requested(self._patiently(lambda: followed.settle(empty=found is None), {""}))
        if found is None:
            if self._indexes is not None and self._indexes.asked:
                self._indexes.rest(logged(self._spec.checkpoint), self._patiently)
            return
        progress = self._seen.settle(found.progress, found.seen)
        expected = sum(_counts(found.batches).values()) + sum(window.rows for window in found.windows)
        self._observer.event("batch.started", batch=number, rows=expected)
        total, steps = _Written(), Steps()
        for batches, done in found.pieces(self._changelog, self._piece_bytes):
            # Only the last piece ends the batch, and only it has rows of snapshots.
            told = replace(progress, snapshots={}, part=done) if done else progress
            total += self._piece(found, batches, told, steps, frame)
            del batches
        if followed is not None:
            self._patiently(lambda: followed.anew(found.anew), {""})
        self.batches += 1
        self.rows += total.rows
        self._observer.event(
            "batch.written",
            batch=number,
            rows=total.rows,
            position=progress.end,
            seconds=time.monotonic() - begun,
            tables=dict(total.tables),
            anew=sorted(map(str, found.anew)),
            written=total.written,
            deleted=total.deleted,
            documents=total.documents,
        )

    def _piece(
        self,
        found: Received,
        batches: list[ChangeBatch],
        progress: Progress,
        steps: Steps,
        frame: DataFrame,
    ) -> _Written:
        """Write a piece of the batch, mostly all of it. `steps` gathers those of its pieces."""
        counts = _counts(batches)
        own_steps = self._schemas.steps(batches, progress)
        for ref, more in own_steps.items():
            steps.setdefault(ref, []).extend(more)
        public = [kept for batch in batches if (kept := self._public(batch, progress)) is not None]
        for feed in self._spec.feeds:
            self._feed(feed, [batch for batch in public if feed.wants(batch)], progress)
        # Until a table's snapshot has begun there is nothing to mirror: it will hold these changes.
        void = found.anew if progress.part else frozenset()
        mirrors = [m for m in self._spec.mirrors if str(m.table) in found.begun and m.table not in void]

        def mirrored(mirror: Mirror) -> Report:
            ref = mirror.table
            own = [batch for batch in public if batch.table.ref == ref]
            return self._mirror(mirror, own, progress, own_steps.get(ref, []), found.begun[str(ref)])

        reports = list(self._pool.map(mirrored, mirrors))
        documents = DocumentReport()
        if self._indexes is not None:
            batch = Batch(batches, progress, found.end, found.horizon, steps, found.first)
            write = self._indexes.follow if progress.part else self._indexes.write
            documents = write(batch, frame.sparkSession, self._patiently)
        return _Written(
            sum(counts.values()),
            Counter(counts),
            sum(report.written for report in reports),
            sum(report.deleted for report in reports),
            documents.written + documents.deleted,
        )

    def _public(self, batch: ChangeBatch, progress: Progress) -> ChangeBatch | None:
        """The batch without rows that were read for an index alone; None where it has no others."""
        if not self._readers.of(str(batch.table.ref), progress):
            return batch
        kept = _without_snapshot(batch)
        return kept if len(kept) else None

    def _feed(self, feed: Feed, batches: Sequence[ChangeBatch], progress: Progress) -> None:
        if not feed.snapshot:
            batches = [kept for batch in batches if len(kept := _without_snapshot(batch))]
        if not batches:
            return

        def send() -> Report:
            report = feed.sink.write(batches, progress)
            # Only then are the changes with the receiver, and Spark may commit the batch.
            feed.sink.flush()
            return report

        self._patiently(send, {feed.called})

    def _mirror(
        self,
        mirror: Mirror,
        batches: Sequence[ChangeBatch],
        progress: Progress,
        steps: Sequence[SchemaChange],
        begun: Collection[str],
    ) -> Report:
        if not batches:
            return Report()
        try:
            return self._apply(mirror, batches, progress, steps, begun)
        except (DataError, SchemaDrift) as error:
            # The batch comes again as it was, whatever was mended since; a fresh snapshot will replace it.
            if self._requested(mirror, begun):
                return Report(skipped=True)
            if not isinstance(error, SchemaDrift):
                raise
            if mirror.schema_changes == "snapshot":
                self._plans().request(mirror.table)
                self._observer.event("mirror.snapshot", table=str(mirror.table), message=error.message)
                return Report(skipped=True)
            raise SchemaDrift(error.message, remedy=_snapshot(mirror), place=error.place) from error

    def _apply(
        self,
        mirror: Mirror,
        batches: Sequence[ChangeBatch],
        progress: Progress,
        steps: Sequence[SchemaChange],
        begun: Collection[str],
    ) -> Report:
        if self._quarantine is not None:
            batches = [self._quarantine.sift(batch) for batch in batches]
        changes = net(batches)
        if steps and not changes.reset:
            first = steps[0]
            if not first.followed:
                raise drift(changes.table, first)
            if mirror.schema_changes == "stop" and any(steps):
                raise SchemaDrift(f"table {mirror.table} changed: {whole(steps)}", place=str(mirror.table))
            changes = replace(changes, dropped=changes.dropped.union(first.dropped))
        if not changes.reset and not self._patiently(
            lambda: mirror.sink.exists(mirror.target), {mirror.called}
        ):
            if self._requested(mirror, begun):
                return Report(skipped=True)
            raise NeedsOperator(
                f"the mirror {mirror.target} of {mirror.table} is gone; changes alone cannot bring it back",
                remedy=_snapshot(mirror),
            )
        report = self._patiently(lambda: mirror.sink.apply(mirror.target, changes, progress), {mirror.called})
        self._observer.event(
            "mirror.applied",
            table=str(mirror.table),
            target=mirror.target,
            written=report.written,
            deleted=report.deleted,
            skipped=report.skipped,
        )
        for note in report.notes:
            self._observer.event("sink.note", message=note)
        return report

    def _requested(self, mirror: Mirror, begun: Collection[str]) -> bool:
        """Whether a fresh snapshot of the table was asked for: it will hold what this batch has.

        One that has begun with this batch, or before, will not: this batch is a part of it.
        """
        return mirror.table in self._plans().fresh(begun)

    def _plans(self) -> PlanStore:
        return PlanStore(*open_filesystem(self._spec.options["stateDir"]))

    def _tell_requested(self, tables: Mapping[TableRef, str]) -> None:
        for table, why in tables.items() - self._told.items():
            self._observer.event("snapshot.requested", table=str(table), message=why)
        self._told.update(tables)

    def _waiting(self, sink: str, message: str, seconds: float) -> None:
        self.hold_ups.waiting(sink, message)
        self._observer.event("sink.retry", message=message, seconds=seconds)

    def _patiently(self, call: Callable[[], Answer], sinks: Collection[str] = ()) -> Answer:
        """Retry passing faults of a sink with backoff; a stop ends the waiting.

        `sinks` are those that the call needs. Without any it is about documents, and may ask the source too.
        """
        deadline = time.monotonic() + self._spec.retry_seconds
        attempt = 0
        while True:
            try:
                answer = call()
                self.hold_ups.over(sinks or self._document_sinks)
                return answer
            except Transient as error:
                if time.monotonic() >= deadline or self._gate.closed:
                    raise
                attempt += 1
                delay = BACKOFF.delay(attempt)
                reason = f"{error.place}: {error.message}" if error.place else error.message
                self.hold_ups.waiting("".join(sinks), reason)
                self._observer.event("sink.retry", message=error.message, seconds=delay)
                self._gate.wait_closed(delay)


def _snapshot(mirror: Mirror) -> str:
    return f"tailrace snapshot --table {shell_name(mirror.table)}, then run again"


def _without_snapshot(batch: ChangeBatch) -> ChangeBatch:
    snapshot = pc.is_in(batch.data["op"], value_set=pa.array([Op.READ.value, Op.SNAPSHOT.value]))
    return ChangeBatch(batch.table, batch.data.filter(pc.invert(snapshot)))


def _counts(batches: Sequence[ChangeBatch]) -> dict[str, int]:
    """Changes by table. The marker before a snapshot is none: nothing happened to a row."""
    counts: dict[str, int] = {}
    for batch in batches:
        counts[batch.table.ref.name] = counts.get(batch.table.ref.name, 0) + _changes(batch)
    return counts


def _changes(batch: ChangeBatch) -> int:
    markers = pc.sum(pc.equal(batch.data["op"], Op.SNAPSHOT.value)).as_py()
    return len(batch) - int(markers or 0)
