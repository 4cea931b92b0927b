"""Is a captured table still what setup saw?

`find` compares what setup recorded with the catalog as it is now, and says what differs in words. An empty
answer means that the log holds every change of the table. VACUUM, indexes that are not unique and other
tables are nobody's business.
"""

from __future__ import annotations

import sqlite3

from tailrace.capture.sqlite import catalog, meta
from tailrace.capture.sqlite.catalog import Shape
from tailrace.capture.sqlite.indexes import may_skip_others
from tailrace.capture.sqlite.meta import Captured
from tailrace.capture.sqlite.triggers import trigger_prefix
from tailrace.model.errors import SchemaDrift


def find(connection: sqlite3.Connection, table: Captured) -> list[str]:
    """What differs from what setup saw, inside the caller's transaction."""
    prefix = trigger_prefix(table.id)
    rows = connection.execute(
        "SELECT name, sql, tbl_name FROM sqlite_schema WHERE type = 'trigger' AND substr(name, 1, ?) = ?",
        (len(prefix), prefix),
    ).fetchall()
    elsewhere = sorted({owner for _, _, owner in rows if owner != table.name})
    if elsewhere:
        return [f"it was renamed to {elsewhere[0]}"]
    now = catalog.read_shape(connection, table.name)
    if now is None:
        return ["it was dropped"]
    found = _columns(table.shape, now) + _keys(table.shape, now)
    triggers = {name: sql for name, sql, _ in rows}
    missing = [name for name in table.triggers if name not in triggers]
    if missing and len(missing) == len(table.triggers):
        found.append("it was dropped and created again, or its triggers were dropped")
    elif missing:
        found.append(f"{len(missing)} of its triggers were dropped")
    elif not found and triggers != dict(table.triggers):
        found.append("its triggers were altered")
    elif not found:
        found += _skipped(connection, table.name, prefix)
    if now.row_id is not None and not now.indexed and meta.renumbered(connection, table.id):
        found.append("VACUUM renumbered its rows, which have no key but the rowid")
    return found


def _skipped(connection: sqlite3.Connection, table: str, prefix: str) -> list[str]:
    # SQLite fires the newest trigger first. Set up anew, ours are the newest.
    rows = connection.execute(
        "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE "
        "AND rowid > (SELECT min(rowid) FROM main.sqlite_schema "
        "WHERE type = 'trigger' AND substr(name, 1, ?2) = ?3) AND substr(name, 1, ?2) <> ?3",
        (table, len(prefix), prefix),
    ).fetchall()
    return [
        f"trigger {name} was added, whose RAISE(IGNORE) may end a statement before it is captured"
        for name, sql in rows
        if may_skip_others(sql)
    ]


def _columns(old: Shape, new: Shape) -> list[str]:
    was, now = {c.name: c for c in old.columns}, {c.name: c for c in new.columns}
    gone = [name for name in was if name not in now]
    added = [name for name in now if name not in was]
    if len(gone) == len(added) == 1 and len(was) == len(now):
        return [f"column {gone[0]} was renamed to {added[0]}"]
    found = [f"column {name} was dropped" for name in gone] + [f"column {name} was added" for name in added]
    found += [f"column {name} was declared anew" for name in was if name in now and was[name] != now[name]]
    if not found and list(was) != list(now):
        found.append("its columns have another order")
    return found


def _keys(old: Shape, new: Shape) -> list[str]:
    found: list[str] = []
    # A renamed column renames itself in the key and in the indexes; that is said already.
    if [c.name for c in old.columns] != [c.name for c in new.columns]:
        return found
    if (old.key, old.key_terms, old.without_rowid) != (new.key, new.key_terms, new.without_rowid):
        found.append("its primary key changed")
    was, now = {u.name: u for u in old.unique if u.name}, {u.name: u for u in new.unique if u.name}
    found += [f"unique index {name} was dropped" for name in was if name not in now]
    found += [f"unique index {name} was added" for name in now if name not in was]
    found += [f"unique index {name} changed" for name in was if name in now and was[name] != now[name]]
    return found


def error(table: str, differences: list[str]) -> SchemaDrift:
    """The error for these differences."""
    return SchemaDrift(
        f"table {table} is no longer what setup saw: {'; '.join(differences)}",
        remedy="tailrace setup (it mends the capture of the table; a fresh snapshot of it follows)",
    )
