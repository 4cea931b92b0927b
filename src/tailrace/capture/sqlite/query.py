"""The rows of one statement of ours, in one read transaction that ends with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tailrace.capture.answers import Columns, answer
from tailrace.capture.sqlite import decode
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.decode import Cells
from tailrace.capture.sqlite.kept import Reading
from tailrace.capture.sqlite.rows import Pace, slices
from tailrace.model.errors import DataError

_STEP = 4096
# What SQLite says of values, without showing any.
_PLAIN = ("integer overflow", "malformed JSON", "string or blob too big")


def read(
    config: SqliteConfig,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any],
    columns: Columns,
    *,
    reading: Reading,
) -> Iterator[pa.RecordBatch]:
    """The rows, decoded as those of a chunk are."""
    with reading() as connection, _computing(config, connection, sql, parameters):
        kinds = [kind for _, kind in columns]
        pace = Pace(len(kinds), config.slice_bytes, _STEP)
        # The limit on values is one on parameters too.
        given = parameters.values() if isinstance(parameters, Mapping) else parameters
        longest = max((4 * len(value) for value in given if isinstance(value, str | bytes)), default=0)
        pace.limit = max(pace.limit, longest + 1)
        for runs, _ in slices(connection, sql, parameters, kinds=kinds, pace=pace, config=config):
            yield _answer(columns, runs)


@contextmanager
def _computing(
    config: SqliteConfig,
    connection: sqlite3.Connection,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any],
) -> Iterator[None]:
    """DataError where a value is to blame: SQLite has one code for that and for a statement that is wrong."""
    try:
        yield
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code not in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG):
            raise
        # Raises where it is the statement.
        connection.execute(f"EXPLAIN {sql}", parameters)
        told = str(error) if str(error) in _PLAIN else error.sqlite_errorname
        raise DataError(
            f"{config.path}: a value cannot be computed: {told}",
            remedy="look at the expressions and conditions of the index, and at the values they meet",
        ) from None


def _answer(columns: Columns, runs: list[list[Cells]]) -> pa.RecordBatch:
    cells = [decode.concat(parts) for parts in zip(*runs, strict=True)]
    return answer(columns, [(cell.typed, cell.exact) for cell in cells])
