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
_DATA, _NEWLINE = ord("d"), ord("\n")
_LEAD = np.frombuffer(LEAD, np.uint8)


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
    _headers(data)[starts[:count]] = _LEAD
    return count, int(ends[count - 1])


def _candidates(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where messages may begin, and where each would end then."""
    last = len(data) - HEADER
    behind = np.flatnonzero(data[: max(0, last)] == _NEWLINE) + 1
    starts = np.concatenate(([0] if last >= 0 else [], behind[data[behind] == _DATA])).astype(np.int64)
    if len(starts) and data[0] != _DATA:
        starts = starts[:0]
    lengths = _headers(data)[starts, 1:].view(">u4")[:, 0].astype(np.int64)
    # The length counts itself, and a row has its newline at least. What is shorter never ends.
    return starts, np.where(lengths < HEADER, np.iinfo(np.int64).max, starts + 1 + lengths)


def _headers(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """What every place of the buffer would have for a header: to look up five bytes at once is cheaper."""
    return np.lib.stride_tricks.as_strided(data, (max(0, len(data) - HEADER + 1), HEADER), (1, 1))


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
