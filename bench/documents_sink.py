"""A sink that only counts: what documents cost before anybody keeps them.

Every process adds what it was given to one file, a line at each flush. It keeps one generation of each index
in mind, in files too, so that a pipeline that goes on finds what it left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import UsageError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Marker


class CountingSink(DocumentSink):
    """Counts documents and bytes into a directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._written = self._deleted = self._bytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountingSink, (self._directory,))

    def counted(self) -> dict[str, int]:
        """Everything that was flushed: documents, deletes, and bytes of ids and documents."""
        lines = self._file("counts").read_text().splitlines() if self._file("counts").exists() else []
        numbers = [[int(word) for word in line.split()] for line in lines]
        return dict(zip(("written", "deleted", "bytes"), map(sum, zip(*numbers, strict=True)), strict=False))

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        Path(self._directory).mkdir(parents=True, exist_ok=True)
        self._file(f"{index}-{generation}").touch()

    def seeded(self, index: str) -> Marker | None:
        file = self._file(f"{index}.marker")
        return Marker(**json.loads(file.read_text())) if file.exists() else None

    def holds(self, index: str, generation: str) -> bool:
        return self._file(f"{index}-{generation}").exists()

    def publish(self, index: str, marker: Marker) -> None:
        self._file(f"{index}.marker").write_text(json.dumps(asdict(marker)))

    def write(self, batch: DocumentBatch) -> DocumentReport:
        deleted = batch.documents.null_count
        self._deleted += deleted
        self._written += len(batch) - deleted
        for texts in (batch.ids, batch.documents):
            self._bytes += pc.sum(pc.binary_length(texts)).as_py() or 0
        return DocumentReport(written=len(batch) - deleted, deleted=deleted)

    def retire(self, index: str, generation: str, version: int) -> int:
        return 0

    def flush(self) -> None:
        line = f"{self._written} {self._deleted} {self._bytes}\n"
        self._written = self._deleted = self._bytes = 0
        descriptor = os.open(self._file("counts"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def read(self, index: str, generation: str | None = None) -> pa.Table:
        raise UsageError(f"{index} {generation or ''} was counted and not kept")

    def drop(self, index: str) -> None:
        self._file(f"{index}.marker").unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is open."""

    def _file(self, name: str) -> Path:
        return Path(self._directory) / name
