"""What travels to executors: references to changelog windows and snapshot chunks, never data or secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from tailrace.capture.contract import Chunk
from tailrace.changelog.segment import WindowRef
from tailrace.model.change import SNAPSHOT_SEQ
from tailrace.model.table import TableRef

# Chunks are read side by side, so each has numbers of its own, in the order of the chunks.
CHUNK_SEQ = 1 << 36


@dataclass(frozen=True)
class ChunkRead:
    """A snapshot chunk to be read once every transaction up to `position` is visible.

    With `columns` only these are read.
    """

    table: dict[str, Any]
    chunk: Chunk
    position: int
    source: str
    columns: tuple[str, ...] | None = None

    @property
    def seq(self) -> int:
        """The number of the chunk's first row; its table's marker stands right before the first chunk's."""
        return SNAPSHOT_SEQ + self.chunk.index * CHUNK_SEQ + 1


@dataclass(frozen=True)
class Slice(InputPartition):  # type: ignore[misc]
    """One task's share of a micro-batch; with `referred` it hands on where its windows are, not rows."""

    windows: tuple[WindowRef, ...] = ()
    chunks: tuple[ChunkRead, ...] = ()
    tables: tuple[TableRef, ...] = ()
    progress: dict[str, Any] = field(default_factory=dict)
    referred: bool = False


def share(windows: list[WindowRef], parts: int) -> list[tuple[WindowRef, ...]]:
    """Cut windows into at most `parts` contiguous runs of about equal bytes."""
    total = sum(window.bytes for window in windows)
    if not windows or parts <= 1:
        return [tuple(windows)] if windows else []
    runs: list[tuple[WindowRef, ...]] = []
    run: list[WindowRef] = []
    size = 0
    for window in windows:
        run.append(window)
        size += window.bytes
        if size * parts >= total * (len(runs) + 1) and len(runs) < parts - 1:
            runs.append(tuple(run))
            run = []
    if run:
        runs.append(tuple(run))
    return runs
