"""The way from values up to the roots as SQL, for PostgreSQL and SQLite.

    keys k ─▶ [junction] ─▶ the place that is met ─▶ [junction] ─▶ its parent ─▶ … ─▶ the root

PostgreSQL gets the values as one array of texts a column, read as the type of the changed column: what the
source compares then is what it compares when it joins the two tables, and no value is forced into a narrower
type. SQLite gets them as one JSON array of rows. Columns are compared as documents compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.documents.plan import Place
from tailrace.documents.render.binding import (
    Row,
    array_literal,
    json_rows,
    json_value,
    sent_json,
    sent_texts,
)
from tailrace.documents.render.dialect import Dialect
from tailrace.documents.render.postgres import Postgres
from tailrace.documents.render.sqlite import Sqlite
from tailrace.documents.resolve.entries import Entry
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, TableSchema

_HOLDER = "\ue000tailrace-parameter\ue000"


@dataclass(frozen=True)
class Statement:
    """A statement, for `Capture.query`, and how values are bound to it."""

    sql: str
    dialect: str

    def texts(self, row: Row) -> list[pa.StringArray]:
        """The values as they are sent; equal ones have equal texts."""
        return [(sent_texts if self.dialect == "postgres" else sent_json)(values) for values in row]

    def bind(self, texts: Sequence[pa.Array]) -> list[str]:
        """The parameters for these rows of texts."""
        if self.dialect == "postgres":
            return [array_literal(column) for column in texts]
        return [json_rows(texts)]


def render(entry: Entry, root: Place, dialect: str) -> Statement:
    """The statement from an entry's values to the root's keys, each once."""
    if dialect not in ("postgres", "sqlite"):
        raise ConfigError(f"documents cannot be kept from a source that speaks {dialect or 'no SQL'}")
    return Statement(_Way(Postgres() if dialect == "postgres" else Sqlite()).sql(entry, root), dialect)


class _Way:
    """Renders in one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._postgres = dialect.name == "postgres"

    def sql(self, entry: Entry, root: Place) -> str:
        met, count = entry.chain[-1], len(entry.columns)
        table, alias, columns = met.table, _name(met), entry.met
        if entry.junction is not None:
            table, alias, columns = entry.junction.table, "j", entry.junction.right
        on = [
            self._meets(at, entry.table.column(own), self._column(alias, name), table.column(name))
            for at, (own, name) in enumerate(zip(entry.columns, columns, strict=True))
        ]
        if self._postgres:
            given = ", ".join([f"{_HOLDER}::text[]"] * count)
            values = f"unnest({given}) AS k({', '.join(f'c{at}' for at in range(count))})"
        else:
            values = f"json_each({_HOLDER}) AS k"
        # SQLite then begins with the values, and finds rows by their index.
        parts = [values, self._join(table, alias, on, "JOIN" if self._postgres else "CROSS JOIN")]
        if entry.junction is not None:
            here, there = (entry.junction.table, "j", entry.junction.left), (met.table, _name(met), entry.met)
            parts.append(self._join(*there[:2], self._equal(here, there)))
        for place, parent in zip(entry.chain[:0:-1], entry.chain[-2::-1], strict=True):
            parts += self._upward(place, parent)
        shown = ", ".join(self._column(_name(root), name) for name in root.key)
        text = f"SELECT DISTINCT {shown} FROM {' '.join(parts)}"
        if self._postgres:
            # Names may have a `%` in them, which the driver wants doubled.
            return text.replace("%", "%%").replace(_HOLDER, "%s")
        return text.replace(_HOLDER, "?")

    def _upward(self, place: Place, parent: Place) -> list[str]:
        link = place.link
        if link is None:
            raise ConfigError(f"the place {'.'.join(place.path)} hangs on nothing")
        here, there = (place.table, _name(place), link.own), (parent.table, _name(parent), link.parent)
        if link.through is None:
            return [self._join(*there[:2], self._equal(here, there))]
        junction, alias = link.through.table, f"j{place.number}"
        right, left = (junction, alias, link.through.right), (junction, alias, link.through.left)
        return [
            self._join(junction, alias, self._equal(here, right)),
            self._join(*there[:2], self._equal(left, there)),
        ]

    def _column(self, alias: str, name: str) -> str:
        return f"{alias}.{self._dialect.quote(name)}"

    def _equal(
        self, one: tuple[TableSchema, str, Sequence[str]], two: tuple[TableSchema, str, Sequence[str]]
    ) -> list[str]:
        (table, alias, names), (other, above, others) = one, two
        return [
            self._dialect.equal(
                self._column(above, b), other.column(b), self._column(alias, a), table.column(a)
            )
            for a, b in zip(names, others, strict=True)
        ]

    def _join(self, table: TableSchema, alias: str, on: Sequence[str], how: str = "JOIN") -> str:
        return f"{how} {self._dialect.table(table, None)} AS {alias} ON {' AND '.join(on)}"

    def _meets(self, at: int, changed: Column, column: str, met: Column) -> str:
        """Whether a column equals the value at that place of a row."""
        if self._postgres:
            return self._dialect.equal(column, met, f"k.c{at}::{changed.native or 'text'}", changed)
        if changed.type.name.startswith("timestamp"):
            # Several texts are one moment, and SQLite compares texts.
            raise ConfigError(
                f"column {changed.name} relates rows and cannot be read as {changed.type.name}",
                remedy=f"leave the column {changed.name} out of the types of the source",
            )
        value = json_value("k.value", f"json_type(k.value, '$[{at}]')", f"[{at}]")
        converted = _converted(changed.native, met.native)
        equal = f"{column} = {value}"
        return equal if converted is None else f"({equal} OR CAST({column} AS {converted}) = {value})"


def _name(place: Place) -> str:
    return f"p{place.number}"


def _converted(own: str, met: str) -> str | None:
    """What SQLite would convert the met column to if it joined the two; a value alone does not make it."""
    mine, theirs = _affinity(own), _affinity(met)
    if theirs in ("NUMERIC", mine) or mine == "BLOB":
        return None
    return mine


def _affinity(declared: str) -> str:
    text = declared.upper()
    if "INT" in text:
        return "NUMERIC"
    if any(word in text for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    return "BLOB" if "BLOB" in text or not text.strip() else "NUMERIC"
