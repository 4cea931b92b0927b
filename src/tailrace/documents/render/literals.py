"""Values of an index schema as JSON text and as texts of a filter."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from tailrace.model.errors import ConfigError


def json_text(value: Any) -> str:
    """A constant or default as JSON; numbers keep their digits."""
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else "null"
    if isinstance(value, float) and value - value != 0:
        return "null"
    if isinstance(value, dict):
        inside = (f"{json_text(str(name))}:{json_text(one)}" for name, one in value.items())
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(json_text, value)) + "]"
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(plain_text(value), ensure_ascii=False)


def plain_text(value: Any) -> str:
    """The text of a value as documents show it, without quotation marks."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat()
        text = text.rstrip("0") if "." in text else text
        return text if value.tzinfo is None else text + (value.strftime("%z") or "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def number_text(value: Any, place: str) -> str:
    """The digits of a number that a filter compares with."""
    try:
        number = Decimal(str(int(value)) if isinstance(value, bool) else str(value).strip())
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise ConfigError(f"a filter compares {place} with something that is not a number")
    return format(number, "f")
