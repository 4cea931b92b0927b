"""The segment format: immutable files of changes that cover the positions (start, end].

    magic │ block … │ boundaries │ footer (JSON) │ footer length, crc32 of the footer, magic

A *block* is one Arrow IPC stream (lz4 buffers) of changes of one table. A *window* is a group of blocks, at
most one a table unless a part was delivered otherwise; the windows are in order, and the rows of one
window's blocks interleave by (position, seq). The *boundaries* are one more block: for each transaction its
position and the rows and bytes of the segment up to its end. The footer says where everything is, with a
crc32 of every block, and holds each table schema once. Blocks of a transaction too large for memory lie in
spill files (magic, blocks), which mean nothing until a segment refers to them.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from tailrace.changelog import filesystem
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableSchema

MAGIC = b"TRSEG\x00\x01\n"
SPILL_MAGIC = b"TRSPL\x00\x01\n"
FORMAT = 1
_TAIL = struct.Struct("<QI8s")
# One request usually fetches the tail and the whole footer.
_TAIL_GUESS = 1 << 16
_NAME = re.compile(r"(\d{19})-(\d{19})\.(\d{8})\.seg")
SPILL_SUFFIX = ".spill"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_BOUNDARIES = pa.schema([pa.field(name, pa.int64()) for name in ("position", "rows", "bytes")])


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's file name says."""

    start: int
    end: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.start:019d}-{self.end:019d}.{self.epoch:08d}.seg"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """The name's parts, or None for a file that is no segment."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), int(match[3])) if match else None


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block lies. `external` names the spill file that holds it; None is the segment itself."""

    offset: int
    length: int
    crc: int
    table: int
    rows: int
    external: str | None = None

    def to_json(self) -> list[Any]:
        """A JSON array that `Block(*…)` reads back."""
        return [self.offset, self.length, self.crc, self.table, self.rows, self.external]


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks that are read together, and what they add up to."""

    rows: int
    bytes: int
    blocks: tuple[Block, ...]

    def renumbered(self, tables: list[int]) -> Window:
        """The same window in a file where table `i` has the index `tables[i]`."""
        return replace(self, blocks=tuple(replace(block, table=tables[block.table]) for block in self.blocks))


@dataclass(frozen=True, slots=True)
class WindowRef:
    """The rows of one window with positions in (after, up_to], as executors get it: plain JSON values.

    `file` is the segment's name under the changelog's root; blocks may lie in spill files beside it. `rows`
    is exact; `bytes` is an estimate of the Arrow bytes where a window is cut. `cut` says that the window
    has rows outside of the range too.
    """

    file: str
    after: int
    up_to: int
    rows: int
    bytes: int
    cut: bool
    blocks: tuple[Block, ...]

    def to_json(self) -> list[Any]:
        """A JSON array that `from_json` reads back."""
        blocks = [block.to_json() for block in self.blocks]
        return [self.file, self.after, self.up_to, self.rows, self.bytes, self.cut, blocks]

    @classmethod
    def from_json(cls, body: list[Any]) -> WindowRef:
        """The reference that `to_json` wrote."""
        try:
            file, after, up_to, rows, size, cut, blocks = body
            return cls(file, after, up_to, rows, size, cut, tuple(Block(*block) for block in blocks))
        except (TypeError, ValueError) as error:
            raise StateUnreadable("a reference to a changelog window cannot be read") from error


class Tables:
    """The distinct table schemas of a segment, by index."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self.schemas: list[TableSchema] = []

    def add(self, table: TableSchema) -> int:
        """The index of this schema."""
        index = self._index.setdefault(table.fingerprint, len(self.schemas))
        if index == len(self.schemas):
            self.schemas.append(table)
        return index


@dataclass(frozen=True)
class Boundaries:
    """The ends of a segment's transactions, with rows and bytes of the segment up to each."""

    position: np.ndarray[Any, np.dtype[np.int64]]
    rows: np.ndarray[Any, np.dtype[np.int64]]
    bytes: np.ndarray[Any, np.dtype[np.int64]]

    def up_to(self, position: int) -> tuple[int, int]:
        """Rows and bytes of the transactions up to `position`."""
        count = int(np.searchsorted(self.position, position, side="right"))
        return (int(self.rows[count - 1]), int(self.bytes[count - 1])) if count else (0, 0)


Encoded = bytes


