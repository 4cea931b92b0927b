"""Which tables the changelog was filled with: `filled.json` in the state directory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.fs as pafs

from tailrace.changelog.log import Changelog
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Offset

KIND = "filled-tables"
FILE = "filled.json"


def filled(fs: pafs.FileSystem, root: str) -> list[str] | None:
    """The tables that the changelog was filled with; None before the first run."""
    saved = read_state(fs, f"{root}/{FILE}", KIND)
    return None if saved is None else list(saved["tables"])


def refill(
    fs: pafs.FileSystem, root: str, changelog: Changelog, refs: Sequence[TableRef], start: Offset
) -> None:
    """Take the log anew from `start` on where a run with fewer tables has filled the changelog since."""
    wanted = sorted(str(ref) for ref in refs)
    saved = filled(fs, root)
    before = wanted if saved is None else saved
    # A table without a cursor is new and gets its snapshot.
    followed = set(wanted) & set(start.snapshots)
    behind = changelog.begun and changelog.acknowledged <= start.position.version
    if behind and not followed <= set(before):
        changelog.truncate_after(start.position)
    if saved is None or before != wanted:
        write_state(fs, f"{root}/{FILE}", KIND, {"tables": wanted})
