"""The SQL that captures one table: its log, its shadow, its triggers.

Every change adds rows to the table's log, numbered by one counter that all tables share:

| op  | image                                                                    |
| --- | ------------------------------------------------------------------------ |
| `c` | the new row                                                              |
| `b` | the row before an update; the next number is the `u` that belongs to it  |
| `u` | the row after an update                                                  |
| `d` | the row that is gone                                                     |

Three things are less simple than they look:

- An application's own AFTER trigger may fire before ours and change the row again: its change is then
  logged first. So new images are read from the table, not from NEW, and where the row is gone already
  nothing, or a `d`, is written; where a row is there again under an old key, it is logged once more.
- REPLACE removes rows without firing DELETE triggers (unless recursive_triggers is on). A BEFORE trigger
  stores the rows that collide in the shadow; the AFTER trigger logs those that are gone. OR IGNORE and
  UPSERT leave stored rows behind that are not gone: they stay until newer ones push them out, and DELETE
  and UPDATE take theirs away, so a stored row is never taken for a lost one. Where the application has
  BEFORE triggers, which may touch a row after we stored it and before it is displaced, UPDATE brings the
  stored row up to date instead.
- The conflict clause of the application's statement overrides those inside triggers, so nothing here may
  rely on one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.capture.sqlite.catalog import PREFIX, Shape, Term, Unique, quoted
from tailrace.capture.sqlite.indexes import qualify
from tailrace.model.errors import ConfigError
from tailrace.model.table import quote

META = f"{PREFIX}meta"
MAX_COLUMNS = 1990
# Rows that statements of an application's triggers may store before the outer statement needs its own.
_KEPT = 8
# julianday and not strftime's sub-second options: those need SQLite 3.42.
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
_SEQ = f"(SELECT seq FROM {META} WHERE id = 1)"


@dataclass(frozen=True)
class TableSql:
    """The statements that install capture of one table, in order, and the triggers by name."""

    tables: tuple[str, ...]
    triggers: dict[str, str]


def log_name(table_id: int) -> str:
    """The name of a log."""
    return f"{PREFIX}log_{table_id}"


def shadow_name(table_id: int) -> str:
    """The name of a shadow."""
    return f"{PREFIX}shadow_{table_id}"


def trigger_prefix(table_id: int) -> str:
    """How the names of a table's triggers begin."""
    return f"{PREFIX}{table_id}_"


def table_id_of(trigger: str) -> int | None:
    """The captured table that a trigger of ours belongs to, None for another's."""
    number = trigger.removeprefix(PREFIX).partition("_")[0]
    ours = trigger.startswith(PREFIX) and number.isascii() and number.isdigit()
    return int(number) if ours else None


def build(shape: Shape, table_id: int, *, touched: bool = False) -> TableSql:
    """The SQL for a table; ConfigError where it has too many columns.

    `touched` says that the application has BEFORE triggers on the table. Those made later run before ours.
    """
    if len(shape.image) > MAX_COLUMNS:
        raise ConfigError(f"table {shape.name} has more than {MAX_COLUMNS} columns and cannot be captured")
    builder = _Builder(shape, table_id, touched)
    # SQLite fires the newest trigger first; ours of one event do not depend on their order.
    return TableSql(
        (
            f"CREATE TABLE {builder.log} (seq INTEGER PRIMARY KEY, op, ts, {builder.cells})",
            f"CREATE TABLE {builder.shadow} (n INTEGER PRIMARY KEY, {builder.keys}, {builder.cells})",
        ),
        dict(builder.triggers()),
    )


