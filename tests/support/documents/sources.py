"""What the oracle asks of a database, one small statement at a time: PostgreSQL and SQLite by their drivers.

A table is its name as SQL has it. A row is where it is: its table, its key, and the values by which it is
found again. A condition is SQL with its parameters.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from tests.support.documents.values import Cell, Family

Condition = tuple[str, list[Any]]
SYMBOLS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@dataclass(frozen=True)
class Row:
    """A row of a table, by its key."""

    table: str
    columns: tuple[str, ...]
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Junction:
    """Rows of a junction that meet the conditions `left`, and its columns that name rows of another table."""

    table: str
    left: Sequence[Condition]
    right: Sequence[str]


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Source(ABC):
    """A connection and what differs between databases."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.families = cache(self._families)
        self.primary_key = cache(self._primary_key)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(sql, list(parameters)).fetchall()
        return found

    @abstractmethod
    def table(self, name: str, schema: str | None) -> str: ...

    @abstractmethod
    def _families(self, table: str) -> Mapping[str, Family]: ...

    @abstractmethod
    def _primary_key(self, table: str) -> list[str]: ...

    @abstractmethod
    def read(self, row: Row) -> dict[str, Cell | None]:
        """A whole row."""

    @abstractmethod
    def compute(self, row: Row, sql: str) -> Cell | None:
        """An expression over a row."""

    @abstractmethod
    def matching(self, row: Row) -> Condition: ...

    @abstractmethod
    def key_of(self, columns: Sequence[str]) -> str:
        """What to select so that `matching` finds the row again."""

    @abstractmethod
    def sortable(self, table: str, column: str) -> str: ...

    @abstractmethod
    def compared(self, table: str, column: str, symbol: str, value: Any) -> Condition: ...

    @abstractmethod
    def like(self, column: str, pattern: str, *, folded: bool) -> Condition: ...

    def cast(self, table: str, column: str, other: str, other_column: str) -> str:  # noqa: ARG002
        """What makes two columns comparable."""
        return ""

    def equal(self, table: str, column: str, row: Row, other: str) -> Condition:
        """The column of a table equals the other column, of that row."""
        where, parameters = self.matching(row)
        cast = self.cast(table, column, row.table, other)
        return (
            f"{quote(column)}{cast} = (SELECT {quote(other)}{cast} FROM {row.table} WHERE {where})",
            parameters,
        )

    def raw(self, sql: str) -> str:
        return sql

    def condition(self, table: str, given: Mapping[str, Any]) -> Condition:
        """A filter of an index schema."""
        if "raw" in given:
            return f"({self.raw(given['raw'])}\n)", []
        column, operator, value = given["column"], given["op"], given.get("value", ())
        if operator in ("is_null", "is_not_null"):
            return f"{quote(column)} IS {'NOT ' if operator == 'is_not_null' else ''}NULL", []
        if operator in ("like", "ilike"):
            return self.like(column, str(value), folded=operator == "ilike")
        if operator == "between":
            low, high = (self.compared(table, column, s, v) for s, v in zip((">=", "<="), value, strict=True))
            return f"({low[0]} AND {high[0]})", low[1] + high[1]
        if operator in ("in", "not_in"):
            parts = [self.compared(table, column, "=", one) for one in value]
            either = " OR ".join(sql for sql, _ in parts)
            return f"{'NOT ' * (operator == 'not_in')}({either})", [p for _, ps in parts for p in ps]
        return self.compared(table, column, SYMBOLS[operator], value)

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        where: Sequence[Condition] = (),
        order: Sequence[Mapping[str, Any]] = (),
    ) -> list[Row]:
        """The rows for which all conditions are true, in order, then by key."""
        sql = f"SELECT {self.key_of(columns)} FROM {table}"
        if where:
            sql += " WHERE " + " AND ".join(f"({one})" for one, _ in where)
        found = self.ask(sql + self.ordered(table, columns, order), [p for _, ps in where for p in ps])
        return [Row(table, tuple(columns), tuple(key)) for key in found]

    def linked(
        self,
        junction: Junction,
        table: str,
        columns: Sequence[str],
        where: Sequence[Condition] = (),
        order: Sequence[Mapping[str, Any]] = (),
    ) -> list[tuple[Row, int]]:
        """The rows of a table for which all conditions are true, each with how many junction rows lead to it.

        Of the junction those count for which `left` is true, and whose columns `right` equal the row's.
        """
        met = []
        for one, other in zip(junction.right, columns, strict=True):
            cast = self.cast(junction.table, one, table, other)
            met.append(f"junction.{quote(one)}{cast} = {table}.{quote(other)}{cast}")
        sides = " AND ".join([*(f"({one})" for one, _ in junction.left), *met])
        times = f"(SELECT count(*) FROM {junction.table} AS junction WHERE {sides})"
        sql = f"SELECT {self.key_of(columns)}, {times} FROM {table}"
        parameters = [p for _, ps in junction.left for p in ps]
        if where:
            sql += " WHERE " + " AND ".join(f"({one})" for one, _ in where)
            parameters += [p for _, ps in where for p in ps]
        found = self.ask(sql + self.ordered(table, columns, order), parameters)
        return [(Row(table, tuple(columns), tuple(key)), int(times)) for *key, times in found]

    def ordered(self, table: str, columns: Sequence[str], order: Sequence[Mapping[str, Any]]) -> str:
        by = [
            f"{self.sortable(table, one['column'])} {one.get('direction', 'asc').upper()} NULLS LAST"
            for one in order
        ]
        by += [self.sortable(table, column) for column in columns]
        return f" ORDER BY {', '.join(by)}"

    def count(self, table: str, where: Sequence[Condition]) -> int:
        sql = f"SELECT count(*) FROM {table} WHERE " + " AND ".join(f"({one})" for one, _ in where)
        return int(self.ask(sql, [p for _, ps in where for p in ps])[0][0])


