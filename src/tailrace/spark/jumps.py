"""Jumps over a gap of the log, remembered: the batch that crosses one has nothing to read before its end.

Durable, because Spark asks for the tasks of that batch after it has logged its offsets, and once more after
a crash. Any other batch that begins before the changelog does has lost log.
"""

from __future__ import annotations

import pyarrow.fs as pafs

from tailrace.changelog.log import Changelog
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.position import Position

KIND = "jump"
FILE = "jump.json"


def remember(fs: pafs.FileSystem, root: str, start: int, end: Position) -> None:
    """The log between is given up. Said before the changelog begins at `end`."""
    write_state(fs, f"{root}/{FILE}", KIND, {"source": end.source, "start": start, "end": end.version})


def crossed(fs: pafs.FileSystem, root: str, changelog: Changelog, start: int) -> int:
    """Where a batch's log begins: at `start`, or behind the gap that was jumped over there."""
    begins = changelog.stats().start or 0
    if start >= begins:
        return start
    jump = {"source": changelog.source, "start": start, "end": begins}
    return begins if read_state(fs, f"{root}/{FILE}", KIND) == jump else start
