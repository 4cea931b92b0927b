"""Does the server that answers have the log of a position, though a fail-over was in between?

A server that takes over begins a new timeline. Its history names the timelines before, each with the place
where it was left: up to there both logs are the same. A position on an earlier timeline that is not beyond
that place means the same on the new one, and the slot, which the server must have too, brings what follows.
What was delivered from beyond it is in no log any more, and nobody knows what came instead.
"""

from __future__ import annotations

from psycopg import pq

from tailrace.capture.postgres.client import command, connect, session, translated
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.messages import lsn_text
from tailrace.capture.postgres.stream import IDENTITY_REMEDY, identity
from tailrace.model.errors import IdentityMismatch, NeedsOperator
from tailrace.model.position import Position


def moved(config: PostgresConfig, position: Position) -> Position:
    """The position on the timeline that the server is on now; IdentityMismatch where it has none."""
    with session(config) as connection:
        now = identity(connection, config)
    if now == position.source:
        return position
    before, after = _parts(position.source), _parts(now)
    if before is None or after is None or before[::2] != after[::2] or before[1] > after[1]:
        raise IdentityMismatch(
            f"{config.name} is not the server and timeline this position belongs to", remedy=IDENTITY_REMEDY
        )
    left = history(config, after[1]).get(before[1])
    if left is None or position.version > left:
        where = f"left timeline {before[1]} at {lsn_text(left)}" if left else f"never was on {before[1]}"
        raise IdentityMismatch(
            f"{config.name} is on timeline {after[1]} and {where}, but the state is at "
            f"{lsn_text(position.version)}: what was delivered from there is not in its log",
            remedy=IDENTITY_REMEDY,
        )
    return Position(now, position.version)


def history(config: PostgresConfig, timeline: int) -> dict[int, int]:
    """The timelines before this one, and where each was left."""
    connection = connect(config, replication=True)
    try:
        with translated(config):
            result = command(connection, b"TIMELINE_HISTORY %d" % timeline)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise NeedsOperator(
                f"{config.name}: the history of timeline {timeline} cannot be read", remedy=IDENTITY_REMEDY
            )
        text = bytes(result.get_value(0, 1) or b"").decode(errors="replace")
    finally:
        connection.close()
    found: dict[int, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdigit():
            high, _, low = fields[1].partition("/")
            found[int(fields[0])] = int(high, 16) << 32 | int(low, 16)
    return found


def _parts(source: str) -> tuple[str, int, str] | None:
    match source.split(":"):
        case ["postgres", system, timeline, database] if timeline.isdigit():
            return system, int(timeline), database
    return None
