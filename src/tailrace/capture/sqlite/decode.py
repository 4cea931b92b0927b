"""Values as SQLite returns them to Arrow columns: pure functions, column by column.

`Cells` is one column of some rows: an Arrow array of the column's type, and, where values did not fit, an
array of tagged texts for those (see `model/change.py`). The usual case is decided by the set of Python
types of a whole column and costs no Python per value; everything else goes value by value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.sqlite.scalars import DAY, MOMENT, fitting
from tailrace.model.table import ColumnType

_NONE = type(None)
_STRING = pa.string()


class InvalidText(bytes):
    """A TEXT value that is not valid UTF-8."""


def lenient_text(raw: bytes) -> str | InvalidText:
    """A text factory that never fails."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return InvalidText(raw)


@dataclass(frozen=True)
class Cells:
    """One column of some rows."""

    typed: pa.Array
    exact: pa.Array | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return int(self.typed.nbytes) + (0 if self.exact is None else int(self.exact.nbytes))


def tag(value: object) -> str:
    """A value as the exact text of `model/change.py`."""
    match value:
        case InvalidText():
            return "x:" + base64.b64encode(value).decode()
        case int():
            return f"i:{value}"
        case float():
            return f"r:{value!r}"
        case str():
            return f"t:{value}"
        case bytes():
            return "b:" + base64.b64encode(value).decode()
    return f"v:{value}"


def column(values: Sequence[Any], kind: ColumnType) -> Cells:
    """The values of one column."""
    types = set(map(type, values))
    types.discard(_NONE)
    if not types:
        return Cells(pa.nulls(len(values), kind.arrow))
    fast = _FAST.get(kind.name.partition("(")[0])
    if fast is not None and (typed := fast(values, types, kind.arrow)) is not None:
        return Cells(typed)
    if types == {int} and kind.name == "string":
        # A DATETIME column full of epoch seconds is common enough to deserve columns too.
        digits = pa.array(values, pa.int64()).cast(_STRING)
        return Cells(
            pa.nulls(len(values), _STRING),
            pc.binary_join_element_wise(pa.scalar("i:"), digits, pa.scalar("")),
        )
    return _slow(values, kind)


def _slow(values: Sequence[Any], kind: ColumnType) -> Cells:
    fit = fitting(kind)
    typed = [None if value is None else fit(value) for value in values]
    exact = [
        None if value is None or fitted is not None else tag(value)
        for value, fitted in zip(values, typed, strict=True)
    ]
    array = pa.array(typed, kind.arrow)
    return Cells(array) if not any(exact) else Cells(array, pa.array(exact, _STRING))


def _only(python: type) -> Callable[[Sequence[Any], set[type], pa.DataType], pa.Array | None]:
    def fast(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
        return pa.array(values, arrow) if types == {python} else None

    return fast


def _double(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
    if types == {float}:
        return pa.array(values, arrow)
    if types == {int}:
        whole = pa.array(values, pa.int64())
        limits = pc.min_max(whole).as_py()
        if limits["min"] >= -(2**53) and limits["max"] <= 2**53:
            return whole.cast(arrow)
    return None


def _ranged(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
    try:
        return pa.array(values, arrow) if types == {int} else None
    except (pa.ArrowInvalid, OverflowError):
        return None


def _temporal(pattern: str) -> Callable[[Sequence[Any], set[type], pa.DataType], pa.Array | None]:
    def fast(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
        if types != {str}:
            return None
        texts = pa.array(values, _STRING)
        if not pc.all(pc.match_substring_regex(texts, f"^{pattern}$")).as_py():
            return None
        try:
            if pa.types.is_date(arrow):
                return texts.cast(arrow)
            moments = texts.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            return None
        return moments if arrow.tz is None else pc.assume_timezone(moments, arrow.tz)

    return fast


def _boolean(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
    if types == {int} and set(values) <= {0, 1, None}:
        return pa.array(values, pa.int64()).cast(arrow)
    return None


def _decimal(values: Sequence[Any], types: set[type], arrow: pa.DataType) -> pa.Array | None:
    precision, scale = arrow.precision, arrow.scale
    if scale > 15 or not types <= {int, float}:
        return None
    raw = pa.array([float(v) if type(v) is int else v for v in values] if len(types) > 1 else values)
    numbers = raw.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    unit = float(10**scale)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(numbers * unit)
        # Below 10^15 a decimal text that reads back as the double is the double's shortest one.
        fits = (np.abs(scaled) < min(1e15, 10.0**precision)) & (scaled / unit == numbers)
    if not fits.all():
        return None
    words = np.empty((len(scaled), 2), dtype="<i8")
    words[:, 0] = scaled.astype(np.int64)
    words[:, 1] = words[:, 0] >> 63
    whole = pa.Array.from_buffers(arrow, len(scaled), [None, pa.py_buffer(words)])
    return whole if raw.null_count == 0 else pc.if_else(raw.is_null(), pa.scalar(None, arrow), whole)


_FAST: dict[str, Callable[[Sequence[Any], set[type], pa.DataType], pa.Array | None]] = {
    "long": _only(int),
    "double": _double,
    "string": _only(str),
    "binary": _only(bytes),
    "boolean": _boolean,
    "decimal": _decimal,
    "integer": _ranged,
    "short": _ranged,
    "date": _temporal(DAY),
    "timestamp": _temporal(MOMENT),
    "timestamp_ntz": _temporal(MOMENT),
}


def decode(rows: Sequence[Sequence[Any]], kinds: Sequence[ColumnType]) -> list[Cells]:
    """Rows as fetched, to columns."""
    if not rows:
        return [Cells(pa.nulls(0, kind.arrow)) for kind in kinds]
    return [column(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]


def concat(parts: Sequence[Cells]) -> Cells:
    """Several runs of rows of one column as one."""
    if len(parts) == 1:
        return parts[0]
    typed = pa.concat_arrays([part.typed for part in parts])
    if all(part.exact is None for part in parts):
        return Cells(typed)
    return Cells(
        typed,
        pa.concat_arrays(
            [pa.nulls(len(part.typed), _STRING) if part.exact is None else part.exact for part in parts]
        ),
    )
