"""What SQLite's catalog says about tables, as plain values.

`read_shape` gives a `Shape`: everything about a table that the triggers or the images depend on. Setup
records it; drift is the recorded one compared with a new one; `schema_of` makes the `TableSchema` of it.
"""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.capture.sqlite import indexes
from tailrace.capture.sqlite.types import column_type
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema, quote

SCHEMA = "main"
PREFIX = "_tailrace_"
_ROW_IDS = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True)
class ColumnShape:
    """A column as `PRAGMA table_xinfo` gives it; `default` only where REPLACE puts it in place of NULL."""

    name: str
    declared: str
    nullable: bool
    generated: bool
    default: str | None = None


@dataclass(frozen=True)
class Term:
    """One term of a unique index: a column, or an expression as it was written, and its collation."""

    column: str | None
    expression: str | None
    collation: str


@dataclass(frozen=True)
class Unique:
    """A primary key or unique index: two rows may not be equal in all terms."""

    name: str
    terms: tuple[Term, ...]
    where: str | None = None


@dataclass(frozen=True)
class Shape:
    """Everything about a table that images and triggers depend on.

    `locator` names the columns that find a row again: the rowid by a name that no column hides, or the
    primary key where there is no rowid.
    """

    name: str
    columns: tuple[ColumnShape, ...]
    key: tuple[str, ...]
    key_terms: tuple[Term, ...]
    locator: tuple[str, ...]
    without_rowid: bool
    unique: tuple[Unique, ...]
    indexed: bool

    @property
    def row_id(self) -> str | None:
        """The pseudo column that identifies rows where there is no primary key."""
        return None if self.key else self.locator[0]

    @property
    def image(self) -> tuple[str, ...]:
        """The names of an image's columns, in order."""
        names = tuple(column.name for column in self.columns)
        return names if self.row_id is None else (self.row_id, *names)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Shape:
        """The shape that `to_json` wrote."""
        unique = tuple(
            Unique(u["name"], tuple(Term(**t) for t in u["terms"]), u["where"]) for u in body["unique"]
        )
        return cls(
            name=body["name"],
            columns=tuple(ColumnShape(**column) for column in body["columns"]),
            key=tuple(body["key"]),
            key_terms=tuple(Term(**term) for term in body["key_terms"]),
            locator=tuple(body["locator"]),
            without_rowid=body["without_rowid"],
            unique=unique,
            indexed=body["indexed"],
        )


def table_names(connection: sqlite3.Connection) -> list[str]:
    """Every table that could be captured, in name order."""
    rows = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
    ).fetchall()
    return [name for (name,) in rows if not _internal(name)]


def _internal(name: str) -> bool:
    return name.lower().startswith(("sqlite_", PREFIX))


def resolve(connection: sqlite3.Connection, names: Sequence[str]) -> list[TableRef]:
    """The tables these names mean; ConfigError names the nearest one."""
    there = table_names(connection)
    found: dict[str, None] = {}
    for name in names:
        if name == "*":
            found.update(dict.fromkeys(there))
        else:
            found[_spelled(connection, _spellings(name), there)] = None
    return [TableRef(SCHEMA, name) for name in found]


def existing(connection: sqlite3.Connection, ref: TableRef) -> str:
    """The table's name as the catalog spells it; ConfigError where it is none that could be captured."""
    if ref.schema.lower() != SCHEMA:
        raise ConfigError(f"there is no table {ref}: a SQLite source has the schema {SCHEMA} only")
    if _listed(connection, ref.name) is not None and not _internal(ref.name):
        return ref.name
    return _spelled(connection, [ref.name], table_names(connection))


def _spellings(name: str) -> list[str]:
    """What a written name may mean: as it is, and without the schema and the quotes."""
    schema, dot, rest = name.partition(".")
    asked = [name, rest] if dot and schema.strip('"').lower() == SCHEMA else [name]
    last = asked[-1]
    if len(last) > 1 and last[0] == last[-1] == '"':
        asked.append(last[1:-1].replace('""', '"'))
    return asked


def _spelled(connection: sqlite3.Connection, asked: Sequence[str], there: Iterable[str]) -> str:
    lower = {table.lower(): table for table in there}
    for candidate in asked:
        if candidate.lower() in lower:
            return lower[candidate.lower()]
    for candidate in asked:
        if kind := _kind(connection, candidate):
            raise ConfigError(
                f"{candidate} is {kind} and cannot be captured", remedy="leave it out of the tables"
            )
    near = difflib.get_close_matches(asked[-1].lower(), list(lower), n=1)
    remedy = f"did you mean {lower[near[0]]}?" if near else "name a table of this database, or *"
    raise ConfigError(f"there is no table {asked[-1]}", remedy=remedy)


def _kind(connection: sqlite3.Connection, name: str) -> str | None:
    if _internal(name):
        return "an internal table"
    row = connection.execute(
        "SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE", (name,)
    ).fetchone()
    if row is None or row[0] == "table":
        return None
    return {"view": "a view", "virtual": "a virtual table"}.get(row[0], "an internal table")


