"""One micro-batch: packed Arrow batches from Spark, out to every feed and mirror.

The same batch may come again after a crash, with the same progress; sinks skip what they already have. A
passing fault of a sink is retried here, inside the batch, so that nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.documents.indexes import Batch, Indexes
from tailrace.engine.documents.state import States
from tailrace.engine.gate import Closed, Gate
from tailrace.engine.progress import logged
from tailrace.engine.quarantine import Quarantine
from tailrace.engine.readers import Readers
from tailrace.engine.schemas import Schemas, whole
from tailrace.engine.seen import Seen
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import DataError, NeedsOperator, SchemaDrift, Transient
from tailrace.model.evolve import drift
from tailrace.model.net import net
from tailrace.model.pack import unpack
from tailrace.model.table import SchemaChange, shell_name
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.observer import Observer
from tailrace.sinks.contract import DocumentReport, Progress, Report
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.plans import PlanStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARALLEL_TABLES = 2
BACKOFF = Backoff(first=0.2)
Answer = TypeVar("Answer")


class BatchWriter:
    """The function a query gives to foreachBatch."""

    def __init__(self, spec: PipelineSpec, gate: Gate, observer: Observer) -> None:
        self._spec = spec
        self._gate = gate
        self._observer = observer
        self._quarantine = Quarantine(spec.dead_letters) if spec.on_error == "skip" else None
        self._seen = Seen(spec.options.get("stateDir", ""))
        self._schemas = Schemas(spec.options.get("stateDir", ""), observer)
        self._indexes = Indexes(spec, observer) if spec.indexes else None
        self._readers = Readers(spec.options.get("stateDir", ""))
        self._pool = ThreadPoolExecutor(PARALLEL_TABLES, thread_name_prefix="tailrace-mirror")
        for feed in spec.feeds:
            feed.sink.watch(self._waiting)
        for index in spec.indexes:
            index.sink.watch(self._waiting)
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
        """Before the query starts: see that every index is, or will be, what it should be."""
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
        found = received(frame.toArrow(), self._spec.name)
        if found is None:
            if self._indexes is not None and self._indexes.asked:
                self._indexes.rest(logged(self._spec.checkpoint), self._patiently)
            return
        begun_plans, batches = found.begun, found.batches
        progress = self._seen.settle(found.progress, found.seen)
        counts = _counts(batches)
        rows = sum(counts.values())
        steps = self._schemas.steps(batches, progress)
        self._observer.event("batch.started", batch=number, rows=rows)
        public = [kept for batch in batches if (kept := self._public(batch, progress)) is not None]
        for feed in self._spec.feeds:
            self._feed(feed, [batch for batch in public if feed.wants(batch)], progress)
        # Until a table's snapshot has begun there is nothing to mirror: it will hold these changes.
        mirrors = [m for m in self._spec.mirrors if str(m.table) in begun_plans]

        def mirrored(mirror: Mirror) -> Report:
            ref = mirror.table
            own = [batch for batch in public if batch.table.ref == ref]
            return self._mirror(mirror, own, progress, steps.get(ref, []), begun_plans[str(ref)])

        reports = list(self._pool.map(mirrored, mirrors))
        documents = DocumentReport()
        if self._indexes is not None:
            batch = Batch(batches, progress, found.end, found.horizon, steps, found.first)
            documents = self._indexes.write(batch, frame.sparkSession, self._patiently)
        self.batches += 1
        self.rows += rows
        self._observer.event(
            "batch.written",
            batch=number,
            rows=rows,
            position=progress.end,
            seconds=time.monotonic() - begun,
            tables=counts,
            written=sum(report.written for report in reports),
            deleted=sum(report.deleted for report in reports),
            documents=documents.written + documents.deleted,
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

        self._patiently(send)

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
        if not changes.reset and not self._patiently(lambda: mirror.sink.exists(mirror.target)):
            if self._requested(mirror, begun):
                return Report(skipped=True)
            raise NeedsOperator(
                f"the mirror {mirror.target} of {mirror.table} is gone; changes alone cannot bring it back",
                remedy=_snapshot(mirror),
            )
        report = self._patiently(lambda: mirror.sink.apply(mirror.target, changes, progress))
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

    def _waiting(self, message: str, seconds: float) -> None:
        self._observer.event("sink.retry", message=message, seconds=seconds)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Retry passing faults of a sink with backoff; a stop ends the waiting."""
        deadline = time.monotonic() + self._spec.retry_seconds
        attempt = 0
        while True:
            try:
                return call()
            except Transient as error:
                if time.monotonic() >= deadline or self._gate.closed:
                    raise
                attempt += 1
                delay = BACKOFF.delay(attempt)
                self._waiting(error.message, delay)
                self._gate.wait_closed(delay)


