"""Is a captured table still what setup saw?

`find` compares what setup recorded with the catalog as it is now, and says what differs in words. An empty
answer means that the log holds every change of the table. VACUUM, indexes that are not unique and other
tables are nobody's business.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.capture.sqlite import catalog, meta
from tailrace.capture.sqlite.catalog import Shape
from tailrace.capture.sqlite.indexes import may_skip_others
from tailrace.capture.sqlite.meta import Captured
from tailrace.capture.sqlite.triggers import table_id_of
from tailrace.model.errors import SchemaDrift


@dataclass(frozen=True)
class Trigger:
    """A trigger as the catalog has it; a later one has a greater `place`."""

    name: str
    sql: str
    table: str
    place: int


class Triggers:
    """All triggers, read at once: SQLite has no index by which those of one table could be found."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(
            "SELECT name, sql, tbl_name, rowid FROM main.sqlite_schema WHERE type = 'trigger'"
        )
        self._ours: dict[int, list[Trigger]] = {}
        self._others: dict[str, list[Trigger]] = {}
        for row in rows:
            trigger = Trigger(*row)
            if (table_id := table_id_of(trigger.name)) is not None:
                self._ours.setdefault(table_id, []).append(trigger)
            else:
                self._others.setdefault(trigger.table.lower(), []).append(trigger)

    def ours(self, table_id: int) -> list[Trigger]:
        """Those that setup made for a captured table."""
        return self._ours.get(table_id, [])

    def others(self, table: str) -> list[Trigger]:
        """Those that the application has on a table."""
        return self._others.get(table.lower(), [])


def find(connection: sqlite3.Connection, table: Captured, known: Triggers) -> list[str]:
    """What differs from what setup saw, inside the caller's transaction."""
    ours = known.ours(table.id)
    elsewhere = sorted({trigger.table for trigger in ours if trigger.table != table.name})
    if elsewhere:
        return [f"it was renamed to {elsewhere[0]}"]
    now = catalog.read_shape(connection, table.name)
    if now is None:
        return ["it was dropped"]
    found = _columns(table.shape, now) + _keys(table.shape, now)
    triggers = {trigger.name: trigger.sql for trigger in ours}
    missing = [name for name in table.triggers if name not in triggers]
    if missing and len(missing) == len(table.triggers):
        found.append("it was dropped and created again, or its triggers were dropped")
    elif missing:
        found.append(f"{len(missing)} of its triggers were dropped")
    elif not found and triggers != dict(table.triggers):
        found.append("its triggers were altered")
    elif not found:
        found += _skipped(ours, known.others(table.name))
    if now.row_id is not None and not now.indexed and meta.renumbered(connection, table.id):
        found.append("VACUUM renumbered its rows, which have no key but the rowid")
    return found


def _skipped(ours: Sequence[Trigger], others: Sequence[Trigger]) -> list[str]:
    # SQLite fires the newest trigger first. Set up anew, ours are the newest.
    first = min(trigger.place for trigger in ours)
    return [
        f"trigger {trigger.name} was added, whose RAISE(IGNORE) may end a statement before it is captured"
        for trigger in others
        if trigger.place > first and may_skip_others(trigger.sql)
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
