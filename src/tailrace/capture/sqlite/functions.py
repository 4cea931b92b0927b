"""Functions that SQLite lacks and the SQL of documents needs: `install` gives them to a connection.

They are called where SQLite has no answer of its own (base64, SHA-256, letters outside ASCII, unusual
timestamps and reals), once for a group of rows (sums) or once a document, never for what every row has.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The Julian day of the epoch's midnight.
_JULIAN = 2440587.5
_HALVES = 1_000_000_000


def install(connection: sqlite3.Connection) -> None:
    """Register all of them."""
    if sqlite3.sqlite_version_info < (3, 41):
        connection.create_function("unhex", 1, _unhex, deterministic=True)
    for name, (count, function) in _FUNCTIONS.items():
        connection.create_function(name, count, function, deterministic=True)


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _base64(value: Any) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()


def _text(raw: bytes | None) -> str | None:
    """The text of bytes that should be UTF-8: what is none of it is replaced."""
    return None if raw is None else raw.decode(errors="replace")


def _key(raw: bytes | None) -> str | None:
    """The text of bytes that should be UTF-8; base64 where they are not, so that no two are alike."""
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return _base64(raw)


def _sha256(value: str | None) -> str | None:
    return None if value is None else hashlib.sha256(value.encode()).hexdigest()


def _lower(value: str | None) -> str | None:
    return None if value is None else value.lower()


def _upper(value: str | None) -> str | None:
    return None if value is None else value.upper()


def _real(value: float | None) -> str | None:
    """The shortest text that is this number and no other."""
    return None if value is None or not math.isfinite(value) else repr(value)


def _moment(value: Any) -> str | None:
    """An ISO 8601 timestamp: text as it is but for its zone, whole numbers from the epoch, others Julian."""
    try:
        if isinstance(value, int):
            return _written(_EPOCH + timedelta(seconds=value)) + "Z"
        if isinstance(value, float):
            # Julian days are exact to some tens of microseconds only.
            milliseconds = round((value - _JULIAN) * 86_400_000)
            return _written(_EPOCH + timedelta(milliseconds=milliseconds)) + "Z"
        return _iso(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _iso(value: str) -> str | None:
    found = _MOMENT.fullmatch(value)
    if found is None:
        return None
    day, minute, second, fraction, zone = found.groups()
    clock = f"{minute or '00:00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    moment = datetime.fromisoformat(f"{day}T{clock}{(zone or '').replace('Z', '+00:00')}")
    return _written(moment) if zone is None else _written(moment.astimezone(UTC)) + "Z"


def _written(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text


def _day(value: Any) -> str | None:
    """An ISO 8601 date: the first part of a text, else the day of a timestamp."""
    if not isinstance(value, str):
        moment = _moment(value)
        return None if moment is None else moment[:10]
    try:
        return None if _MOMENT.fullmatch(value) is None else date.fromisoformat(value[:10]).isoformat()
    except ValueError:
        return None


def _whole(high: int, low: int) -> int:
    return high * _HALVES + low


def _sum(high: int | None, low: int | None, real: float | None, scale: int) -> str | None:
    """A sum of whole numbers in two halves, and of reals beside it, as a number's text."""
    if high is None or low is None:
        return _real(real)
    whole = _whole(high, low)
    if real is not None:
        return _real(float(Fraction(whole, 10**scale)) + real)
    if not scale:
        return str(whole)
    digits = str(abs(whole)).rjust(scale + 1, "0")
    return f"{'-' if whole < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _average(high: int | None, low: int | None, real: float | None, scale: int, count: int) -> str | None:
    if not count:
        return None
    whole = 0.0 if high is None or low is None else float(Fraction(_whole(high, low), 10**scale))
    return _real((whole + (real or 0.0)) / count)


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "tailrace_base64": (1, _base64),
    "tailrace_sha256": (1, _sha256),
    "tailrace_text": (1, _text),
    "tailrace_key": (1, _key),
    "tailrace_lower": (1, _lower),
    "tailrace_upper": (1, _upper),
    "tailrace_real": (1, _real),
    "tailrace_moment": (1, _moment),
    "tailrace_day": (1, _day),
    "tailrace_sum": (4, _sum),
    "tailrace_average": (5, _average),
}
