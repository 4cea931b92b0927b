"""Where a runtime begins: the table of the runtime's documentation as pure functions.

`judge` looks at the configuration alone, before anything is opened; `begin` at the checkpoint too. Neither
touches the source. `renewed` adds the tables whose capture began anew since the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from tailrace.capture.contract import Capabilities
from tailrace.model.errors import ConfigError, SchemaDrift
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime.checkpoint import ORDERS, Checkpoint, Cursor, Order

Mode = Literal["snapshot_then_changes", "changes", "snapshot"]
MODES: tuple[str, ...] = get_args(Mode)
How = Literal["stream from now", "snapshot", "stream", "snapshot goes on", "snapshot again"]


@dataclass(frozen=True)
class Beginning:
    """How to begin. Without a position the source is asked for one, and it is recorded first."""

    how: How
    position: Position | None
    cursors: Mapping[TableRef, Cursor]


def judge(
    mode: str, order: str | Sequence[str], tables: Sequence[object], capabilities: Capabilities
) -> Order:
    """The order of the snapshot, if the configuration makes sense; ConfigError otherwise."""
    if mode not in MODES:
        raise ConfigError(f"unknown mode {mode!r}", remedy=f"choose one of {', '.join(MODES)}")
    orders = [order] if isinstance(order, str) else list(order)
    if len(set(orders)) > 1:
        raise ConfigError(
            "a snapshot is delivered interleaved or first, not both",
            remedy="choose one order for the snapshot",
        )
    if not orders or orders[0] not in ORDERS:
        raise ConfigError(f"unknown order {orders!r}", remedy=f"choose one of {', '.join(ORDERS)}")
    chosen = cast(Order, orders[0])
    if mode == "snapshot" and not tables:
        raise ConfigError("a snapshot needs tables", remedy="name the tables to read")
    if mode != "changes" and tables:
        if not capabilities.snapshot:
            raise ConfigError("this source cannot be read in a snapshot", remedy='use mode="changes"')
        if mode != "snapshot" and chosen == "interleaved" and not capabilities.interleaved_snapshot:
            raise ConfigError(
                "this source cannot interleave a snapshot with its log", remedy='use order="first"'
            )
    return chosen


def begin(
    checkpoint: Checkpoint | None,
    mode: Mode,
    order: Order,
    tables: Sequence[TableRef],
    capabilities: Capabilities,
) -> Beginning:
    """The row of the table that applies."""
    to_read: dict[TableRef, Cursor] = {} if mode == "changes" else {ref: Cursor(ref) for ref in tables}
    if checkpoint is None:
        return Beginning("snapshot" if to_read else "stream from now", None, to_read)
    if not checkpoint.snapshotting:
        return Beginning("stream", checkpoint.position, dict(checkpoint.cursors))
    unfinished = [ref for ref, cursor in checkpoint.cursors.items() if not cursor.complete]
    missing = [ref for ref in unfinished if ref not in to_read]
    if missing:
        raise ConfigError(
            "the checkpoint holds an unfinished snapshot, whose tables must be named: "
            + ", ".join(map(str, missing)),
            remedy='name them, with mode="snapshot_then_changes", or begin with an empty state directory',
        )
    if checkpoint.order != order:
        raise ConfigError(
            f"the checkpoint's snapshot is delivered {checkpoint.order!r}, configured is {order!r}: "
            "the two orders do not mix",
            remedy=f'finish it with order="{checkpoint.order}", or begin with an empty state directory',
        )
    if not capabilities.resumable_snapshot:
        again = {ref: Cursor(ref) for ref in unfinished}
        return Beginning("snapshot again", checkpoint.position, {**checkpoint.cursors, **again})
    return Beginning("snapshot goes on", checkpoint.position, dict(checkpoint.cursors))


def renewed(
    beginning: Beginning, known: Mapping[str, str], now: Mapping[TableRef, str], mode: Mode
) -> tuple[Beginning, list[TableRef]]:
    """The beginning with a fresh snapshot of every table that the checkpoint does not know as it is now.

    Capture of such a table began after the checkpoint: what happened to it before is not in the log. Only a
    new snapshot makes it right, so `changes` refuses to go on.
    """
    if beginning.position is None:
        return beginning, []
    stale = [ref for ref, generation in now.items() if _stale(ref, generation, known, beginning)]
    changed = [ref for ref in stale if str(ref) in known]
    if mode == "changes":
        if changed:
            raise SchemaDrift(
                f"capture of {', '.join(map(str, changed))} began anew: changes in between are lost",
                remedy='start with mode="snapshot_then_changes", which reads these tables again',
            )
        return beginning, []
    cursors = {**beginning.cursors, **{ref: Cursor(ref) for ref in stale}}
    return Beginning(beginning.how, beginning.position, cursors), stale


def _stale(ref: TableRef, generation: str, known: Mapping[str, str], beginning: Beginning) -> bool:
    cursor = beginning.cursors.get(ref)
    if cursor is not None and not cursor.complete:
        # Its snapshot is still to be taken; one that began under another generation begins again.
        return bool(cursor.plan) and cursor.generation != generation
    return known.get(str(ref)) != generation
