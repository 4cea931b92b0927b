"""Spark SQL, over views whose columns have the types that the source's columns are captured with.

What has no type of its own there comes as the source's text, so it is read again here: a `numeric` without
a scale, JSON, `char(n)` with its blanks, and dates of SQLite. Nothing depends on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailrace.documents.plan import Aggregate, Kind, Transform
from tailrace.documents.render.dialect import BLANKS, Dialect, Sort, Sql, Totals
from tailrace.documents.render.families import NUMBERS, base, scale
from tailrace.documents.render.foreign import checked, for_spark
from tailrace.documents.render.literals import number_text, plain_text
from tailrace.documents.render.patterns import FLAT_ARRAY, FLAT_OBJECT, JSON_NUMBER, MOMENT, of_member
from tailrace.documents.render.postgres import zoned
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, TableSchema

# What JSON forbids inside quotation marks.
_FORBIDDEN = r"[\\u0000-\\u001f\"\\\\]"
_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_JULIAN = "2440587.5D"
# Sums of texts of numbers: so many digits before and after the point, and no more, are added exactly.
_WHOLE, _FRACTION = 26, 12


class Spark(Dialect):
    """See the module's text."""

    name: ClassVar[str] = "spark"
    numbers_descending: ClassVar[bool] = True
    # Each use of a common table expression computes it again.
    selective: ClassVar[bool] = False
    text_type: ClassVar[str] = "STRING"

    def literal(self, text: str) -> Sql:
        # Spark replaces ${…} by settings and variables of the environment, inside strings too.
        return super().literal(text).replace("$", "\\u0024")

    def own(self, sql: str, table: TableSchema) -> Sql:
        return for_spark(checked(sql, table, self.source), table, self.source)

    def joined(self, pieces: Sequence[Sql]) -> Sql:
        return f"concat({', '.join(pieces)})"

    def quoted(self, text: Sql) -> Sql:
        made = f"to_json(array({text}))"
        return (
            f"CASE WHEN {text} RLIKE '{_FORBIDDEN}' THEN substring({made}, 2, length({made}) - 2)"
            f" ELSE concat('\"', {text}, '\"') END"
        )

    def unquoted(self, value: Sql) -> Sql:
        return f"trim(BOTH '\"' FROM {value})"

    # Values

    def column(self, sql: Sql, column: Column) -> Sql:
        # PostgreSQL compares and converts char(n) without the blanks that its text has.
        return f"rtrim({sql})" if self.family(column) == "char" else sql

    def text(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "decimal":
            return _trimmed(f"CAST({x} AS STRING)")
        if family == "numeric":
            return f"CASE WHEN {x} RLIKE {self.literal(JSON_NUMBER)} THEN {_trimmed(x)} END"
        if family == "real":
            raise ConfigError(
                f"column {column.name} is a real, which Spark does not write as the source does",
                remedy="build the documents from the source, or show the column as a number",
            )
        if family in ("moment", "local"):
            return self.unquoted(self.moment(x, column))
        if family == "date":
            return self.unquoted(self.day(x, column))
        if family == "binary":
            return self.unquoted(self.binary(x, column))
        if family == "uuid":
            return f"lower({x})"
        return x if column.type.name == "string" else f"CAST({x} AS STRING)"

    def id_text(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        text = x if family == "uuid" and self.source == "sqlite" else self.text(x, column)
        if family == "numeric":
            return f"coalesce({text}, {x})"
        # A source has keys that no type of Spark's holds. They come as NULL, and no id is made up for them.
        return f"coalesce({text}, raise_error('a key has no type in Spark: build from the source'))"

    def number(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "boolean":
            return f"CAST(CAST({x} AS INT) AS STRING)"
        if family in ("integer", "decimal"):
            return f"CAST({x} AS STRING)"
        if family == "real":
            return f"CASE WHEN {_finite(x)} THEN CAST({x} AS STRING) END"
        text = f"trim(BOTH {_blanks()} FROM {self.text(x, column) if family != 'numeric' else x})"
        if family == "money":
            text = f"translate({text}, '\\u0024,', '')"
        return f"CASE WHEN {text} RLIKE {self.literal(JSON_NUMBER)} THEN {text} END"

    def boolean(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "boolean":
            return f"CAST({x} AS STRING)"
        if family in ("integer", "decimal", "real"):
            return f"CAST({x} <> 0 AS STRING)"
        text = f"lower({self.text(x, column)})"
        return (
            f"CASE WHEN {text} IN ('true', 't', '1', 'yes', 'y', 'on') THEN 'true'"
            f" WHEN {text} IN ('false', 'f', '0', 'no', 'n', 'off') THEN 'false' END"
        )

    def moment(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "local":
            return _iso(x, "")
        if family == "moment":
            return _iso(_utc(x), "Z")
        if family == "date":
            return f"CASE WHEN {_day_inside(x)} THEN concat('\"', CAST({x} AS STRING), 'T00:00:00\"') END"
        if self.source != "sqlite":
            return self.number(x, column) if family in NUMBERS else self.quoted(self.text(x, column))
        if family == "integer":
            return _iso(f"timestampadd(SECOND, {x}, {_EPOCH})", "Z")
        if family in ("real", "decimal"):
            milliseconds = f"CAST(round((CAST({x} AS DOUBLE) - {_JULIAN}) * 86400000D) AS BIGINT)"
            return _iso(f"timestampadd(MILLISECOND, {milliseconds}, {_EPOCH})", "Z")
        zone = f"{x} RLIKE '(Z|:[0-9.]+[+-][0-9:]+)$'"
        # Spark wants seconds before a zone.
        timed = rf"regexp_replace({x}, '^(.{{16}})([Z+-])', '\u00241:00\u00242')"
        instant = _iso(_utc(f"try_cast({timed} AS TIMESTAMP)"), "Z")
        local = _iso(f"try_cast({x} AS TIMESTAMP_NTZ)", "")
        return (
            f"CASE WHEN NOT {x} RLIKE {self.literal(MOMENT)} THEN NULL WHEN {zone} THEN {instant}"
            f" ELSE {local} END"
        )

    def day(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "date":
            return f"CASE WHEN {_day_inside(x)} THEN concat('\"', CAST({x} AS STRING), '\"') END"
        if family in ("moment", "local"):
            day = f"CAST({_utc(x) if family == 'moment' else x} AS DATE)"
            return f"CASE WHEN {_day_inside(day)} THEN concat('\"', CAST({day} AS STRING), '\"') END"
        if self.source != "sqlite":
            return self.number(x, column) if family in NUMBERS else self.quoted(self.text(x, column))
        if family in NUMBERS:
            made = self.moment(x, column)
            return f"concat(substring({made}, 1, 11), '\"')"
        day = f"try_cast(substring({x}, 1, 10) AS DATE)"
        inside = f"{x} RLIKE {self.literal(MOMENT)} AND {_day_inside(day)}"
        return f"CASE WHEN {inside} THEN concat('\"', CAST({day} AS STRING), '\"') END"

    def binary(self, x: Sql, column: Column) -> Sql:
        raw = x if self.family(column) == "binary" else f"CAST({self.text(x, column)} AS BINARY)"
        return f"concat('\"', translate(base64({raw}), '\\r\\n', ''), '\"')"

    def uuid(self, x: Sql, column: Column) -> Sql:
        if self.family(column) == "binary":
            digits = f"lower(hex({x}))"
            groups = r"'^(.{8})(.{4})(.{4})(.{4})(.{12})\u0024', '\u00241-\u00242-\u00243-\u00244-\u00245'"
            return f"concat('\"', regexp_replace({digits}, {groups}), '\"')"
        return self.quoted(f"lower({self.text(x, column)})")

    def embedded(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family in ("integer", "decimal", "real", "numeric"):
            return self.number(x, column)
        if family == "boolean":
            return self.boolean(x, column)
        if column.native.endswith("[]"):
            raise ConfigError(
                f"column {column.name} is an array, which Spark does not get as JSON",
                remedy="build the documents from the source, or expose the array as jsonb",
            )
        text = f"translate({x}, '\\n\\r', '  ')"
        if self.source == "postgres":
            return text if family == "json" else self.quoted(self.text(x, column))
        return f"CASE WHEN try_parse_json({x}) IS NOT NULL THEN {text} END"

    def expression(self, x: Sql, kind: Kind, column: Column) -> Sql:
        if kind == "timestamp":
            zoned = _iso(_utc(f"try_cast({x} AS TIMESTAMP)"), "Z")
            local = _iso(f"try_cast({x} AS TIMESTAMP_NTZ)", "")
            text = self.moment(f"CAST({x} AS STRING)", column) if self.source == "sqlite" else local
            # Only Spark knows whether it has a zone.
            return (
                f"CASE typeof({x}) WHEN 'timestamp' THEN {zoned} WHEN 'string' THEN {text} ELSE {local} END"
            )
        casts = {"date": "DATE", "boolean": "BOOLEAN", "float": "DOUBLE", "double": "DOUBLE"}
        return self.json(f"try_cast({x} AS {casts[kind]})" if kind in casts else x, column, kind)

    def transformed(self, text: Sql, step: Transform) -> Sql:
        if step.name == "trim":
            return f"trim(BOTH {_blanks()} FROM {text})"
        if step.name == "truncate":
            return f"left({text}, {int(step.length or 0)})"
        if step.name == "hash":
            return f"sha2({text}, 256)"
        return f"{'lower' if step.name == 'lowercase' else 'upper'}({text})"

    def point(self, x: Sql, column: Column) -> tuple[Sql, Sql]:
        if column.native == "point":
            text = f"translate({x}, '()', '')"
            lat, lon = (f"split_part({text}, ',', {at})" for at in (2, 1))
            return self._digits(lat), self._digits(lon)
        parts = f"split_part({x}, ',', 1)", f"substr({x}, instr({x}, ',') + 1)"
        lat, lon = (
            f"CASE {self._inside(x, column, name, at)} WHEN instr({x}, ',') > 0 THEN {part} END"
            for name, at, part in zip(("lat", "lon"), (1, 0), parts, strict=True)
        )
        return self._digits(lat), self._digits(lon)

    def _inside(self, x: Sql, column: Column, name: str, at: int) -> Sql:
        """Branches of a CASE for a coordinate in JSON, as the source finds it there."""
        postgres, typed = self.source == "postgres", self.family(column) == "json"
        flat = (
            f"WHEN {x} RLIKE {self.literal(FLAT_OBJECT)}"
            f" THEN regexp_extract({x}, {self.literal(of_member(name))}, 1)"
            f" WHEN {x} RLIKE {self.literal(FLAT_ARRAY)}"
            f" THEN trim(BOTH concat({_blanks()}, '[]\"') FROM split_part({x}, ',', {at + 1}))"
        )
        # It takes names in apostrophes too, and reads no further than the end of what it looks for.
        valid = "" if postgres else f"try_parse_json(concat('[', {x}, ']')) IS NOT NULL AND "
        whole = (
            f"WHEN {valid}{x} RLIKE '^[ \\t\\r\\n]*[{{]' THEN get_json_object({x}, '\\u0024.{name}')"
            f" WHEN {valid}{x} RLIKE '^[ \\t\\r\\n]*[\\\\[]' THEN get_json_object({x}, '\\u0024[{at}]')"
        )
        return whole if postgres and typed else flat if postgres else f"{flat} {whole}"

    def _digits(self, text: Sql) -> Sql:
        text = f"trim(BOTH {_blanks()} FROM {text})"
        return f"CASE WHEN {text} RLIKE {self.literal(JSON_NUMBER)} THEN {text} END"

    # Comparisons

    def equal(self, x: Sql, column: Column, y: Sql, other: Column) -> Sql:
        one, two = self.family(column), self.family(other)
        if "numeric" in (one, two):
            return f"{self.text(x, column)} = {self.text(y, other)}"
        varying = "character varying" in (base(column.native), base(other.native))
        if {one, two} == {"char", "text"} and varying:
            # PostgreSQL compares these two without the blanks at their ends.
            return f"rtrim({x}) = rtrim({y})"
        if {one, two} <= NUMBERS or column.type == other.type:
            return f"{x} = {y}"
        return f"{self.text(x, column)} = {self.text(y, other)}"

    def grouped_alike(self, column: Column, other: Column) -> bool:
        # One number may be written in several ways.
        return super().grouped_alike(column, other) and self.family(column) != "numeric"

    def sortable(self, x: Sql, column: Column) -> list[Sql]:
        if self.family(column) == "numeric":
            # By the nearest double first, and what that cannot tell apart by more digits.
            return [f"CAST({x} AS DOUBLE)", f"try_cast({x} AS DECIMAL(38,18))"]
        return [x]

    def comparable(self, x: Sql, column: Column, value: Any, *, ordered: bool) -> tuple[Sql, Sql]:  # noqa: ARG002
        family = self.family(column)
        if value is None:
            return x, "NULL"
        if family == "numeric":
            return (
                f"try_cast({x} AS DECIMAL(38,18))",
                f"CAST({number_text(value, column.name)} AS DECIMAL(38,18))",
            )
        if family == "real":
            return x, f"CAST({number_text(value, column.name)} AS DOUBLE)"
        if family in NUMBERS:
            return x, number_text(value, column.name)
        if family == "boolean":
            return x, "TRUE" if str(value).lower() in ("true", "t", "1", "yes", "on") else "FALSE"
        if family == "uuid":
            return f"lower({x})", self.literal(plain_text(value).lower())
        if family == "moment":
            return x, f"CAST({self.value(zoned(plain_text(value)))} AS TIMESTAMP)"
        if family in ("local", "date"):
            return x, f"CAST({self.value(value)} AS {'DATE' if family == 'date' else 'TIMESTAMP_NTZ'})"
        return x, self.value(value)

    def like(self, x: Sql, column: Column, pattern: str, *, folded: bool) -> Sql:
        text = self.text(x, column)
        if folded:
            return f"lower({text}) LIKE {self.literal(pattern.lower())}"
        return f"{text} LIKE {self.literal(pattern)}"

    # Many rows as one

    def array(self, value: Sql, order: Sequence[Sort]) -> Sql:
        return f"concat('[', array_join({_sorted(value, order)}, ','), ']')"

    def totals(
        self, aggregate: Aggregate, x: Sql, column: Column, key: Sequence[tuple[Sql, Column]]
    ) -> Totals:
        family, function = self.family(column), aggregate.function
        if function in ("min", "max"):
            return self._extreme(aggregate, x, column)
        if family == "real":
            finite = f"CASE WHEN {_finite(x)} THEN CAST({x} AS DOUBLE) END"
            # Reals are added in the order of the keys, or the last digit would be left to chance. Rows
            # without a key are in the order of what is added.
            order = [Sort(one, nullable=False) for y, other in key for one in self.sortable(y, other)]
            order = order or [Sort(finite)]
            total = f"aggregate(filter({_sorted(finite, order)}, v -> v IS NOT NULL), 0D, (a, v) -> a + v)"
            total = f"CASE WHEN count({finite}) > 0 THEN {total} END"
            counted = finite
        else:
            counted = self._summable(x, column)
            total = f"sum({counted})"
        if function == "avg":
            total = f"CAST({total} AS DOUBLE) / CASE WHEN count({counted}) > 0 THEN count({counted}) END"
            return Totals(
                (total,), lambda made: f"CASE WHEN {_finite(made[0])} THEN CAST({made[0]} AS STRING) END"
            )
        if family == "real":
            return Totals(
                (total,), lambda made: f"CASE WHEN {_finite(made[0])} THEN CAST({made[0]} AS STRING) END"
            )
        return Totals((total,), lambda made: f"CAST({made[0]} AS STRING)")

    def _summable(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "integer":
            return f"CAST({x} AS DECIMAL(20,0))"
        if family == "decimal":
            return x if scale(column) else f"CAST({x} AS DECIMAL(38,0))"
        number = self.number(x, column)
        exact = f"^-?[0-9]{{1,{_WHOLE}}}([.][0-9]{{1,{_FRACTION}}}0*)?$"
        return (
            f"CASE WHEN {number} IS NULL THEN NULL WHEN {number} RLIKE {self.literal(exact)}"
            f" THEN CAST({number} AS DECIMAL(38,{_FRACTION}))"
            " ELSE CAST(raise_error('a number is too long for Spark to add exactly') AS"
            f" DECIMAL(38,{_FRACTION})) END"
        )

    def _extreme(self, aggregate: Aggregate, x: Sql, column: Column) -> Totals:
        family, function = self.family(column), aggregate.function
        kind = aggregate.kind or "custom"
        if family == "real":
            x = f"CASE WHEN {_finite(x)} THEN {x} END"
        if family == "numeric":
            number = self.number(x, column)
            parts = ", ".join(self.sortable(number, column))
            made = f"{function}_by({number}, CASE WHEN {number} IS NOT NULL THEN struct({parts}) END)"
        else:
            made = f"{function}({x})"
        return Totals((made,), lambda found: self.json(found[0], column, kind))

    # The keys

    def keys(self, key: Sequence[Column], view: str | None) -> Sql:
        if view is None:
            raise ConfigError("Spark needs the name of a view that holds the keys")
        parts = ", ".join(
            f"{self.column(self.quote(column.name), column)} AS k{at}" for at, column in enumerate(key)
        )
        return f"SELECT DISTINCT {parts} FROM {self.quote(view)}"


def _sorted(value: Sql, order: Sequence[Sort]) -> Sql:
    """The values of a group as an array; whatever descends has been numbered before."""
    parts = []
    for at, one in enumerate(order):
        parts += [f"{one.sql} IS NULL AS n{at}"] if one.nullable else []
        parts.append(f"{one.sql} AS o{at}")
    rows = f"sort_array(collect_list(struct({', '.join(parts)}, {value} AS v)))"
    return f"transform({rows}, s -> s.v)"


def _finite(x: Sql) -> Sql:
    return f"{x} - {x} = 0"


def _utc(x: Sql) -> Sql:
    """A moment as it is read from a clock in Greenwich."""
    return f"timestampadd(MICROSECOND, unix_micros({x}), {_EPOCH})"


def _iso(x: Sql, zone: str) -> Sql:
    made = f"concat('\"', replace(CAST({x} AS STRING), ' ', 'T'), '{zone}\"')"
    return f"CASE WHEN year({x}) BETWEEN 1 AND 9999 THEN {made} END"


def _day_inside(x: Sql) -> Sql:
    return f"year({x}) BETWEEN 1 AND 9999"


def _trimmed(text: Sql) -> Sql:
    """A decimal's text without zeros that say nothing, so that equal numbers have equal texts."""
    return f"CASE WHEN instr({text}, '.') > 0 THEN rtrim('.', rtrim('0', {text})) ELSE {text} END"


def _blanks() -> Sql:
    return "'" + "".join(f"\\u{ord(blank):04x}" for blank in BLANKS) + "'"
