"""The server's text of every type, read back as the value: without a server, from texts as it writes them."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.capture.postgres.types import column_type, from_text
from tailrace.model.table import ColumnType


def read(texts: list[str | None], kind: str) -> tuple[list[object], list[str | None] | None]:
    """The values and tags, and the same from bytes and from the middle of a longer array."""
    typed, exact = from_text(pa.array(texts, pa.string()), ColumnType(kind))
    assert typed.type == ColumnType(kind).arrow
    typed.validate(full=True)
    raw = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    again, _ = from_text(raw, ColumnType(kind))
    assert again.equals(typed) or kind in ("double", "float")
    if texts:
        longer = pa.concat_arrays([raw[:1], raw, raw[-1:]]).slice(1, len(raw))
        sliced, tags = from_text(longer, ColumnType(kind))
        assert repr(sliced.to_pylist()) == repr(typed.to_pylist())
        assert (tags is None) == (exact is None)
        if tags is not None and exact is not None:
            assert tags.to_pylist() == exact.to_pylist()
    return typed.to_pylist(), None if exact is None else exact.to_pylist()


def numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


@pytest.mark.parametrize(
    ("oid", "typmod", "name"),
    [
        (16, -1, "boolean"),
        (21, -1, "short"),
        (23, -1, "integer"),
        (20, -1, "long"),
        (700, -1, "float"),
        (701, -1, "double"),
        (17, -1, "binary"),
        (1082, -1, "date"),
        (1114, 3, "timestamp_ntz"),
        (1184, -1, "timestamp"),
        (1700, numeric(38, 10), "decimal(38,10)"),
        (1700, numeric(1, 0), "decimal(1,0)"),
        (1700, -1, "string"),
        (1700, numeric(39, 0), "string"),
        (1700, numeric(5, -2), "string"),
        (1700, numeric(3, 5), "string"),
        (25, -1, "string"),
        (1231, numeric(5, 2), "string"),
        (2950, -1, "string"),
        (3802, -1, "string"),
        (99999, -1, "string"),
    ],
)
def test_a_catalog_type_has_its_column_type(oid: int, typmod: int, name: str) -> None:
    assert column_type(oid, typmod) == ColumnType(name)


def test_a_domain_of_a_domain_has_its_base_type_and_modifier() -> None:
    domains = {70001: (1700, numeric(12, 3)), 70002: (70001, -1), 70003: (25, -1)}
    assert column_type(70002, -1, domains) == ColumnType("decimal(12,3)")
    assert column_type(70003, -1, domains) == ColumnType("string")


def test_numbers_are_exact_at_their_ends() -> None:
    assert read(["-32768", "32767", None], "short")[0] == [-32768, 32767, None]
    assert read(["-2147483648", "2147483647"], "integer")[0] == [-(2**31), 2**31 - 1]
    assert read(["-9223372036854775808", None, "9223372036854775807"], "long")[0] == [
        -(2**63),
        None,
        2**63 - 1,
    ]
    assert read(["t", "f", None], "boolean")[0] == [True, False, None]
    assert read([None, None], "boolean")[0] == [None, None]


@given(st.lists(st.floats(), max_size=20))
def test_a_double_keeps_its_last_bit(numbers: list[float]) -> None:
    texts = [_float_text(number) for number in numbers]
    values, exact = read([*texts, "Infinity", "-Infinity", "NaN", "-0", "5e-324"], "double")
    assert exact is None
    for value, number in zip(values, [*numbers, math.inf, -math.inf, math.nan, -0.0, 5e-324], strict=True):
        assert isinstance(value, float)
        assert (math.isnan(value) and math.isnan(number)) or struct.pack("d", value) == struct.pack(
            "d", number
        )


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_a_float_keeps_its_last_bit(numbers: list[float]) -> None:
    values, _ = read([_float_text(number) for number in numbers], "float")
    assert [struct.pack("f", value) for value in values] == [struct.pack("f", n) for n in numbers]


def _float_text(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return repr(number) if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")


@given(st.lists(st.decimals(min_value=-(10**28) + 1, max_value=10**28 - 1, places=10), max_size=20))
def test_a_decimal_keeps_38_digits(numbers: list[Decimal]) -> None:
    values, exact = read([f"{number:f}" for number in numbers], "decimal(38,10)")
    assert (values, exact) == (numbers, None)


def test_nan_in_a_decimal_is_tagged_and_its_neighbours_are_kept() -> None:
    values, exact = read(["1.50", "NaN", None, "-0.01"], "decimal(5,2)")
    assert values == [Decimal("1.50"), None, None, Decimal("-0.01")]
    assert exact == [None, "v:NaN", None, None]


def test_a_number_too_large_for_its_decimal_is_tagged_never_rounded() -> None:
    values, exact = read(["1.555", "1000.00", "1.5"], "decimal(5,2)")
    assert values == [None, None, Decimal("1.50")]
    assert exact == ["v:1.555", "v:1000.00", None]


def test_dates_that_spark_lacks_are_tagged() -> None:
    odd = ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31"]
    values, exact = read(["2024-02-29", None, "0001-01-01", "9999-12-31", *odd], "date")
    assert values == [date(2024, 2, 29), None, date(1, 1, 1), date(9999, 12, 31), *[None] * 5]
    assert exact == [None] * 4 + [f"v:{text}" for text in odd]


def test_moments_keep_their_microseconds_and_zone() -> None:
    texts = ["2024-02-29 23:59:59.999999", "2024-01-01 00:00:00.5", "0001-01-01 00:00:00", None]
    plain = [
        datetime(2024, 2, 29, 23, 59, 59, 999999),
        datetime(2024, 1, 1, 0, 0, 0, 500000),
        datetime(1, 1, 1),
    ]
    assert read(texts, "timestamp_ntz") == ([*plain, None], None)
    zoned = [None if text is None else text + "+00" for text in texts]
    assert read(zoned, "timestamp") == ([*(m.replace(tzinfo=UTC) for m in plain), None], None)
    assert read(["2024-01-01 05:30:00+05:30"], "timestamp")[0] == [datetime(2024, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(("kind", "zone"), [("timestamp_ntz", ""), ("timestamp", "+00")])
def test_moments_that_spark_lacks_are_tagged(kind: str, zone: str) -> None:
    odd = ["infinity", "-infinity", f"0044-03-15 12:00:00{zone} BC", f"294276-12-31 23:59:59.999999{zone}"]
    values, exact = read([f"2024-01-01 00:00:00{zone}", *odd, None], kind)
    assert [value is None for value in values] == [False, True, True, True, True, True]
    assert exact == [None, *(f"v:{text}" for text in odd), None]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_bytes_come_back(blobs: list[bytes | None]) -> None:
    assert read([None if blob is None else "\\x" + blob.hex() for blob in blobs], "binary") == (blobs, None)


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_text_comes_back(texts: list[str | None]) -> None:
    assert read(texts, "string") == (texts, None)


def test_bytes_that_are_no_text_are_tagged() -> None:
    typed, exact = from_text(pa.array([b"ok", b"\xff\x00", None, b""], pa.binary()), ColumnType("string"))
    assert typed.to_pylist() == ["ok", None, None, ""]
    assert exact is not None
    assert exact.to_pylist() == [None, "x:/wA=", None, None]


@pytest.mark.parametrize(
    ("kind", "text", "good"),
    [
        ("integer", "1.5", "15"),
        ("integer", "2147483648", "2147483647"),
        ("boolean", "true", "t"),
        ("binary", "abc", "\\x00"),
        ("binary", "\\x0", "\\x"),
        ("double", "", "1"),
        ("long", "é", "1"),
        ("date", "01/02/2024", "2024-01-02"),
    ],
)
def test_a_text_that_an_overriding_type_cannot_hold_is_tagged(kind: str, text: str, good: str) -> None:
    values, exact = read([good, text, None], kind)
    assert values[0] is not None
    assert values[1:] == [None, None]
    assert exact == [None, f"v:{text}", None]


def test_bytes_that_are_no_text_are_tagged_in_any_type() -> None:
    typed, exact = from_text(pa.array([b"1", b"\xff", None, b"x"], pa.binary()), ColumnType("long"))
    assert typed.to_pylist() == [1, None, None, None]
    assert exact is not None
    assert exact.to_pylist() == [None, "x:/w==", None, "v:x"]


def test_no_rows_make_an_empty_column_of_the_type() -> None:
    for kind in ("long", "string", "binary", "boolean", "date", "timestamp", "decimal(10,2)", "double"):
        assert read([], kind) == ([], None)
