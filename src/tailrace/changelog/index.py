"""The published segments by position: ranges, limits and plans, without holding their contents.

Only a summary of each segment stays in memory; footers and boundaries are read when a range begins or ends
inside of a segment, and a few are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow.fs as pafs

from tailrace.changelog.segment import (
    Boundaries,
    Footer,
    SegmentName,
    Window,
    WindowRef,
    damaged,
    read_boundaries,
    read_footer,
)
from tailrace.model.errors import LogLost

_KEPT = 8
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Summary:
    """What must be known of every segment. `size` is what it takes on disk, spill files included."""

    name: SegmentName
    rows: int
    bytes: int
    size: int
    created: float
    spills: tuple[str, ...]

    @classmethod
    def of(cls, footer: Footer, file_size: int) -> Summary:
        """The summary of a segment with this footer and file size."""
        size = file_size + sum(footer.spills.values())
        return cls(footer.name, footer.rows, footer.bytes, size, footer.created, tuple(footer.spills))

    @property
    def files(self) -> tuple[str, ...]:
        """Its file names, in the order in which they may be removed."""
        return (str(self.name), *self.spills)


class SegmentIndex:
    """Contiguous segments in order. Not thread-safe: the changelog holds its lock."""

    def __init__(self, fs: pafs.FileSystem, root: str, summaries: list[Summary]) -> None:
        self._fs = fs
        self._root = root
        self.segments = summaries
        self._footers: OrderedDict[SegmentName, Footer] = OrderedDict()
        self._boundaries: OrderedDict[SegmentName, Boundaries] = OrderedDict()

    def add(self, footer: Footer, boundaries: Boundaries, file_size: int) -> None:
        """A segment was published."""
        self.segments.append(Summary.of(footer, file_size))
        _keep(self._footers, footer.name, footer)
        _keep(self._boundaries, footer.name, boundaries)

    def forget(self, summaries: list[Summary]) -> None:
        """Segments were removed."""
        gone = {summary.name for summary in summaries}
        self.segments = [summary for summary in self.segments if summary.name not in gone]
        for name in gone:
            self._footers.pop(name, None)
            self._boundaries.pop(name, None)

    def rows_after(self, start: int) -> int:
        """Rows of every transaction after `start`."""
        at = self._first_after(start)
        total = sum(summary.rows for summary in self.segments[at:])
        return total - self._before(at, start)[0]

    def bytes_after(self, start: int) -> int:
        """Bytes of every segment that has something after `start`."""
        at = self._first_after(start)
        return sum(summary.bytes for summary in self.segments[at:])

    def bound(self, start: int, *, max_rows: int | None, max_bytes: int | None, up_to: int) -> int:
        """The furthest transaction end in (start, up_to] within the limits, but one transaction at least."""
        at = self._first_after(start)
        rows, size = self._before(at, start)
        rows_left = np.iinfo(np.int64).max if max_rows is None else max_rows + rows
        bytes_left = np.iinfo(np.int64).max if max_bytes is None else max_bytes + size
        reached = start
        for summary in self.segments[at:]:
            whole = summary.rows <= rows_left and summary.bytes <= bytes_left and summary.name.end <= up_to
            if not whole:
                ends = self._boundaries_of(summary)
                count = min(
                    int(np.searchsorted(ends.rows, rows_left, side="right")),
                    int(np.searchsorted(ends.bytes, bytes_left, side="right")),
                    int(np.searchsorted(ends.position, up_to, side="right")),
                )
                if count and int(ends.position[count - 1]) > reached:
                    return int(ends.position[count - 1])
                if reached > start:
                    return reached
                first = int(ends.position[int(np.searchsorted(ends.position, start, side="right"))])
                return first if first <= up_to else start
            reached = summary.name.end
            rows_left -= summary.rows
            bytes_left -= summary.bytes
        return reached

    def boundaries(self, start: int, end: int) -> Boundaries:
        """The transaction ends in (start, end], where `start` is the start of a segment that has both."""
        ends = self._boundaries_of(self.segments[self._first_after(start)])
        count = int(np.searchsorted(ends.position, end, side="right"))
        return Boundaries(ends.position[:count], ends.rows[:count], ends.bytes[:count])

    def plan(self, start: int, end: int) -> Iterator[WindowRef]:
        """Where the rows of (start, end] lie, in order."""
        if start >= end:
            return
        at = self._first_after(start)
        for summary in self.segments[at:]:
            if summary.name.start >= end:
                return
            if summary.rows:
                yield from self._plan_segment(summary, start, end)

    def _plan_segment(self, summary: Summary, start: int, end: int) -> Iterator[WindowRef]:
        footer = self._footer_of(summary)
        after, up_to = max(start, summary.name.start), min(end, summary.name.end)
        low, high = 0, summary.rows
        if (after, up_to) != (summary.name.start, summary.name.end):
            ends = self._boundaries_of(summary)
            low, high = ends.up_to(after)[0], ends.up_to(up_to)[0]
        done = 0
        for window in footer.windows:
            # Windows are in order, so the rows of the range are consecutive over them.
            rows = min(done + window.rows, high) - max(done, low)
            done += window.rows
            if rows > 0:
                yield _refer(summary.name, window, rows, after, up_to)

    def _first_after(self, start: int) -> int:
        if self.segments and start < self.segments[0].name.start:
            raise later(self._root, self.segments[0].name.start, start)
        return bisect_right(self.segments, start, key=lambda summary: summary.name.end)

    def _before(self, at: int, start: int) -> tuple[int, int]:
        """Rows and bytes of segment `at` up to `start`."""
        if at == len(self.segments) or start <= self.segments[at].name.start:
            return 0, 0
        return self._boundaries_of(self.segments[at]).up_to(start)

    def _footer_of(self, summary: Summary) -> Footer:
        if (kept := self._footers.get(summary.name)) is not None:
            return kept
        path = f"{self._root}/{summary.name}"
        footer = read_footer(self._fs, path)
        if footer is None:
            raise damaged(path)
        return _keep(self._footers, summary.name, footer)

    def _boundaries_of(self, summary: Summary) -> Boundaries:
        if (kept := self._boundaries.get(summary.name)) is not None:
            return kept
        boundaries = read_boundaries(self._fs, f"{self._root}/{summary.name}", self._footer_of(summary))
        return _keep(self._boundaries, summary.name, boundaries)


def later(root: str, first: int, start: int) -> LogLost:
    """The error of who asks for what was there before the changelog."""
    return LogLost(
        f"the changelog begins after position {first}, and {start} is asked for",
        remedy="start the pipeline with a new checkpoint and a new snapshot",
        place=root,
    )


def _keep(kept: OrderedDict[SegmentName, Kept], name: SegmentName, value: Kept) -> Kept:
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
    return value


def _refer(name: SegmentName, window: Window, rows: int, after: int, up_to: int) -> WindowRef:
    return WindowRef(
        file=str(name),
        after=after,
        up_to=up_to,
        rows=rows,
        bytes=window.bytes * rows // window.rows,
        cut=rows < window.rows,
        blocks=window.blocks,
    )
