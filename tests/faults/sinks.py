"""The sinks of a pipeline under test: Delta mirror, document store and feeds with points, a feed into a file.

The feed buffers until `flush`, as the contract allows: what the engine does not flush is lost by a kill.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.net import NetChanges
from tailrace.model.render import lines
from tailrace.model.table import TableSchema
from tailrace.sinks.contract import (
    DocumentBatch,
    DocumentReport,
    DocumentSink,
    FeedSink,
    Marker,
    Progress,
    Report,
    TableSink,
)
from tests.faults.points import GIVE_UP, once, reach
from tests.faults.source import bug
from tests.support.waiting import wait_until


def _facts(progress: Progress) -> dict[str, Any]:
    done = max((index for _, index in progress.snapshots.values()), default=0)
    return {
        "start": progress.start,
        "end": progress.end,
        "snapshot": bool(progress.snapshots),
        "done": done,
        "grown": progress.start < progress.end,
    }


class FaultyTable(TableSink):
    """A table sink with points before and after `apply`, slow while a file named `slow` lies there.

    With `late`, every batch is followed by the three before it once more, the newest first: writes that
    lost their way.
    """

    def __init__(self, inner: TableSink, directory: Path, *, late: bool = False) -> None:
        self._inner = inner
        self._slow = directory / "slow"
        self._late = late
        self._past: list[tuple[str, NetChanges, Progress]] = []
        self._held: tuple[str, NetChanges, Progress] | None = None

    def place(self, target: str) -> str:
        return self._inner.place(target)

    def ensure(self, target: str, table: TableSchema) -> None:
        self._inner.ensure(target, table)

    def exists(self, target: str) -> bool:
        return self._inner.exists(target)

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        reach("apply.before", **_facts(progress))
        wait_until(lambda: not self._slow.exists(), timeout=GIVE_UP, what="the slow sink")
        report = self._apply(target, net, progress)
        if self._late:
            self._past.append((target, net, progress))
            for old in self._past[-9:-1][::-1]:
                self._apply(*old)
        reach("apply.after", skipped=report.skipped, **_facts(progress))
        return report

    def _apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        if bug("no-record"):
            progress = replace(progress, pipeline=uuid.uuid4().hex)
        if not bug("reply-early") or not self._inner.exists(target):
            return self._inner.apply(target, net, progress)
        held, self._held = self._held, (target, net, progress)
        return self._inner.apply(*held) if held is not None else Report()

    def read(self, target: str) -> pa.Table:
        return self._inner.read(target)

    def close(self) -> None:
        self._inner.close()


class FaultyDocuments(DocumentSink):
    """A document sink with points before and after each call that changes something. Pickles as it is.

    With `late`, every write is followed by those of the former versions once more, the newest first.
    """

    def __init__(self, inner: DocumentSink, *, late: bool = False) -> None:
        self._inner, self._late = inner, late
        self.local, self.keeps = inner.local, inner.keeps
        self._past: list[DocumentBatch] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _faulty, (self._inner, self._late)

    def watch(self, waiting: Callable[[str, float], None]) -> None:
        self._inner.watch(waiting)

    def hurry(self) -> None:
        self._inner.hurry()

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        self._inner.ensure(index, generation, mapping)
        shown = self._inner.seeded(index) if bug("half-filled") else None
        if shown is not None and shown.generation != generation and once("half-filled"):
            self._inner.publish(index, replace(shown, generation=generation))
        reach("ensured", index=index)

    def seeded(self, index: str) -> Marker | None:
        return self._inner.seeded(index)

    def holds(self, index: str, generation: str) -> bool:
        return self._inner.holds(index, generation)

    def publish(self, index: str, marker: Marker) -> None:
        reach("publish.before", index=index, version=marker.position)
        self._inner.publish(index, marker)
        reach("publish.after", index=index, version=marker.position)

    def write(self, batch: DocumentBatch) -> DocumentReport:
        facts = {"index": batch.index, "version": batch.version, "documents": len(batch)}
        reach("document.before", **facts)
        report = self._inner.write(_remembering(batch) if bug("forget-delete") else batch)
        reach("document.after", **facts)
        if self._late:
            self._past.append(batch)
            for old in [one for one in self._past[-9:-1] if one.generation == batch.generation][::-1]:
                # With the version of a newer one it is taken for one.
                version = batch.version if bug("older-wins") else old.version
                self._inner.write(replace(old, version=version))
        if bug("swallow-rejected") and report.rejected and once("swallow-rejected"):
            return replace(report, rejected=())
        return report

    def retire(self, index: str, generation: str, version: int) -> int:
        retired = self._inner.retire(index, generation, version)
        reach("retired", index=index, version=version)
        return retired

    def flush(self) -> None:
        self._inner.flush()
        reach("documents.flushed")

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        return self._inner.read(index, generation)

    def drop(self, index: str) -> None:
        self._inner.drop(index)

    def close(self) -> None:
        self._inner.close()


def _remembering(batch: DocumentBatch) -> DocumentBatch:
    """The batch without its deletes."""
    kept = batch.documents.is_valid()
    if len(batch.documents.filter(kept)) < len(batch):
        once("forget-delete")
    return replace(batch, ids=batch.ids.filter(kept), documents=batch.documents.filter(kept))


def _faulty(inner: DocumentSink, late: bool) -> FaultyDocuments:
    return FaultyDocuments(inner, late=late)


class FaultyFeed(FeedSink):
    """A feed sink with points before and after each write, under its name."""

    def __init__(self, inner: FeedSink, name: str) -> None:
        self._inner, self._name = inner, name

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        reach(f"{self._name}.before", **_facts(progress))
        if bug("other-keys"):
            progress = replace(progress, pipeline=uuid.uuid4().hex)
        report = self._inner.write(batches, progress)
        reach(f"{self._name}.after", **_facts(progress))
        return report

    def watch(self, waiting: Callable[[str, float], None]) -> None:
        self._inner.watch(waiting)

    def flush(self) -> None:
        self._inner.flush()

    def hurry(self) -> None:
        self._inner.hurry()

    def close(self) -> None:
        self._inner.close()


class FileFeed(FeedSink):
    """One JSON line a change, with the end of its micro-batch, durable at `flush`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[bytes] = []

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        reach("feed.before", **_facts(progress))
        head = json.dumps({"start": progress.start, "end": progress.end, "pid": os.getpid()})
        texts = lines(batches).to_pylist()
        self._waiting += [f'{{"batch":{head},"change":{text.strip()}}}\n'.encode() for text in texts]
        return Report(written=len(texts))

    def flush(self) -> None:
        data, self._waiting = b"".join(self._waiting), []
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # A kill tore the last write. Its batch comes again, on lines of its own.
                data = b"\n" + data
            assert os.write(descriptor, data) == len(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reach("feed.after")

    def close(self) -> None:
        """Nothing to release."""
