"""Rows of a query in steps: text that is not UTF-8 included, large values without a memory peak.

Rows are read in large steps with Python's own text conversion, which is fast and fails on two rare things:
text that is not valid UTF-8, and, because a limit is set on the connection, a value far larger than a step
of them would fit in memory. Where it fails, the query is run again, in the same read transaction and
therefore with the same rows, with a conversion that marks such text or in small steps; what was given
already is skipped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.decode import Cells, decode, lenient_text
from tailrace.model.table import ColumnType

_CELLS = 100_000
_LARGE_STEP = 16


class Pace:
    """How many rows to fetch at once: few while they may be large, more once they proved small."""

    def __init__(self, columns: int, budget: int, most: int = 1024) -> None:
        self._most = max(2, min(most, _CELLS // columns))
        self._budget = budget
        self.step = min(64, self._most)
        self.limit = max(4096, budget // 256)

    def learn(self, rows: int, nbytes: int) -> None:
        """Adapt to what the last rows took."""
        each = max(1, nbytes // max(1, rows))
        self.step = max(1, min(self._most, self.step * 4, self._budget // (4 * each)))


def steps(
    connection: sqlite3.Connection,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any],
    pace: Pace,
) -> Iterator[list[tuple[Any, ...]]]:
    """The query's rows, some at a time. The caller holds the read transaction."""
    given = 0
    lenient = large = False
    unlimited = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    while True:
        most = _LARGE_STEP if large else 2**30
        try:
            connection.text_factory = lenient_text if lenient else str
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, unlimited if large else pace.limit)
            cursor = connection.execute(sql, parameters)
            skipped = 0
            while skipped < given:
                skipped += len(cursor.fetchmany(min(given - skipped, most, 1024)))
            while rows := cursor.fetchmany(min(pace.step, most)):
                given += len(rows)
                yield rows
            return
        except sqlite3.OperationalError as error:
            # The message quotes the value, so it must not travel: from here it goes no further.
            if lenient or "UTF-8" not in str(error):
                raise
            lenient = True
        except sqlite3.DataError:
            if large:
                raise
            # One, until it is known how large they are: sixteen may be more than memory has.
            large, pace.step = True, 1
        finally:
            connection.text_factory = str
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, unlimited)


def slices(
    connection: sqlite3.Connection,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any],
    *,
    kinds: Sequence[ColumnType],
    pace: Pace,
    config: SqliteConfig,
) -> Iterator[tuple[list[list[Cells]], int]]:
    """The query's rows decoded, a slice at a time: its steps, and how many rows they have."""
    runs: list[list[Cells]] = []
    rows = held = 0
    for fetched in steps(connection, sql, parameters, pace):
        cells = decode(fetched, kinds)
        nbytes = sum(cell.nbytes for cell in cells)
        pace.learn(len(fetched), nbytes)
        runs.append(cells)
        rows, held = rows + len(fetched), held + nbytes
        if rows >= config.slice_rows or held >= config.slice_bytes:
            yield runs, rows
            runs, rows, held = [], 0, 0
    if runs:
        yield runs, rows
