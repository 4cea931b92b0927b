"""Batches of documents for the tests of document sinks, and what a sink holds of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tailrace.sinks.contract import DocumentBatch, DocumentSink, Marker

MARKER = Marker("server-1", "shop", "tailrace", 7, "abc")


def batch(version: int, index: str = "customers", /, **documents: Any) -> DocumentBatch:
    """Documents by id: objects, texts as they are, None to delete."""
    return batch_of(version, documents, index)


def batch_of(version: int, documents: dict[str, Any], index: str = "customers") -> DocumentBatch:
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in documents.values()
    ]
    return DocumentBatch(index, pa.array(documents, pa.string()), pa.array(texts, pa.string()), version)


def held(sink: DocumentSink, index: str = "customers") -> dict[str, Any]:
    """What the sink holds, parsed, by id."""
    rows = sink.read(index).to_pylist()
    return {row["id"]: json.loads(row["document"]) for row in rows}


def versions(sink: DocumentSink, index: str = "customers") -> dict[str, int]:
    return {row["id"]: row["version"] for row in sink.read(index).to_pylist()}
