"""Reading windows on executors: no state, no listing, the same rows for the same reference every time.

Files are read, not memory-mapped: the blocks are compressed, so mapping gained nothing that could be told
from noise, and a file that is truncated under a mapping kills the process instead of failing a checksum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from tailrace.changelog import filesystem
from tailrace.changelog.segment import (
    MAGIC,
    SPILL_MAGIC,
    Block,
    WindowRef,
    damaged,
    read_block,
    read_footer,
)
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableRef, TableSchema


def read_windows(
    uri: str, refs: Iterable[WindowRef], *, tables: Collection[TableRef] | None = None
) -> Iterator[list[ChangeBatch]]:
    """The changes each reference stands for: batches each in order, which interleave by (position, seq).

    Blocks of tables other than `tables` are not read. StateUnreadable where a file is damaged or not there.
    Files stay open from one reference to the next.
    """
    fs, root = _filesystem(uri)
    files: _Files | None = None
    try:
        for ref in refs:
            if files is None or files.segment != ref.file:
                if files is not None:
                    files.close()
                files = _Files(fs, root, ref.file)
            batches = []
            for block in ref.blocks:
                table = files.table(block)
                if tables is not None and table.ref not in tables:
                    continue
                data = files.read(block)
                if ref.cut:
                    data = _cut(data, ref.after, ref.up_to)
                if data.num_rows:
                    batches.append(ChangeBatch(table, data))
            yield batches
    finally:
        if files is not None:
            files.close()


def schemas_of(uri: str, refs: Iterable[WindowRef]) -> list[TableSchema]:
    """The schemas of the tables that have rows in the segments of these references, each once a segment."""
    fs, root = _filesystem(uri)
    return [
        schema
        for file in dict.fromkeys(ref.file for ref in refs)
        for schema in _schemas(fs, f"{root}/{file}")
    ]


@lru_cache(maxsize=8)
def _filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    return filesystem.open_filesystem(uri)


def _schemas(fs: pafs.FileSystem, path: str) -> tuple[TableSchema, ...]:
    try:
        footer = read_footer(fs, path)
    except StateUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _missing(path) from error
        raise
    if footer is None:
        raise damaged(path)
    return footer.tables


class _Files:
    """The open files of one segment: itself, and the spill files it refers to."""

    def __init__(self, fs: pafs.FileSystem, root: str, segment: str) -> None:
        self._fs = fs
        self._root = root
        self.segment = segment
        self._schemas = _schemas(fs, f"{root}/{segment}")
        self._stack = contextlib.ExitStack()
        self._open: dict[str, Any] = {}

    def table(self, block: Block) -> TableSchema:
        """The schema of a block's table."""
        if not 0 <= block.table < len(self._schemas):
            raise damaged(f"{self._root}/{self.segment}")
        return self._schemas[block.table]

    def read(self, block: Block) -> pa.RecordBatch:
        """The rows of a block, checked."""
        name = block.external or self.segment
        path = f"{self._root}/{name}"
        try:
            file = self._open.get(name)
            if file is None:
                opened: Any = self._fs.open_input_file(path)
                file = self._open[name] = self._stack.enter_context(opened)
                magic = SPILL_MAGIC if block.external else MAGIC
                if file.size() < len(magic) or bytes(file.read_at(len(magic), 0)) != magic:
                    raise damaged(path)
            return read_block(file, block, path)
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise filesystem.cannot_read(self._fs, path, error) from error

    def close(self) -> None:
        """Close every file."""
        self._stack.close()


def _cut(data: pa.RecordBatch, after: int, up_to: int) -> pa.RecordBatch:
    positions = data.column("position").to_numpy()
    begin, end = np.searchsorted(positions, [after, up_to], side="right")
    return data.slice(int(begin), int(end - begin))


def _missing(path: str) -> StateUnreadable:
    return StateUnreadable(
        "the file is not there",
        remedy="put the state directory on a filesystem that the driver and every executor share; if files "
        "were removed from it, stop the pipeline and start it again",
        place=path,
    )
