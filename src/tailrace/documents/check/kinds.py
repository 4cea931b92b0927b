"""Whether a column can be shown as the kind that a field says.

An error is where no value of the column is ever shown as one; a warning where some may not be, or where a
sink that takes the field by its word may refuse them. SQLite holds any value in any column, so that there
nothing of it is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.documents.check.found import Severity
from tailrace.documents.plan import Kind
from tailrace.documents.render.families import NUMBERS, Family, base, family, natural, scale
from tailrace.model.table import Column

_WHOLE = {"short": 0, "integer": 1, "long": 2}
_TEXTS = frozenset({"text", "identifier", "keyword", "enum"})
_LOOSE = frozenset({"text", "char", "other"})
_AMOUNTS = NUMBERS | {"money"}
_TIMES = frozenset({"date", "moment", "local"})
_POSTGRES_NAMES = {
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "smallserial": "smallint",
    "serial": "integer",
    "bigserial": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "decimal": "numeric",
    "varchar": "character varying",
    "char": "character",
    "bpchar": "character",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}


@dataclass(frozen=True)
class Misfit:
    """Why a column does not fit; the sentence goes on from the column and its type."""

    severity: Severity
    why: str


_NEVER = Misfit("error", "none of its values is one, so the field would always be null")


def misfit(kind: Kind, column: Column, source: str) -> Misfit | None:
    """What is wrong with showing the column as this kind; None where nothing is."""
    of = family(column, source)
    if source == "sqlite":
        found = _in_sqlite(kind, column, of)
        return replace(found, severity="warning") if found is not None else None
    return _by_kind(kind, column, of)


def _in_sqlite(kind: Kind, column: Column, of: Family) -> Misfit | None:
    # Dates and moments are kept as texts and as numbers, JSON and UUIDs as texts and as blobs.
    if of in NUMBERS and kind in ("date", "timestamp"):
        return None
    if of == "binary" and kind in ("uuid", "json", "map"):
        return None
    if of == "text":
        declared = column.native.upper()
        told = any(word in declared for word in ("CHAR", "CLOB", "TEXT"))
        return _number(kind, column, of, width=False) if told and _is_number(kind) else None
    if _is_number(kind):
        return _number(kind, column, of, width=False)
    return _by_kind(kind, column, of)


def _by_kind(kind: Kind, column: Column, of: Family) -> Misfit | None:
    if _is_number(kind):
        return _number(kind, column, of)
    if kind == "boolean":
        return _boolean(of)
    if kind in ("date", "timestamp"):
        return _time(kind, of)
    if kind == "uuid":
        return None if of in ("uuid", *_LOOSE) else _NEVER
    if kind == "binary":
        return None if of == "binary" else Misfit("warning", "what is shown is the base64 of its text")
    if kind in ("json", "map"):
        return _json(kind, column, of)
    if kind in _TEXTS and of == "binary":
        return Misfit("warning", "a text shows it in base64, whatever bytes it has")
    return None


def _is_number(kind: Kind) -> bool:
    return kind in _WHOLE or kind in ("float", "double", "decimal")


def _number(kind: Kind, column: Column, of: Family, *, width: bool = True) -> Misfit | None:
    if of in _LOOSE or of == "json":
        return Misfit("warning", "only what reads as a number is shown, everything else is null")
    if of not in _AMOUNTS and of != "boolean":
        return _NEVER
    if kind not in _WHOLE or of == "boolean":
        return None
    if of == "integer":
        wider = _WHOLE.get(column.type.name, 0) > _WHOLE[kind]
        reason = f"it holds numbers that are too large for a `{kind}`, which a sink may refuse"
        return Misfit("warning", reason) if wider and width else None
    if of == "decimal" and not scale(column):
        return None
    return Misfit("warning", "it holds fractions, which a sink may cut or refuse in a whole number")


def _boolean(of: Family) -> Misfit | None:
    if of == "boolean" or of in NUMBERS:
        return None
    if of in _LOOSE or of == "json":
        return Misfit("warning", "only words like true and false are shown, everything else is null")
    return _NEVER


def _time(kind: Kind, of: Family) -> Misfit | None:
    if of in _TIMES:
        return None
    if of in _LOOSE:
        return Misfit("warning", f"its text is shown as it is, which a sink may refuse where it is no {kind}")
    if of in NUMBERS:
        return Misfit("warning", f"it is shown as a number, which a sink may take for another {kind}")
    return Misfit("error", f"none of its values is a {kind}")


def _json(kind: Kind, column: Column, of: Family) -> Misfit | None:
    if of == "json":
        return None
    if kind == "json":
        text = of in ("text", "char")
        return Misfit("warning", "it is shown as a text, not as the JSON in it") if text else None
    if of == "other" and not column.native.endswith("]"):
        # A row type, or what its extension makes an object of.
        return None
    return Misfit("error", "none of its values is a JSON object")


def point_misfit(column: Column, source: str) -> Misfit | None:
    """What is wrong with a column that shall hold a point."""
    of = family(column, source)
    if of in ("json", "text", "char") or column.native == "point":
        return None
    if source == "sqlite":
        return Misfit("warning", "only JSON and the text `lat,lon` are points, everything else is null")
    return _NEVER


def sum_misfit(column: Column, source: str) -> Misfit | None:
    """What is wrong with adding up the values of a column."""
    found = misfit("decimal", column, source)
    if found is None or found.severity == "error":
        return found and replace(found, why="there is no sum of such values")
    return replace(found, why="only what reads as a number is counted in")


def custom_misfit(column: Column, declared: Sequence[str], source: str) -> Misfit | None:
    """What is wrong with a column whose types a `custom` field names."""
    if not declared:
        return None
    listed = ", ".join(f"`{name}`" for name in declared)
    if source == "sqlite":
        known = {" ".join(name.upper().split()) for name in declared}
        named = " ".join(column.native.upper().split())
    else:
        known = {_full_name(name) for name in declared}
        named = _full_name(column.native)
    return None if named in known else Misfit("error", f"the field takes {listed}")


def _full_name(native: str) -> str:
    name = base(native).lower()
    bare, array = (name[:-2], "[]") if name.endswith("[]") else (name, "")
    return _POSTGRES_NAMES.get(bare, bare) + array


def better_kind(kind: Kind, column: Column, source: str) -> Kind | None:
    """The kind that shows the column as what it is, where that is another one."""
    found = natural(column, source)
    return None if found == kind else found
