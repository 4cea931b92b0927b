"""The data source under test: the product's, with points, and on request with a seeded bug.

Spark's processes import it by name, so `PYTHONPATH` must lead here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tailrace.capture.contract import TABLE_STOPPED
from tailrace.model.change import ChangeBatch
from tailrace.model.pack import pack, unpack
from tailrace.spark.offsets import Offset
from tailrace.spark.partitions import Slice
from tailrace.spark.read import packed
from tailrace.spark.source import StreamReader, TailraceSource
from tests.faults.points import note, once, reach, told

BUG = "TAILRACE_BUG"
LEASE = "TAILRACE_LEASE"
CAPTURE = "TAILRACE_CAPTURE"


def bug(name: str) -> bool:
    """Whether this seeded bug is wanted."""
    return os.environ.get(BUG) == name


def _facts(start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    left = sum(cursor["of"] - cursor["next"] for cursor in end["snapshots"].values())
    done = sum(cursor["next"] for cursor in end["snapshots"].values())
    before = sum(cursor["next"] for cursor in start["snapshots"].values())
    return {
        "start": start["position"],
        "end": end["position"],
        "grown": start["position"] < end["position"],
        "chunks": done - before,
        "done": done,
        "complete": bool(end["snapshots"]) and left == 0,
    }


class FaultyReader(StreamReader):
    """The product's reader with a point in every call."""

    def initialOffset(self) -> dict[str, Any]:
        offset: dict[str, Any] = super().initialOffset()
        reach("initial")
        return offset

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        shorten_lease()
        reach("latest", **_facts(start, start))
        self._catch_up()
        if bug("never-acknowledge") and self._driver is not None and self._driver._filler is not None:
            self._driver._filler.acknowledge = lambda _: None  # type: ignore[method-assign, assignment]
        end: dict[str, Any] = super().latestOffset(start, limit)
        if bug("acknowledge-early") and self._driver is not None:
            self._driver.acknowledge(Offset.from_json(end))
        reach("planned", **_facts(start, end))
        return end

    def _catch_up(self) -> None:
        """Hold the next batch back until everything is captured that the test wants in it."""
        filler = self._driver._filler if self._driver is not None else None
        if filler is not None and (version := told("captured")) is not None:
            filler.catch_up(int(version), 30)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        shorten_lease()
        reach("partitions", **_facts(start, end))
        parts: list[InputPartition] = super().partitions(start, end)
        if bug("skip-chunk") and _last_chunk(parts) >= 2 and once("skip-chunk"):
            parts[-1] = replace(parts[-1], chunks=())
        reach("resolved", **_facts(start, end))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        facts = _read_facts(partition)
        for read in partition.chunks:
            note("chunk", table=str(read.chunk.table), index=read.chunk.index)
        for number, batch in enumerate(StreamReader.read(self, partition)):
            if number:
                reach("read", **facts)
            yield _bugged(batch) if os.environ.get(BUG) else batch

    def reportLatestOffset(self) -> dict[str, Any] | None:
        told: dict[str, Any] | None = super().reportLatestOffset()
        body = told or {}
        stopped = [found["table"] for found in body.get("notices", ()) if found["code"] == TABLE_STOPPED]
        reach("report", state=body.get("state"), stopped=stopped)
        return told

    def commit(self, end: dict[str, Any]) -> None:
        reach("commit", end=end["position"])
        super().commit(end)


def _last_chunk(parts: list[Slice]) -> int:
    chunks = parts[-1].chunks if parts else ()
    return int(chunks[-1].chunk.index) if chunks else -1


def _read_facts(part: Slice) -> dict[str, Any]:
    if part.chunks:
        return {"kind": "chunk", "chunk": part.chunks[0].chunk.index}
    return {"kind": "log", "rows": sum(window.rows for window in part.windows)}


def _bugged(batch: pa.RecordBatch) -> pa.RecordBatch:
    row = batch.to_pylist()[0]
    if row["kind"] != "changes":
        return batch
    changes = unpack(row["payload"])
    logged = not {"r", "s"} & set(changes.data["op"].to_pylist())
    if bug("drop-one") and len(changes) > 1 and logged and once("drop-one"):
        changes = changes.slice(0, len(changes) - 1)
    if bug("lose-last-row") and len(changes) > 1 and not logged and once("lose-last-row"):
        changes = changes.slice(0, len(changes) - 1)
    if bug("split-transaction") and logged:
        changes = _split(changes)
    if bug("apply-rolled-back") and logged and (lost := told("rolled-back")) and once("apply-rolled-back"):
        changes = _with_lost(changes, json.loads(lost))
    if bug("keep-old-key"):
        place = changes.data.schema.get_field_index("before")
        field = changes.data.schema.field(place)
        nothing = pa.nulls(len(changes), field.type)
        updates = pa.compute.equal(changes.data["op"], "u")
        before = pa.compute.if_else(updates, nothing, changes.data["before"])
        changes = ChangeBatch(changes.table, changes.data.set_column(place, field, before))
    return packed("changes", row["table"], len(changes), pack(changes))


