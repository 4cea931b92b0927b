"""A stand-in for Spark's micro-batch loop, so that a fault costs a second instead of ten.

It has the few methods of a session that the engine's `Pipeline` calls, drives the real stream reader in the
order in which Spark was seen to drive it, sends reader and partitions through pickle as Spark does, and keeps
`offsets/N` and `commits/N` as Spark does:

    first run     initialOffset, latestOffset, offsets/0, initialOffset, partitions, read
    steady        foreachBatch, commits/N, latestOffset(end of N), offsets/N+1, commit(end of N), partitions
    restart       after a whole batch: latestOffset(its end), offsets/N+1, commit, partitions
                  after a part of one: partitions(as logged) at once

`Manners` makes it deliver less kindly than it must: partitions in any order, tasks run twice, batches thrice.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from tailrace.spark.read import PACKED
from tests.faults.points import reach

HEADER = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}, "sourceMetadataInfo": {}}


@dataclass(frozen=True)
class Manners:
    """How batches are delivered."""

    times: int = 1
    shuffled: bool = False
    twins: bool = False


class Frame:
    """A micro-batch."""

    def __init__(self, table: pa.Table, session: StandIn) -> None:
        self._table = table
        self.sparkSession = session

    def toArrow(self) -> pa.Table:
        return self._table


class Tasks:
    """A job: a function over items, each partition shipped as Spark ships it, in any order, some twice."""

    def __init__(self, items: Sequence[Any], manners: Manners) -> None:
        self._items, self._manners = list(items), manners
        self._function: Callable[[Iterator[Any]], Iterator[Any]] = iter

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> Tasks:
        self._function = function
        return self

    def collect(self) -> list[Any]:
        shipped = [cloudpickle.dumps((self._function, [item])) for item in self._items]
        if self._manners.shuffled:
            random.Random(len(shipped)).shuffle(shipped)
        answers = []
        for task in shipped:
            for _ in range(2 if self._manners.twins else 1):
                function, items = pickle.loads(task)  # noqa: S301 - as Spark ships it
                reach("task")
                try:
                    answer = list(function(iter(items)))
                except Exception:
                    # Spark passes an error on as text.
                    raise RuntimeError(traceback.format_exc()) from None
            answers += answer
        return answers


class Context:
    """The part of a Spark context that deals work out."""

    defaultParallelism = 2

    def __init__(self, manners: Manners) -> None:
        self._manners = manners

    def parallelize(self, items: Sequence[Any], _slices: int) -> Tasks:
        return Tasks(items, self._manners)


class StandIn:
    """A session, a stream's builder, and nothing else of Spark."""

    def __init__(self, manners: Manners | None = None) -> None:
        self._manners = manners or Manners()
        self._source: Any = None
        self._queries: list[Query] = []

    @property
    def dataSource(self) -> StandIn:
        return self

    def register(self, source: Any) -> None:
        self._source = source

    @property
    def readStream(self) -> _Stream:
        return _Stream(self._source, self._manners, self._queries, self)

    @property
    def sparkContext(self) -> Context:
        return Context(self._manners)

    def stop(self) -> None:
        for query in self._queries:
            query.stop()
            query.thread.join(timeout=30)


class _Stream:
    def __init__(self, source: Any, manners: Manners, queries: list[Query], session: StandIn) -> None:
        self._source, self._manners, self._queries, self._session = source, manners, queries, session
        self._options: dict[str, str] = {}
        self._once = False
        self._function: Callable[[Any, int], None] | None = None
        self._checkpoint = ""

    @property
    def writeStream(self) -> _Stream:
        return self

    def format(self, _name: str) -> _Stream:
        return self

    def queryName(self, _name: str) -> _Stream:
        return self

    def options(self, **options: str) -> _Stream:
        self._options = options
        return self

    def load(self) -> _Stream:
        self._source(self._options).schema()
        return self

    def foreachBatch(self, function: Callable[[Any, int], None]) -> _Stream:
        self._function = function
        return self

    def option(self, _name: str, value: str) -> _Stream:
        self._checkpoint = value
        return self

    def trigger(self, *, availableNow: bool) -> _Stream:
        self._once = availableNow
        return self

    def start(self) -> Query:
        source = self._source(self._options)
        reader = source.streamReader(source.schema())
        assert self._function is not None
        query = Query(
            reader,
            self._function,
            Path(self._checkpoint),
            self._manners,
            once=self._once,
            session=self._session,
        )
        self._queries.append(query)
        query.thread.start()
        return query


