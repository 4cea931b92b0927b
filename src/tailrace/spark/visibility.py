"""Waiting until what was committed can be read, for documents and snapshots are built from the source's rows.

A server tells its log of a commit before others can see it, and long before where it waits for a synchronous
standby. Only the process that reads the log knows which transactions it has delivered, so it waits for all
readers, before any task begins; visibility never shrinks. `visibility.json` in the state directory tells a
person what is waited for.
"""

from __future__ import annotations

import logging
import time

import pyarrow.fs as pafs

from tailrace.capture.contract import Capture
from tailrace.model.errors import Transient
from tailrace.model.position import Position
from tailrace.spark import waits

FILE = "visibility.json"
# A wait that is shorter is nobody's concern.
QUIET_SECONDS = 2.0
LONGEST_SECONDS = 900.0
logger = logging.getLogger("tailrace.spark")


def wait_visible(
    capture: Capture, position: Position, fs: pafs.FileSystem, root: str, longest: float = LONGEST_SECONDS
) -> None:
    """Return when every reader sees everything up to `position`; Transient after the longest wait."""
    begun = time.time()
    deadline = time.monotonic() + longest
    told = False
    try:
        while True:
            try:
                return capture.wait_visible(position, QUIET_SECONDS)
            except Transient as error:
                if time.monotonic() >= deadline:
                    raise
                if not told:
                    logger.warning("%s; waiting", error.message)
                    told = True
                    reason = (
                        f"changes up to position {position.version} are committed and cannot be read yet;"
                        " where the server waits for a synchronous standby, see to the standby"
                    )
                    waits.remember(fs, f"{root}/{FILE}", waits.Wait("visibility", reason, begun))
    finally:
        if told:
            waits.remember(fs, f"{root}/{FILE}", None)
