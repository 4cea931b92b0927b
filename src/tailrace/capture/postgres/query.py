"""The rows of one statement of ours.

They come by COPY in text, as a chunk's do (`snapshot.py`), and are decoded by the same functions. COPY takes
no parameters, so the driver quotes them into the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pyarrow as pa

from tailrace.capture.answers import Columns, answer
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.copying import buffers
from tailrace.capture.postgres.copytext import CopyText
from tailrace.capture.postgres.snapshot import begin
from tailrace.capture.postgres.types import from_text
from tailrace.model.errors import DataError

# Values that cannot be computed or read, and what functions raise: their messages quote values.
_OF_VALUES = ("22", "23", "P0", "XX")


def read(
    config: PostgresConfig,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any],
    columns: Columns,
    *,
    session: Callable[[], AbstractContextManager[Connection]],
) -> Iterator[pa.RecordBatch]:
    """The rows, in one transaction that ends with the statement."""
    with session() as connection:
        statement = _bound(connection, sql, parameters)
        try:
            begin(connection)
            # The texts are whatever the statement makes: none is read as its type while rows are cut.
            text = CopyText(len(columns), lead=True, types={})
            for data, _ in buffers(config, connection, statement, config.batch_bytes):
                read = zip(text.read(data), columns, strict=True)
                yield answer(columns, [from_text(values, kind) for values, (_, kind) in read])
            connection.execute("COMMIT")
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if not state.startswith(_OF_VALUES):
                raise
            raise DataError(
                f"{config.name}: a value cannot be computed: {type(error).__name__} (SQLSTATE {state})",
                remedy="look at the expressions and conditions of the index, and at the values they meet",
            ) from None


def _bound(connection: Connection, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> str:
    try:
        return psycopg.ClientCursor(connection).mogrify(sql, parameters)
    except psycopg.DataError:
        # Of the driver's, which has no code: a text with a NUL in it, which no column holds.
        raise DataError("a query was asked for a value that PostgreSQL cannot hold") from None
