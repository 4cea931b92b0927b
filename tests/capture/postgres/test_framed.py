"""Rows out of the messages of a COPY, a buffer at a time."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.capture.postgres.framed import LEAD, unframe

ROW = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"").replace(b"\0", b"") + b"\n")


def messages(rows: list[bytes]) -> bytearray:
    return bytearray(b"".join(b"d" + struct.pack("!I", len(row) + 4) + row for row in rows))


@given(st.lists(ROW), st.integers(0))
@example([b"data\n", b"d\n", b"x\n"], 0)
@example([b"dddddd\n", b"dd345\n"], 3)
def test_the_whole_rows_of_a_buffer_are_found_wherever_it_ends(rows: list[bytes], cut: int) -> None:
    buffer = messages(rows)
    filled = len(buffer) - cut % (len(buffer) + 1)
    expected = next(n for n in range(len(rows), -1, -1) if len(messages(rows[:n])) <= filled)
    count, end = unframe(buffer, filled)
    assert count == expected
    assert buffer[:end] == b"".join(LEAD + row for row in rows[:count])


def test_a_length_that_looks_like_the_end_of_a_row_is_none() -> None:
    # Ten is a newline to who does not count, and the row behind it begins like a message.
    rows = [b"dx\t3\n", b"d1234\n", b"dd\tdd\n"]
    assert len(rows[1]) + 4 == 10
    buffer = messages(rows)
    assert unframe(buffer, len(buffer)) == (3, len(b"".join(rows)) + 15)


def test_what_follows_the_rows_is_left_alone() -> None:
    ended = b"c\0\0\0\4" + b"C\0\0\0\x0bCOPY 1\0" + b"Z\0\0\0\5T"
    buffer = messages([b"1\n"]) + ended
    count, end = unframe(buffer, len(buffer))
    assert (count, bytes(buffer[end:])) == (1, ended)
    buffer = bytearray(ended)
    assert unframe(buffer, len(buffer)) == (0, 0)
    assert buffer == ended
