"""Reading a table by snapshot, whole, in the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import catalog, snapshot
from tailrace.capture.postgres.client import session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableRef, TableSchema


def described(config: PostgresConfig, name: str, schema: str = "public") -> TableSchema:
    with session(config) as connection:
        return catalog.describe(connection, TableRef(schema, name), config.types)


def batches(config: PostgresConfig, table: TableSchema, chunk: Chunk, **more: Any) -> list[ChangeBatch]:
    return list(snapshot.read(config, table, chunk, position=7, seq=0, **more))


def rows(found: Sequence[ChangeBatch]) -> list[dict[str, Any]]:
    """The images, with `exact` texts in the place of the nulls they explain."""
    made: list[dict[str, Any]] = []
    for batch in found:
        images = batch.data.column("after").to_pylist()
        if "after_exact" in batch.data.schema.names:
            for image, exact in zip(images, batch.data.column("after_exact").to_pylist(), strict=True):
                image.update({name: text for name, text in exact.items() if text is not None})
        made += images
    return made


def read_all(
    config: PostgresConfig, name: str, rows_per_chunk: int = 10**6, **more: Any
) -> list[list[dict[str, Any]]]:
    """The rows of every chunk of a fresh plan."""
    table = described(config, name)
    return [
        rows(batches(config, table, chunk, **more))
        for chunk in snapshot.plan(config, table.ref, rows_per_chunk)
    ]