def source_of(connection: Any, *, prepared: bool = False) -> Source:
    """The source that a connection is to. Statements may be `prepared` where its tables stay as they are."""
    if isinstance(connection, sqlite3.Connection):
        return Sqlite(connection)
    return Postgres(connection, prepared=prepared)


class Sqlite(Source):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        connection.create_function("oracle_like", 3, _like, deterministic=True)

    def table(self, name: str, schema: str | None) -> str:
        return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"

    def _columns(self, table: str) -> list[tuple[Any, ...]]:
        schema, _, name = table.rpartition(".")
        return self.ask(f"PRAGMA {schema + '.' if schema else ''}table_xinfo({name})")

    def _families(self, table: str) -> Mapping[str, Family]:
        return {str(column[1]): _declared(str(column[2])) for column in self._columns(table)}

    def _primary_key(self, table: str) -> list[str]:
        keyed = sorted((column[5], column[1]) for column in self._columns(table) if column[5])
        return [str(name) for _, name in keyed]

    def _cell(self, value: Any, family: Family) -> Cell | None:
        return None if value is None else Cell(value, family)

    def read(self, row: Row) -> dict[str, Cell | None]:
        families = self.families(row.table)
        where = self.matching(row)
        names = ", ".join(map(quote, families))
        (found,) = self.ask(f"SELECT {names} FROM {row.table} WHERE {where[0]}", where[1])
        pairs = zip(families.items(), found, strict=True)
        return {name: self._cell(value, family) for (name, family), value in pairs}

    def compute(self, row: Row, sql: str) -> Cell | None:
        where = self.matching(row)
        ((value,),) = self.ask(f"SELECT ({sql}\n) FROM {row.table} WHERE {where[0]}", where[1])
        return self._cell(value, "text")

    def key_of(self, columns: Sequence[str]) -> str:
        return ", ".join(map(quote, columns))

    def matching(self, row: Row) -> Condition:
        return " AND ".join(f"{quote(column)} IS ?" for column in row.columns), list(row.key)

    def sortable(self, table: str, column: str) -> str:  # noqa: ARG002
        return f"{quote(column)} COLLATE BINARY"

    def compared(self, table: str, column: str, symbol: str, value: Any) -> Condition:
        family = self.families(table)[column]
        if family == "boolean":
            value = int(str(value).lower() in ("true", "t", "1", "yes", "on"))
        elif family in ("integer", "real", "decimal"):
            value = float(value) if "." in str(value) else int(value)
        else:
            value = str(value)
        return f"{quote(column)} COLLATE BINARY {symbol} ?", [value]

    def like(self, column: str, pattern: str, *, folded: bool) -> Condition:
        return f"oracle_like(CAST({quote(column)} AS TEXT), ?, ?)", [pattern, folded]


def _declared(native: str) -> Family:
    name = native.upper()
    word = name.partition("(")[0].strip()
    if word in ("BOOLEAN", "BOOL"):
        return "boolean"
    if word in ("DECIMAL", "NUMERIC"):
        return "decimal" if "(" in name else "real"
    if word in ("UUID", "JSON", "JSONB"):
        return "uuid" if word == "UUID" else "json"
    if "INT" in word:
        return "integer"
    if any(part in word for part in ("REAL", "FLOA", "DOUB")):
        return "real"
    return "binary" if word == "BLOB" else "text"