class Query:
    """The loop itself, on a thread."""

    def __init__(
        self,
        reader: Any,
        function: Callable[[Any, int], None],
        checkpoint: Path,
        manners: Manners,
        *,
        once: bool,
        session: StandIn,
    ) -> None:
        self._session = session
        self._reader, self._function, self._checkpoint = reader, function, checkpoint
        self._manners, self._once = manners, once
        self._random = random.Random(0)
        self._stopping, self._calling = threading.Event(), threading.Lock()
        self._error: Exception | None = None
        self.lastProgress = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def isActive(self) -> bool:
        return self.thread.is_alive()

    def stop(self) -> None:
        """As Spark's: waits until the function that it has called returns."""
        self._stopping.set()
        with self._calling:
            pass

    def exception(self) -> Exception | None:
        return self._error

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException:
            if not self._stopping.is_set():
                # Spark passes an error on as text.
                self._error = RuntimeError(traceback.format_exc())
        finally:
            self._reader.stop()

    def _loop(self) -> None:
        if self._once:
            self._reader.prepareForTriggerAvailableNow()
        number, start, committed = self._resume()
        while not self._stopping.is_set():
            end = self._latest(start)
            if end == start:
                if self._once:
                    return
                continue
            self._log("offsets", number, [HEADER, end])
            if committed:
                self._reader.commit(start)
            elif number == 0:
                self._reader.initialOffset()
            self._batch(number, start, end)
            number, start, committed = number + 1, end, True

    def _resume(self) -> tuple[int, dict[str, Any], bool]:
        """The next batch's number and start. A batch that was logged and not committed is run first."""
        logged, done = self._numbers("offsets"), self._numbers("commits")
        if not logged:
            return 0, self._reader.initialOffset(), False
        last = max(logged)
        if last not in done:
            start = self._offset(last - 1) if last else self._reader.initialOffset()
            self._batch(last, start, self._offset(last))
        return last + 1, self._offset(last), True

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        end = self._reader.latestOffset(_copy(start), self._reader.getDefaultReadLimit())
        self._reader.reportLatestOffset()
        return _copy(end)

    def _batch(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        slices = self._reader.partitions(_copy(start), _copy(end))
        for _ in range(self._manners.times):
            frame = Frame(self._read(slices), self._session)
            with self._calling:
                self._function(frame, number)
        reach("written", batch=number)
        self._log("commits", number, [{"nextBatchWatermarkMs": 0}])

    def _read(self, slices: list[Any]) -> pa.Table:
        shipped = [pickle.dumps((self._reader, part)) for part in slices]
        if self._manners.shuffled:
            self._random.shuffle(shipped)
        batches: list[pa.RecordBatch] = []
        for task in shipped:
            twins = []
            for _ in range(2 if self._manners.twins else 1):
                reader, part = pickle.loads(task)  # noqa: S301 - as Spark ships it
                twins.append(list(reader.read(part)))
            # Of twins either may win; the other's rows are thrown away.
            batches += self._random.choice(twins)
        return pa.Table.from_batches(batches, schema=PACKED)

    def _numbers(self, kind: str) -> set[int]:
        folder = self._checkpoint / kind
        return (
            {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.exists() else set()
        )

    def _offset(self, number: int) -> dict[str, Any]:
        return _copy(json.loads((self._checkpoint / "offsets" / str(number)).read_text().splitlines()[2]))

    def _log(self, kind: str, number: int, bodies: list[Any]) -> None:
        folder = self._checkpoint / kind
        folder.mkdir(parents=True, exist_ok=True)
        path, temporary = folder / str(number), folder / f".{number}.{os.getpid()}.tmp"
        temporary.write_text("\n".join(["v1", *(json.dumps(body) for body in bodies)]))
        try:
            # As Spark: whoever finds the file there already has met another run of the same query.
            os.link(temporary, path)
        except FileExistsError:
            raise RuntimeError(f"concurrent run: {kind}/{number} was written by another one") from None
        finally:
            temporary.unlink()


def _copy(offset: dict[str, Any]) -> dict[str, Any]:
    """Offsets travel as JSON."""
    copied: dict[str, Any] = json.loads(json.dumps(offset))
    return copied
