"""What a dialect must say so that `structure` can render a plan for it, and what all of them share.

Everything here is SQL text. A value's JSON is text too: an object is its pieces joined, so documents come
straight from the engine whatever their width, and numbers and embedded JSON keep their digits. A JSON text is
NULL where the value is null; `shown` makes `null` of it where it is put into an object or array.

| question | answer |
| --- | --- |
| `column` | a column of a table, as the rest compares and shows it |
| `text` | a value's plain text: of an id, for a transform |
| `number`, `boolean`, `moment`, `day`, `binary`, `uuid`, `embedded` | a value as JSON, by what it shall be |
| `equal`, `sortable`, `comparable` | how values meet, are ordered and filtered |
| `array`, `totals` | many rows as one value |
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp

from tailrace.documents.plan import Aggregate, Geo, Kind, Scalar, Transform
from tailrace.documents.render.families import NUMBER_KINDS, Family, family, natural
from tailrace.documents.render.foreign import checked
from tailrace.documents.render.literals import json_text, plain_text
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, TableRef, TableSchema

Sql = str
# Taken from both ends by `trim`: what PostgreSQL's, SQLite's and Spark's functions are told alike.
BLANKS = " \t\n\r\v\f"
_PIECES = 40


@dataclass(frozen=True)
class Sort:
    """Something to order by. `plain` says that it is never NULL and ascends."""

    sql: Sql
    descending: bool = False
    nullable: bool = True

    @property
    def plain(self) -> bool:
        return not self.descending and not self.nullable

    @property
    def clause(self) -> Sql:
        """As it stands in ORDER BY."""
        return f"{self.sql} {'DESC' if self.descending else 'ASC'}{' NULLS LAST' if self.nullable else ''}"


@dataclass(frozen=True)
class Totals:
    """An aggregate: columns of the grouped rows, and the JSON text made of them afterwards."""

    columns: tuple[Sql, ...]
    finish: Callable[[Sequence[Sql]], Sql]
    ordered: bool = False


class Dialect(ABC):
    """One engine's SQL. `source` is the dialect of the database whose tables are read."""

    name: ClassVar[str]
    # Most tables in one join that the engine takes.
    most_joins: ClassVar[int] = 1000
    # Whether aggregates take their rows in the order of a subquery, for want of a better way.
    ordered_input: ClassVar[bool] = False
    # Whether rows that descend must be numbered before they are put into an array.
    numbers_descending: ClassVar[bool] = False
    # Whether common table expressions are computed once, so that few rows of a parent spare work below.
    selective: ClassVar[bool] = True
    text_type: ClassVar[str] = "TEXT"

    def __init__(self, source: str) -> None:
        self.source = source

    def family(self, column: Column) -> Family:
        """What the column's values are."""
        return family(column, self.source)

    # Names and literals

    def quote(self, name: str) -> Sql:
        """An identifier in quotation marks."""
        if not name or "\0" in name:
            raise ConfigError("an identifier must not be empty or contain NUL")
        return exp.to_identifier(name, quoted=True).sql(dialect=self.name)

    def literal(self, text: str) -> Sql:
        """A string."""
        if "\0" in text:
            raise ConfigError("a text in an index schema must not contain NUL")
        return exp.Literal.string(text).sql(dialect=self.name)

    def table(self, table: TableSchema, views: Mapping[TableRef, str] | None) -> Sql:
        """A table in FROM; one of `views` where there are any."""
        ref = table.ref
        if views is None:
            return f"{self.quote(ref.schema)}.{self.quote(ref.name)}"
        if ref not in views:
            raise ConfigError(f"no view is given for table {ref}")
        return self.quote(views[ref])

    def own(self, sql: str, table: TableSchema) -> Sql:
        """A condition or expression of the user's, in a scope that has the columns of its table only."""
        # The end of a line ends a comment, which would swallow the parenthesis.
        return f"({checked(sql, table, self.source)}\n)"

    # Texts

    @abstractmethod
    def joined(self, pieces: Sequence[Sql]) -> Sql:
        """Texts one after the other; none is NULL and there are at most forty."""

    def concat(self, pieces: Sequence[Sql]) -> Sql:
        """Texts one after the other, however many."""
        parts = list(pieces)
        while len(parts) > _PIECES:
            parts = [
                self.joined(parts[at : at + _PIECES]) if len(parts) > at + 1 else parts[at]
                for at in range(0, len(parts), _PIECES)
            ]
        return parts[0] if len(parts) == 1 else self.joined(parts)

    @abstractmethod
    def quoted(self, text: Sql) -> Sql:
        """A text as a JSON string."""

    def shown(self, value: Sql) -> Sql:
        """A JSON text with `null` for NULL."""
        return f"coalesce({value}, 'null')"

    def object(self, members: Sequence[tuple[str, Sql]]) -> Sql:
        """An object of JSON texts, none of which is NULL."""
        pieces: list[Sql] = []
        lead = "{"
        for name, value in members:
            pieces += [self.literal(lead + json.dumps(name, ensure_ascii=False) + ":"), value]
            lead = ","
        return self.concat([*pieces, "'}'"]) if pieces else "'{}'"

    def document(self, object_: Sql) -> Sql:
        """A whole document."""
        return object_

    # Values

    def column(self, sql: Sql, column: Column) -> Sql:  # noqa: ARG002
        """A column of a table as all else takes it."""
        return sql

    @abstractmethod
    def text(self, x: Sql, column: Column) -> Sql:
        """The value's plain text: equal values have equal texts."""

    def id_text(self, x: Sql, column: Column) -> Sql:
        """The value's text in an id: never NULL."""
        return self.text(x, column)

    @abstractmethod
    def number(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def boolean(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def moment(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def day(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def binary(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def uuid(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def embedded(self, x: Sql, column: Column) -> Sql: ...

    @abstractmethod
    def transformed(self, text: Sql, step: Transform) -> Sql:
        """A text after one step."""

    @abstractmethod
    def point(self, x: Sql, column: Column) -> tuple[Sql, Sql]:
        """Latitude and longitude of a column that holds a point, as numbers' texts or NULL."""

    def json(self, x: Sql, column: Column, kind: Kind) -> Sql:
        """The value as JSON of this kind; NULL where it is null or cannot be told."""
        if kind == "custom":
            kind = natural(column, self.source)
        if kind in NUMBER_KINDS:
            return self.number(x, column)
        by_kind: dict[str, Callable[[Sql, Column], Sql]] = {
            "boolean": self.boolean,
            "timestamp": self.moment,
            "date": self.day,
            "binary": self.binary,
            "uuid": self.uuid,
            "json": self.embedded,
            "map": self.embedded,
        }
        if (made := by_kind.get(kind)) is not None:
            return made(x, column)
        return self.quoted(self.text(x, column))

    def expression(self, x: Sql, kind: Kind, column: Column) -> Sql:
        """The value of an expression, whose type nobody has declared, as JSON of this kind."""
        return self.json(x, column, kind)

    @abstractmethod
    def unquoted(self, value: Sql) -> Sql:
        """The text of a JSON string that has no escapes in it."""

    def scalar(self, x: Sql, column: Column, value: Scalar) -> Sql:
        """A scalar with its transforms and default: JSON text or NULL."""
        if value.transforms:
            made = self.text(x, column)
            for step in value.transforms:
                made = self.transformed(made, step)
            made = self.quoted(made)
        else:
            made = self.json(x, column, value.kind)
        if value.defaulted and value.default is not None:
            made = f"coalesce({made}, {self.literal(json_text(value.default))})"
        return made

    def geo(self, value: Geo, columns: Mapping[str, tuple[Sql, Column]]) -> Sql:
        """`{lat, lon}` or NULL."""
        if value.column is not None:
            lat, lon = self.point(*columns[value.column])
        elif value.lat is not None and value.lon is not None:
            lat, lon = self.number(*columns[value.lat]), self.number(*columns[value.lon])
        else:
            raise ConfigError("a geo field needs lat and lon, or a column")
        whole = self.joined(["'{\"lat\":'", lat, "',\"lon\":'", lon, "'}'"])
        return f"CASE WHEN {lat} IS NOT NULL AND {lon} IS NOT NULL THEN {whole} END"

    # Comparisons

    @abstractmethod
    def equal(self, x: Sql, column: Column, y: Sql, other: Column) -> Sql:
        """Whether two columns hold the same value, whatever their types' widths."""

    def grouped_alike(self, column: Column, other: Column) -> bool:
        """Whether values of the second that equal one of the first also equal each other, and its text."""
        return self.family(column) == self.family(other)

    @abstractmethod
    def sortable(self, x: Sql, column: Column) -> list[Sql]:
        """What to order by, first things first, so that every engine gives the same order."""

    @abstractmethod
    def comparable(self, x: Sql, column: Column, value: Any, *, ordered: bool) -> tuple[Sql, Sql]:
        """A column and a value of a filter, so that the engine compares them as every other would."""

    @abstractmethod
    def like(self, x: Sql, column: Column, pattern: str, *, folded: bool) -> Sql:
        """LIKE with `\\` as the escape; `folded` takes no account of case."""

    def value(self, value: Any) -> Sql:
        """A value of a filter as a string."""
        return "NULL" if value is None else self.literal(plain_text(value))

    # Many rows as one

    @abstractmethod
    def array(self, value: Sql, order: Sequence[Sort]) -> Sql:
        """The JSON array of the JSON texts of a group, none of which is NULL."""

    @abstractmethod
    def totals(
        self, aggregate: Aggregate, x: Sql, column: Column, key: Sequence[tuple[Sql, Column]]
    ) -> Totals:
        """A sum, average, minimum or maximum over a group."""

    def ids(self, kind: Kind | None, key: Sequence[tuple[Sql, Column]]) -> Totals:
        """The keys of a group, ascending; composite ones as arrays."""
        parts = [self.shown(self.json(x, column, kind or natural(column, self.source))) for x, column in key]
        whole = parts[0]
        if len(parts) > 1:
            pieces = [piece for at, part in enumerate(parts) for piece in ("','" if at else "'['", part)]
            whole = self.concat([*pieces, "']'"])
        order = [Sort(one, nullable=False) for x, column in key for one in self.sortable(x, column)]
        return Totals((self.array(whole, order),), lambda made: made[0], ordered=True)

    # The keys

    @abstractmethod
    def keys(self, key: Sequence[Column], view: str | None) -> Sql:
        """A subquery of the asked keys: one column each, `k0`, `k1`, …; every key once."""

    def bound(self, column: Column) -> Sql:
        """A parameter that holds one part of a key, for a range."""
        raise ConfigError(f"{self.name} takes no range of {column.name}: restrict the view")

    def tuple_compare(self, columns: Sequence[Sql], operator: str, values: Sequence[Sql]) -> Sql:
        """Whether a key lies on one side of another."""
        if len(columns) == 1:
            return f"{columns[0]} {operator} {values[0]}"
        return f"({', '.join(columns)}) {operator} ({', '.join(values)})"

    def finished(self, sql: str) -> str:
        """The whole statement as the driver takes it."""
        return sql
