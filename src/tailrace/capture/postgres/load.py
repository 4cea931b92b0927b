"""How busy the server is: sessions of others, standbys that fall behind, log that our slot keeps.

Any role sees how many sessions there are, and that a standby is connected. What the sessions do and where the
standbys are is for members of `pg_read_all_stats` (or `pg_monitor`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from tailrace.capture.contract import Load
from tailrace.capture.postgres import slots
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.table import quote

# Our own are known by role and name. A walsender takes none of `max_connections`; of sessions that a role may
# not look into it does not see the type either.
_SESSIONS = """
SELECT count(*), count(*) FILTER (WHERE a.state = 'active'), current_setting('max_connections')::int,
       pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), current_user
FROM pg_catalog.pg_stat_activity a
WHERE a.datid IS NOT NULL AND a.usesysid IS NOT NULL
AND coalesce(a.backend_type, 'client backend') = 'client backend'
AND NOT (a.usename = current_user AND a.application_name = current_setting('application_name'))
AND a.pid NOT IN (SELECT r.pid FROM pg_catalog.pg_stat_replication r)
"""
_STANDBYS = """
SELECT r.state, (r.replay_lsn - '0/0'::pg_lsn)::int8, extract(epoch FROM r.replay_lag)::float8
FROM pg_catalog.pg_stat_replication r
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
"""
_MOST_REMEMBERED = 4096


class Standbys:
    """How long standbys are behind. The server's own answer stands still while a standby does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: deque[tuple[float, int]] = deque(maxlen=_MOST_REMEMBERED)

    def behind(self, end: int, replayed: list[tuple[int, float | None]]) -> tuple[int, float]:
        """Bytes and seconds of the one that is furthest behind the log's `end`.

        `replayed` has each one's place in the log, and the seconds that the server says.
        """
        now = self._clock()
        if not self._ends or self._ends[-1][1] != end:
            self._ends.append((now, end))
        furthest = min((place for place, _ in replayed), default=end)
        while self._ends and self._ends[0][1] <= furthest:
            self._ends.popleft()
        most = 0.0
        for place, told in replayed:
            if place < end:
                since = next((at for at, reached in self._ends if reached > place), now)
                most = max(most, now - since, told or 0.0)
        return max(0, end - furthest), most


def sample(connection: Connection, config: PostgresConfig, consumer: str, standbys: Standbys) -> Load:
    """How busy the server is now, as far as the role may know."""
    row = connection.execute(_SESSIONS).fetchone() or (None, None, None, False, "")
    connections, active, most, privileged, role = row
    found = connection.execute(_STANDBYS).fetchall()
    size: int | None = None
    seconds: float | None = None
    if privileged or not found:
        # Who copies the server or receives its log replays nothing.
        replayed = [(place, told) for state, place, told in found if state != "backup" and place is not None]
        size, seconds = standbys.behind(slots.end(connection), replayed)
    slot = slots.find(connection, slots.slot_name(config, consumer))
    return Load(
        connections=connections,
        max_connections=most,
        active=active if privileged else None,
        standby_bytes=size,
        standby_seconds=seconds,
        retained=slot.retained if slot is not None else None,
        log_status=slot.wal_status if slot is not None else None,
        remedy=None if privileged else f"GRANT pg_read_all_stats TO {quote(role)}",
    )
