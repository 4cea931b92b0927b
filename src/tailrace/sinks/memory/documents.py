"""Documents in dicts: the smallest complete reading of the contract of document sinks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.model.errors import NeedsOperator, UsageError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Held, Marker


@dataclass
class _Generation:
    # A deleted document is None, and never forgotten.
    held: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    marker: Marker | None = None


@dataclass
class _Index:
    # The generation that readers see.
    shown: str
    generations: dict[str, _Generation] = field(default_factory=dict)

    def keep(self, *names: str) -> None:
        """Forget the generations that are not among these."""
        self.generations = {name: self.generations[name] for name in self.generations if name in names}


class MemoryDocumentSink(DocumentSink):
    """Generations as dicts of versions and documents by id. Cannot go to another process."""

    local = True

    def __init__(self) -> None:
        self._indexes: dict[str, _Index] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError("documents in memory belong to one process", remedy="use the sqlite sink")

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:  # noqa: ARG002
        with self._lock:
            one = self._indexes.setdefault(index, _Index(generation))
            one.generations.setdefault(generation, _Generation())
            one.keep(generation, one.shown)

    def seeded(self, index: str) -> Marker | None:
        with self._lock:
            one = self._indexes.get(index)
            return None if one is None else one.generations[one.shown].marker

    def holds(self, index: str, generation: str) -> bool:
        with self._lock:
            one = self._indexes.get(index)
            return one is not None and generation in one.generations

    def look(self, index: str) -> Held:
        with self._lock:
            one = self._indexes.get(index)
            if one is None:
                return Held()
            found = one.generations[one.shown]
            there = sum(document is not None for _, document in found.held.values())
            return Held(one.shown, found.marker, there)

    def publish(self, index: str, marker: Marker) -> None:
        with self._lock:
            self._existing(index, marker.generation).marker = marker
            one = self._indexes[index]
            one.shown = marker.generation
            one.keep(marker.generation)

    def write(self, batch: DocumentBatch) -> DocumentReport:
        if not len(batch):
            return DocumentReport()
        written = deleted = stale = 0
        with self._lock:
            held = self._existing(batch.index, batch.generation).held
            for id_, document in zip(batch.ids.to_pylist(), batch.documents.to_pylist(), strict=True):
                if id_ in held and held[id_][0] > batch.version:
                    stale += 1
                    continue
                held[id_] = (batch.version, document)
                written += document is not None
                deleted += document is None
        return DocumentReport(written, deleted, stale)

    def retire(self, index: str, generation: str, version: int) -> int:
        with self._lock:
            held = self._existing(index, generation).held
            old = [id_ for id_, (at, document) in held.items() if at < version and document is not None]
            held.update(dict.fromkeys(old, (version, None)))
        return len(old)

    def flush(self) -> None:
        """Nothing is held back."""

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        with self._lock:
            one = self._indexes.get(index)
            if one is None:
                raise UsageError(f"there is no index {index}")
            found = one.generations.get(one.shown if generation is None else generation)
            if found is None:
                raise UsageError(f"index {index} has no generation {generation}")
            held = sorted(found.held.items())
        rows = [(id_, version, document) for id_, (version, document) in held if document is not None]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.int64(), pa.large_string())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["id", "version", "document"])

    def drop(self, index: str) -> None:
        with self._lock:
            self._indexes.pop(index, None)

    def close(self) -> None:
        """Nothing to release: what was written can still be read."""

    def _existing(self, index: str, generation: str) -> _Generation:
        one = self._indexes.get(index)
        found = None if one is None else one.generations.get(generation)
        if found is None:
            raise NeedsOperator(
                f"generation {generation} of index {index} is gone: another filling has taken its place",
                remedy="start the pipeline again",
            )
        return found
