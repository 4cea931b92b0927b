"""`changelog.json`: which source a changelog belongs to, and what its consumer has acknowledged.

Segments may only be removed once the acknowledged position is saved. So that a full disk can be freed at
all, a little space is kept in reserve for saving it.
"""

from __future__ import annotations

import contextlib

import pyarrow.fs as pafs

from tailrace.changelog import filesystem, statefile
from tailrace.model.errors import IdentityMismatch, StateUnreadable, Transient

KIND = "changelog"
STATE = "changelog.json"
RESERVE = "changelog.reserve"
_RESERVED_BYTES = 1 << 16


def load_binding(fs: pafs.FileSystem, root: str, source: str) -> int | None:
    """The acknowledged position; None for a new changelog. IdentityMismatch where it is another source's."""
    path = f"{root}/{STATE}"
    match statefile.read_state(fs, path, KIND):
        case None:
            return None
        case {"source": str(found)} if found != source:
            raise IdentityMismatch(
                f"the changelog belongs to source {found}, and the pipeline reads {source}",
                remedy="point the pipeline at the source of its state, or use another state directory",
                place=path,
            )
        case {"source": str(), "acknowledged": int() | None as version}:
            return version
    raise StateUnreadable(
        "state lacks fields",
        remedy="restore the file from a backup, or give the pipeline a new state directory",
        place=path,
    )


def abandon(fs: pafs.FileSystem, root: str, source: str) -> None:
    """Forget a changelog of `source`: all that it holds is captured again under the source's new name."""
    path = f"{root}/{STATE}"
    body = statefile.read_state(fs, path, KIND)
    if body is None or body.get("source") != source:
        return
    for name in filesystem.listing(fs, root):
        if name.endswith((".seg", ".spill")) or name == "filler.json":
            filesystem.remove(fs, f"{root}/{name}")
    # Last: until then this is the changelog of `source`, and is forgotten again.
    filesystem.remove(fs, path)


def save_binding(fs: pafs.FileSystem, root: str, source: str, acknowledged: int | None) -> None:
    """Save it durably; Transient where that fails, even with the reserve given up."""
    body = {"source": source, "acknowledged": acknowledged}
    try:
        statefile.write_state(fs, f"{root}/{STATE}", KIND, body)
    except Transient:
        filesystem.remove(fs, f"{root}/{RESERVE}")
        statefile.write_state(fs, f"{root}/{STATE}", KIND, body)


def keep_reserve(fs: pafs.FileSystem, root: str) -> None:
    """Make sure of the reserve, where the disk has room for it."""
    if filesystem.is_local(fs) and RESERVE not in filesystem.listing(fs, root):
        with contextlib.suppress(OSError):
            filesystem.put(fs, f"{root}/{RESERVE}", b"\0" * _RESERVED_BYTES)
