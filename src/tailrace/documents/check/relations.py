"""How rows find each other: by columns whose values can be equal, and by an index."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.capture.contract import Capture
from tailrace.config.index import fields as written
from tailrace.config.lines import Path
from tailrace.documents import plan
from tailrace.documents.check.found import Found, Severity, typed
from tailrace.documents.check.sound import has
from tailrace.documents.render.families import NUMBERS, base, family
from tailrace.model.table import Column, TableRef, TableSchema, quote

_TEXT = frozenset({"text", "char"})


@dataclass(frozen=True)
class _Side:
    """A table, and those of its columns that rows of another meet it by."""

    table: TableSchema
    columns: tuple[str, ...]

    @property
    def there(self) -> bool:
        return bool(self.columns) and has(self.table, self.columns)


class Relations:
    """Judges how rows of a place hang on those of its parent."""

    def __init__(self, found: Found, capture: Capture) -> None:
        self._found = found
        self._capture = capture

    def judge(
        self, place: plan.Place, field: written.Join | written.Aggregate, parent: TableSchema, path: Path
    ) -> None:
        """Judge the relation at a path of the file."""
        link = place.link
        if link is None:
            return
        above, own = _Side(parent, link.parent), _Side(place.table, link.own)
        change = f"a change of {place.table.ref}"
        if link.through is not None:
            at, through = (*path, "through"), link.through
            self._met(_Side(through.table, through.left), above, (*at, "left_key"), "a build")
            self._met(_Side(through.table, through.right), own, (*at, "right_key"), change)
        elif isinstance(field, written.BelongsTo):
            self._met(above, own, (*path, "column" if field.column else field.kind), change)
        else:
            self._met(own, above, (*path, "foreign_key"), "a build")

    def _met(self, side: _Side, key: _Side, path: Path, what: str) -> None:
        """Rows of one side are looked for by the key of the other: they can be found, and by an index."""
        if not side.there:
            return
        table, columns = side.table, side.columns
        equal = True
        if key.there and len(columns) == len(key.columns):
            for name, meant in zip(columns, key.columns, strict=True):
                equal = (
                    self._equal(table, table.column(name), key.table, key.table.column(meant), path) and equal
                )
        sql = self._capture.missing_index(table.ref, columns) if equal else None
        if sql is not None:
            listed = ", ".join(f"`{name}`" for name in columns)
            self._found.add(
                "warning",
                "no_index",
                path,
                f"no index of {table.ref} begins with {listed}: {what} reads the whole table",
                remedy=sql,
                table=table.ref,
                same=("no_index", table.ref, frozenset(columns)),
            )

    def _equal(
        self, table: TableSchema, column: Column, other: TableSchema, meant: Column, path: Path
    ) -> bool:
        wrong = unequal(column, meant, self._capture.kind)
        if wrong is None:
            return True
        severity, why = wrong
        message = (
            f"{table.ref}.{column.name} is {typed(column)} and {other.ref}.{meant.name} is"
            f" {typed(meant)}: {why}"
        )
        self._found.add(
            severity,
            "key_type",
            path,
            message,
            remedy=retype(table.ref, column, meant, self._capture.kind),
            table=table.ref,
            same=("key_type", table.ref, column.name, other.ref, meant.name),
        )
        return False


def unequal(column: Column, other: Column, source: str) -> tuple[Severity, str] | None:
    """What is wrong with rows that meet where these two are equal; None where nothing is."""
    one, two = family(column, source), family(other, source)
    both = {one, two}
    if both <= NUMBERS or both <= _TEXT:
        return None
    if one == two and (one != "other" or base(column.native) == base(other.native)):
        return None
    if source == "sqlite":
        return "warning", "SQLite finds some values of different types equal and others not"
    if both & (_TEXT | {"other"}):
        return "warning", "they are compared as texts, which no index serves"
    return "error", "no value of the one ever equals a value of the other"


def retype(ref: TableRef, column: Column, other: Column, source: str) -> str:
    """What makes a column as the other one is."""
    if source != "postgres":
        return f"declare {ref.name}.{column.name} as {other.native or 'the other one is'} too"
    name = quote(column.name)
    return (
        f"ALTER TABLE {quote(ref.schema)}.{quote(ref.name)} ALTER COLUMN {name}"
        f" TYPE {other.native} USING {name}::text::{other.native}"
    )