class _Builder:
    def __init__(self, shape: Shape, table_id: int, touched: bool) -> None:
        self.shape = shape
        self.renews = touched and bool(shape.unique)
        self.prefix = trigger_prefix(table_id)
        self.log, self.shadow = log_name(table_id), shadow_name(table_id)
        self.table = quote(shape.name)
        self.cells = ", ".join(f"c{i}" for i in range(len(shape.image)))
        self.keys = ", ".join(f"k{i}" for i in range(len(shape.locator)))
        self.bound = _KEPT + len(shape.unique)

    def triggers(self) -> Iterator[tuple[str, str]]:
        yield self._trigger("insert", "AFTER INSERT", None, self._after_insert())
        yield self._trigger("update", "AFTER UPDATE", None, self._after_update())
        yield self._trigger("delete", "AFTER DELETE", None, self._after_delete())
        if self.shape.unique:
            collides = [self._colliding(unique) for unique in self.shape.unique]
            exists = " OR ".join(
                f"EXISTS (SELECT 1 FROM {self.table} AS s WHERE {where})" for where in collides
            )
            yield self._trigger("replace", "BEFORE INSERT", exists, self._store(collides))
            other = f"NOT ({self._located('s', 'OLD')})"
            collides = [f"{self._changed(u)} AND {self._colliding(u)} AND {other}" for u in self.shape.unique]
            exists = " OR ".join(
                f"EXISTS (SELECT 1 FROM {self.table} AS s WHERE {where})" for where in collides
            )
            yield self._trigger("update or replace", "BEFORE UPDATE", exists, self._store(collides))

    def _trigger(self, what: str, event: str, when: str | None, body: list[str]) -> tuple[str, str]:
        # SQLite's errors quote the name, so it tells who must alter the table what to do.
        table = self.shape.name
        advice = f"to alter {table}: tailrace teardown --table {shlex.quote(table)}, ALTER, tailrace setup"
        name = f"{self.prefix}{what} ({advice})"
        condition = f" WHEN {when}" if when else ""
        statements = "".join(f"\n  {statement};" for statement in body)
        return name, f"CREATE TRIGGER {quote(name)} {event} ON {self.table}{condition} BEGIN{statements}\nEND"

    def _after_insert(self) -> list[str]:
        return [
            self._count(1),
            *self._gone(1),
            f"INSERT INTO {self.log} SELECT {_SEQ}, 'c', {_NOW}, {self._image('s')} "
            f"FROM {self.table} AS s WHERE {self._located('s', 'NEW')}",
        ]

    def _after_update(self) -> list[str]:
        found = f"EXISTS (SELECT 1 FROM {self.table} AS s WHERE {self._located('s', 'NEW')})"
        moved = f"NOT ({self._located('OLD', 'NEW')})"
        return [
            *([self._hold() if self.renews else self._forget()] if self.shape.unique else []),
            self._count(3),
            *self._gone(3),
            *(self._renew() if self.renews else []),
            f"INSERT INTO {self.log} SELECT {_SEQ} - 2, CASE WHEN {found} THEN 'b' ELSE 'd' END, {_NOW}, "
            f"{self._image('OLD')}",
            f"INSERT INTO {self.log} SELECT {_SEQ} - 1, 'u', {_NOW}, {self._image('s')} "
            f"FROM {self.table} AS s WHERE {self._located('s', 'NEW')}",
            self._again(f"{moved} AND "),
        ]

    def _after_delete(self) -> list[str]:
        return [
            *([self._forget()] if self.shape.unique else []),
            f"UPDATE {META} SET seq = seq + 2 WHERE id = 1",
            f"INSERT INTO {self.log} SELECT {_SEQ} - 1, 'd', {_NOW}, {self._image('OLD')}",
            self._again(""),
        ]

    def _again(self, condition: str) -> str:
        """Log the row that an application's trigger put where the old row was."""
        return (
            f"INSERT INTO {self.log} SELECT {_SEQ}, 'c', {_NOW}, {self._image('s')} "
            f"FROM {self.table} AS s WHERE {condition}{self._located('s', 'OLD')}"
        )

    def _count(self, own: int) -> str:
        """Take numbers: some for the change, and before them one for each stored row. Gaps are harmless."""
        stored = f" + (SELECT count(*) FROM {self.shadow})" if self.shape.unique else ""
        return f"UPDATE {META} SET seq = seq + {own}{stored} WHERE id = 1"

    def _gone(self, own: int) -> list[str]:
        """Log the stored rows that the statement displaced, then forget them and all but the newest few."""
        if not self.shape.unique:
            return []
        stored = " AND ".join(f"{self._term('s', t)} = h.k{i}" for i, t in enumerate(self._locator_terms()))
        same = " AND ".join(
            f"h.k{i} = NEW.{quote(str(t.column))}{self._collate(t)}"
            for i, t in enumerate(self._locator_terms())
        )
        gone = f"(({same}) OR NOT EXISTS (SELECT 1 FROM {self.table} AS s WHERE {stored}))"
        # DELETE inside a trigger takes no alias.
        deleted = gone.replace("h.k", f"{self.shadow}.k")
        cells = ", ".join(f"h.c{i}" for i in range(len(self.shape.image)))
        later = f"(SELECT count(*) FROM {self.shadow} AS o WHERE o.n > h.n)"
        newest = f"(SELECT max(n) FROM {self.shadow})"
        return [
            f"INSERT INTO {self.log} SELECT {_SEQ} - {own} - {later}, 'd', {_NOW}, {cells} "
            f"FROM {self.shadow} AS h WHERE {'h.n > 0 AND ' if self.renews else ''}{gone}",
            f"DELETE FROM {self.shadow} WHERE {'n > 0 AND ' if self.renews else ''}"
            f"(n <= {newest} - {self.bound} OR {deleted})",
        ]

    def _store(self, collides: list[str]) -> list[str]:
        """Store the rows that collide, newest content first removed, so that each is there once."""
        wanted = " OR ".join(f"({where})" for where in collides)
        stored = " AND ".join(
            f"{self._term('s', t)} = {self.shadow}.k{i}" for i, t in enumerate(self._locator_terms())
        )
        newest = f"(SELECT max(n) FROM {self.shadow})"
        where = [
            f"SELECT {self._keys('s')}, {self._image('s')} FROM {self.table} AS s WHERE {w}" for w in collides
        ]
        return [
            f"DELETE FROM {self.shadow} WHERE n <= {newest} - {self.bound} OR EXISTS "
            f"(SELECT 1 FROM {self.table} AS s WHERE {stored} AND ({wanted}))",
            f"INSERT INTO {self.shadow} ({self.keys}, {self.cells}) {' UNION '.join(where)}",
        ]

    def _forget(self) -> str:
        return f"DELETE FROM {self.shadow} WHERE {self._stored_old()}"

    def _hold(self) -> str:
        """Set the updated row aside where it is stored: nothing displaced it."""
        return f"UPDATE {self.shadow} SET n = -n WHERE {self._stored_old()}"

    def _renew(self) -> list[str]:
        """Store the updated row as it is now in place of what was set aside; nothing where it is gone."""
        return [
            f"INSERT INTO {self.shadow} (n, {self.keys}, {self.cells}) "
            f"SELECT -h.n, {self._keys('s')}, {self._image('s')} "
            f"FROM {self.shadow} AS h, {self.table} AS s WHERE h.n < 0 AND {self._located('s', 'NEW')}",
            f"DELETE FROM {self.shadow} WHERE n < 0",
        ]

    def _stored_old(self) -> str:
        return " AND ".join(
            f"k{i} = OLD.{quote(str(t.column))}{self._collate(t)}"
            for i, t in enumerate(self._locator_terms())
        )

    def _colliding(self, unique: Unique) -> str:
        """May a row `s` collide with NEW in this index? Never too few, sometimes too many."""
        where = " AND ".join(f"{self._term('s', t)} = {self._value('NEW', t)}" for t in unique.terms)
        # On our side only: the rows of a partial index are few and found by it.
        return f"{where} AND ({unique.where})" if unique.where else where

    def _changed(self, unique: Unique) -> str:
        if unique.where:
            return "1"
        parts = [f"{self._value('NEW', t)} IS NOT {self._value('OLD', t)}" for t in unique.terms]
        return f"({' OR '.join(parts)})"

    def _value(self, row: str, term: Term) -> str:
        if term.column is not None:
            value = f"{row}.{quote(term.column)}"
            default = next((c.default for c in self.shape.columns if c.name == term.column), None)
            # REPLACE puts the default where NULL may not be, and does so after BEFORE triggers.
            return f"coalesce({value}, {default})" if row == "NEW" and default is not None else value
        return f"({qualify(str(term.expression), row, self._names())})"

    def _term(self, row: str, term: Term) -> str:
        if term.column is None:
            # Left unqualified, it is the index's own text, and SQLite finds the index by it.
            return f"({term.expression}) COLLATE {quote(term.collation)}"
        return f"{row}.{quote(term.column)}{self._collate(term)}"

    def _names(self) -> list[str]:
        return [column.name for column in self.shape.columns]

    def _collate(self, term: Term) -> str:
        return "" if self._is_row_id(term) else f" COLLATE {quote(term.collation)}"

    def _is_row_id(self, term: Term) -> bool:
        return not self.shape.without_rowid and (term.column,) == self.shape.locator

    def _locator_terms(self) -> tuple[Term, ...]:
        if self.shape.without_rowid:
            return self.shape.key_terms
        return (Term(self.shape.locator[0], None, "BINARY"),)

    def _located(self, row: str, by: str) -> str:
        terms = self._locator_terms()
        return " AND ".join(f"{self._term(row, t)} = {by}.{quote(str(t.column))}" for t in terms)

    def _keys(self, row: str) -> str:
        return quoted((str(t.column) for t in self._locator_terms()), f"{row}.")

    def _image(self, row: str) -> str:
        return quoted(self.shape.image, f"{row}.")
