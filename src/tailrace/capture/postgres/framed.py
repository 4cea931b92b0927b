"""Rows of a COPY, still in the protocol's messages, taken apart all at once: a pure function over a buffer.

Each row is one message: `d`, four bytes of length, the row's text, which ends with a newline. No row has a
newline inside. So every message but the first begins behind a newline, and nearly everything that begins with
a `d` behind one is a message; lengths that lead from each to the next prove it. The five bytes in front of a
row are made a field of its text, `0000` and a tab, because to cut them out would copy everything once more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

HEADER = 5
LEAD = b"0000\t"
_DATA, _NEWLINE, _TAB = ord("d"), ord("\n"), ord("\t")
_WORD = int.from_bytes(LEAD[:4], "big")


def unframe(buffer: bytearray, filled: int) -> tuple[int, int]:
    """Make fields of the headers of the rows that `buffer` begins with; how many rows, and where they end.

    Behind the end is the beginning of a row, or a message of another kind, or nothing.
    """
    data = np.frombuffer(buffer, np.uint8, filled)
    starts, ends = _candidates(data)
    if not len(starts):
        return 0, 0
    false = np.flatnonzero(ends[:-1] != starts[1:])
    if len(false):
        starts, ends = _chain(starts, ends, false)
    count = len(starts) - int(ends[-1] > filled)
    if not count:
        return 0, 0
    begins = starts[:count]
    _words(data, 0)[begins] = _WORD
    data[begins + len(LEAD) - 1] = _TAB
    return count, int(ends[count - 1])


def _candidates(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where messages may begin, and where each would end then."""
    last = len(data) - HEADER
    behind = np.flatnonzero(data[: max(0, last)] == _NEWLINE)
    if last < 0 or data[0] != _DATA:
        return behind[:0], behind[:0]
    starts = np.zeros(len(behind) + 1, np.int64)
    np.add(behind, 1, out=starts[1:])
    likely = data[starts] == _DATA
    if not likely.all():
        starts = starts[likely]
    lengths = _words(data, 1)[starts].astype(np.int64)
    ends = starts + lengths
    ends += 1
    # The length counts itself, and a row has its newline at least. What is shorter never ends.
    short = lengths < HEADER
    if short.any():
        ends[short] = np.iinfo(np.int64).max
    return starts, ends


def _words(data: npt.NDArray[np.uint8], offset: int) -> npt.NDArray[np.uint32]:
    """The four bytes of every place that a header may begin at, so far behind it, as a number."""
    return np.ndarray((max(0, len(data) - HEADER + 1),), ">u4", data, offset, (1,))


def _chain(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], false: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Those that lead from one to the next. `false` are the places where the next candidate is not."""
    keep = np.ones(len(starts), np.bool_)
    for place in false.tolist():
        if not keep[place]:
            continue
        following = int(np.searchsorted(starts, ends[place]))
        if following == len(starts) or starts[following] != ends[place]:
            keep[place + 1 :] = False
            break
        keep[place + 1 : following] = False
    return starts[keep], ends[keep]
