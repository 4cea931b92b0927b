"""The life of a pipeline's indexes.

    wanted ─▶ the root's snapshot begins ─▶ its rows' documents are written ─▶ complete, readers see it
      ▲                                        changes of any table too, always                   │
      ╰── schema, marker, capture of a table or link state is not what the index was filled with ──╯

What readers see meanwhile gets the changes too, where it can (`shown.py`). Somebody may ask for a filling
though nothing is wrong: the root's rows are then read for this index alone.

A batch may come again after a crash: versions make the writes harmless, and each step here is such that doing
it again changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.contract import Capture
from tailrace.changelog.filesystem import open_filesystem
from tailrace.documents.render import Keys, Query, build_query
from tailrace.documents.resolve import Affected, Resolver
from tailrace.engine.deadletters import DeadLetters
from tailrace.engine.documents.build import Build, rejected, roots_only
from tailrace.engine.documents.joined import Copies, cheaper, keep_copies
from tailrace.engine.documents.shown import as_good, kept, watched
from tailrace.engine.documents.spread import spread_chunks, spread_keys
from tailrace.engine.documents.state import IndexState, States
from tailrace.engine.progress import committed
from tailrace.engine.readers import Readers
from tailrace.engine.spec import Index, PipelineSpec
from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import DataError, NeedsOperator, SchemaDrift
from tailrace.model.table import SchemaChange, TableRef, schema_change
from tailrace.runtime.observer import Observer
from tailrace.sinks.contract import DocumentReport, DocumentSink, Marker, Progress
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.opening import open_capture
from tailrace.spark.options import SourceOptions
from tailrace.spark.orders import Orders
from tailrace.spark.plans import PlanStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So few documents are built faster here than Spark can begin a job for them.
FEW = 2_000
CHUNK_ROWS = 20_000
LOST = (
    "`tailrace check` names what the index needs and the source does not have; mend one of them and run again"
)
BEGINS, ASKED = "the snapshot of its root begins", "somebody asked for it"
_SNAPSHOT_OPS = pa.array([Op.READ.value, Op.SNAPSHOT.value])
Answer = TypeVar("Answer")


class Patiently(Protocol):
    """Makes a call, again and again while a fault passes."""

    def __call__(self, call: Callable[[], Answer], /) -> Answer: ...


@dataclass(frozen=True)
class Batch:
    """A micro-batch as documents need it: its changes, where it ends, and the horizon of link state.

    `steps` is what became of the columns of tables within it, `first` are the tables of which a snapshot has
    its first chunk in it.
    """

    changes: Sequence[ChangeBatch]
    progress: Progress
    end: Offset
    horizon: int
    steps: Mapping[TableRef, Sequence[SchemaChange]] = field(default_factory=dict)
    first: frozenset[str] = frozenset()


class Indexes:
    """The indexes of one pipeline. Belongs to the thread that writes batches."""

    def __init__(self, spec: PipelineSpec, observer: Observer) -> None:
        self._spec = spec
        self._observer = observer
        self._states = States(spec.options["stateDir"])
        self._options = SourceOptions.parse(spec.options)
        self._letters = DeadLetters(spec.dead_letters) if spec.dead_letters is not None else None
        self._capture: Capture | None = None
        self._resolvers: dict[str, tuple[Resolver, Resolver]] = {}
        self._queries: dict[str, Query] = {}
        # What has the generations that readers see while others are filled, by index.
        self._holding: dict[str, tuple[str, DocumentSink | None]] = {}
        self._readers = Readers(spec.options["stateDir"])

    def prepare(self, offset: Offset | None) -> None:
        """Before the query starts: ask for a snapshot of the root where an index is not what it should be.

        `offset` is where the query goes on. A query that begins takes all its snapshots anyway.
        """
        for index in self._spec.indexes:
            why = self._unfit(index)
            if why is None:
                self._left_out(index)
                self._ask_again(index)
                continue
            if offset is not None:
                self._plans().request(index.root, remembered=True)
            known, last = self._states.get(index.name), committed(self._spec.checkpoint)
            position = last[1].position.version if last is not None else 0
            before = None if known is None else kept(index, known, position, why)
            self._states.put(index.name, self._beside(index, _waiting(index, why), before))
            self._observer.event("index.filling", index=index.name, reason=why)
        self._states.keep_only({index.name for index in self._spec.indexes})
        self._tidy()
        self.rest(offset, lambda call: call())

    def _unfit(self, index: Index) -> str | None:
        """Why the index must be filled again; None where it need not be."""
        known = self._states.get(index.name)
        if known is None:
            return "it is new"
        if known.schema_hash != index.plan.schema_hash:
            return "its schema changed"
        if not known.generation:
            return known.again or "it is new"
        if set(index.sinks).difference(known.sinks):
            # Its marker may be the right one, of before it was left out for a while.
            return "it has another sink"
        if not index.sink.keeps:
            return None
        if known.complete:
            return None if index.sink.seeded(index.name) == known.marker else "its sink holds something else"
        return None if index.sink.holds(index.name, known.generation) else "its sink holds something else"

    def _ask_again(self, index: Index) -> None:
        """What the index misses it misses until it is filled, though somebody may have stopped that."""
        known = self._states.get(index.name)
        if known is not None and known.again:
            self._plans().request(index.root, remembered=True)

    def _left_out(self, index: Index) -> None:
        """Remember which sinks the index has no longer: what they miss from now on nobody can tell."""
        known = self._states.get(index.name)
        if known is None:
            return
        before = known.before
        if before is not None:
            before = replace(before, sinks=tuple(name for name in before.sinks if name in index.sinks))
        now = self._beside(index, replace(known, sinks=index.sinks), before)
        if now != known:
            self._states.put(index.name, now)

    def _beside(self, index: Index, state: IndexState, before: IndexState | None) -> IndexState:
        """The state with what readers see meanwhile, where the sink has that."""
        self._holding.pop(index.name, None)
        if before is not None and index.sink.keeps:
            sink = index.sink.holding(index.name, before.generation)
            before = None if sink is None else before
        return replace(state, before=before)

    def _followed(
        self, index: Index, state: IndexState, patiently: Patiently
    ) -> tuple[str, DocumentSink] | None:
        """The generation that readers see and that is to have the changes too, and the sink that has it."""
        before = state.before
        if before is None or before.still is not None:
            return None
        if self._holding.get(index.name, ("", None))[0] != before.generation:
            sink = patiently(lambda: index.sink.holding(index.name, before.generation))
            self._holding[index.name] = (before.generation, sink)
        sink = self._holding[index.name][1]
        return None if sink is None else (before.generation, sink)

    def _tidy(self) -> None:
        """Remove copies of fillings that were given up."""
        states = (self._states.get(name) for name in self._states.names)
        used = {state.generation for state in states if state is not None and not state.complete}
        keep_copies(*open_filesystem(self._spec.options["stateDir"]), used)

    def rest(self, offset: Offset | None, patiently: Patiently) -> None:
        """Nothing is to be written up to this offset; a filling may have been stopped with it."""
        for index in self._spec.indexes:
            state = self._states.get(index.name)
            if state is not None and state.asked and offset is not None:
                self._given_up(index, state, offset.snapshots.get(str(index.root)), patiently)

    @property
    def asked(self) -> bool:
        """Whether an index is filled because somebody asked for it."""
        states = (self._states.get(index.name) for index in self._spec.indexes)
        return any(state is not None and state.asked for state in states)

    def write(self, batch: Batch, spark: SparkSession, patiently: Patiently) -> DocumentReport:
        """Bring the documents of all indexes in step with the end of the batch."""
        total = DocumentReport()
        for index in self._spec.indexes:
            begun = time.monotonic()
            state = self._advanced(index, batch, spark, patiently)
            followed = self._followed(index, state, patiently)
            if not state.generation and followed is None:
                # Its filling has not begun, and will show all of this.
                continue
            with _lost(index):
                report = self._changed(index, state, batch, spark, patiently, followed=followed)
            self._settled(index, state, batch, patiently)
            total += report
            self._tell(index, report, time.monotonic() - begun)
        return total

    def follow(self, batch: Batch, spark: SparkSession, patiently: Patiently) -> DocumentReport:
        """Write the documents that a piece of a batch touches, before `write` is given the last one.

        What the batch means for the life of an index is settled with that one: a filling that begins there
        shows all of this anyway.
        """
        total = DocumentReport()
        for index in self._spec.indexes:
            begun = time.monotonic()
            state = self._states.get(index.name) or _waiting(index)
            followed = self._followed(index, state, patiently)
            if state.generation or followed is not None:
                with _lost(index):
                    report = self._changed(index, state, batch, spark, patiently, followed=followed)
                total += report
                self._tell(index, report, time.monotonic() - begun)
        return total

    def close(self) -> None:
        """Let go of source and sinks."""
        if self._capture is not None:
            self._capture.close()
            self._capture = None
        for index in self._spec.indexes:
            index.sink.close()
        for _, sink in self._holding.values():
            if sink is not None:
                sink.close()
        self._holding.clear()

    def _advanced(self, index: Index, batch: Batch, spark: SparkSession, patiently: Patiently) -> IndexState:
        """The index's state for this batch: a new generation where the root's snapshot begins with it."""
        state = self._states.get(index.name) or _waiting(index)
        cursor = batch.end.snapshots.get(str(index.root))
        tables = {
            name: found.generation
            for name in index.others
            if (found := batch.end.snapshots.get(name)) is not None
        }
        if cursor is not None and cursor.plan != state.plan and (why := self._begins(index, batch)):
            state = self._seen(index, state, batch, tables)[0]
            # Why a snapshot for all was made nobody tells here: changes may have been lost.
            before = kept(index, state, batch.progress.start, "" if why == ASKED else why)
            end = batch.progress.end
            new = replace(
                _waiting(index),
                generation=f"{index.plan.schema_hash[:8]}-{cursor.plan}",
                plan=cursor.plan,
                horizon=batch.horizon,
                copied=end if self._by_joins(index, cursor.plan, spark) else 0,
                tables=tables,
                begun=(end, self._letters.clock() if self._letters is not None else ""),
                asked=why == ASKED,
            )
            return self._begun(index, new, before, why, patiently)
        state = self._given_up(index, state, cursor, patiently)
        return self._watched(index, state, batch, tables)

    def _begins(self, index: Index, batch: Batch) -> str | None:
        """Why a filling of the index begins with this batch; None where none does."""
        if _marked(batch.changes, index):
            return BEGINS
        root = str(index.root)
        own = root in batch.first and self._readers.of(root, batch.progress) == index.name
        return ASKED if own else None

    def _begun(
        self, index: Index, new: IndexState, before: IndexState | None, why: str, patiently: Patiently
    ) -> IndexState:
        """A filling begins, in a generation of its own; readers see what was before."""
        patiently(lambda: index.sink.ensure(index.name, new.generation, index.mapping))
        state = patiently(lambda: self._beside(index, new, before))
        self._states.put(index.name, state)
        self._tidy()
        if self._letters is not None and not (state.before and as_good(index, state.before)):
            # Every document is built again, and rejected again where it must be.
            self._letters.forget(index.name)
        self._observer.event("index.filling", index=index.name, reason=why)
        return state

    def _given_up(
        self, index: Index, state: IndexState, cursor: Cursor | None, patiently: Patiently
    ) -> IndexState:
        """A filling that was asked for and is stopped: what readers see is the index again, if it can be."""
        before = state.before
        if not state.asked or cursor is None or cursor.plan != state.plan or not cursor.stopped:
            return state
        if index.root in self._plans().fresh({cursor.plan}):
            return state
        marker = patiently(lambda: index.sink.seeded(index.name)) if index.sink.keeps else None
        if marker is not None and marker.generation == state.generation:
            # Readers see it already: a crash came before that was written down here, and then the stop.
            return self._complete(index, state, marker)
        if before is None or not as_good(index, before) or (index.sink.keeps and marker != before.marker):
            return state
        state = replace(before, plan=cursor.plan)
        # First: without the filling, and with a state that tells of it, all would be filled again.
        self._states.put(index.name, state)
        patiently(lambda: index.sink.ensure(index.name, before.generation, index.mapping))
        self._tidy()
        self._observer.event("index.kept", index=index.name)
        return state

    def _seen(
        self, index: Index, state: IndexState, batch: Batch, tables: Mapping[str, str]
    ) -> tuple[IndexState, str]:
        """The state after the batch, and why changes may have been missed with it."""
        steps = batch.steps
        anew = sorted(str(ref) for ref in index.tables if any(step.moved for step in steps.get(ref, ())))
        why, before = "", state.before
        if before is not None and before.still is None:
            before = watched(before, tables, batch.horizon, anew)[0]
        if state.generation:
            state, why = watched(state, tables, batch.horizon, anew)
        return (state if before is state.before else replace(state, before=before)), why

    def _watched(
        self, index: Index, state: IndexState, batch: Batch, tables: Mapping[str, str]
    ) -> IndexState:
        """Ask for a filling where changes may have been missed."""
        now, why = self._seen(index, state, batch, tables)
        if why:
            self._plans().request(index.root, remembered=True)
            self._observer.event("index.filling", index=index.name, reason=why)
        if now is not state:
            self._states.put(index.name, now)
        return now

    def _by_joins(self, index: Index, plan_id: str, spark: SparkSession) -> bool:
        """Whether the index is to be filled from copies."""
        if index.backfill != "auto" or index.sink.local:
            return index.backfill == "spark" and not index.sink.local
        plan = self._plans().find(plan_id)
        rows = 0 if plan is None else plan.rows(len(plan.chunks))
        return cheaper(rows, spark.sparkContext.defaultParallelism)

    def _changed(
        self,
        index: Index,
        state: IndexState,
        batch: Batch,
        spark: SparkSession,
        patiently: Patiently,
        *,
        followed: tuple[str, DocumentSink] | None,
    ) -> DocumentReport:
        """Build and write what the batch touches: to the index, and to what is followed for its readers."""
        own = [one for one in batch.changes if one.table.ref in index.tables and len(one)]
        if not own:
            return DocumentReport()
        capture = self._opened()
        self._refuse_retyped(index, own, capture)
        if index.name not in self._queries:
            self._queries[index.name] = build_query(index.plan, capture.dialect, Keys())
        build = Build(
            plan=index.plan,
            index=index.name,
            generation=state.generation,
            version=batch.progress.end,
            sink=index.sink,
            strict=index.on_error == "stop",
            query=self._queries[index.name],
        )
        both = build
        if followed is not None:
            generation, sink = followed
            both = replace(build, also=followed)
            if not state.generation:
                build = both = replace(build, generation=generation, sink=sink)
        resolver, roots = self._resolvers_of(index, capture)
        read = [found for one in own if one.table.ref == index.root and len(found := _only(one, Op.READ))]
        if read and self._readers.of(str(index.root), batch.progress) not in ("", index.name):
            read = []
        filled = touched = roots.resolve(read, capture)

        def changed() -> DocumentReport:
            nonlocal touched
            report, many = DocumentReport(), []
            with capture.together():
                logged = [found for one in own if len(found := _logged(one))]
                touched = affected = resolver.resolve(logged, capture, since=batch.horizon)
                if affected.everything:
                    return self._everything(both, capture, spark)
                work = [(both, affected)]
                if not state.copied:
                    touched = resolver.merged([affected, filled])
                    work = [(both, touched)]
                if both.also is not None and not state.copied:
                    work = [(one, found) for one, found in ((both, affected), (build, filled)) if len(found)]
                if both.also is not None and state.asked:
                    # What readers see has none of the rows that were read, and may be kept.
                    touched = affected
                for one, documents in work:
                    if len(documents) <= FEW or index.sink.local:
                        report += one.keys(capture, documents.keys)
                    else:
                        many.append((one, documents))
            return sum((spread_keys(spark, self._options, b, d.keys) for b, d in many), report)

        report = DocumentReport()
        if state.copied and len(filled) and not state.complete:
            try:
                report += patiently(lambda: self._joined(index, state, build, filled, spark))
            except DataError as error:
                if index.backfill != "auto":
                    raise
                # Some value has no type in Spark; the source can build all of them.
                self._observer.event("index.filling", index=index.name, reason=error.message)
                state = replace(state, copied=0)
                self._states.put(index.name, state)
        report += patiently(changed)
        self._refused(index, batch.progress.end, touched, report)
        return report

    def _refuse_retyped(self, index: Index, changes: Sequence[ChangeBatch], capture: Capture) -> None:
        """SchemaDrift where a column has another type than the index was planned with.

        Not where the rows are merely older than that: then the catalog is as the plan has it.
        """
        for one in changes:
            planned = index.schemas[one.table.ref]
            if planned.columns == one.table.columns or not schema_change(planned, one.table).retyped:
                continue
            if names := schema_change(planned, capture.describe(one.table.ref)).retyped:
                raise SchemaDrift(
                    f"index {index.name}: the type of {', '.join(names)} of table {one.table.ref} changed,"
                    " and what became of its values the log does not tell",
                    remedy="tailrace run: the index is planned anew, and filled again where it shows them",
                    place=str(one.table.ref),
                )

    def _resolvers_of(self, index: Index, capture: Capture) -> tuple[Resolver, Resolver]:
        """For changes that the log tells, and for rows that were read."""
        if index.name not in self._resolvers:
            whole = Resolver(index.plan, capture.dialect)
            self._resolvers[index.name] = (whole, roots_only(index.plan, capture.dialect))
        return self._resolvers[index.name]

    def _joined(
        self, index: Index, state: IndexState, build: Build, filled: Affected, spark: SparkSession
    ) -> DocumentReport:
        """Build documents of rows that were read from copies of the tables."""
        copies = Copies(spark, self._options, index.plan, state.generation)
        copies.make(lambda table: self._observer.event("index.copying", index=index.name, table=table))
        at = replace(build, version=state.copied)
        return copies.build(at, filled.keys, self._opened().dialect)

    def _everything(self, build: Build, capture: Capture, spark: SparkSession) -> DocumentReport:
        """Every document anew; what is left from before has no row any more."""
        chunks = capture.plan(build.plan.root.table.ref, rows_per_chunk=CHUNK_ROWS)
        if build.sink.local:
            report = sum((build.chunk(capture, chunk) for chunk in chunks), DocumentReport())
        else:
            report = spread_chunks(spark, self._options, build, chunks)
        return report + DocumentReport(deleted=build.retire())

    def _refused(self, index: Index, version: int, touched: Affected, report: DocumentReport) -> None:
        """Write down what was rejected, and forget what was before and is not any more."""
        letters = self._letters
        if letters is not None and (known := [letter.id for letter in letters.letters(index.name)]):
            known_ids = pa.array(known, pa.string())
            built = known_ids if touched.everything else known_ids.filter(pc.is_in(known_ids, touched.ids))
            letters.forget(index.name, set(built.to_pylist()))
        if not report.rejected:
            return
        if index.on_error == "stop" or letters is None:
            raise rejected(index.name, report.rejected)
        letters.append(index.name, version, report.rejected)
        first = report.rejected[0]
        self._observer.event(
            "index.rejected", index=index.name, count=len(report.rejected), id=first.id, reason=first.reason
        )

    def _settled(self, index: Index, state: IndexState, batch: Batch, patiently: Patiently) -> None:
        """Show the generation to readers once every root row has its document."""
        cursor = batch.end.snapshots.get(str(index.root))
        if state.complete or cursor is None or cursor.plan != state.plan:
            return
        # One that was asked for has read all rows, whatever an earlier snapshot of the table left out.
        if not (cursor.over and not cursor.stopped if state.asked else cursor.complete):
            return
        if index.root in self._plans().fresh({cursor.plan}):
            # A batch that came again may lack chunks that the snapshot will bring that was asked for.
            return
        if state.asked and str(index.root) in self._orders().read()[0]:
            # It may lack chunks too, which were left out for the stop.
            return
        if not patiently(lambda: self._was_read(index, cursor.plan)):
            return
        progress = batch.progress
        marker = Marker(
            generation=state.generation,
            source=progress.source,
            database=index.database,
            consumer=self._spec.options.get("consumer", ""),
            position=progress.end,
            schema_hash=state.schema_hash,
            horizon=state.horizon,
        )
        patiently(lambda: index.sink.publish(index.name, marker))
        self._complete(index, state, marker)

    def _complete(self, index: Index, state: IndexState, marker: Marker) -> IndexState:
        """Write down that readers see the generation."""
        done = replace(state, complete=True, marker=marker, copied=0, asked=False, before=None)
        self._states.put(index.name, done)
        self._tidy()
        if self._letters is not None:
            # All that was rejected before was built since.
            self._letters.forget(index.name, older=state.begun)
        self._observer.event("index.complete", index=index.name, position=marker.position)
        return done

    def _was_read(self, index: Index, plan_id: str) -> bool:
        """Whether every chunk of the plan was read.

        Those of a table that was dropped, or whose capture began anew, are left out: another snapshot of it
        follows.
        """
        capture, plan = self._opened(), self._plans().load(plan_id)
        there = index.root in capture.tables()
        return there and capture.describe(index.root).generation == plan.table.generation

    def _tell(self, index: Index, report: DocumentReport, seconds: float) -> None:
        for note in report.notes:
            self._observer.event("sink.note", message=note)
        if report.written or report.deleted or report.stale or report.rejected:
            self._observer.event(
                "index.written",
                index=index.name,
                written=report.written,
                deleted=report.deleted,
                stale=report.stale,
                rejected=len(report.rejected),
                seconds=seconds,
            )

    def _opened(self) -> Capture:
        if self._capture is None:
            self._capture = open_capture(self._options)
        return self._capture

    def _plans(self) -> PlanStore:
        return PlanStore(*open_filesystem(self._spec.options["stateDir"]))

    def _orders(self) -> Orders:
        return Orders(*open_filesystem(self._spec.options["stateDir"]))


@contextmanager
def _lost(index: Index) -> Iterator[None]:
    """Say of what was lost, and nobody knows a remedy for, which index it is and how it comes back."""
    try:
        yield
    except NeedsOperator as error:
        if error.remedy is not None:
            raise
        raise type(error)(f"index {index.name}: {error.message}", remedy=LOST, place=error.place) from error


def _waiting(index: Index, why: str = "") -> IndexState:
    """The state of an index whose filling has not begun."""
    return IndexState(str(index.root), index.plan.schema_hash, sinks=index.sinks, again=why)


def _marked(changes: Sequence[ChangeBatch], index: Index) -> bool:
    """Whether a whole snapshot of the root begins in this batch."""
    return any(one.table.ref == index.root and len(_only(one, Op.SNAPSHOT)) for one in changes)


def _only(batch: ChangeBatch, op: Op) -> ChangeBatch:
    return ChangeBatch(batch.table, batch.data.filter(pc.equal(batch.data["op"], op.value)))


def _logged(batch: ChangeBatch) -> ChangeBatch:
    """What the log told, without rows that were read."""
    read = pc.is_in(batch.data["op"], value_set=_SNAPSHOT_OPS)
    return ChangeBatch(batch.table, batch.data.filter(pc.invert(read))) if pc.any(read).as_py() else batch
