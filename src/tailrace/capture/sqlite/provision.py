"""Setup, teardown and coverage: what capture installs in the database.

Setup and teardown are one transaction each and may be repeated. A table that drifted is set up anew: its
old log is dropped and it gets another generation, which tells consumers that they need a fresh snapshot.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from uuid import uuid4

from tailrace.capture.contract import Finding
from tailrace.capture.sqlite import catalog, drift, meta, triggers
from tailrace.capture.sqlite.catalog import PREFIX
from tailrace.capture.sqlite.client import is_wal, require_wal, wal_remedy, writing
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.indexes import runs_before
from tailrace.capture.sqlite.kept import Reading
from tailrace.capture.sqlite.meta import TABLES, Captured
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef, quote


def setup(config: SqliteConfig, tables: Sequence[TableRef]) -> list[str]:
    """Install what is missing for these tables and mend what drifted."""
    done: list[str] = []
    with writing(config) as connection:
        require_wal(connection, config)
        names = list(dict.fromkeys(catalog.existing(connection, ref) for ref in tables))
        if not meta.exists(connection):
            meta.create(connection)
            done.append(f"created Tailrace's tables in {config.path.name}")
        meta.identity(connection, config)
        known, there = meta.captured(connection), drift.Triggers(connection)
        for name in names:
            differences = drift.find(connection, known[name], there) if name in known else []
            if name in known and not differences:
                continue
            if name in known:
                _remove(connection, known[name])
            # Those of the application: ours are other tables', or were just removed.
            touched = any(runs_before(trigger.sql) for trigger in there.others(name))
            _install(connection, name, touched=touched)
            why = f" ({'; '.join(differences)}): a fresh snapshot of it follows" if differences else ""
            done.append(f"set up {'anew ' if differences else ''}table {name}{why}")
    return done


def _install(connection: sqlite3.Connection, name: str, *, touched: bool) -> None:
    """Capture a table; `touched` says that the application has BEFORE triggers on it."""
    shape = catalog.read_shape(connection, name)
    if shape is None:
        raise ConfigError(f"there is no table {name}")
    # The number moves on, so that no older position can be taken for one of this generation.
    (began,) = connection.execute(
        f"UPDATE {triggers.META} SET seq = seq + 1 WHERE id = 1 RETURNING seq"
    ).fetchone()
    # The counter is never used twice, so no log of an earlier generation can have this name.
    sql = triggers.build(shape, began, touched=touched)
    (newest,) = connection.execute("SELECT max(rowid) FROM main.sqlite_schema").fetchone()
    for statement in (*sql.tables, *sql.triggers.values()):
        connection.execute(statement)
    meta.set_witness(connection, began)
    # What SQLite stored, not what was sent: that is what drift compares.
    stored = dict(
        connection.execute(
            "SELECT name, sql FROM main.sqlite_schema WHERE rowid > ? AND type = 'trigger'", (newest,)
        ).fetchall()
    )
    connection.execute(
        f"INSERT INTO {TABLES} (id, name, generation, began, shape, triggers) VALUES (?, ?, ?, ?, ?, ?)",
        (began, name, str(uuid4()), began, json.dumps(shape.to_json()), json.dumps(stored)),
    )


def _remove(connection: sqlite3.Connection, table: Captured) -> None:
    prefix = triggers.trigger_prefix(table.id)
    _drop(connection, "trigger", prefix)
    for name in (table.log, triggers.shadow_name(table.id)):
        connection.execute(f"DROP TABLE IF EXISTS {quote(name)}")
    connection.execute(f"DELETE FROM {TABLES} WHERE id = ?", (table.id,))
    connection.execute(f"DELETE FROM {meta.WITNESS} WHERE x = ?", (table.id,))


def _drop(connection: sqlite3.Connection, kind: str, prefix: str) -> int:
    rows = connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = ? AND substr(name, 1, ?) = ?",
        (kind, len(prefix), prefix),
    ).fetchall()
    for (name,) in rows:
        connection.execute(f"DROP {kind} IF EXISTS {quote(name)}")
    return len(rows)


def teardown(config: SqliteConfig, tables: Sequence[TableRef] | None) -> list[str]:
    """Remove capture of these tables, or everything."""
    with writing(config) as connection:
        if tables is None:
            dropped = _drop(connection, "trigger", PREFIX) + _drop(connection, "table", PREFIX)
            return [f"removed everything of Tailrace from {config.path.name}"] if dropped else []
        if not meta.exists(connection):
            return []
        # By the recorded names: a table that was dropped or renamed is torn down by the one it had.
        known = {name.lower(): table for name, table in meta.captured(connection).items()}
        done = []
        for ref in tables:
            table = known.pop(ref.name.lower(), None)
            if table is not None:
                _remove(connection, table)
                done.append(f"removed capture of table {table.name}")
        return done


def coverage(config: SqliteConfig, tables: Sequence[TableRef], *, reading: Reading) -> list[Finding]:
    """What stands between these tables and being captured."""
    found: list[Finding] = []
    with reading() as connection:
        if not is_wal(connection):
            found.append(
                Finding("error", "not_wal", f"{config.path} is not in WAL mode", remedy=wal_remedy(config))
            )
        found += _writable(config)
        ready = meta.exists(connection)
        known = meta.captured(connection) if ready else {}
        if ready:
            meta.identity(connection, config)
            if known and not connection.execute(f"SELECT 1 FROM {meta.CONSUMERS}").fetchone():
                found.append(
                    Finding(
                        "info",
                        "no_consumer",
                        "no consumer is registered: the log grows until one is, or capture is torn down",
                        remedy="tailrace teardown",
                    )
                )
        there = drift.Triggers(connection)
        for ref in tables:
            found += _table(connection, ref, known, there)
    return found


def _writable(config: SqliteConfig) -> list[Finding]:
    """Setup, cursors and the WAL write; a reader would find out too late that they cannot."""
    for place in (config.path, config.path.parent):
        if not os.access(place, os.W_OK):
            remedy = f"give this user write permission to {config.path} and to {config.path.parent}"
            return [Finding("error", "read_only", f"{place} is read-only", remedy=remedy)]
    return []


def _table(
    connection: sqlite3.Connection, ref: TableRef, known: dict[str, Captured], there: drift.Triggers
) -> list[Finding]:
    name = ref.name
    if name in known:
        differences = drift.find(connection, known[name], there)
        if differences:
            problem = drift.error(name, differences)
            return [Finding("error", "drift", problem.message, str(ref), problem.remedy)]
    try:
        shape = catalog.read_shape(connection, catalog.existing(connection, ref))
        if shape is not None:
            triggers.build(shape, 0)
    except ConfigError as problem:
        return [Finding("error", "not_capturable", problem.message, str(ref), problem.remedy)]
    found = []
    if name not in known:
        message = f"table {name} is not set up for capture"
        found.append(Finding("error", "not_set_up", message, str(ref), "tailrace setup"))
    if shape is not None and not shape.key:
        message = (
            f"table {name} has no primary key: its rows are told by {shape.row_id}, which VACUUM may renumber"
        )
        found.append(Finding("warning", "no_key", message, str(ref), "give the table a primary key"))
    return found
