"""Tailrace's own tables in the database: the counter, the captured tables, the consumers.

`_tailrace_meta` has one row: the database's id and the counter every change is numbered by. It never goes
back, so numbers are never used twice. `_tailrace_tables` has a row for each captured table, replaced when
the table is set up anew: another generation, another log. `_tailrace_consumers` has the cursors.
`_tailrace_witness` has a row with a known rowid for each captured table, and no index: where VACUUM
renumbered that one, it renumbered the rows of other tables without a key as well.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from tailrace.capture.sqlite.catalog import PREFIX, SCHEMA, Shape, schema_of
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.triggers import META, log_name
from tailrace.model.errors import LogLost, NeedsOperator, SetupMissing
from tailrace.model.table import TableRef, TableSchema

FORMAT = 1
TABLES = f"{PREFIX}tables"
CONSUMERS = f"{PREFIX}consumers"
WITNESS = f"{PREFIX}witness"
_WITNESS_ROWID = 1_000_000
_MOST_COUNTED = 10_000
_CREATE = (
    f"CREATE TABLE {META} (id INTEGER PRIMARY KEY, format INTEGER NOT NULL, database TEXT NOT NULL, "
    f"seq INTEGER NOT NULL)",
    f"CREATE TABLE {TABLES} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, generation TEXT NOT NULL, "
    f"began INTEGER NOT NULL, shape TEXT NOT NULL, triggers TEXT NOT NULL)",
    f"CREATE TABLE {CONSUMERS} (name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL, "
    f"registered TEXT NOT NULL) WITHOUT ROWID",
    f"CREATE TABLE {WITNESS} (x)",
)


@dataclass(frozen=True)
class Captured:
    """A captured table as setup recorded it. `began` is the number before its first change."""

    id: int
    name: str
    generation: str
    began: int
    shape: Shape
    triggers: Mapping[str, str]

    @property
    def ref(self) -> TableRef:
        """Its name when it was set up."""
        return TableRef(SCHEMA, self.name)

    @property
    def log(self) -> str:
        """Its log table."""
        return log_name(self.id)

    def schema(self, types: Mapping[str, str]) -> TableSchema:
        """The schema of the images in its log."""
        return schema_of(self.shape, types, self.generation)


def exists(connection: sqlite3.Connection) -> bool:
    """Did setup ever run here?"""
    # Not by sqlite_schema, which has no index and many rows where there are many tables.
    found = connection.execute(
        "SELECT 1 FROM pragma_table_list(?1) WHERE schema = 'main' AND name = ?1", (META,)
    ).fetchone()
    return found is not None


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in _CREATE:
        connection.execute(statement)
    connection.execute(f"INSERT INTO {META} VALUES (1, ?, ?, 0)", (FORMAT, str(uuid4())))


def set_witness(connection: sqlite3.Connection, table_id: int) -> None:
    """Put the table's witness where `renumbered` expects it."""
    connection.execute(
        f"INSERT INTO {WITNESS} (rowid, x) VALUES (?, ?)", (_WITNESS_ROWID + table_id, table_id)
    )


def renumbered(connection: sqlite3.Connection, table_id: int) -> bool:
    """Has VACUUM given new rowids to tables without a key and an index since this one was set up?"""
    rows = connection.execute(f"SELECT rowid FROM {WITNESS} WHERE x = ?", (table_id,)).fetchall()
    return bool(rows != [(_WITNESS_ROWID + table_id,)])


def identity(connection: sqlite3.Connection, config: SqliteConfig) -> str:
    """The database's identity; SetupMissing where there is none."""
    if not exists(connection):
        raise SetupMissing(f"{config.path} is not set up for capture", remedy="tailrace setup")
    row = connection.execute(f"SELECT format, database FROM {META} WHERE id = 1").fetchone()
    if row is None:
        raise NeedsOperator(
            f"{config.path}: table {META} is empty", remedy="tailrace teardown, then tailrace setup"
        )
    if row[0] != FORMAT:
        raise NeedsOperator(
            f"{config.path} was set up by another version of Tailrace (format {row[0]}, not {FORMAT})",
            remedy="use that version, or run tailrace teardown and tailrace setup with this one",
        )
    return f"sqlite:{row[1]}"


def counter(connection: sqlite3.Connection) -> int:
    """The number of the newest change."""
    return int(connection.execute(f"SELECT seq FROM {META} WHERE id = 1").fetchone()[0])


def captured(connection: sqlite3.Connection) -> dict[str, Captured]:
    """The captured tables by the name setup saw."""
    rows = connection.execute(
        f"SELECT id, name, generation, began, shape, triggers FROM {TABLES} ORDER BY id"
    )
    return {
        name: Captured(
            table_id, name, generation, began, Shape.from_json(json.loads(shape)), json.loads(triggers)
        )
        for table_id, name, generation, began, shape, triggers in rows
    }


def generation(connection: sqlite3.Connection, name: str) -> str:
    """The generation of a captured table, empty where it is none."""
    row = connection.execute(f"SELECT generation FROM {TABLES} WHERE name = ?", (name,)).fetchone()
    return "" if row is None else str(row[0])


def generations(connection: sqlite3.Connection) -> dict[TableRef, tuple[str, int]]:
    """Each captured table's generation, and the number before its first change."""
    rows = connection.execute(f"SELECT name, generation, began FROM {TABLES} ORDER BY id")
    return {TableRef(SCHEMA, name): (generation, began) for name, generation, began in rows}


def _logs(connection: sqlite3.Connection) -> list[str]:
    return [log_name(number) for (number,) in connection.execute(f"SELECT id FROM {TABLES} ORDER BY id")]


def cursor_of(connection: sqlite3.Connection, consumer: str) -> int | None:
    """What a consumer has acknowledged, or None where it is not registered."""
    row = connection.execute(f"SELECT acknowledged FROM {CONSUMERS} WHERE name = ?", (consumer,)).fetchone()
    return None if row is None else int(row[0])


def kept_from(connection: sqlite3.Connection, version: int) -> int:
    """`version`, where some consumer has kept the log from being pruned beyond it; LogLost otherwise."""
    slowest = connection.execute(f"SELECT min(acknowledged) FROM {CONSUMERS}").fetchone()[0]
    if slowest is None or slowest > version:
        raise LogLost(
            f"no consumer has kept the log from position {version} on, so it may have been pruned",
            remedy="start from `earliest`, which takes a snapshot, or from `latest`",
        )
    return version


def pending(connection: sqlite3.Connection, version: int) -> int:
    """How many changes come after `version`: counted if they are few, else what the counter says.

    The counter also has before images and changes that nobody watches; a large backlog is not worth a scan.
    """
    left = _MOST_COUNTED
    for log in _logs(connection):
        inner = f"SELECT 1 FROM {log} WHERE seq > ? AND op != 'b' LIMIT ?"
        left -= connection.execute(f"SELECT count(*) FROM ({inner})", (version, left)).fetchone()[0]
        if left <= 0:
            return counter(connection) - version
    return _MOST_COUNTED - left


def oldest(connection: sqlite3.Connection, version: int) -> int | None:
    """When the first change after `version` was made, in milliseconds."""
    times = [
        row
        for log in _logs(connection)
        for row in connection.execute(
            f"SELECT seq, ts FROM {log} WHERE seq > ? ORDER BY seq LIMIT 1", (version,)
        )
    ]
    return min(times)[1] if times else None
