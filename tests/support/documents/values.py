"""One value of a row, and what a document shows of it, as the design says in "Values"."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

Family = Literal[
    "boolean",
    "integer",
    "decimal",
    "real",
    "date",
    "local",
    "moment",
    "binary",
    "uuid",
    "json",
    "text",
    "other",
]
NUMBERS = ("short", "integer", "long", "float", "double", "decimal")
TEXTS = ("text", "identifier", "keyword", "enum")
BLANKS = " \t\n\r\v\f"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_TRUE, _FALSE = ("true", "t", "1", "yes", "y", "on"), ("false", "f", "0", "no", "n", "off")


@dataclass(frozen=True)
class Cell:
    """A value that is not NULL: bool, int, float, Decimal, str or bytes.

    JSON, dates and times are the text that the source has; `family` says what the column is.
    """

    value: Any
    family: Family


def shown(kind: str, cell: Cell | None, field: Mapping[str, Any] | None = None) -> Any:
    """What the document has for a value of a kind; `field` may give transforms and a default."""
    field = field or {}
    made = None if cell is None else _by_kind(kind, cell, field.get("transforms") or ())
    if made is None and field.get("default") is not None:
        return field["default"]
    return made


def _by_kind(kind: str, cell: Cell, transforms: Sequence[Any]) -> Any:
    if kind in TEXTS or transforms:
        return _transformed(plain(cell), transforms)
    if kind in NUMBERS:
        return number(cell)
    if kind == "boolean":
        return _boolean(cell)
    if kind == "date":
        return _day(cell)
    if kind == "timestamp":
        return _moment(cell)
    if kind == "uuid":
        return _uuid(cell)
    if kind == "binary":
        return _base64(cell)
    if kind in ("json", "map"):
        return _json(cell)
    if kind == "custom":
        return _natural(cell)
    raise AssertionError(f"no such kind: {kind}")


def plain(cell: Cell) -> str | None:
    """A value's text: of an id, of a text field."""
    value = cell.value
    if cell.family in ("date", "local", "moment"):
        return _day(cell) if cell.family == "date" else _moment(cell)
    if cell.family == "uuid":
        return _uuid(cell)
    if isinstance(value, bool) or cell.family == "boolean":
        found = _boolean(cell)
        return None if found is None else "true" if found else "false"
    if isinstance(value, bytes):
        return _base64(cell)
    if cell.family == "decimal" and isinstance(value, Decimal | float):
        # 1.50 and 1.5 are one number, so they are one text.
        text = format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def number(cell: Cell) -> int | Decimal | None:
    value = cell.value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    text = str(plain(cell)).strip(BLANKS)
    if not _NUMBER.fullmatch(text):
        return None
    return Decimal(text) if set(text) & set(".eE") else int(text)


def _boolean(cell: Cell) -> bool | None:
    value = cell.value
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return value != 0
    word = str(value).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _read(text: str) -> tuple[datetime, bool] | None:
    """A date or time as it is written, and whether it has a zone; None for none in the years 1 to 9999."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int(f"{(fraction or '')[:6]:0<6}"),
        )
        if zone is None:
            return moment, False
        if zone == "Z":
            return moment, True
        sign = -1 if zone[0] == "-" else 1
        digits = zone[1:].replace(":", "")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
        return moment - sign * offset, True
    except (ValueError, OverflowError):
        return None


def _counted(value: float) -> datetime | None:
    """SQLite's numbers: whole seconds since 1970, or Julian days to the millisecond."""
    epoch = datetime(1970, 1, 1)
    try:
        if isinstance(value, int):
            return epoch + timedelta(seconds=value)
        return epoch + timedelta(milliseconds=round((value - 2440587.5) * 86_400_000))
    except (ValueError, OverflowError):
        return None


def _moment(cell: Cell) -> str | None:
    value = cell.value
    if isinstance(value, int | float) and cell.family != "boolean":
        counted = _counted(value)
        return None if counted is None else _iso(counted) + "Z"
    if not isinstance(value, str):
        return None
    found = _read(value)
    if found is None:
        return None
    moment, zoned = found
    return _iso(moment) + ("Z" if zoned or cell.family == "moment" else "")


def _iso(moment: datetime) -> str:
    text = moment.isoformat()
    return text.rstrip("0") if "." in text else text


def _day(cell: Cell) -> str | None:
    value = cell.value
    if isinstance(value, int | float) and cell.family != "boolean":
        counted = _counted(value)
        return None if counted is None else counted.date().isoformat()
    if not isinstance(value, str):
        return None
    if cell.family == "moment":
        found = _read(value)
        return None if found is None else found[0].date().isoformat()
    if not _ISO.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value[:10]).isoformat()
    except ValueError:
        return None


def _uuid(cell: Cell) -> str:
    if isinstance(cell.value, bytes) and len(cell.value) == 16:
        return str(uuid.UUID(bytes=cell.value))
    return str(cell.value).lower()


def _base64(cell: Cell) -> str:
    raw = cell.value if isinstance(cell.value, bytes) else str(plain(cell)).encode()
    return base64.b64encode(raw).decode()


def _json(cell: Cell) -> Any:
    if isinstance(cell.value, bool):
        return cell.value
    if isinstance(cell.value, int | float | Decimal):
        return number(cell)
    try:
        return json.loads(str(cell.value), parse_float=Decimal)
    except ValueError:
        return None


def _natural(cell: Cell) -> Any:
    kinds = {
        "boolean": "boolean",
        "integer": "long",
        "decimal": "decimal",
        "real": "double",
        "date": "date",
        "local": "timestamp",
        "moment": "timestamp",
        "binary": "binary",
        "uuid": "uuid",
        "json": "json",
    }
    return _by_kind(kinds.get(cell.family, "keyword"), cell, ())


def _transformed(text: str | None, transforms: Sequence[Any]) -> str | None:
    if text is None:
        return None
    for step in transforms:
        if isinstance(step, Mapping):
            text = text[: step["truncate"]]
        elif step == "lowercase":
            text = text.lower()
        elif step == "uppercase":
            text = text.upper()
        elif step == "trim":
            text = text.strip(BLANKS)
        elif step == "hash":
            text = hashlib.sha256(text.encode()).hexdigest()
        else:
            raise AssertionError(f"no such transform: {step}")
    return text


def point(cell: Cell | None) -> dict[str, Any] | None:
    """A point in one column: an object, an array of lon and lat, PostgreSQL's `(lon,lat)`, or `lat,lon`."""
    if cell is None:
        return None
    value = cell.value
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError:
            if value.startswith("("):
                lon, _, lat = value.strip("()").partition(",")
            else:
                lat, _, lon = value.partition(",")
            return located(Cell(lat, "text"), Cell(lon, "text"))
    if isinstance(value, list) and len(value) >= 2:
        value = {"lat": value[1], "lon": value[0]}
    if not isinstance(value, dict):
        return None
    lat, lon = (value.get(name) for name in ("lat", "lon"))
    return located(
        None if lat is None else Cell(lat, "text"),
        None if lon is None else Cell(lon, "text"),
    )


def located(lat: Cell | None, lon: Cell | None) -> dict[str, Any] | None:
    """A point of two values; null if either is."""
    found = {"lat": None if lat is None else number(lat), "lon": None if lon is None else number(lon)}
    return None if None in found.values() else found
