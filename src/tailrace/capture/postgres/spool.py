"""The messages of a transaction that is not over: in memory while small, then in a file without a name.

A streamed transaction arrives while it runs and may still be rolled back, in part or whole, so nothing of it
is decoded before its commit. The file is unlinked from the start: it goes with the process, however that
ends.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from io import BufferedRandom

import numpy as np

from tailrace.capture.postgres.messages import Frame, broken, joined, room
from tailrace.model.errors import Transient

_HEAD = struct.Struct("<qq")
# Small frames are put together: decoding has a price per frame.
_TOGETHER = 4 << 20


class Spool:
    """Frames in the order they came. `aborted` are the subtransactions that were rolled back."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._held: list[Frame] = []
        self._file: BufferedRandom | None = None
        self.aborted: set[int] = set()
        self.held = 0

    def append(self, frame: Frame) -> None:
        """Take a copy of these messages."""
        self._held.append(joined((frame,)))
        self.held += frame.nbytes + 16 * len(frame)
        if self._file is not None and self.held > _TOGETHER:
            self.spill()

    def spill(self) -> None:
        """Move what is in memory to the file."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, prefix="tailrace-")  # noqa: SIM115
            for frame in self._together():
                region = frame.region()
                self._file.write(_HEAD.pack(len(frame), len(region)))
                self._file.write((frame.starts - frame.starts[0]).tobytes())
                self._file.write((frame.ends - frame.starts[0]).tobytes())
                self._file.write(region.data)
        except OSError as error:
            raise Transient(
                f"an open transaction could not be put aside on disk: {error.strerror}",
                remedy="make room in the directory for temporary files, or set the option spill_directory",
            ) from None
        self._held, self.held = [], 0

    def frames(self) -> Iterator[Frame]:
        """Everything, in order, a frame at a time."""
        if self._file is not None:
            self._file.seek(0)
            while head := self._file.read(_HEAD.size):
                count, size = _HEAD.unpack(head)
                starts = np.frombuffer(self._file.read(8 * count), np.int64)
                ends = np.frombuffer(self._file.read(8 * count), np.int64)
                data = room(size)
                if self._file.readinto(data[:size].data) != size:
                    raise broken("an open transaction that was put aside has lost its end")
                yield Frame(data, starts, ends)
                # Not held while the next one is read.
                del data
        yield from self._together()

    def _together(self) -> Iterator[Frame]:
        gathered: list[Frame] = []
        size = 0
        for frame in self._held:
            if gathered and size + frame.nbytes > _TOGETHER:
                yield _one(gathered)
                gathered, size = [], 0
            gathered.append(frame)
            size += frame.nbytes
        if gathered:
            yield _one(gathered)

    def close(self) -> None:
        """Forget everything."""
        self._held, self.held = [], 0
        if self._file is not None:
            self._file.close()
            self._file = None


def _one(frames: Sequence[Frame]) -> Frame:
    return frames[0] if len(frames) == 1 else joined(frames)
