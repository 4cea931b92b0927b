"""The sinks of a pipeline under test: a Delta mirror with points, and a feed into a file.

The feed buffers until `flush`, as the contract allows: what the engine does not flush is lost by a kill.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.net import NetChanges
from tailrace.model.render import lines
from tailrace.model.table import TableSchema
from tailrace.sinks.contract import FeedSink, Progress, Report, TableSink
from tests.faults.points import GIVE_UP, reach
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
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # One write: a kill leaves no line in half.
            assert os.write(descriptor, data) == len(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reach("feed.after")

    def close(self) -> None:
        """Nothing to release."""
