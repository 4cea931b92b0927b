"""Waking up when the database file changes: inotify where there is one, and a timer everywhere.

SQLite has no notification. In WAL mode a commit writes to the `-wal` file, so a file notice comes with every
one, sometimes a moment before the commit can be seen, and sometimes without one. A notice therefore means
"look now, and again shortly". `wake` ends a wait from another thread.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import time
from pathlib import Path

_MASK = 0x00000002 | 0x00000100 | 0x00000080  # IN_MODIFY, IN_CREATE, IN_MOVED_TO
_OVERFLOW = 0x00004000
_EVENT = struct.Struct("iIII")


class Waker:
    """Waits for notices about one database file. One thread waits; any thread may call `wake`."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()
        self._names = {os.fsencode(real.name), os.fsencode(real.name + "-wal")}
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if _LINUX else _pipe()
        self._notices = _inotify(real.parent)
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)
        if self._notices is not None:
            self._poll.register(self._notices, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Did the file change within that time? False on time-out and on `wake`."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            # poll counts in milliseconds; rounding down to 0 would spin.
            ready = {fd for fd, _ in self._poll.poll(max(1, round(left * 1000)) if left > 0 else 0)}
            if self._read_end in ready:
                return False
            if self._notices in ready and self._changed():
                return True
            if time.monotonic() >= deadline:
                return False

    def wake(self) -> None:
        """End this and every later wait."""
        try:
            os.write(self._write_end, b"x")
        except BlockingIOError:
            return

    def close(self) -> None:
        """Release the descriptors."""
        for fd in (self._read_end, self._write_end, self._notices):
            if fd is not None:
                os.close(fd)

    def _changed(self) -> bool:
        assert self._notices is not None  # noqa: S101 - only called where it was ready
        try:
            data = os.read(self._notices, 65536)
        except BlockingIOError:
            return False
        at, found = 0, False
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            found = found or bool(mask & _OVERFLOW) or name in self._names
            at += _EVENT.size + length
        return found


_LINUX = sys.platform == "linux"


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _inotify(directory: Path) -> int | None:
    """A descriptor that tells of changes in a directory, or None where the system has no such thing."""
    if not _LINUX:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            return None
        if libc.inotify_add_watch(fd, os.fsencode(directory), _MASK) < 0:
            os.close(fd)
            return None
    except (OSError, AttributeError):
        return None
    return fd
