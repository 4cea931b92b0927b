"""A group of log rows in slices that fit in memory.

A slice is a window of numbers. Every log row has a number of its own, so a window of n numbers never has
more than n rows, over all tables; large rows make it end sooner. An update's two rows have consecutive
numbers in one log and are never cut apart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.capture.sqlite import decode, images
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.decode import Cells
from tailrace.capture.sqlite.meta import Captured
from tailrace.capture.sqlite.rows import Pace, steps
from tailrace.model.change import ChangeBatch
from tailrace.model.table import ColumnType, TableSchema

_HEAD = (ColumnType("long"), ColumnType("string"), ColumnType("long"))


@dataclass
class _Log:
    """A table's log, and what was read of it for the current slice."""

    table: TableSchema
    name: str
    pace: Pace
    runs: list[list[Cells]] = field(default_factory=list)

    @property
    def kinds(self) -> list[ColumnType]:
        return [*_HEAD, *(column.type for column in self.table.columns)]


class SliceReader:
    """Reads the logs of some tables up to `head`."""

    def __init__(self, config: SqliteConfig, tables: Sequence[Captured], head: int) -> None:
        self._rows, self._bytes, self._head = config.slice_rows, config.slice_bytes, head
        self._logs = [
            _Log(table.schema(config.types), table.log, Pace(len(table.shape.image), config.slice_bytes))
            for table in tables
        ]

    def read(self, connection: sqlite3.Connection, after: int) -> tuple[tuple[ChangeBatch, ...], int]:
        """The changes of the next window after `after`, one batch a table, and where the window ends."""
        first = self._first(connection, after)
        if first is None:
            return (), self._head
        end = min(self._head, first + self._rows - 1)
        left = self._bytes
        for log in self._logs:
            log.runs = []
            end, left = self._read(connection, log, first - 1, end, left)
        batches = [self._batch(log, end) for log in self._logs if log.runs]
        return tuple(batch for batch in batches if len(batch)), end

    def _first(self, connection: sqlite3.Connection, after: int) -> int | None:
        found = [
            connection.execute(
                f"SELECT min(seq) FROM {log.name} WHERE seq > ? AND seq <= ?", (after, self._head)
            ).fetchone()[0]
            for log in self._logs
        ]
        return min((seq for seq in found if seq is not None), default=None)

    def _read(
        self, connection: sqlite3.Connection, log: _Log, after: int, end: int, left: int
    ) -> tuple[int, int]:
        sql = f"SELECT * FROM {log.name} WHERE seq > ? AND seq <= ? ORDER BY seq"
        last: tuple[Any, ...] | None = None
        for rows in steps(connection, sql, (after, end), log.pace):
            left -= self._keep(log, rows)
            last = rows[-1]
            if left <= 0:
                # What comes after these rows is for the next slice, in the other tables too.
                end = last[0]
                break
        if last is not None and last[1] == "b":
            partner = last[0] + 1
            for rows in steps(connection, sql, (last[0], partner), log.pace):
                left -= self._keep(log, rows)
            end = max(end, partner)
        return end, left

    def _keep(self, log: _Log, rows: list[tuple[Any, ...]]) -> int:
        cells = decode.decode(rows, log.kinds)
        nbytes = sum(cell.nbytes for cell in cells)
        log.pace.learn(len(rows), nbytes)
        log.runs.append(cells)
        return nbytes

    def _batch(self, log: _Log, end: int) -> ChangeBatch:
        columns = [decode.concat(parts) for parts in zip(*log.runs, strict=True)]
        log.runs = []
        seqs = columns[0].typed
        kept = len(seqs)
        if seqs[kept - 1].as_py() > end:
            kept = int((seqs.to_numpy() <= end).sum())
            columns = [_head(cell, kept) for cell in columns]
        return images.changes(
            log.table, [cell.typed for cell in columns[:3]], columns[3:], position=self._head
        )


def _head(cells: Cells, count: int) -> Cells:
    exact: pa.Array | None = None if cells.exact is None else cells.exact.slice(0, count)
    return Cells(cells.typed.slice(0, count), exact)