def _snapshot(mirror: Mirror) -> str:
    return f"tailrace snapshot --table {shell_name(mirror.table)}, then run again"


@dataclass(frozen=True)
class Received:
    """A packed micro-batch: which one it is and where it ends, and its changes.

    `begun` are the plans that have begun by its end of each table that has any, but for those of keys alone,
    `seen` up to where its chunks of tables may have seen the log, `horizon` up to where link state may not
    know old values, `first` the tables of which a snapshot has its first chunk in it.
    """

    progress: Progress
    end: Offset
    begun: dict[str, set[str]]
    seen: dict[str, int]
    batches: list[ChangeBatch]
    horizon: int = 0
    first: frozenset[str] = frozenset()


def received(table: pa.Table, pipeline: str) -> Received | None:
    """The micro-batch in the rows of the packed view; None where there are none."""
    ends: tuple[Offset, Offset] | None = None
    horizon = 0
    seen: dict[str, int] = {}
    batches: list[ChangeBatch] = []
    for kind, payload in zip(table["kind"].to_pylist(), table["payload"], strict=True):
        if kind == "progress":
            if ends is None:
                body = json.loads(payload.as_buffer().to_pybytes())
                ends = Offset.from_json(body["start"]), Offset.from_json(body["end"])
                horizon = int(body.get("horizon", 0))
        elif kind == "seen":
            for name, position in json.loads(payload.as_buffer().to_pybytes()).items():
                seen[name] = max(position, seen.get(name, 0))
        else:
            batches.append(unpack(payload.as_buffer()))
    if ends is None:
        return None
    start, end = ends
    begun = {name: {cursor.plan} for name, cursor in end.snapshots.items() if cursor.whole}
    for name in begun.keys() & start.snapshots.keys():
        begun[name].add(start.snapshots[name].plan)
    generations: dict[str, set[str]] = {}
    for batch in batches:
        generations.setdefault(str(batch.table.ref), set()).add(batch.table.generation)
    progress = _progress(start, end, pipeline, generations)
    before = {name: cursor.plan for name, cursor in start.snapshots.items()}
    first = frozenset(name for name, (plan, _) in progress.snapshots.items() if before.get(name) != plan)
    return Received(progress, end, begun, seen, batches, horizon, first)


def _progress(start: Offset, end: Offset, pipeline: str, generations: Mapping[str, set[str]]) -> Progress:
    moved = {
        table: (cursor.plan, cursor.next)
        for table, cursor in end.snapshots.items()
        if start.snapshots.get(table) != cursor and cursor.of
    }
    position = end.position
    unfinished = {
        table
        for table, cursor in end.snapshots.items()
        if not cursor.complete or _stale(cursor, generations.get(table, set()))
    }
    return Progress(
        pipeline,
        start.position.version,
        position.version,
        moved,
        position.source,
        frozenset(unfinished.union(moved)),
    )


def _stale(cursor: Cursor, generations: Collection[str]) -> bool:
    """Whether the table is to be read again: its capture began anew, and a pause may hold the snapshot up."""
    return not cursor.generation or any(found not in ("", cursor.generation) for found in generations)


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
