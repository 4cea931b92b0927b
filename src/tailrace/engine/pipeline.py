"""A pipeline's run: start the query, watch it, stop it between two batches, say what went wrong.

    start ─▶ batches ─▶ stop asked for ─▶ the running batch ends ─▶ its commit is on disk ─▶ query stops

`request_stop` may be called from a signal handler. The last batch's end is acknowledged to the source at the
end of the run, because Spark tells the source of a commit only when another batch follows.
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.capture.contract import Finding
from tailrace.engine.gate import Closed, Gate
from tailrace.engine.progress import committed, is_committed
from tailrace.engine.snapshots import SnapshotEvents
from tailrace.engine.spec import PipelineSpec
from tailrace.engine.writer import BatchWriter
from tailrace.model.errors import StateOwned, TailraceError
from tailrace.runtime.notices import Notices
from tailrace.runtime.observer import Observer, Silence
from tailrace.spark.crossing import cause
from tailrace.spark.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WATCH_SECONDS = 0.25
# How soon it hears that it is to stop.
LISTEN_SECONDS = 0.02
COMMIT_SECONDS = 30.0
_ABOUT_THE_QUERY = "=== Streaming Query ==="


@dataclass(frozen=True)
class RunResult:
    """How a run ended: batches and changes written, and the last committed offset."""

    batches: int
    rows: int
    offset: Offset | None


class Pipeline:
    """One run of a pipeline. It also ends, as if stopped, when `renew` says that another is to follow."""

    def __init__(
        self,
        spec: PipelineSpec,
        spark: SparkSession,
        *,
        release: Callable[[Offset], None],
        observer: Observer | None = None,
        renew: Callable[[], bool] | None = None,
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._release = release
        self._observer = observer or Silence()
        self._gate = Gate()
        self._writer = BatchWriter(spec, self._gate, self._observer)
        self._renew = renew
        self._stopping = False

    def request_stop(self) -> None:
        """Finish the batch that is being written, then end the run. Safe in a signal handler."""
        self._stopping = True

    def run(self, *, once: bool = False) -> RunResult:
        """Run until stopped, or with `once` until everything the source has now is written."""
        try:
            return self._run(once)
        except StateOwned:
            # What is there is another's.
            raise
        except TailraceError as error:
            self._writer.hold_ups.stopped(error)
            raise

    def _run(self, once: bool) -> RunResult:
        self._writer.prepare()
        query = self._start(once)
        self._observer.event("pipeline.started", pipeline=self._spec.name, once=once)
        try:
            self._watch(query)
        finally:
            self._end(query)
        self._raise_failure(query)
        last = committed(self._spec.checkpoint)
        if last is not None:
            self._release(last[1])
        result = RunResult(self._writer.batches, self._writer.rows, last[1] if last else None)
        self._observer.event("pipeline.stopped", batches=result.batches, rows=result.rows)
        return result

    def _start(self, once: bool) -> StreamingQuery:
        try:
            frame = self._spark.readStream.format("tailrace").options(**self._spec.options).load()
            stream = frame.writeStream.queryName(self._spec.name).foreachBatch(_calling(self._writer))
            stream = stream.option("checkpointLocation", self._spec.checkpoint)
            return (stream.trigger(availableNow=True) if once else stream).start()
        except Exception as error:
            raise self._ours(error) from error

    def _watch(self, query: StreamingQuery) -> None:
        told, notices, snapshots = "", Notices(self._observer), SnapshotEvents(self._observer)
        while query.isActive and not self._stopped_within(WATCH_SECONDS):
            if self._renew is not None and self._renew():
                self._stopping = True
                return
            progress = query.lastProgress
            if progress is not None and progress["timestamp"] != told:
                told = progress["timestamp"]
                self._observer.event("pipeline.progress", **(numbers := _numbers(progress)))
                if (found := _notices(numbers["source"])) is not None:
                    notices.tell(found)
                    snapshots.tell(_report(numbers["source"]).get("snapshots", ()))

    def _stopped_within(self, seconds: float) -> bool:
        # Asleep, and not waiting for a sign: the code that a signal handler interrupts may be holding an
        # event's lock, and a queue waits for ever where a signal comes at the end of its time.
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LISTEN_SECONDS))
        return self._stopping

    def _end(self, query: StreamingQuery) -> None:
        if query.isActive:
            self._gate.close(0)
            self._writer.hurry()
        if query.isActive and self._gate.close():
            batch = self._gate.finished
            deadline = time.monotonic() + COMMIT_SECONDS
            # Stopping before Spark has written the commit would make it write the batch again.
            while batch >= 0 and query.isActive and time.monotonic() < deadline:
                if is_committed(self._spec.checkpoint, batch):
                    break
                time.sleep(0.01)
        self._gate.close(0)
        query.stop()
        self._writer.close()

    def _raise_failure(self, query: StreamingQuery) -> None:
        if self._writer.error is not None:
            raise self._ours(self._writer.error) from self._writer.error
        error = query.exception()
        if error is not None and not self._stopping:
            raise self._ours(error) from error

    def _ours(self, error: BaseException) -> BaseException:
        """Tailrace's error behind what Spark raised; a foreign one is named, with the log of the rest."""
        found = cause(error)
        if found is not None:
            return found
        where = self._spec.spark_log
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return TailraceError(
            f"Spark failed: {_telling(lines)[:500]}", remedy=f"Spark's log: {where}" if where else None
        )


def _calling(writer: BatchWriter) -> Callable[[DataFrame, int], None]:
    """What Spark calls. It stays known to the JVM long after the query's end; the writer is to go with it."""
    known = weakref.ref(writer)

    def call(frame: DataFrame, number: int) -> None:
        if (found := known()) is None:
            raise Closed
        found(frame, number)

    return call


def _telling(lines: Sequence[str]) -> str:
    """The line that says why. What follows about the query, its plan and its threads, does not."""
    end = lines.index(_ABOUT_THE_QUERY) if _ABOUT_THE_QUERY in lines else len(lines)
    return (lines[:end] or lines)[-1]


def _numbers(progress: Any) -> dict[str, Any]:
    source = (progress["sources"] or [{}])[0]
    return {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "rate": progress["processedRowsPerSecond"],
        "source": source.get("latestOffset"),
    }


def _report(source: Any) -> dict[str, Any]:
    """What the source reports; empty where that is nothing."""
    body = json.loads(source) if isinstance(source, str) and source.startswith("{") else source
    return body if isinstance(body, dict) else {}


def _notices(source: Any) -> list[Finding] | None:
    """What the source's report says it lives with; None where it reports nothing."""
    found = _report(source).get("notices")
    return [Finding(**notice) for notice in found] if isinstance(found, list) else None
