"""Batches of documents for the tests of document sinks, and what a sink holds of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tailrace.sinks.contract import DocumentBatch, DocumentSink, Marker

FIRST, SECOND = "first", "second"
MARKER = Marker(FIRST, "server-1", "shop", "tailrace", 7, "abc")


def batch(
    version: int, index: str = "customers", generation: str = FIRST, /, **documents: Any
) -> DocumentBatch:
    """Documents by id: objects, texts as they are, None to delete."""
    return batch_of(version, documents, index, generation)


def batch_of(
    version: int, documents: dict[str, Any], index: str = "customers", generation: str = FIRST
) -> DocumentBatch:
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in documents.values()
    ]
    ids = pa.array(documents, pa.string())
    return DocumentBatch(index, generation, ids, pa.array(texts, pa.string()), version)


def held(sink: DocumentSink, index: str = "customers", generation: str | None = None) -> dict[str, Any]:
    """What readers see, or what a generation holds, parsed, by id."""
    rows = sink.read(index, generation).to_pylist()
    return {row["id"]: json.loads(row["document"]) for row in rows}


def versions(sink: DocumentSink, index: str = "customers") -> dict[str, int]:
    return {row["id"]: row["version"] for row in sink.read(index).to_pylist()}
