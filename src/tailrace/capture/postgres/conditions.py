"""Conditions of people, in the server's own SQL: judged before a snapshot with one is accepted."""

from __future__ import annotations

import psycopg

from tailrace.capture.postgres import catalog
from tailrace.capture.postgres.client import clean, session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.snapshot import begin
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef

# Syntax, names and types; values that cannot be read; features there are not; a read-only transaction.
_OURS = ("42", "22", "0A", "25")
_PRIVILEGE = "42501"


def check(config: PostgresConfig, ref: TableRef, where: str) -> None:
    """ConfigError unless the server takes `where` as a condition on the table's rows. Reads no row."""
    with session(config) as connection:
        begin(connection)
        table = catalog.existing(connection, ref).sql
        # Alone and in brackets: what leaves its brackets, or goes on after them, is no condition.
        for before, after in (("", ""), ("(", ")")):
            query = f"SELECT FROM {table} WHERE {before}"
            try:
                # Prepared, because that takes a single statement only.
                connection.execute(f"{query}{where}{after} LIMIT 0", prepare=True)
            except psycopg.Error as error:
                state = error.sqlstate or ""
                if state == _PRIVILEGE or not state.startswith(_OURS):
                    raise
                raise _refused(config, ref, where, error, len(query)) from None


def _refused(
    config: PostgresConfig, ref: TableRef, where: str, error: psycopg.Error, before: int
) -> ConfigError:
    told = clean(config, error.diag.message_primary or str(error))
    hint = error.diag.message_hint
    at = int(error.diag.statement_position or 0) - before
    place = f"where, character {at}" if 0 < at <= len(where) else "where"
    return ConfigError(
        f"the condition on table {ref} is refused: {told}",
        remedy=clean(config, hint) if hint else "write what may stand after WHERE in the source's own SQL",
        place=place,
    )
