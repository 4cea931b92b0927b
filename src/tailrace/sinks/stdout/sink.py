"""The stdout sinks: every change or document is one line of JSON, flushed before `write` returns.

A replayed batch is written again: a stream cannot take back. `position` and `seq`, or a document's `version`
within its `generation`, tell a reader what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import UsageError
from tailrace.model.render import buffer_of, lines
from tailrace.sinks.contract import (
    DocumentBatch,
    DocumentReport,
    DocumentSink,
    FeedSink,
    Marker,
    Progress,
    Report,
)
from tailrace.sinks.stdout.client import Stream
from tailrace.sinks.stdout.config import StdoutConfig
from tailrace.sinks.stdout.encode import document_lines


class StdoutSink(FeedSink):
    """Writes changes as lines of JSON to a binary stream."""

    def __init__(self, config: StdoutConfig | None = None) -> None:
        self._stream = Stream(config)

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:  # noqa: ARG002
        text = lines(batches)
        self._stream.send(buffer_of(text))
        return Report(written=len(text))

    def flush(self) -> None:
        """Every write has flushed already."""

    def close(self) -> None:
        """The stream belongs to who opened it."""


class StdoutDocumentSink(DocumentSink):
    """Writes documents as lines of JSON to a binary stream. It keeps none, so none is stale."""

    local = True
    keeps = False

    def __init__(self, config: StdoutConfig | None = None) -> None:
        self._config = config
        self._stream = Stream(config)

    def __reduce__(self) -> tuple[Any, ...]:
        return (StdoutDocumentSink, (self._config,))

    def ensure(self, index: str, generation: str, mapping: Mapping[str, Any]) -> None:
        """A stream takes every document."""

    def seeded(self, index: str) -> Marker | None:  # noqa: ARG002
        return None

    def holds(self, index: str, generation: str) -> bool:  # noqa: ARG002
        return True

    def publish(self, index: str, marker: Marker) -> None:
        """Nothing is kept that could be shown."""

    def write(self, batch: DocumentBatch) -> DocumentReport:
        if not len(batch):
            return DocumentReport()
        self._stream.send(buffer_of(document_lines(batch)))
        deleted = batch.documents.null_count
        return DocumentReport(written=len(batch) - deleted, deleted=deleted)

    def retire(self, index: str, generation: str, version: int) -> int:  # noqa: ARG002
        return 0

    def flush(self) -> None:
        """Every write has flushed already."""

    def read(self, index: str, generation: str | None = None) -> pa.Table:  # noqa: ARG002
        raise UsageError(f"standard output keeps no documents of {index} that could be read")

    def drop(self, index: str) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """The stream belongs to who opened it."""
