"""A column's values as JSON text, by Arrow kernels and NumPy over whole buffers.

`json_values` gives the text of each value and says whether it still needs its quotation marks, so that the
caller can put them into the text around it instead of copying the column once more. `exact_values` does the
same for tagged values (`tailrace.model.change`). Nulls stay null.
"""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
_MUST_ESCAPE = np.zeros(256, dtype=bool)
_MUST_ESCAPE[:0x20] = True
_MUST_ESCAPE[[0x22, 0x5C]] = True
# Outside the years 1 to 9999 Arrow's own text of a time is not ISO 8601, and beyond 32767 it is wrong.
_FIRST_DAY, _END_DAY = -719162, 2932897
_DAY = 86_400_000_000


def quoted(values: pa.StringArray) -> pa.StringArray:
    """The texts in quotation marks, nulls kept."""
    return pc.binary_join_element_wise('"', values, '"', "")


def json_values(values: pa.Array) -> tuple[pa.StringArray, bool]:
    """Each value's JSON text; true where the caller must put it in quotation marks."""
    kind = values.type
    if pa.types.is_string(kind):
        return escaped(values), True
    if pa.types.is_floating(kind):
        return _reals(values), False
    if pa.types.is_decimal(kind):
        return _decimals(values), False
    if pa.types.is_binary(kind):
        return base64(values), True
    if pa.types.is_timestamp(kind):
        return _timestamps(values), True
    if pa.types.is_date(kind):
        return _dates(values), True
    return values.cast(pa.string()), False


