"""PostgreSQL, since version 12.

Parameters are psycopg's `%s`, so every other `%` of the statement is doubled: it is always run with
parameters, if with none. Text is ordered as its bytes (`COLLATE "C"`), as everywhere else, and letters are
folded as Unicode says, whatever the database's own locale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tailrace.documents.plan import Aggregate, Kind, Transform
from tailrace.documents.render.dialect import BLANKS, Dialect, Sort, Sql, Totals
from tailrace.documents.render.families import NUMBERS, base
from tailrace.documents.render.literals import number_text, plain_text
from tailrace.documents.render.patterns import FLAT_ARRAY, FLAT_OBJECT, JSON_NUMBER, of_member
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema

_PLACEHOLDER = "\ue000tailrace-parameter\ue000"
_FIRST, _END = "0001-01-01", "10000-01-01"
_KINDS = {"moment": "timestamptz", "local": "timestamp", "date": "date"}
# What a key's text is cast to: never narrower than what it may hold, and what an index still serves.
_CASTS = {
    "boolean": "boolean",
    "integer": "bigint",
    "decimal": "numeric",
    "numeric": "numeric",
    "date": "date",
    "moment": "timestamptz",
    "local": "timestamp",
    "binary": "bytea",
    "uuid": "uuid",
    "text": "text",
    "char": "bpchar",
}


class Postgres(Dialect):
    """See the module's text."""

    name: ClassVar[str] = "postgres"

    def __init__(self, source: str = "postgres") -> None:
        super().__init__(source)

    def literal(self, text: str) -> Sql:
        made = super().literal(text)
        # As an escape string, so that a server with standard_conforming_strings off reads the same.
        return "E" + made.replace("\\", "\\\\") if "\\" in text else made

    def table(self, table: TableSchema, views: Mapping[TableRef, str] | None) -> Sql:
        # Rows of tables that inherit from it are not its own: their changes come under their own names.
        alone = table.extra.get("partitioned") is False
        return f"{'ONLY ' if alone else ''}{super().table(table, views)}"

    def joined(self, pieces: Sequence[Sql]) -> Sql:
        return f"concat({', '.join(pieces)})"

    def quoted(self, text: Sql) -> Sql:
        return f"to_json({text})::text"

    def unquoted(self, value: Sql) -> Sql:
        return f"trim(BOTH '\"' FROM {value})"

    # Values

    def text(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family in ("decimal", "numeric", "real"):
            text = f"{x}::text" if family == "real" else _trimmed(f"{x}::text")
            return f"CASE WHEN {_finite(x)} THEN {text} END"
        if family in ("moment", "local"):
            return self.unquoted(self.moment(x, column))
        if family == "date":
            return self.unquoted(self.day(x, column))
        if family == "binary":
            return self.unquoted(self.binary(x, column))
        if family == "other":
            # A cast may say more than the type's own text: inet's adds the length of the whole address.
            return f"CASE WHEN {x} IS DISTINCT FROM NULL THEN concat({x}) END"
        return f"{x}::text"

    def id_text(self, x: Sql, column: Column) -> Sql:
        made = self.text(x, column)
        # A day, moment or number that no document can show still is a key.
        outside = self.family(column) in ("date", "moment", "local", "decimal", "numeric", "real")
        return f"coalesce({made}, {x}::text)" if outside else made

    def number(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "integer":
            return f"{x}::text"
        if family in ("decimal", "numeric", "real"):
            return f"CASE WHEN {_finite(x)} THEN {x}::text END"
        if family == "money":
            return f"{x}::numeric::text"
        if family == "boolean":
            return f"{x}::int::text"
        text = f"btrim({self.text(x, column)}, {_BLANKS})"
        return f"CASE WHEN {text} ~ {self.literal(JSON_NUMBER)} THEN {text} END"

    def boolean(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "boolean":
            return f"{x}::text"
        if family in NUMBERS:
            return f"({x} <> 0)::text"
        text = f"lower({x}::text)"
        return (
            f"CASE WHEN {text} IN ('true', 't', '1', 'yes', 'y', 'on') THEN 'true'"
            f" WHEN {text} IN ('false', 'f', '0', 'no', 'n', 'off') THEN 'false' END"
        )

    def moment(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family in ("moment", "local"):
            kind = _KINDS[family]
            # The end of the range cannot be read as a literal in every DateStyle but this one.
            inside = f"{x} >= {kind} '{_FIRST}{_zone(family)}' AND {x} < {kind} '{_END}{_zone(family)}'"
            if family == "local":
                return f"CASE WHEN {inside} THEN to_json({x})::text END"
            made = f"to_json({x} AT TIME ZONE 'UTC')::text"
            return f"CASE WHEN {inside} THEN concat(rtrim({made}, '\"'), 'Z\"') END"
        if family == "date":
            made = f"concat(rtrim({self.day(x, column)}, '\"'), 'T00:00:00\"')"
            return f"CASE WHEN {_day_inside(x)} THEN {made} END"
        return self.number(x, column) if family in NUMBERS else self.quoted(self.text(x, column))

    def day(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "date":
            return f"CASE WHEN {_day_inside(x)} THEN to_json({x})::text END"
        if family == "local":
            return self.day(f"({x})::date", _DATE)
        if family == "moment":
            return self.day(f"({x} AT TIME ZONE 'UTC')::date", _DATE)
        return self.number(x, column) if family in NUMBERS else self.quoted(self.text(x, column))

    def binary(self, x: Sql, column: Column) -> Sql:
        raw = x if self.family(column) == "binary" else f"convert_to({self.text(x, column)}, 'UTF8')"
        made = f"concat('\"', translate(encode({raw}, 'base64'), E'\\n', ''), '\"')"
        return f"CASE WHEN {x} IS NOT NULL THEN {made} END"

    def uuid(self, x: Sql, column: Column) -> Sql:
        if self.family(column) == "uuid":
            return f"'\"' || {x}::text || '\"'"
        return self.quoted(f"lower({self.text(x, column)})")

    def embedded(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family not in ("json", "other"):
            return self.json(x, column, "custom")
        made = f"{x}::text" if family == "json" else f"to_json({x})::text"
        if base(column.native) == "jsonb":
            return made
        # Between its tokens JSON may have line ends, inside strings it has none: documents are single lines.
        return f"translate({made}, E'\\n\\r', '  ')"

    def expression(self, x: Sql, kind: Kind, column: Column) -> Sql:
        if kind == "timestamp":
            # Only the server knows whether it has a zone.
            zoned = self.moment(f"{x}::text::timestamptz", _ZONED)
            local = self.moment(f"{x}::text::timestamp", _LOCAL)
            return f"CASE WHEN pg_typeof({x}) = 'timestamptz'::regtype THEN {zoned} ELSE {local} END"
        casts = {"date": "date", "boolean": "boolean", "float": "float8", "double": "float8"}
        return self.json(f"({x})::{casts[kind]}" if kind in casts else x, column, kind)

    def transformed(self, text: Sql, step: Transform) -> Sql:
        if step.name == "trim":
            return f"btrim({text}, {_BLANKS})"
        if step.name == "truncate":
            return f"left({text}, {int(step.length or 0)})"
        if step.name == "hash":
            return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"
        return f'{"lower" if step.name == "lowercase" else "upper"}(({text}) COLLATE "und-x-icu")'

    def point(self, x: Sql, column: Column) -> tuple[Sql, Sql]:
        if column.native == "point":
            return self.number(f"({x})[1]", _REAL), self.number(f"({x})[0]", _REAL)
        if self.family(column) == "json":
            kind = f"json_typeof(({x})::json)"
            parts = [
                f"CASE {kind} WHEN 'object' THEN ({x})::json ->> '{name}'"
                f" WHEN 'array' THEN ({x})::json ->> {at} END"
                for name, at in (("lat", 1), ("lon", 0))
            ]
        else:
            # Before version 16 nobody tells whether a text is JSON but by failing.
            parts = [
                f"CASE WHEN {x}::text ~ {self.literal(FLAT_OBJECT)}"
                f" THEN substring({x}::text FROM {self.literal(of_member(name))})"
                f" WHEN {x}::text ~ {self.literal(FLAT_ARRAY)}"
                f" THEN btrim(split_part({x}::text, ',', {at}), {_BLANKS} || '[]\"')"
                f" WHEN strpos({x}::text, ',') > 0 THEN {part} END"
                for name, at, part in (
                    ("lat", 2, f"split_part({x}::text, ',', 1)"),
                    ("lon", 1, f"substr({x}::text, strpos({x}::text, ',') + 1)"),
                )
            ]
        lat, lon = (self.number(part, _TEXT) for part in parts)
        return lat, lon

    # Comparisons

    def equal(self, x: Sql, column: Column, y: Sql, other: Column) -> Sql:
        one, two = self.family(column), self.family(other)
        alike = base(column.native) == base(other.native) if column.native and other.native else one == two
        if alike or {one, two} <= NUMBERS or {one, two} <= {"text", "char"}:
            return f"{x} = {y}"
        return f"{self.text(x, column)} = {self.text(y, other)}"

    def grouped_alike(self, column: Column, other: Column) -> bool:
        alike = self.family(column) != "other" or base(column.native) == base(other.native)
        return alike and super().grouped_alike(column, other)

    def sortable(self, x: Sql, column: Column) -> list[Sql]:
        if self.family(column) in ("text", "char", "uuid", "other", "json"):
            return [f'({self.text(x, column)}) COLLATE "C"']
        return [x]

    def comparable(self, x: Sql, column: Column, value: Any, *, ordered: bool) -> tuple[Sql, Sql]:
        family = self.family(column)
        if value is None:
            return x, "NULL"
        if family in NUMBERS:
            return x, number_text(value, column.name)
        if family in ("text", "char", "other", "json"):
            plain = family == "text" or (family == "char" and not ordered)
            compared = x if plain else f"({self.text(x, column)})"
            return (f'{compared} COLLATE "C"' if ordered else compared), self.value(value)
        if family == "moment":
            return x, f"{self.value(zoned(plain_text(value)))}::timestamptz"
        return x, self.value(value)

    def like(self, x: Sql, column: Column, pattern: str, *, folded: bool) -> Sql:
        text = self.text(x, column)
        if not folded:
            return f"{text} LIKE {self.literal(pattern)}"
        folds = f'lower(({text}) COLLATE "und-x-icu") COLLATE "C"'
        return f"{folds} LIKE {self.literal(pattern.lower())}"

    # Many rows as one

    def array(self, value: Sql, order: Sequence[Sort]) -> Sql:
        clauses = ", ".join(one.clause for one in order)
        return f"concat('[', string_agg({value}, ',' ORDER BY {clauses}), ']')"

    def totals(
        self, aggregate: Aggregate, x: Sql, column: Column, key: Sequence[tuple[Sql, Column]]
    ) -> Totals:
        family = self.family(column)
        if family not in NUMBERS:
            return self._extreme(aggregate, x, column)
        finite = x if family == "integer" else f"CASE WHEN {_finite(x)} THEN {x} END"
        if aggregate.function in ("min", "max"):
            return Totals((f"{aggregate.function}({finite})::text",), lambda made: made[0])
        if family == "real":
            # Reals are added in the order of the keys, or the last digit would be left to chance. Rows
            # without a key are in the order of what is added.
            order = [one for y, other in key for one in self.sortable(y, other)] or [x]
            total = f"sum(({finite})::float8 ORDER BY {', '.join(order)})"
        else:
            total = f"sum({finite})"
        if aggregate.function == "avg":
            total = f"{total}::float8 / nullif(count({finite}), 0)"
        return Totals((f"({total})::text",), lambda made: made[0])

    def _extreme(self, aggregate: Aggregate, x: Sql, column: Column) -> Totals:
        family, function = self.family(column), aggregate.function
        if function not in ("min", "max"):
            number = f"({self.number(x, column)})::numeric"
            return self.totals(aggregate, number, Column(column.name, column.type, "numeric"), ())
        kind = aggregate.kind or "custom"
        if family == "boolean":
            made = f"bool_{'and' if function == 'min' else 'or'}({x})"
        elif family == "binary":
            made = f"decode({function}(encode({x}, 'hex') COLLATE \"C\"), 'hex')"
        elif family in ("text", "char", "uuid", "other", "json"):
            made = f'{function}(({self.text(x, column)}) COLLATE "C")'
            if family not in ("text", "char", "other"):
                made = f"({made})::{family}"
        elif family == "date":
            made = f"{function}(CASE WHEN {_day_inside(x)} THEN {x} END)"
        elif family in ("moment", "local"):
            zone = _zone(family)
            inside = f"{x} >= '{_FIRST}{zone}' AND {x} < '{_END}{zone}'"
            made = f"{function}(CASE WHEN {inside} THEN {x} END)"
        else:
            made = f"{function}({x})"
        return Totals((made,), lambda found: self.json(found[0], column, kind))

    # The keys

    def keys(self, key: Sequence[Column], view: str | None) -> Sql:  # noqa: ARG002
        names = [f"k{at}" for at in range(len(key))]
        given = ", ".join(f"{_PLACEHOLDER}::text[]" for _ in key)
        made = ", ".join(
            f"{self._cast(name, column)} AS {name}" for name, column in zip(names, key, strict=True)
        )
        # In order: lookups that follow each other then meet the same pages, a quarter of the cost is saved.
        places = ", ".join(str(at + 1) for at in range(len(key)))
        return f"SELECT DISTINCT {made} FROM unnest({given}) AS u({', '.join(names)}) ORDER BY {places}"

    def bound(self, column: Column) -> Sql:
        return self._cast(f"{_PLACEHOLDER}::text", column)

    def _cast(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "real":
            return f"{x}::{'real' if column.type.name == 'float' else 'double precision'}"
        native = base(column.native)
        # Without a length `bit` is one bit.
        return f"{x}::{_CASTS.get(family) or ('bit varying' if native == 'bit' else native) or 'text'}"

    def finished(self, sql: str) -> str:
        return sql.replace("%", "%%").replace(_PLACEHOLDER, "%s")


def zoned(text: str) -> str:
    """The text of a moment with a zone: UTC where it names none."""
    clock = text[10:]
    return (
        text
        if not clock.strip() or clock.rstrip().endswith(("Z", "z")) or set(clock) & set("+-")
        else (text + "+00:00")
    )


def _finite(x: Sql) -> Sql:
    """Neither NaN nor an infinity is nothing when it is taken from itself."""
    return f"{x} - {x} = 0"


def _zone(family: str) -> str:
    return " 00:00:00+00" if family == "moment" else ""


def _day_inside(x: Sql) -> Sql:
    return f"{x} >= date '{_FIRST}' AND {x} < date '{_END}'"


def _trimmed(text: Sql) -> Sql:
    """A decimal's text without zeros that say nothing, so that equal numbers have equal texts."""
    return f"CASE WHEN strpos({text}, '.') > 0 THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"


def _column(type_name: str, native: str) -> Column:
    return Column("", ColumnType(type_name), native)


_BLANKS = "E'" + "".join(f"\\x{ord(blank):02x}" for blank in BLANKS) + "'"
_ZONED = _column("timestamp", "timestamp with time zone")
_LOCAL = _column("timestamp_ntz", "timestamp without time zone")
_DATE = _column("date", "date")
_REAL = _column("double", "double precision")
_TEXT = _column("string", "text")
