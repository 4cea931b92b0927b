"""Conditions of people, in SQLite's own SQL: judged before a snapshot with one is accepted."""

from __future__ import annotations

import sqlite3

from tailrace.capture.sqlite import catalog, drift
from tailrace.capture.sqlite.kept import Reading
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef, quote


def check(reading: Reading, ref: TableRef, where: str) -> None:
    """ConfigError unless SQLite takes `where` as a condition on the table's rows. Reads no row."""
    with reading() as connection:
        shape = catalog.read_shape(connection, ref.name)
        if shape is None:
            raise drift.error(ref.name, ["it was dropped"])
        # Alone and in brackets: what leaves its brackets, or goes on after them, is no condition.
        for condition in (where, f"({where})"):
            try:
                connection.execute(f"SELECT 1 FROM {quote(shape.name)} WHERE {condition} LIMIT 0").fetchall()
            except (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
                if (getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) or 0) != sqlite3.SQLITE_ERROR:
                    raise
                raise ConfigError(
                    f"the condition on table {ref.name} is refused: {' '.join(str(error).split())}",
                    remedy="write what may stand after WHERE in the source's own SQL",
                    place="where",
                ) from None
