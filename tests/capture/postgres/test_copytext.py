"""COPY's text format is read exactly, whatever bytes the values have."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.capture.postgres.copytext import CopyText
from tailrace.model.errors import DataError

_LETTERS = {8: b"b", 12: b"f", 10: b"n", 13: b"r", 9: b"t", 11: b"v"}
_AWKWARD = [bytes([code]) for code in b"\\\\\\\t\n\r\b\f\vbfnrtvNx.\"',"] + [
    b"\xef\xbb\xbf",
    b"\xff",
    b"\x01",
]

values = st.none() | st.lists(
    st.sampled_from(_AWKWARD) | st.integers(1, 255).map(lambda code: bytes([code])), max_size=8
).map(b"".join)


def escaped(value: bytes | None) -> bytes:
    """A value as the server writes it (CopyAttributeOutText in its sources)."""
    if value is None:
        return b"\\N"
    return b"".join(
        b"\\" + _LETTERS[code] if code in _LETTERS else b"\\\\" if code == 0x5C else bytes([code])
        for code in value
    )


def written(rows: list[tuple[bytes | None, ...]]) -> bytes:
    return b"".join(b"\t".join(escaped(value) for value in row) + b"\n" for row in rows)


def back(rows: list[tuple[bytes | None, ...]], columns: int) -> list[tuple[bytes | None, ...]]:
    read = CopyText(columns).read(written(rows))
    for column in read:
        column.validate(full=True)
    return list(zip(*(column.to_pylist() for column in read), strict=True))


@settings(deadline=None)
@given(st.lists(st.tuples(values, values, values), max_size=30))
@example([(b"\xef\xbb\xbf\xef\xbb\xbf", None, b""), (b"\\N", b"\\.", b"\\")])
def test_every_value_comes_back(rows: list[tuple[bytes | None, ...]]) -> None:
    assert back(rows, 3) == rows


@settings(deadline=None)
@given(st.lists(st.tuples(values), max_size=30))
@example([(b"",), (b"",)])
@example([(b"\xef\xbb\xbf",)])
@example([(None,), (b"",)])
def test_a_single_column_has_empty_lines_and_keeps_them(rows: list[tuple[bytes | None, ...]]) -> None:
    assert back(rows, 1) == rows


def test_every_byte_comes_back_alone_and_after_a_backslash() -> None:
    rows: list[tuple[bytes | None, ...]] = [(bytes([code]), b"\\" + bytes([code])) for code in range(1, 256)]
    assert back(rows, 2) == rows


def test_a_row_larger_than_a_block_is_read() -> None:
    rows: list[tuple[bytes | None, ...]] = [(b"\\" * 3_000_000, b"x" * 5_000_000), (b"", None)]
    assert back(rows, 2) == rows


@pytest.mark.parametrize("columns", [60, 200, 1600])
def test_many_columns_come_back(columns: int) -> None:
    rows = [tuple(None if c % 7 == r else b"%d\\%d" % (r, c) for c in range(columns)) for r in range(20)]
    assert back(rows, columns) == rows


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(DataError, match="another number of columns"):
        CopyText(3).read(b"1\t2\n")


@pytest.mark.parametrize("data", [b"\\\n", b"a\\\tb\n", b"a\\\\\\\t\\tb\n", b"\\\tx\n"])
def test_half_an_escape_is_refused_and_reaches_no_other_value(data: bytes) -> None:
    with pytest.raises(DataError, match="half an escape"):
        CopyText(1 + data.count(b"\t")).read(data)
