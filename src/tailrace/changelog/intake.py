"""What was appended and is not published yet, in bounded memory.

Parts of the open transaction wait in `Intake.open`; once they are large they go to spill files. A complete
transaction moves to the pending ones, which `publish` writes as one segment. Nothing here is forgotten
before the file that holds it is durable, so every write can be tried again.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow.fs as pafs

from tailrace.changelog import filesystem
from tailrace.changelog.packing import PackedWindow, SizedPart, pack
from tailrace.changelog.segment import (
    MAGIC,
    SPILL_MAGIC,
    SPILL_SUFFIX,
    Block,
    Boundaries,
    Footer,
    SegmentName,
    Tables,
    Window,
    encode_block,
    encode_boundaries,
)
from tailrace.model.change import Ends, Part


@dataclass
class Transaction:
    """A transaction that is still being delivered, or a complete one that was spilled."""

    position: int
    parts: list[SizedPart] = field(default_factory=list)
    held: int = 0
    rows: int = 0
    bytes: int = 0
    spilled: list[Window] = field(default_factory=list)
    spills: dict[str, int] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)

    def add(self, part: Part) -> None:
        """Take a part into memory."""
        size = part.nbytes
        self.parts.append((part, size))
        self.held += size
        self.bytes += size
        self.rows += part.rows

    def spill(self, fs: pafs.FileSystem, root: str, epoch: int) -> None:
        """Move the parts in memory to a new spill file."""
        name = f"{epoch:08d}-{uuid.uuid4().hex}{SPILL_SUFFIX}"
        file = filesystem.AtomicFile(fs, f"{root}/{name}")
        try:
            file.write(SPILL_MAGIC)
            windows = [_write_window(file, packed, self.tables, name) for packed in pack(self.parts)]
            file.publish()
        except BaseException:
            file.discard()
            raise
        self.spilled += windows
        self.spills[name] = file.size
        self.parts = []
        self.held = 0


class Intake:
    """Everything between `append` and the next published segment."""

    def __init__(self) -> None:
        self.open: Transaction | None = None
        self.bytes = 0
        self._parts: list[SizedPart] = []
        self._spilled: Transaction | None = None
        self._positions: list[int] = []
        self._rows: list[int] = []
        self._bytes: list[int] = []

    @property
    def last(self) -> int | None:
        """The position of the newest complete transaction that is not published."""
        return self._positions[-1] if self._positions else None

    @property
    def rows(self) -> int:
        """Rows of complete transactions that are not published."""
        return self._rows[-1] if self._rows else 0

    def add(self, part: Part) -> None:
        """Take a part. The caller has published what `full` says must go first."""
        if part.ends is not None:
            self._add_several(part, part.ends)
            return
        if self.open is None:
            self.open = Transaction(part.position.version)
        self.open.add(part)
        if not part.complete:
            return
        done, self.open = self.open, None
        if done.spilled:
            self._spilled = done
        else:
            self._parts += done.parts
        self._positions.append(part.position.version)
        self._rows.append(self.rows + done.rows)
        self.bytes += done.bytes
        self._bytes.append(self.bytes)

    def _add_several(self, part: Part, ends: Ends) -> None:
        """Whole transactions at once. Their bytes are known together, and shared out by their rows."""
        size, before = part.nbytes, self.rows
        self._parts.append((part, size))
        self._positions += ends.versions.tolist()
        self._rows += (ends.rows + before).tolist()
        shares = ends.rows * (size / max(1, int(ends.rows[-1])))
        self._bytes += (self.bytes + shares).astype(np.int64).tolist()
        self.bytes += size
        self._bytes[-1] = self.bytes

    @property
    def full(self) -> bool:
        """Whether a spilled transaction is pending: it must be the last of its segment."""
        return self._spilled is not None

    def publish(
        self, fs: pafs.FileSystem, root: str, source: str, *, start: int, epoch: int
    ) -> tuple[Footer, Boundaries, int]:
        """Write the pending transactions as one segment and forget them; also returns the file's size."""
        boundaries = Boundaries(*(np.array(c, np.int64) for c in (self._positions, self._rows, self._bytes)))
        name = SegmentName(start, self._positions[-1], epoch)
        windows = pack(self._parts)
        footer, size = write_segment(fs, f"{root}/{name}", source, boundaries, windows, spilled=self._spilled)
        self._forget_pending()
        return footer, boundaries, size

    def _forget_pending(self) -> None:
        self._parts, self._spilled, self.bytes = [], None, 0
        self._positions, self._rows, self._bytes = [], [], []

    def forget(self) -> list[str]:
        """Drop everything; returns the spill files that nobody needs now."""
        spills = [name for held in (self.open, self._spilled) if held for name in held.spills]
        self.open = None
        self._forget_pending()
        return spills


def write_segment(
    fs: pafs.FileSystem,
    path: str,
    source: str,
    boundaries: Boundaries,
    packed: Iterable[PackedWindow],
    *,
    spilled: Transaction | None = None,
) -> tuple[Footer, int]:
    """Write a segment of these windows, and of a spilled transaction after them; also returns its size."""
    name = SegmentName.parse(path.rpartition("/")[2])
    if name is None:
        raise ValueError(f"{path} is not the path of a segment")
    tables = Tables()
    file = filesystem.AtomicFile(fs, path)
    try:
        file.write(MAGIC)
        windows = [_write_window(file, window, tables) for window in packed]
        if spilled is not None:
            numbers = [tables.add(schema) for schema in spilled.tables.schemas]
            windows += [window.renumbered(numbers) for window in spilled.spilled]
            windows += [_write_window(file, window, tables) for window in pack(spilled.parts)]
        encoded = encode_boundaries(boundaries)
        placed = Block(file.size, len(encoded), zlib.crc32(encoded), -1, len(boundaries.position))
        file.write(encoded)
        footer = Footer(
            source=source,
            name=name,
            created=time.time(),
            rows=int(boundaries.rows[-1]),
            bytes=int(boundaries.bytes[-1]),
            tables=tuple(tables.schemas),
            windows=tuple(windows),
            boundaries=placed,
            spills=dict(spilled.spills) if spilled else {},
        )
        file.write(footer.encoded)
        file.publish()
    except BaseException:
        file.discard()
        raise
    return footer, file.size


def _write_window(
    file: filesystem.AtomicFile, packed: PackedWindow, tables: Tables, external: str | None = None
) -> Window:
    blocks = []
    for batch in packed.batches():
        encoded = encode_block(batch.data)
        place = (file.size, len(encoded), zlib.crc32(encoded))
        blocks.append(Block(*place, tables.add(batch.table), len(batch), external))
        file.write(encoded)
    return Window(packed.rows, packed.bytes, tuple(blocks))
