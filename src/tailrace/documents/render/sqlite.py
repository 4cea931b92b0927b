"""SQLite, since version 3.38, with the functions of `tailrace.capture.sqlite.functions`.

A column may hold any value, whatever its declared type, so its values are asked what they are. The keys come
as one parameter: a JSON array, or one of arrays where the key is composite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tailrace.documents.plan import Aggregate, Transform
from tailrace.documents.render.binding import json_value
from tailrace.documents.render.dialect import BLANKS, Dialect, Sort, Sql, Totals
from tailrace.documents.render.families import NUMBERS, scale
from tailrace.documents.render.literals import number_text, plain_text
from tailrace.model.table import Column, ColumnType

_HALVES = 1_000_000_000
_TEXT = Column("", ColumnType("string"), "TEXT")
_DAY = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]"
_SECOND = _DAY + "[ T][0-2][0-9]:[0-5][0-9]:[0-5][0-9]"


class Sqlite(Dialect):
    """See the module's text."""

    name: ClassVar[str] = "sqlite"
    # Of the 64 that it takes, some are left to what the plan itself joins.
    most_joins: ClassVar[int] = 50
    ordered_input: ClassVar[bool] = True

    def __init__(self, source: str = "sqlite") -> None:
        super().__init__(source)

    def joined(self, pieces: Sequence[Sql]) -> Sql:
        return f"({' || '.join(pieces)})"

    def quoted(self, text: Sql) -> Sql:
        return f"CASE WHEN ({text}) IS NOT NULL THEN json_quote({text}) END"

    def document(self, object_: Sql) -> Sql:
        # A text may hold any bytes there, and whoever reads the document wants UTF-8.
        return f"tailrace_text(CAST({object_} AS BLOB))"

    def unquoted(self, value: Sql) -> Sql:
        return f"trim({value}, '\"')"

    # Values

    def text(self, x: Sql, column: Column) -> Sql:
        family = self.family(column)
        if family == "uuid":
            return _uuid(x)
        if family == "boolean":
            return self.boolean(x, column)
        if family == "binary":
            return (
                f"CASE typeof({x}) WHEN 'null' THEN NULL WHEN 'text' THEN {x} ELSE tailrace_base64({x}) END"
            )
        if family in ("moment", "local"):
            return self.unquoted(self.moment(x, column))
        if family == "date":
            return self.unquoted(self.day(x, column))
        real = _decimal(x, column, _real(x)) if family == "decimal" else _real(x)
        # Bytes are no text.
        return (
            f"CASE typeof({x}) WHEN 'text' THEN {x} WHEN 'integer' THEN CAST({x} AS TEXT)"
            f" WHEN 'real' THEN {real} END"
        )

    def id_text(self, x: Sql, column: Column) -> Sql:
        # As the capture's values of this type have it (`resolve.values.id_texts`), whatever is in there.
        family = self.family(column)
        endless = f"coalesce(tailrace_real({x}), CASE WHEN {x} > 0 THEN 'Infinity' ELSE '-Infinity' END)"
        real = _decimal(x, column, endless) if family == "decimal" else endless
        whole = f"CAST({x} AS TEXT)"
        if family == "boolean":
            whole = f"CASE {x} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE {whole} END"
        elif family == "real":
            same = f"CAST(CAST({x} AS REAL) AS INTEGER) = {x}"
            whole = f"CASE WHEN {same} THEN tailrace_real(CAST({x} AS REAL)) ELSE {whole} END"
        text = f"tailrace_key(CAST({x} AS BLOB))"
        if family in ("date", "moment", "local"):
            # A day or moment that no document can show still is a key.
            text = f"coalesce({self.text(x, column)}, {x})"
        return (
            f"CASE typeof({x}) WHEN 'text' THEN {text} WHEN 'integer' THEN {whole} WHEN 'real' THEN {real}"
            f" WHEN 'blob' THEN tailrace_base64({x}) END"
        )

    def number(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        text = f"trim({x}, {_characters(BLANKS)})"
        return (
            f"CASE typeof({x}) WHEN 'integer' THEN CAST({x} AS TEXT) WHEN 'real' THEN {_real(x)}"
            f" WHEN 'text' THEN CASE WHEN json_valid({text}) THEN"
            f" CASE WHEN json_type({text}) IN ('integer', 'real') THEN {text} END END END"
        )

    def boolean(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        return (
            f"CASE WHEN typeof({x}) IN ('integer', 'real') THEN CASE WHEN {x} <> 0 THEN 'true' ELSE 'false'"
            f" END WHEN lower({x}) IN ('true', 't', '1', 'yes', 'y', 'on') THEN 'true'"
            f" WHEN lower({x}) IN ('false', 'f', '0', 'no', 'n', 'off') THEN 'false' END"
        )

    def moment(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        usual = f"substr({x}, 1, 10) || 'T' || substr({x}, 12)"
        # Adding nothing rolls the 30th of February over, so that the text is another then.
        return (
            f"'\"' || CASE WHEN {x} GLOB '{_SECOND}' AND {x} NOT GLOB '0000*'"
            f" AND strftime('%Y-%m-%dT%H:%M:%S', {x}, '+0 days') = {usual} THEN {usual}"
            f" ELSE tailrace_moment({x}) END || '\"'"
        )

    def day(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        return (
            f"'\"' || CASE WHEN {x} GLOB '{_DAY}' AND {x} NOT GLOB '0000*' AND date({x}, '+0 days') = {x}"
            f" THEN {x} ELSE tailrace_day({x}) END || '\"'"
        )

    def binary(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        return f"'\"' || tailrace_base64({x}) || '\"'"

    def uuid(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        return self.quoted(_uuid(x))

    def embedded(self, x: Sql, column: Column) -> Sql:  # noqa: ARG002
        text = f"CAST({x} AS TEXT)"
        return (
            f"CASE WHEN typeof({x}) = 'real' THEN {_real(x)} WHEN json_valid({text})"
            f" THEN replace(replace({text}, char(10), ' '), char(13), ' ') END"
        )

    def transformed(self, text: Sql, step: Transform) -> Sql:
        if step.name == "trim":
            return f"trim({text}, {_characters(BLANKS)})"
        if step.name == "truncate":
            return f"substr({text}, 1, {int(step.length or 0)})"
        if step.name == "hash":
            return f"tailrace_sha256({text})"
        return _folded(text, "lower" if step.name == "lowercase" else "upper")

    def point(self, x: Sql, column: Column) -> tuple[Sql, Sql]:
        found = []
        for name, at, part in (
            ("lat", 1, f"substr({x}, 1, instr({x}, ',') - 1)"),
            ("lon", 0, f"substr({x}, instr({x}, ',') + 1)"),
        ):
            inside = (
                f"CASE WHEN json_valid({x}) THEN CASE json_type({x}) WHEN 'object' THEN"
                f" {x} ->> '$.{name}' WHEN 'array' THEN {x} ->> '$[{at}]' END"
                f" WHEN instr({x}, ',') > 0 THEN {part} END"
            )
            found.append(self.number(inside, column))
        return found[0], found[1]

    # Comparisons

    def equal(self, x: Sql, column: Column, y: Sql, other: Column) -> Sql:  # noqa: ARG002
        return f"{x} = {y}"

    def grouped_alike(self, column: Column, other: Column) -> bool:
        # Only these cannot hold 1 and '1' beside each other.
        return column.type.name == other.type.name == "long"

    def sortable(self, x: Sql, column: Column) -> list[Sql]:  # noqa: ARG002
        return [f"{x} COLLATE BINARY"]

    def comparable(self, x: Sql, column: Column, value: Any, *, ordered: bool) -> tuple[Sql, Sql]:  # noqa: ARG002
        family = self.family(column)
        if family in NUMBERS and value is not None:
            return x, number_text(value, column.name)
        if family == "boolean" and value is not None:
            # As a document shows it, whatever it is kept as.
            true = plain_text(value).lower() in ("true", "t", "1", "yes", "y", "on")
            return f"({self.boolean(x, column)})", "'true'" if true else "'false'"
        return f"{x} COLLATE BINARY", self.value(value)

    def like(self, x: Sql, column: Column, pattern: str, *, folded: bool) -> Sql:
        # Its own LIKE takes no account of case, and GLOB does.
        text = self.text(x, column)
        if folded:
            return f"{_folded(text, 'lower')} GLOB {self.literal(glob(pattern.lower()))}"
        return f"{text} GLOB {self.literal(glob(pattern))}"

    # Many rows as one

    def array(self, value: Sql, order: Sequence[Sort]) -> Sql:  # noqa: ARG002 - the subquery has ordered them
        return f"('[' || group_concat({value}, ',') || ']')"

    def totals(
        self,
        aggregate: Aggregate,
        x: Sql,
        column: Column,
        key: Sequence[tuple[Sql, Column]],  # noqa: ARG002 - the subquery has ordered them
    ) -> Totals:
        if aggregate.function in ("min", "max"):
            kind = aggregate.kind or "custom"
            if self.family(column) in NUMBERS:
                x = f"CASE WHEN {_finite(x)} THEN {x} END"
            return Totals(
                (f"{aggregate.function}({x} COLLATE BINARY)",), lambda made: self.json(made[0], column, kind)
            )
        # A text counts where it is a number, and an infinity is none.
        text = f"CASE WHEN {self.number(x, column)} IS NOT NULL THEN CAST({x} AS REAL) END"
        x = f"CASE WHEN typeof({x}) = 'text' THEN {text} WHEN {_finite(x)} THEN {x} END"
        digits = scale(column)
        if digits:
            # Decimals are kept as reals; as whole numbers of their last digit they are exact.
            most = 10**15 // 10**digits
            inside = f"({x}) BETWEEN -{most} AND {most}"
            whole = f"CASE WHEN {inside} THEN CAST(round(({x}) * {10**digits}) AS INTEGER) END"
            rest = f"CASE WHEN NOT ({inside}) THEN CAST({x} AS REAL) END"
        else:
            whole = f"CASE WHEN typeof({x}) = 'integer' THEN {x} END"
            rest = f"CASE WHEN typeof({x}) <> 'integer' THEN CAST({x} AS REAL) END"
        columns = (f"sum(({whole}) / {_HALVES})", f"sum(({whole}) % {_HALVES})", f"sum({rest})")
        if aggregate.function == "sum":
            return Totals(columns, lambda made: f"tailrace_sum({', '.join(made)}, {digits})", ordered=True)
        return Totals(
            (*columns, f"count({x})"),
            lambda made: f"tailrace_average({', '.join(made[:3])}, {digits}, {made[3]})",
            ordered=True,
        )

    # The keys

    def keys(self, key: Sequence[Column], view: str | None) -> Sql:  # noqa: ARG002
        if len(key) == 1:
            return f"SELECT DISTINCT {json_value('value', 'type')} AS k0 FROM json_each(?1)"
        parts = ", ".join(
            json_value("value", f"json_type(value, '$[{at}]')", f"[{at}]") + f" AS k{at}"
            for at in range(len(key))
        )
        return f"SELECT DISTINCT {parts} FROM json_each(?1)"

    def bound(self, column: Column) -> Sql:  # noqa: ARG002
        return "?"


def glob(pattern: str) -> str:
    """The GLOB pattern of a LIKE pattern whose escape is `\\`."""
    made, escaped = [], False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
            continue
        if not escaped and character in "%_":
            made.append("*" if character == "%" else "?")
        else:
            made.append(f"[{character}]" if character in "*?[" else character)
        escaped = False
    return "".join(made) + ("\\" if escaped else "")


def _decimal(x: Sql, column: Column, other: Sql) -> Sql:
    """A real that is a decimal of the column's type, without exponents; `other` stands for any other one."""
    digits = scale(column)
    plain = f"rtrim(rtrim(printf('%.{digits}f', {x}), '0'), '.')" if digits else f"printf('%.0f', {x})"
    return f"CASE WHEN abs({x}) < 1e15 AND CAST({plain} AS REAL) = {x} THEN {plain} ELSE {other} END"


def _finite(x: Sql) -> Sql:
    """Whether it is a number, and not an infinity."""
    return f"{x} BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"


def _real(x: Sql) -> Sql:
    """A finite real in as few digits as tell it from all others."""
    short = f"printf('%!.15g', {x})"
    # Fifteen digits that are the number are the shortest, but for the very smallest.
    usual = f"abs({x}) BETWEEN 1e-300 AND 1e300 AND CAST({short} AS REAL) = {x}"
    return f"CASE WHEN {usual} THEN {short} ELSE tailrace_real({x}) END"


def _uuid(x: Sql) -> Sql:
    digits = f"lower(hex({x}))"
    parts = " || '-' || ".join(
        f"substr({digits}, {start}, {size})" for start, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    blob = f"CASE length({x}) WHEN 16 THEN {parts} ELSE {digits} END"
    return f"CASE typeof({x}) WHEN 'blob' THEN {blob} WHEN 'null' THEN NULL ELSE lower({x}) END"


def _folded(text: Sql, function: str) -> Sql:
    """Lower or upper case; SQLite itself knows the letters of ASCII only."""
    other = f"{text} GLOB '*[^' || char(1) || '-' || char(127) || ']*'"
    return f"CASE WHEN {other} THEN tailrace_{function}({text}) ELSE {function}({text}) END"


def _characters(text: str) -> Sql:
    return f"char({', '.join(str(ord(character)) for character in text)})"
