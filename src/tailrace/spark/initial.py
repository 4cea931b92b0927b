"""Where a query's offsets begin, and under which name of the source they are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pyarrow.fs as pafs

from tailrace.capture.contract import Capture
from tailrace.changelog.log import Changelog
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import ConfigError, IdentityMismatch
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Cursor, Offset

FILE, KIND = "initial.json", "initial-offset"
logger = logging.getLogger("tailrace.spark")


def moved(capture: Capture, offset: Offset) -> Offset:
    """The offset under the name that the source has now: after a fail-over it is another one."""
    was = offset.position.source
    try:
        position = capture.moved(offset.position)
    except IdentityMismatch as error:
        raise IdentityMismatch(
            f"the query's offsets belong to source {was}: {error.message}",
            remedy="point `url` at the source the query was started on, or start a new query with a new"
            " checkpoint and stateDir",
        ) from None
    if position.source != was:
        logger.warning("the source %s has become %s, and its log goes on", was, position.source)
    return Offset(position, offset.snapshots)


def given(capture: Capture, consumer: str, starting: dict[str, object]) -> Offset:
    """The offset that the user named, where the source can be read from there."""
    offset = moved(capture, Offset.from_json(starting))
    if offset.position > (head := capture.head()):
        raise ConfigError(
            f"startingOffsets is at {offset.position.version}, the source at {head.version} only",
            remedy="start from an offset that the source has reached, or from `earliest` or `latest`",
        )
    capture.register(consumer, offset.position)
    return offset


def begun(
    capture: Capture,
    consumer: str,
    refs: Sequence[TableRef],
    starting: str,
    *,
    state: tuple[pafs.FileSystem, str],
    own: Callable[[str], Changelog],
) -> Offset:
    """The newest position, with a snapshot of every table unless `starting` is `latest`."""
    fs, root = state
    # First own the state: the cursor may be that of a query that runs, and is not ours to move then.
    changelog = own(capture.identity())
    position = capture.register(consumer)
    if (saved := read_state(fs, f"{root}/{FILE}", KIND)) is not None:
        offset = Offset.from_json(saved["offset"])
        # Nothing was acknowledged since, so this is the first start again: the same answer.
        if offset.position == position and saved["starting"] == starting:
            return offset
        # A former query went further. This one begins anew, and the log is kept for it from now on.
        capture.forget(consumer)
        position = capture.register(consumer)
    changelog.reset(position)
    cursors = {}
    if starting == "latest":
        generations = capture.generations()
        cursors = {str(ref): Cursor("-", 0, 0, generations[ref][0]) for ref in refs}
    offset = Offset(position, cursors)
    write_state(fs, f"{root}/{FILE}", KIND, {"starting": starting, "offset": offset.to_json()})
    return offset
