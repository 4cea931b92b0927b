"""Rows of a query in steps, text that is not UTF-8 included.

Python's fast text conversion fails on text that is not valid UTF-8, and such text is rare. So rows are read
the fast way; where that fails, the query is run again, in the same read transaction and therefore with the
same rows, with a conversion that marks such text, and what was given already is skipped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tailrace.capture.sqlite.decode import lenient_text

_CELLS = 100_000


class Pace:
    """How many rows to fetch at once: few while they may be large, more once they proved small."""

    def __init__(self, columns: int, budget: int, most: int = 1024) -> None:
        self._most = max(2, min(most, _CELLS // columns))
        self._budget = budget
        self.step = min(64, self._most)

    def learn(self, rows: int, nbytes: int) -> None:
        """Adapt to what the last rows took."""
        each = max(1, nbytes // max(1, rows))
        self.step = max(1, min(self._most, self.step * 4, self._budget // (4 * each)))


def steps(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], size: Callable[[], int]
) -> Iterator[list[tuple[Any, ...]]]:
    """The query's rows, `size()` of them at a time. The caller holds the read transaction."""
    given = 0
    try:
        cursor = connection.execute(sql, parameters)
        while rows := cursor.fetchmany(size()):
            given += len(rows)
            yield rows
        return
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
    connection.text_factory = lenient_text
    try:
        cursor = connection.execute(sql, parameters)
        while given:
            given -= len(cursor.fetchmany(min(given, 1024)))
        while rows := cursor.fetchmany(size()):
            yield rows
    finally:
        connection.text_factory = str
