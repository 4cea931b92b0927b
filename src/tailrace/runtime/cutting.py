"""Ending a group of transactions where an earlier life ended one.

A mechanism that cannot tell transactions apart (SQLite) delivers everything between two looks as one group,
whose version is that of its last log row, and numbers the rows by the same count. When a range must be
captured again, the looks fall elsewhere: the group that has the range's end in its middle is cut there.

Only such a mechanism is cut (`Capabilities.regroups`). Where transactions are real a range may have ended
between two of them, at a position that does not come again, and the changelog finds it there all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import META, ChangeBatch, Part

_NAMES = [field.name for field in META]
_POSITION, _XID = _NAMES.index("position"), _NAMES.index("xid")


class Cutter:
    """Cuts the first group that reaches beyond `cut`, if it is not reached yet."""

    def __init__(self, cut: int | None, at: int) -> None:
        self._cut = cut if cut is not None and cut > at else None

    def pieces(self, part: Part) -> Iterator[Part]:
        """The part, or what lies before the cut and what lies after it."""
        cut = self._cut
        if cut is None or part.position.version <= cut or part.ends is not None:
            if cut is not None and part.complete and part.position.version >= cut:
                self._cut = None
            yield part
            return
        version = part.position.version
        before = tuple(kept for batch in part.batches if len(kept := _up_to(batch, cut, version)))
        after = tuple(kept for batch in part.batches if len(kept := _beyond(batch, cut)))
        crossed = part.complete or bool(after)
        yield Part(before, part.position.at(cut), crossed)
        if crossed:
            self._cut = None
            yield Part(after, part.position, part.complete)


def _up_to(batch: ChangeBatch, cut: int, version: int) -> ChangeBatch:
    rows = batch.data.filter(pc.less_equal(batch.data.column("seq"), pa.scalar(cut)))
    position = pa.array(np.full(rows.num_rows, cut, np.int64))
    # A group that was named after its version is named after its new one.
    named = pc.equal(rows.column("xid"), pa.scalar(str(version)))
    xid = pc.if_else(named, pa.scalar(str(cut)), rows.column("xid"))
    rows = rows.set_column(_POSITION, META[_POSITION], position).set_column(_XID, META[_XID], xid)
    return ChangeBatch(batch.table, rows)


def _beyond(batch: ChangeBatch, cut: int) -> ChangeBatch:
    return ChangeBatch(batch.table, batch.data.filter(pc.greater(batch.data.column("seq"), pa.scalar(cut))))
