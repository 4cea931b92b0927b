"""Spark's own log of a query, read from its checkpoint directory."""

from __future__ import annotations

import json
from contextlib import suppress

import pyarrow.fs as pafs

from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import StateUnreadable
from tailrace.spark.offsets import Offset


def committed(checkpoint: str) -> tuple[int, Offset] | None:
    """The last batch Spark committed, and its end; None if there is none yet."""
    fs, root = open_filesystem(checkpoint)
    batches = _numbers(fs, f"{root}/commits")
    if not batches:
        return None
    last = max(batches)
    return last, _end(fs, root, checkpoint, last)


def lately(checkpoint: str, most: int = 20) -> list[tuple[float, Offset]]:
    """The last batches that Spark committed, oldest first: when, and each one's end."""
    fs, root = open_filesystem(checkpoint)
    found = []
    for batch in sorted(_numbers(fs, f"{root}/commits"))[-most:]:
        info = fs.get_file_info(f"{root}/commits/{batch}")
        # Spark removes old ones meanwhile; the numbers are for people only.
        if info.mtime_ns is not None:
            with suppress(StateUnreadable):
                found.append((info.mtime_ns / 1e9, _end(fs, root, checkpoint, batch)))
    return found


def logged(checkpoint: str) -> Offset | None:
    """The end of the newest batch Spark began, committed or not; None if there is none yet."""
    fs, root = open_filesystem(checkpoint)
    batches = _numbers(fs, f"{root}/offsets")
    return _end(fs, root, checkpoint, max(batches)) if batches else None


def is_committed(checkpoint: str, batch: int) -> bool:
    """Whether Spark has written this batch to its commit log."""
    fs, root = open_filesystem(checkpoint)
    return bool(fs.get_file_info(f"{root}/commits/{batch}").type == pafs.FileType.File)


def _numbers(fs: pafs.FileSystem, directory: str) -> list[int]:
    selector = pafs.FileSelector(directory, allow_not_found=True)
    return [int(info.base_name) for info in fs.get_file_info(selector) if info.base_name.isdigit()]


def _end(fs: pafs.FileSystem, root: str, checkpoint: str, batch: int) -> Offset:
    try:
        with fs.open_input_stream(f"{root}/offsets/{batch}") as stream:
            lines = stream.read().decode().splitlines()
        return Offset.from_json(json.loads(lines[2]))
    except (OSError, ValueError, IndexError) as error:
        raise StateUnreadable(
            f"Spark's offset log of batch {batch} cannot be read",
            place=f"{checkpoint}/offsets/{batch}",
            remedy="restore the checkpoint directory, or start anew with an empty state directory",
        ) from error