def escaped(values: pa.StringArray) -> pa.StringArray:
    """Strings with what JSON forbids inside quotation marks escaped; the same array where nothing is."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return values
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)
    start, end = int(offsets[values.offset]), int(offsets[values.offset + len(values)])
    raw = np.frombuffer(data, dtype=np.uint8)[start:end]
    # One comparison first: most texts have only bytes above 0x22 and no backslash.
    if not ((raw < 0x23) & (raw != 0x20) & (raw != 0x21)).any() and not (raw == 0x5C).any():
        return values
    present = np.flatnonzero(np.bincount(raw, minlength=256).astype(bool) & _MUST_ESCAPE)
    for byte in sorted(present.tolist(), key=lambda b: b != 0x5C):
        replacement = _SHORT.get(byte, f"\\u{byte:04x}")
        values = pc.replace_substring(values, chr(byte), replacement)
    return values


def _reals(values: pa.Array) -> pa.StringArray:
    text = values.cast(pa.string())
    # Whole numbers keep a fraction, so that a reader which infers types sees a real.
    whole = pc.and_(pc.equal(values, pc.trunc(values)), pc.invert(pc.match_substring(text, "e")))
    whole = pc.and_(whole, pc.is_finite(values))
    if pc.any(whole).as_py():
        text = pc.binary_join_element_wise(text, pc.if_else(whole, ".0", ""), "")
    if pc.all(pc.is_finite(values)).as_py() is False:
        text = _named(text)
    return text


def _named(text: pa.StringArray) -> pa.StringArray:
    """Numbers JSON has no digits for, as strings."""
    for spelling, name in (
        ("inf", '"Infinity"'),
        ("-inf", '"-Infinity"'),
        ("nan", '"NaN"'),
        ("-nan", '"NaN"'),
    ):
        text = pc.if_else(pc.equal(text, spelling), name, text)
    return text


def _decimals(values: pa.Array) -> pa.StringArray:
    text = values.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    # Arrow writes small decimals as 1E-7. Read the unscaled integers instead and set the point.
    scale = values.type.scale
    unscaled = pa.Array.from_buffers(
        pa.decimal128(38, 0),
        len(values),
        values.buffers(),
        null_count=values.null_count,
        offset=values.offset,
    )
    digits = pc.utf8_lpad(pc.abs(unscaled).cast(pa.string()), scale + 1, "0")
    sign = pc.if_else(pc.less(unscaled, pa.scalar(0, pa.decimal128(38, 0))), "-", "")
    head = pc.utf8_slice_codeunits(digits, 0, -scale)
    tail = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, head, ".", tail, "")


def _timestamps(values: pa.TimestampArray) -> pa.StringArray:
    zone = "Z" if values.type.tz else ""
    micros = values.cast(pa.int64())
    low, high = (pc.min_max(micros)[name].as_py() for name in ("min", "max"))
    if low is not None and (low < _FIRST_DAY * _DAY or high >= _END_DAY * _DAY):
        plain = np.datetime_as_string(
            micros.fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
        )
        text = _with_nulls(plain, values)
    else:
        # Without its zone Arrow formats a timestamp thirty times faster, and UTC needs no conversion.
        plain_text = values.cast(pa.timestamp("us")).cast(pa.string())
        text = pc.binary_replace_slice(plain_text, 10, 11, "T")
    # The fraction always has six digits here, so the point ends the trimming of zeros.
    text = pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")
    return pc.binary_join_element_wise(text, zone, "") if zone else text


def _dates(values: pa.Array) -> pa.StringArray:
    days = values.cast(pa.int32())
    low, high = (pc.min_max(days)[name].as_py() for name in ("min", "max"))
    if low is not None and (low < _FIRST_DAY or high >= _END_DAY):
        plain = np.datetime_as_string(
            days.fill_null(0).to_numpy(zero_copy_only=False).astype("datetime64[D]")
        )
        return _with_nulls(plain, values)
    return values.cast(pa.string())


def _with_nulls(text: npt.NDArray[Any], values: pa.Array) -> pa.StringArray:
    # NumPy counts the sign among a year's four digits; ISO 8601 does not.
    years = pc.replace_substring_regex(pa.array(text.tolist(), pa.string()), r"^-(\d{3})-", r"-0\1-")
    return pc.if_else(values.is_valid(), years, pa.scalar(None, pa.string()))


def base64(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes in base64: every value is padded to whole groups of three, and all are encoded in one call."""
    rows = len(values)
    if rows in (0, values.null_count):
        return pa.nulls(rows, pa.string())
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    begins = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + rows]
    groups = (lengths + 2) // 3
    targets = np.concatenate(([0], np.cumsum(groups * 3)))
    inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    padded = np.zeros(int(targets[-1]), dtype=np.uint8)
    if len(inside):
        raw = np.frombuffer(values.buffers()[2], dtype=np.uint8)
        padded[inside + np.repeat(targets[:-1], lengths)] = raw[
            inside + np.repeat(begins.astype(np.int64), lengths)
        ]
    encoded = np.frombuffer(binascii.b2a_base64(padded.data, newline=False), dtype=np.uint8).copy()
    ends = targets[1:] // 3 * 4
    left = groups * 3 - lengths
    encoded[ends[left >= 1] - 1] = ord("=")
    encoded[ends[left == 2] - 2] = ord("=")
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    text = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(encoded))
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string())) if values.null_count else text


def exact_values(tagged: pa.StringArray) -> pa.StringArray:
    """Tagged values (no nulls) as complete JSON values, quotation marks included."""
    tags, body = split_tags(tagged)
    result = body
    present = set(pc.unique(tags).to_pylist())
    if "r" in present:
        result = pc.if_else(pc.equal(tags, "r"), _named(body), result)
    if present & {"t", "v"}:
        is_text = pc.or_(pc.equal(tags, "t"), pc.equal(tags, "v"))
        result = pc.if_else(is_text, quoted(escaped(body)), result)
    for tag, name in (("b", "$binary"), ("x", "$text")):
        if tag in present:
            wrapped = pc.binary_join_element_wise(f'{{"{name}":"', body, '"}', "")
            result = pc.if_else(pc.equal(tags, tag), wrapped, result)
    return result


def split_tags(tagged: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """The tag letters and the texts after the colon."""
    return pc.utf8_slice_codeunits(tagged, 0, 1), pc.utf8_slice_codeunits(tagged, 2)
