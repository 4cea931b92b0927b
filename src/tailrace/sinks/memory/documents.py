"""Documents in a dict: the smallest complete reading of the contract of document sinks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.model.errors import UsageError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Marker


@dataclass
class _Index:
    # A deleted document is None, and never forgotten.
    held: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    marker: Marker | None = None


class MemoryDocumentSink(DocumentSink):
    """Indexes as dicts of versions and documents by id. Cannot go to another process."""

    local = True

    def __init__(self) -> None:
        self._indexes: dict[str, _Index] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError("documents in memory belong to one process", remedy="use the sqlite sink")

    def ensure(self, index: str, mapping: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._indexes.setdefault(index, _Index())

    def seeded(self, index: str) -> Marker | None:
        return self._indexes[index].marker if index in self._indexes else None

    def mark_seeded(self, index: str, marker: Marker) -> None:
        self._known(index).marker = marker

    def clear(self, index: str) -> None:
        self._known(index)
        self._indexes[index] = _Index()

    def write(self, batch: DocumentBatch) -> DocumentReport:
        held = self._known(batch.index).held
        written = deleted = stale = 0
        with self._lock:
            for id_, document in zip(batch.ids.to_pylist(), batch.documents.to_pylist(), strict=True):
                if id_ in held and held[id_][0] > batch.version:
                    stale += 1
                    continue
                held[id_] = (batch.version, document)
                written += document is not None
                deleted += document is None
        return DocumentReport(written, deleted, stale)

    def flush(self) -> None:
        """Nothing is held back."""

    def read(self, index: str) -> pa.Table:
        rows = [
            (id_, version, document)
            for id_, (version, document) in sorted(self._known(index).held.items())
            if document is not None
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        types = (pa.string(), pa.int64(), pa.large_string())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["id", "version", "document"])

    def close(self) -> None:
        """Nothing to release: what was written can still be read."""

    def _known(self, index: str) -> _Index:
        if index not in self._indexes:
            raise UsageError(f"there is no index {index}")
        return self._indexes[index]