def read_shape(connection: sqlite3.Connection, name: str) -> Shape | None:
    """The table's shape now, or None where there is no such table."""
    without_rowid = _listed(connection, name)
    if without_rowid is None:
        return None
    info = connection.execute(
        'SELECT name, type, "notnull", pk, hidden, dflt_value FROM pragma_table_xinfo(?) '
        "WHERE hidden != 1 ORDER BY cid",
        (name,),
    ).fetchall()
    key = tuple(column for column, _, _, pk, *_ in sorted(info, key=lambda c: c[3]) if pk)
    listed = connection.execute(
        'SELECT name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY name', (name,)
    ).fetchall()
    key_index = next((index for index, _, origin, _ in listed if origin == "pk"), None)
    if key_index is not None:
        key_terms = _terms(connection, key_index)
    else:
        key_terms = tuple(Term(column, None, "BINARY") for column in key)
    alias = key if len(key) == 1 and key_index is None and not without_rowid else ()
    columns = tuple(
        ColumnShape(
            column,
            declared,
            nullable := not notnull and not (without_rowid and pk) and (column,) != alias,
            bool(hidden),
            None if nullable or default is None else indexes.default_value(default),
        )
        for column, declared, notnull, pk, hidden, default in info
    )
    unique = [Unique("", key_terms)] if key else []
    unique += [
        Unique(index, _terms(connection, index), _where(connection, index) if partial else None)
        for index, is_unique, origin, partial in listed
        if is_unique and origin != "pk"
    ]
    return Shape(
        name=name,
        columns=columns,
        key=key,
        key_terms=key_terms,
        locator=_locator(name, [c.name for c in columns], key if without_rowid else alias),
        without_rowid=without_rowid,
        unique=tuple(unique),
        indexed=bool(listed),
    )


def _listed(connection: sqlite3.Connection, name: str) -> bool | None:
    """Whether the table of this very name has no rowid; None where there is no such table."""
    # With the name as its argument the pragma looks at one table, whatever their number.
    row = connection.execute(
        "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main' AND type = 'table' AND name = ?1", (name,)
    ).fetchone()
    return None if row is None else bool(row[0])


def missing_index(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> str | None:
    """The SQL of an index over these columns; None where one, or the table itself, serves them."""
    shape = read_shape(connection, table)
    if shape is not None and shape.locator == tuple(columns):
        return None
    rows = connection.execute("SELECT name FROM pragma_index_list(?) WHERE NOT partial", (table,)).fetchall()
    for (index,) in rows:
        names = [term.column for term in _terms(connection, index)]
        if set(names[: len(columns)]) == set(columns):
            return None
    return f"CREATE INDEX {quote('_'.join((table, *columns, 'idx')))} ON {quote(table)} ({quoted(columns)})"


def _locator(table: str, columns: Sequence[str], key: tuple[str, ...]) -> tuple[str, ...]:
    if key:
        return key
    hidden = {column.lower() for column in columns}
    free = [name for name in _ROW_IDS if name not in hidden]
    if not free:
        raise ConfigError(
            f"table {table} hides its rowid behind columns named rowid, _rowid_ and oid",
            remedy="rename one of these columns, or give the table an INTEGER PRIMARY KEY",
        )
    return (free[0],)


def _terms(connection: sqlite3.Connection, index: str) -> tuple[Term, ...]:
    rows = connection.execute(
        "SELECT cid, name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", (index,)
    ).fetchall()
    text = _text(connection, index) if any(cid == -2 for cid, _, _ in rows) else None
    terms = []
    for place, (cid, column, collation) in enumerate(rows):
        if cid == -2 and text is not None:
            terms.append(Term(None, text.terms[place], collation))
        else:
            terms.append(Term("rowid" if cid == -1 else column, None, collation))
    return tuple(terms)


def _where(connection: sqlite3.Connection, index: str) -> str | None:
    return _text(connection, index).where


def _text(connection: sqlite3.Connection, index: str) -> indexes.IndexText:
    (sql,) = connection.execute(
        "SELECT sql FROM main.sqlite_schema WHERE type = 'index' AND name = ?", (index,)
    ).fetchone()
    return indexes.parse(sql)


def schema_of(shape: Shape, types: Mapping[str, str], generation: str) -> TableSchema:
    """The table's schema, as the contract describes tables."""
    columns = [
        Column(c.name, _type(shape.name, c, types), c.declared, c.nullable, c.generated)
        for c in shape.columns
    ]
    if shape.row_id is not None:
        columns.insert(0, Column(shape.row_id, ColumnType("long"), "INTEGER", False))
    ref = TableRef(SCHEMA, shape.name)
    return TableSchema(ref, tuple(columns), shape.key, shape.row_id, generation)


def _type(table: str, column: ColumnShape, types: Mapping[str, str]) -> ColumnType:
    override = types.get(f"{table}.{column.name}") or types.get(f"{SCHEMA}.{table}.{column.name}")
    return ColumnType(override) if override else column_type(column.declared)


def quoted(names: Iterable[str], prefix: str = "") -> str:
    """The names quoted, each behind `prefix`, separated by commas."""
    return ", ".join(prefix + quote(name) for name in names)
