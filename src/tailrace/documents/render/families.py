"""What a column's values are, whichever source they come from: the one thing that all dialects ask.

A column's type alone does not tell: what has no type of its own in Spark is a string (`uuid`, `json`, a
`numeric` without a scale), and the native type says which it is.
"""

from __future__ import annotations

import re
from typing import Literal

from tailrace.documents.plan import Kind
from tailrace.model.table import Column, ColumnType

Family = Literal[
    "boolean",
    "integer",
    "decimal",
    "numeric",
    "money",
    "real",
    "date",
    "moment",
    "local",
    "binary",
    "uuid",
    "json",
    "char",
    "text",
    "other",
]
# Compared by value with each other, whatever their width.
NUMBERS = frozenset({"integer", "decimal", "numeric", "real"})
NUMBER_KINDS = frozenset({"short", "integer", "long", "float", "double", "decimal"})

_BY_TYPE: dict[str, Family] = {
    "boolean": "boolean",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "real",
    "double": "real",
    "date": "date",
    "timestamp": "moment",
    "timestamp_ntz": "local",
    "binary": "binary",
}
_BY_NATIVE: dict[str, Family] = {
    "numeric": "numeric",
    "money": "money",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
    "character": "char",
    "bpchar": "char",
    "text": "text",
    "character varying": "text",
    "varchar": "text",
}
_MODIFIER = re.compile(r"\([0-9, -]*\)")
_OF_KIND: dict[str, tuple[str, str]] = {
    "boolean": ("boolean", "boolean"),
    "float": ("double", "double precision"),
    "double": ("double", "double precision"),
    "date": ("date", "date"),
    "binary": ("binary", "bytea"),
    "uuid": ("string", "uuid"),
    "json": ("string", "json"),
    "map": ("string", "json"),
}


def base(native: str) -> str:
    """The native type without its modifier: a value is never cut or rounded to be compared."""
    return " ".join(_MODIFIER.sub("", native).split())


def family(column: Column, source: str) -> Family:
    """The family of a column's values; `source` is the dialect of the database that they come from."""
    name = column.type.name
    if name.startswith("decimal"):
        return "decimal"
    if (found := _BY_TYPE.get(name)) is not None:
        return found
    if source != "postgres":
        # Declared types bind nobody there: only what they are taken for counts.
        native = column.native.strip().lower()
        return "uuid" if native == "uuid" else "json" if native in ("json", "jsonb") else "text"
    return _BY_NATIVE.get(base(column.native).lower(), "other" if column.native else "text")


def natural(column: Column, source: str) -> Kind:
    """The kind that shows a column as what it is."""
    found = family(column, source)
    kinds: dict[str, Kind] = {
        "boolean": "boolean",
        "integer": "long",
        "decimal": "decimal",
        "numeric": "decimal",
        "money": "decimal",
        "real": "double",
        "date": "date",
        "moment": "timestamp",
        "local": "timestamp",
        "binary": "binary",
        "uuid": "uuid",
        "json": "json",
    }
    return kinds.get(found, "keyword")


def of_kind(kind: Kind, source: str) -> Column:
    """A column such as an expression of this kind would make."""
    if kind in NUMBER_KINDS and kind not in ("float", "double"):
        return Column("", ColumnType("string" if source == "postgres" else "double"), "numeric")
    type_name, native = _OF_KIND.get(kind, ("string", "text"))
    return Column("", ColumnType(type_name), native)


def scale(column: Column) -> int:
    """The digits after the point of a decimal; none of any other number."""
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", column.type.name)
    return int(found[2]) if found else 0
