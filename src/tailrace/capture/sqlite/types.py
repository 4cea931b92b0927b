"""Declared SQLite types to column types.

SQLite lets any column hold any value; the declared type is only a preference. The type chosen here is what
the values of a well-behaved column have; a value that does not fit travels as an exact, tagged text
(`decode.py`), so no choice made here can lose one.
"""

from __future__ import annotations

import re

from tailrace.model.table import ColumnType

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)


def column_type(declared: str) -> ColumnType:
    """The column type for a declared type, by SQLite's affinity rules where it has no better meaning."""
    text = declared.strip().upper()
    if text in ("BOOLEAN", "BOOL"):
        return ColumnType("boolean")
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return ColumnType(f"decimal({precision},{scale})")
    if "INT" in text:
        return ColumnType("long")
    if any(word in text for word in ("CHAR", "CLOB", "TEXT")):
        return ColumnType("string")
    if "BLOB" in text:
        return ColumnType("binary")
    if any(word in text for word in ("REAL", "FLOA", "DOUB")):
        return ColumnType("double")
    if text.startswith(("NUMERIC", "DECIMAL")):
        return ColumnType("double")
    return ColumnType("string")