@dataclass(frozen=True)
class Footer:
    """Everything about a segment but its rows. `spills` has the size of each spill file it refers to."""

    source: str
    name: SegmentName
    created: float
    rows: int
    bytes: int
    tables: tuple[TableSchema, ...]
    windows: tuple[Window, ...]
    boundaries: Block
    spills: dict[str, int]

    @cached_property
    def encoded(self) -> Encoded:
        """The footer with its tail, as it ends a segment file."""
        body = {
            "format": FORMAT,
            "source": self.source,
            "start": self.name.start,
            "end": self.name.end,
            "epoch": self.name.epoch,
            "created": self.created,
            "rows": self.rows,
            "bytes": self.bytes,
            "tables": [table.to_json() for table in self.tables],
            "windows": [[w.rows, w.bytes, [b.to_json() for b in w.blocks]] for w in self.windows],
            "boundaries": self.boundaries.to_json(),
            "spills": self.spills,
        }
        data = json.dumps(body, separators=(",", ":")).encode()
        return data + _TAIL.pack(len(data), zlib.crc32(data), MAGIC)


def _decode_footer(data: bytes, path: str) -> Footer | None:
    try:
        body = json.loads(data)
        if body["format"] > FORMAT:
            raise StateUnreadable(
                f"the segment was written by a newer Tailrace: its format is {body['format']}, "
                f"this one reads {FORMAT}",
                remedy="upgrade tailrace to at least the version that wrote it",
                place=path,
            )
        return Footer(
            source=body["source"],
            name=SegmentName(body["start"], body["end"], body["epoch"]),
            created=body["created"],
            rows=body["rows"],
            bytes=body["bytes"],
            tables=tuple(TableSchema.from_json(table) for table in body["tables"]),
            windows=tuple(
                Window(rows, size, tuple(Block(*block) for block in blocks))
                for rows, size, blocks in body["windows"]
            ),
            boundaries=Block(*body["boundaries"]),
            spills=body["spills"],
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_footer(fs: pafs.FileSystem, path: str) -> Footer | None:
    """A segment's footer, or None where the file is torn or damaged.

    A file that cannot be read, or that a newer version wrote, is an error: it is not damaged.
    """
    try:
        opened: Any = fs.open_input_file(path)
        with opened as file:
            size = int(file.size())
            if size < len(MAGIC) + _TAIL.size or bytes(file.read_at(len(MAGIC), 0)) != MAGIC:
                return None
            guess = min(size, _TAIL_GUESS)
            data = bytes(file.read_at(guess, size - guess))
            length, crc, magic = _TAIL.unpack(data[-_TAIL.size :])
            if magic != MAGIC or length > size - len(MAGIC) - _TAIL.size:
                return None
            if length + _TAIL.size > guess:
                data = bytes(file.read_at(length + _TAIL.size, size - length - _TAIL.size))
    except OSError as error:
        raise filesystem.cannot_read(fs, path, error) from error
    footer = data[-_TAIL.size - length : -_TAIL.size]
    return _decode_footer(footer, path) if zlib.crc32(footer) == crc else None


def encode_block(data: pa.RecordBatch) -> pa.Buffer:
    """A record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema, options=_OPTIONS) as writer:
        writer.write_batch(data)
    return sink.getvalue()


def read_block(file: Any, block: Block, path: str) -> pa.RecordBatch:
    """The record batch of a block, checked; `file` is open, `path` is for the error."""
    buffer = file.read_at(block.length, block.offset) if block.offset + block.length <= file.size() else b""
    if len(buffer) != block.length or zlib.crc32(buffer) != block.crc:
        raise damaged(path)
    try:
        with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
            return reader.read_next_batch()
    except (pa.ArrowInvalid, StopIteration) as error:
        raise damaged(path) from error


def encode_boundaries(boundaries: Boundaries) -> pa.Buffer:
    """The boundaries as a block."""
    columns = [pa.array(column) for column in (boundaries.position, boundaries.rows, boundaries.bytes)]
    return encode_block(pa.RecordBatch.from_arrays(columns, schema=_BOUNDARIES))


def read_boundaries(fs: pafs.FileSystem, path: str, footer: Footer) -> Boundaries:
    """The boundaries of a segment."""
    try:
        with fs.open_input_file(path) as file:
            data = read_block(file, footer.boundaries, path)
    except OSError as error:
        raise filesystem.cannot_read(fs, path, error) from error
    return Boundaries(*(data.column(name).to_numpy() for name in _BOUNDARIES.names))


def damaged(path: str) -> StateUnreadable:
    """The error for a file whose bytes are not those that were written."""
    return StateUnreadable(
        "state is damaged: the file is torn, or its checksum does not fit",
        remedy="stop the pipeline, remove this file and start again: what it held and what follows is "
        "captured again from the source, as far as the source still has it",
        place=path,
    )
