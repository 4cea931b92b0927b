"""Does one value fit a column's type? The slow path of `decode.py`, for columns of mixed values.

Each function returns the value as pyarrow takes it for that type, or None where it does not fit exactly.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tailrace.model.table import ColumnType

# The year 0000 is left out: Python's dates begin with 0001.
DAY = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
MOMENT = DAY + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_DATE = re.compile(DAY)
_TIMESTAMP = re.compile(MOMENT + r"(Z|[+-][0-9]{2}:[0-9]{2})?")
_BITS = {"short": 15, "integer": 31, "long": 63}


def fitting(kind: ColumnType) -> Callable[[Any], Any]:
    """The function that fits values to this type."""
    if (bits := _BITS.get(kind.name)) is not None:
        return lambda value: value if type(value) is int and -(1 << bits) <= value < 1 << bits else None
    if kind.name.startswith("decimal"):
        arrow = kind.arrow
        return lambda value: _decimal(value, arrow.precision, arrow.scale)
    return _BY_NAME[kind.name]


def _exactly(python: type) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is python else None


def _double(value: Any) -> float | None:
    if type(value) is float:
        return value
    if type(value) is int and int(float(value)) == value:
        return float(value)
    return None


def _float(value: Any) -> float | None:
    number = _double(value)
    if number is None or math.isinf(number):
        return number
    try:
        return number if struct.unpack("f", struct.pack("f", number))[0] == number else None
    except OverflowError:
        return None


def _boolean(value: Any) -> bool | None:
    return bool(value) if type(value) is int and value in (0, 1) else None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    if type(value) not in (int, float) or (type(value) is float and not math.isfinite(value)):
        return None
    if value == 0:
        return Decimal(0)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - finite, as checked above
    if -exponent > scale or len(digits) + exponent > precision - scale:
        return None
    return Decimal((sign, digits, exponent))


def _date(value: Any) -> date | None:
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return None
    return None


def _six_digits(value: str) -> str:
    # fromisoformat takes three or six digits of a second only.
    return re.sub(r"\.([0-9]+)", lambda match: "." + match[1].ljust(6, "0"), value)


def _moment(value: Any) -> datetime | None:
    if type(value) is str and _TIMESTAMP.fullmatch(value):
        try:
            return datetime.fromisoformat(_six_digits(value))
        except ValueError:
            return None
    return None


def _timestamp(value: Any) -> datetime | None:
    moment = _moment(value)
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None


def _timestamp_ntz(value: Any) -> datetime | None:
    moment = _moment(value)
    return None if moment is None or moment.tzinfo is not None else moment


_BY_NAME: dict[str, Callable[[Any], Any]] = {
    "string": _exactly(str),
    "binary": _exactly(bytes),
    "boolean": _boolean,
    "double": _double,
    "float": _float,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