_behind: list[ChangeBatch] = []


def _split(changes: ChangeBatch) -> ChangeBatch:
    """Once the last change of a transaction comes with the batch after its own."""
    if _behind:
        return _joined(_behind.pop(), changes)
    if len(changes) > 1 and once("split-transaction"):
        _behind.append(changes.slice(len(changes) - 1, 1))
        return changes.slice(0, len(changes) - 1)
    return changes


def _with_lost(changes: ChangeBatch, lost: dict[str, Any]) -> ChangeBatch:
    """The changes and one more, an insert that was rolled back."""
    (last,) = changes.data.slice(len(changes) - 1).to_pylist()
    image = {**last["after"], **lost}
    one = {**last, "op": "c", "seq": last["seq"] + 1, "before": None, "after": image}
    more = pa.RecordBatch.from_pylist([one], schema=changes.data.schema)
    return _joined(changes, ChangeBatch(changes.table, more))


def _joined(first: ChangeBatch, second: ChangeBatch) -> ChangeBatch:
    data = pa.Table.from_batches([first.data, second.data]).combine_chunks()
    return ChangeBatch(first.table, data.to_batches()[0])


def skip_old_parent() -> None:
    """The seeded bug `skip-old-parent`: of a row that moved only the new parent's document is built."""
    from tailrace.documents.resolve import resolver, values

    if not bug("skip-old-parent") or getattr(resolver, "bugged", False):
        return
    original = values.touched

    def touched(batch: ChangeBatch, columns: Any, path: Any) -> Any:
        after = values._image(batch, "after", columns)
        return [after] if after is not None else original(batch, columns, path)

    resolver.bugged = True  # type: ignore[attr-defined]
    resolver.touched = touched  # type: ignore[attr-defined]


def shorten_lease() -> None:
    """Ownership of the state runs out after `TAILRACE_LEASE` seconds in this process."""
    from tailrace.changelog.log import Changelog

    if LEASE not in os.environ or getattr(Changelog.open, "shortened", False):
        return
    original = Changelog.open

    def shortened(*arguments: Any, **named: Any) -> Changelog:
        return original(*arguments, **{"lease": float(os.environ[LEASE]), "wait": 0.5, **named})

    shortened.shortened = True  # type: ignore[attr-defined]
    Changelog.open = shortened  # type: ignore[method-assign]


def tune_capture() -> None:
    """PostgreSQL captures of this process get the settings of `TAILRACE_CAPTURE`, a short time-out say."""
    from tailrace.capture.postgres import PostgresConfig

    if CAPTURE not in os.environ or hasattr(PostgresConfig, "tuned"):
        return
    original, settings = PostgresConfig.from_url, json.loads(os.environ[CAPTURE])

    def tuned(url: str, options: dict[str, Any] | None = None) -> PostgresConfig:
        return original(url, {**(options or {}), **settings})

    PostgresConfig.from_url = tuned  # type: ignore[method-assign, assignment]
    PostgresConfig.tuned = True  # type: ignore[attr-defined]


def never_pause() -> None:
    """The seeded bug `no-pause`: capture goes on though the changelog is full."""
    from tailrace.changelog.log import Changelog

    if bug("no-pause"):
        Changelog._wait_for_room = lambda _: None  # type: ignore[method-assign, assignment]


def lift_barrier() -> None:
    """The seeded bug `no-barrier`: a chunk is read whether or not what the log has told is visible."""
    from tailrace.capture.postgres import PostgresCapture

    if bug("no-barrier"):
        PostgresCapture.wait_visible = lambda *_: None  # type: ignore[method-assign]


class FaultySource(TailraceSource):
    """`format("tailrace")` of the pipeline under test."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        shorten_lease()
        tune_capture()
        lift_barrier()
        never_pause()
        reader = TailraceSource.streamReader(self, schema)
        # Whatever the product's reader was made of, this one is.
        reader.__class__ = FaultyReader
        return reader