def _like(text: str | None, pattern: str, folded: int) -> bool | None:
    if text is None:
        return None
    if folded:
        text, pattern = text.lower(), pattern.lower()
    made = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda m: ".*" if m[2] else "." if m[3] else re.escape(m[1] or m[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(made, text, re.DOTALL) is not None


_FAMILIES: dict[str, Family] = {
    "boolean": "boolean",
    "smallint": "integer",
    "integer": "integer",
    "bigint": "integer",
    "numeric": "decimal",
    "real": "real",
    "double precision": "real",
    "date": "date",
    "timestamp without time zone": "local",
    "timestamp with time zone": "moment",
    "bytea": "binary",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
    "text": "text",
    "character varying": "text",
    "character": "text",
}
_CATALOG = """
SELECT a.attname, format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL),
       t.typcategory = 'A'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.place
"""


class Postgres(Source):
    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(
            sql, list(parameters), prepare=self._prepared
        ).fetchall()
        return found

    def __init__(self, connection: Any, *, prepared: bool = False) -> None:
        super().__init__(connection)
        self._prepared = prepared
        for name, value in (("TimeZone", "UTC"), ("DateStyle", "ISO"), ("bytea_output", "hex")):
            self.ask("SELECT set_config(%s, %s, false)", [name, value])

    def table(self, name: str, schema: str | None) -> str:
        return f"{quote(schema or 'public')}.{quote(name)}"

    def _families(self, table: str) -> Mapping[str, Family]:
        return {
            str(name): "json" if is_array else _FAMILIES.get(str(native), "other")
            for name, native, is_array in self.ask(_CATALOG, [table])
        }

    def _primary_key(self, table: str) -> list[str]:
        return [str(name) for (name,) in self.ask(_KEY, [table])]

    def read(self, row: Row) -> dict[str, Cell | None]:
        families = self.families(row.table)
        where = self.matching(row)
        names = ", ".join(
            f"to_json({quote(name)})::text" if family == "json" else f"{quote(name)}::text"
            for name, family in families.items()
        )
        (found,) = self.ask(f"SELECT {names} FROM {row.table} WHERE {where[0]}", where[1])
        pairs = zip(families.items(), found, strict=True)
        return {name: _cell(text, family) for (name, family), text in pairs}

    def compute(self, row: Row, sql: str) -> Cell | None:
        where = self.matching(row)
        own = f"({self.raw(sql)}\n)"
        ((text, native),) = self.ask(
            f"SELECT {own}::text, format_type(pg_typeof({own})::oid, NULL) FROM {row.table} WHERE {where[0]}",
            where[1],
        )
        return _cell(text, _FAMILIES.get(str(native), "other"))

    def key_of(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{quote(column)}::text" for column in columns)

    def matching(self, row: Row) -> Condition:
        return " AND ".join(f"{quote(column)}::text = %s" for column in row.columns), list(row.key)

    def sortable(self, table: str, column: str) -> str:
        if self.families(table)[column] in ("text", "uuid", "json", "other"):
            return f'{quote(column)}::text COLLATE "C"'
        # By its own name ORDER BY would mean the column's text, which is selected under it.
        return f"{table}.{quote(column)}"

    def compared(self, table: str, column: str, symbol: str, value: Any) -> Condition:
        family = self.families(table)[column]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if family in ("integer", "decimal", "real"):
            return f"{quote(column)} {symbol} %s::numeric", [text]
        if family in ("text", "other"):
            return f'{quote(column)}::text COLLATE "C" {symbol} %s', [text]
        return f"{quote(column)} {symbol} %s", [text]

    def like(self, column: str, pattern: str, *, folded: bool) -> Condition:
        if folded:
            folded_text = f'lower({quote(column)}::text COLLATE "und-x-icu") COLLATE "C"'
            return f"{folded_text} LIKE %s", [pattern.lower()]
        return f'{quote(column)}::text COLLATE "C" LIKE %s', [pattern]

    def cast(self, table: str, column: str, other: str, other_column: str) -> str:
        one, two = self.families(table)[column], self.families(other)[other_column]
        numbers = ("integer", "decimal", "real")
        return "" if (one == two != "other") or (one in numbers and two in numbers) else "::text"

    def raw(self, sql: str) -> str:
        return sql.replace("%", "%%")


def _cell(text: str | None, family: Family) -> Cell | None:
    if text is None:
        return None
    if family == "boolean":
        return Cell(text in ("t", "true"), family)
    if family == "integer":
        return Cell(int(text), family)
    if family in ("decimal", "real"):
        return Cell(Decimal(text), family)
    if family == "binary":
        return Cell(bytes.fromhex(text.removeprefix("\\x")), family)
    return Cell(text, family)
