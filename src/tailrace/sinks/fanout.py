"""Documents to several sinks at once: all of them have a batch before it counts as written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from tailrace.model.errors import ConfigError, Transient
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Marker, Rejection

Answer = TypeVar("Answer")


class FanOut(DocumentSink):
    """Writes every document to all `sinks`, by their names, at the same time.

    A sink that fails fails the call, after the others are done: versions make their part harmless when it
    comes again. Where several fail, the error that somebody must act on is the one raised.
    """

    def __init__(self, sinks: Mapping[str, DocumentSink]) -> None:
        if not sinks:
            raise ConfigError("documents need a sink to go to")
        self.sinks = dict(sinks)
        self._keepers = [sink for sink in self.sinks.values() if sink.keeps]
        self.local = any(sink.local for sink in self.sinks.values())
        self.keeps = bool(self._keepers)
        self._threads: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (FanOut, (self.sinks,))

    def watch(self, waiting: Callable[[str, float], None]) -> None:
        for sink in self.sinks.values():
            sink.watch(waiting)

    def hurry(self) -> None:
        for sink in self.sinks.values():
            sink.hurry()

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        self._all(lambda sink: sink.ensure(index, generation, mapping))

    def seeded(self, index: str) -> Marker | None:
        """The marker of all that keep documents; None where they differ.

        One that failed in the middle of `publish` may be behind: the least position and the furthest horizon
        hold for all of them.
        """
        markers = [sink.seeded(index) for sink in self._keepers]
        found = [marker for marker in markers if marker is not None]
        alike = {replace(marker, position=0, horizon=0) for marker in found}
        if len(found) < len(markers) or len(alike) != 1:
            return None
        return replace(
            found[0],
            position=min(marker.position for marker in found),
            horizon=max(marker.horizon for marker in found),
        )

    def holds(self, index: str, generation: str) -> bool:
        return all(sink.holds(index, generation) for sink in self._keepers)

    def holding(self, index: str, generation: str) -> DocumentSink | None:
        found = {name: part for name, sink in self.sinks.items() if (part := sink.holding(index, generation))}
        return FanOut(found) if found else None

    def publish(self, index: str, marker: Marker) -> None:
        """Each sink shows it in one step of its own; one that failed gets there when it comes again."""
        self._all(lambda sink: sink.publish(index, marker))

    def write(self, batch: DocumentBatch) -> DocumentReport:
        """What all of them did: a document counts as written where every sink wrote it."""
        return merged(list(self.sinks), self._all(lambda sink: sink.write(batch)))

    def retire(self, index: str, generation: str, version: int) -> int:
        return max(self._all(lambda sink: sink.retire(index, generation, version)))

    def flush(self) -> None:
        self._all(lambda sink: sink.flush())

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        """The documents of the first sink that keeps any."""
        return next(iter([*self._keepers, *self.sinks.values()])).read(index, generation)

    def drop(self, index: str) -> None:
        self._all(lambda sink: sink.drop(index))

    def close(self) -> None:
        try:
            self._all(lambda sink: sink.close())
        finally:
            if self._threads is not None:
                self._threads.shutdown()
            self._threads = None

    def _all(self, call: Callable[[DocumentSink], Answer]) -> list[Answer]:
        """Call every sink, each in a thread of its own; return when all are done."""
        first, *others = self.sinks.values()
        if not others:
            return [call(first)]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self.sinks), "tailrace-fanout")
        futures = [self._threads.submit(call, sink) for sink in self.sinks.values()]
        wait(futures)
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, Transient))
        return [future.result() for future in futures]


def merged(names: Sequence[str], reports: Sequence[DocumentReport]) -> DocumentReport:
    """One report of several sinks about the same batch. A rejection says which sink it is of."""
    reasons: dict[str, list[str]] = {}
    for name, report in zip(names, reports, strict=True):
        for one in report.rejected:
            reasons.setdefault(one.id, []).append(f"{name}: {one.reason}")
    return DocumentReport(
        written=min(report.written for report in reports),
        deleted=min(report.deleted for report in reports),
        stale=max(report.stale for report in reports),
        rejected=tuple(Rejection(id_, "; ".join(found)) for id_, found in reasons.items()),
        notes=tuple(note for report in reports for note in report.notes),
    )
