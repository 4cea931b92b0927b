"""A change batch as bytes, and back: Arrow IPC with the table's schema in its metadata."""

from __future__ import annotations

import json

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableSchema

_TABLE = b"tailrace.table"


def pack(batch: ChangeBatch) -> bytes:
    """The batch as one self-describing Arrow IPC stream."""
    described = batch.data.replace_schema_metadata({_TABLE: json.dumps(batch.table.to_json()).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, described.schema) as writer:
        writer.write_batch(described)
    return bytes(sink.getvalue())


def unpack(payload: bytes | pa.Buffer) -> ChangeBatch:
    """The batch that `pack` wrote."""
    with pa.ipc.open_stream(payload) as reader:
        metadata = reader.schema.metadata or {}
        if _TABLE not in metadata:
            raise StateUnreadable("packed changes do not say which table they belong to")
        table = TableSchema.from_json(json.loads(metadata[_TABLE]))
        return ChangeBatch(table, reader.read_next_batch().replace_schema_metadata(None))
