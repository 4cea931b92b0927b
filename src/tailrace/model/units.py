"""Durations, sizes and limits as people write them: `10s`, `64MB`, `256MB, 30s`, `80%`.

What cannot be read is a ValueError whose text goes on after the name of the key or option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_CHANGES = re.compile(r"(\d+)\s*changes?", re.IGNORECASE)
_SHARE = re.compile(r"(\d+)\s*(%?)")


def parse_duration(value: Any) -> float:
    """Seconds, from `10s`, `500ms`, `5m`, `1h` or `7d`."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match[1]) * _SECONDS[match[2]]
    raise ValueError('must be a duration with its unit: "500ms", "10s", "5m", "1h" or "7d"')


def parse_size(value: Any) -> int:
    """Bytes, from a whole number or from `512KB`, `64MB`, `4GB`; a KB has 1024 bytes, as Spark counts."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        size = int(float(match[1]) * _BYTES[(match[2] or "").upper()])
        if size > 0:
            return size
    raise ValueError('must be a size above zero: "512KB", "64MB", "4GB", or a number of bytes')


def show_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back."""
    for unit in ("d", "h", "m", "s"):
        if seconds and (seconds / _SECONDS[unit]).is_integer():
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    milliseconds = f"{seconds * 1000:.6f}".rstrip("0").rstrip(".")
    return f"{milliseconds}ms" if seconds else "0s"


def show_size(size: int) -> str:
    """The shortest text that `parse_size` reads back."""
    for unit in ("T", "G", "M", "K"):
        if size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}B"
    return f"{size}B"


@dataclass(frozen=True)
class Limit:
    """How far something may be behind, in each measure that has a limit."""

    bytes: int | None = None
    seconds: float | None = None
    changes: int | None = None

    def __str__(self) -> str:
        """The text that `parse_limit` reads back."""
        parts = [
            show_size(self.bytes) if self.bytes is not None else None,
            show_duration(self.seconds) if self.seconds is not None else None,
            f"{self.changes} changes" if self.changes is not None else None,
        ]
        return ", ".join(part for part in parts if part is not None)


@dataclass(frozen=True)
class Share:
    """So many of something, or so many hundredths of what there can be."""

    count: int
    percent: bool = False

    def of(self, most: int | None) -> float | None:
        """The number, where there can be `most`; None where that is needed and not known."""
        if not self.percent:
            return self.count
        return None if most is None else self.count * most / 100

    def __str__(self) -> str:
        """The text that `parse_share` reads back."""
        return f"{self.count}%" if self.percent else str(self.count)


def parse_limit(value: Any) -> Limit:
    """A limit from `256MB`, `30s` or `10000 changes`, or several of them with commas between."""
    found: dict[str, Any] = {}
    for part in value.split(",") if isinstance(value, str) else [None]:
        name, amount = _measured(part)
        if name is None or not amount or name in found:
            raise ValueError(
                'must be a size, a duration, a number of changes, or several: "256MB", "30s", "500 changes",'
                ' "256MB, 30s"'
            )
        found[name] = amount
    return Limit(**found)


def parse_lag(value: Any) -> Limit:
    """The same without changes, for what counts none."""
    limit = parse_limit(value)
    if limit.changes is not None:
        raise ValueError('must be a size, a duration or both: "256MB", "30s", "256MB, 30s"')
    return limit


def _measured(part: Any) -> tuple[str | None, Any]:
    if not isinstance(part, str):
        return None, None
    if match := _CHANGES.fullmatch(part.strip()):
        return "changes", int(match[1])
    for name, parse in (("seconds", parse_duration), ("bytes", parse_size)):
        # A bare number could be either.
        if not part.strip().isdigit():
            try:
                return name, parse(part)
            except ValueError:
                continue
    return None, None


def parse_share(value: Any) -> Share:
    """A number of connections, or a part of all that there can be: `50`, `80%`."""
    match = _SHARE.fullmatch(str(value).strip()) if not isinstance(value, bool | float) else None
    if match is None or not int(match[1]) or (match[2] and int(match[1]) > 100):
        raise ValueError('must be a whole number above zero, or a part of what there can be: 50, "80%"')
    return Share(int(match[1]), bool(match[2]))
