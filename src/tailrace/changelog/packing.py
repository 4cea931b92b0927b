"""Parts become windows: many small transactions share one, so that reading costs by the row.

A one-row transaction read from an Arrow stream of its own took over a thousand times as long as from a
shared one, and fifty times the disk. A window therefore takes consecutive parts until it is full; readers
cut it at a transaction by the position column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.model.change import ChangeBatch, Part

WINDOW_BYTES = 4 << 20
# A part with its bytes: asking Arrow for them takes longer than all else about a small part.
SizedPart = tuple[Part, int]


@dataclass
class PackedWindow:
    """The batches of a window in the making, and what its parts add up to."""

    rows: int = 0
    bytes: int = 0
    tables: dict[tuple[str, str], list[ChangeBatch]] = field(default_factory=dict)
    verbatim: tuple[ChangeBatch, ...] = ()

    def batches(self) -> Iterator[ChangeBatch]:
        """One batch a table, or those of a part that cannot be merged, as they came."""
        yield from self.verbatim
        for batches in self.tables.values():
            if len(batches) == 1:
                yield batches[0]
            else:
                merged = pa.concat_batches([batch.data for batch in batches])  # type: ignore[attr-defined,unused-ignore]
                yield ChangeBatch(batches[0].table, merged)

    def fits(self, part: Part) -> bool:
        """Whether each table looks the same in the part and in the window: else order would be lost."""
        if self.verbatim:
            return False
        new: dict[tuple[str, str], ChangeBatch] = {}
        for batch in part.batches:
            key = _key(batch)
            held = self.tables.get(key)
            if len(batch) and not _alike(held[0] if held else new.setdefault(key, batch), batch):
                return False
        return True

    def add(self, part: Part, size: int) -> None:
        """Take a part that fits."""
        self.bytes += size
        for batch in part.batches:
            if len(batch):
                self.rows += len(batch)
                self.tables.setdefault(_key(batch), []).append(batch)


def pack(parts: Iterable[SizedPart], window_bytes: int = WINDOW_BYTES) -> Iterator[PackedWindow]:
    """The windows of these parts, in order. A part without rows is in none."""
    window: PackedWindow | None = None
    for part, size in parts:
        if not part.rows:
            continue
        if window is not None and (window.bytes + size > window_bytes or not window.fits(part)):
            yield window
            window = None
        if window is None:
            window = PackedWindow()
            if not window.fits(part):
                batches = tuple(batch for batch in part.batches if len(batch))
                yield PackedWindow(part.rows, size, verbatim=batches)
                window = None
                continue
        window.add(part, size)
    if window is not None:
        yield window


def _key(batch: ChangeBatch) -> tuple[str, str]:
    return batch.table.ref.schema, batch.table.ref.name


def _alike(one: ChangeBatch, other: ChangeBatch) -> bool:
    same_table = one.table is other.table or one.table.fingerprint == other.table.fingerprint
    return same_table and (one.data.schema is other.data.schema or one.data.schema.equals(other.data.schema))
