"""How fast a snapshot may go: a ceiling on rows a second, and pauses while the source has enough to do.

The throttle decides over chunks only, when the driver puts a micro-batch together; changes of the log are
never held up by it. Rows are counted as the plan estimates them. Nothing of it is in the offset: a batch that
was logged is read again as it was logged, whatever the limits are then.

    driver ── round() ─▶ take(rows) for each chunk ─▶ the batch's chunks
                           │
          bucket, the query's lag, the newest look at the source's load
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tailrace.capture.contract import Finding, Lag, Load
from tailrace.model.units import Limit, Share, show_size
from tailrace.spark.waits import Wait

# A pause ends at this part of the limit that began it, so that it does not begin again at once.
RESUME = 0.8
# A source whose load cannot be learnt is waited for, but not for ever.
UNKNOWN_SECONDS = 30.0
# While a micro-batch runs the budget of the next one grows, but not beyond so many seconds' worth.
BURST_SECONDS = 5.0
# Rows that were not held up for so long are no longer called waiting.
CALM_SECONDS = 5.0
# A plan for a slow snapshot does not consist of crumbs.
LEAST_CHUNK_ROWS = 1_000
Item = TypeVar("Item")
logger = logging.getLogger("tailrace.spark")


@dataclass(frozen=True)
class Limits:
    """What the user allows a snapshot. None: no limit."""

    rows_per_second: int | None = None
    connections: int | None = None
    lag: Limit | None = None
    standby_lag: Limit | None = None
    others: Share | None = None
    active: int | None = None
    retained: int | None = None

    @property
    def of_source(self) -> bool:
        """Whether the source's load must be known."""
        return any(limit is not None for limit in (self.standby_lag, self.others, self.active, self.retained))

    def chunk_rows(self, rows: int) -> int:
        """Rows a chunk, so that a chunk is not more than a second's budget."""
        if self.rows_per_second is None:
            return rows
        return min(rows, max(self.rows_per_second, LEAST_CHUNK_ROWS))


def dealt(chunks: Sequence[Item], hands: int) -> list[Sequence[Item]]:
    """The chunks as at most so many tasks, each of which reads its own one by one."""
    count = min(hands, len(chunks))
    return [chunks[hand::count] for hand in range(count)]


class Bucket:
    """A budget of rows that grows with time and is spent by chunks."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        # It begins empty with the first question: a query that starts often gains nothing by it.
        self._saved = 0.0
        self._at: float | None = None

    def lacks(self, rows: int) -> float:
        """Seconds until so many rows are allowed; 0 where they are now.

        For a chunk that is larger than the most that is saved up, it is saved up all the same.
        """
        most = max(self._rate * BURST_SECONDS, rows)
        now = self._clock()
        grown = 0.0 if self._at is None else (now - self._at) * self._rate
        self._saved = min(most, self._saved + grown)
        self._at = now
        return max(0.0, (rows - self._saved) / self._rate)

    def spend(self, rows: int) -> None:
        """So many rows are taken."""
        self._saved -= rows

    def rest(self) -> None:
        """Nothing is wanted or allowed now: what is saved up meanwhile is a second's worth at most."""
        self.lacks(0)
        self._saved = min(self._saved, float(self._rate))


class Round:
    """The chunks of one micro-batch."""

    def __init__(self, refusal: Callable[[int], tuple[str, str] | None]) -> None:
        self._refusal = refusal
        self.rows = 0
        self.asked = False
        self.refused: tuple[str, str] | None = None

    def take(self, rows: int) -> bool:
        """Whether a chunk of so many rows may be read; after a no there is no other yes in this round."""
        self.asked = True
        if self.refused is None:
            self.refused = self._refusal(self.rows + rows)
        if self.refused is not None:
            return False
        self.rows += rows
        return True


class Throttle:
    """One query's limits. Called from one thread; `tell` hears when waiting begins, changes and ends."""

    def __init__(
        self,
        limits: Limits,
        *,
        lag: Callable[[], Lag | None],
        load: Callable[[], Load | None],
        tell: Callable[[Wait | None, tuple[str, ...]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._lag = lag
        self._load = load
        self._tell = tell
        self._clock = clock
        self._bucket = Bucket(limits.rows_per_second, clock) if limits.rows_per_second else None
        self._above: dict[str, str] = {}
        self._ready = 0.0
        self._unknown: float | None = None
        self._held_up = 0.0
        self._told: tuple[Wait | None, tuple[str, ...]] | None = None
        self._unseen: dict[str, str] = {}
        self.waiting: Wait | None = None

    @contextlib.contextmanager
    def round(self) -> Iterator[Round]:
        """What one micro-batch may take; it counts as taken when the block ends well."""
        this = Round(self._refusal)
        yield this
        if self._bucket is not None:
            self._bucket.spend(this.rows)
            if not this.asked or (this.refused is not None and this.refused[0] != "rows"):
                self._bucket.rest()
        self._note(this)

    def patience(self, most: float) -> float:
        """Seconds after which it is worth while to ask again, `most` at most."""
        if self.waiting is not None and self.waiting.kind == "rows":
            return max(0.0, min(most, self._ready - self._clock()))
        return most

    @property
    def unseen(self) -> tuple[str, ...]:
        """Limits that cannot be kept, because the source does not tell what they are about."""
        return tuple(self._unseen.values())

    def notices(self) -> list[Finding]:
        """What a person should know: a pause, and limits that cannot be kept. A ceiling is no news."""
        found = [Finding("warning", "limit_unseen", text) for text in self.unseen]
        if self.waiting is not None and self.waiting.kind != "rows":
            found.append(Finding("warning", "snapshot_waits", f"the snapshot waits: {self.waiting.reason}"))
        return found

    def report(self) -> dict[str, Any] | None:
        """The reason for waiting, for Spark's progress; None while nothing waits."""
        wait = self.waiting
        return None if wait is None else {"kind": wait.kind, "reason": wait.reason, "since": wait.since}

    def _refusal(self, rows: int) -> tuple[str, str] | None:
        self._look()
        if self._above:
            return next(iter(self._above.items()))
        if self._bucket is not None and (lacks := self._bucket.lacks(rows)) > 0:
            self._ready = self._held_up = self._clock()
            self._ready += lacks
            return "rows", f"the ceiling is {self.limits.rows_per_second:,} rows a second"
        return None

    def _look(self) -> None:
        """Find out what is above its limit, and what no longer is."""
        limits = self.limits
        lag = self._lag() if limits.lag is not None or limits.retained is not None else Lag()
        if lag is None:
            # A bounded run takes no more of the log before it ends, so waiting would never end either.
            for kind in [kind for kind in self._above if kind == "retained" or kind.startswith("lag.")]:
                del self._above[kind]
        elif limits.lag is not None:
            self._compare("lag", "the query is", limits.lag, lag)
        if limits.of_source and (load := self._known_load()) is not None:
            self._look_at(load, bounded=lag is None)

    def _look_at(self, load: Load, *, bounded: bool) -> None:
        limits = self.limits
        standby = Lag(bytes=load.standby_bytes, seconds=load.standby_seconds)
        if limits.standby_lag is not None:
            self._compare("standby", "a standby is", limits.standby_lag, standby)
            self._blind("snapshotPauseStandbyLag", standby == Lag(), load)
        if limits.others is not None:
            most = limits.others.of(load.max_connections)
            text = f"others have more than {limits.others} connections"
            self._judge("connections", text, load.connections, most)
            self._blind("snapshotPauseConnections", load.connections is None or most is None, load)
        if limits.active is not None:
            text = f"more than {limits.active} sessions of others are at work"
            self._judge("active", text, load.active, limits.active)
            self._blind("snapshotPauseActive", load.active is None, load)
        if limits.retained is not None and not bounded:
            text = f"the source keeps more than {show_size(limits.retained)} of log"
            self._judge("retained", text, load.retained, limits.retained)
            self._blind("snapshotPauseRetained", load.retained is None, load)

    def _known_load(self) -> Load | None:
        load = self._load()
        if load is not None:
            self._unknown = None
            self._above.pop("unknown", None)
            return load
        now = self._clock()
        self._unknown = now if self._unknown is None else self._unknown
        if now - self._unknown < UNKNOWN_SECONDS:
            self._above["unknown"] = "the source's load is not known yet"
        elif self._above.pop("unknown", None) is not None:
            logger.warning("the source's load cannot be learnt: the snapshot goes on without")
            # Nor does what it was when it was last known hold anything up.
            self._above = {kind: text for kind, text in self._above.items() if kind.startswith("lag.")}
        return None

    def _compare(self, kind: str, who: str, limit: Limit, lag: Lag) -> None:
        for unit in ("bytes", "seconds", "changes"):
            if (most := getattr(limit, unit)) is not None:
                text = f"{who} more than {Limit(**{unit: most})} behind"
                self._judge(f"{kind}.{unit}", text, getattr(lag, unit), most)
        if kind == "lag" and any(
            getattr(limit, unit) is not None
            and getattr(lag, unit) is None
            and getattr(lag, other) is not None
            for unit, other in (("changes", "bytes"), ("bytes", "changes"))
        ):
            # A source counts either bytes or changes.
            self._blind("snapshotPauseLag", True, Load())

    def _judge(self, kind: str, text: str, value: float | None, most: float | None) -> None:
        """Begin a pause above the limit, end it well below; what is not known changes nothing."""
        if value is None or most is None:
            return
        if value > most:
            self._above.setdefault(kind, text)
        elif value <= most * RESUME:
            self._above.pop(kind, None)

    def _blind(self, option: str, unseen: bool, load: Load) -> None:
        if unseen and option not in self._unseen:
            remedy = f" ({load.remedy})" if load.remedy else ""
            self._unseen[option] = f"{option} cannot be kept: the source does not tell{remedy}"
            logger.warning("%s", self._unseen[option])

    def _note(self, this: Round) -> None:
        """Remember and tell why nothing more was taken."""
        refused, before = this.refused, self.waiting
        calm = self._clock() - self._held_up >= CALM_SECONDS
        if refused is None and this.asked and before is not None and before.kind == "rows" and not calm:
            # Between two chunks of a limited snapshot there is always some wait.
            return
        if not this.asked:
            self._above.clear()
            self._unknown = None
        if refused is None:
            self.waiting = None
        elif before is None or before.kind != refused[0]:
            self.waiting = Wait(*refused, time.time())
        now = (self.waiting, self.unseen)
        if now == self._told:
            return
        self._told = now
        level = logging.INFO if {w.kind for w in (before, self.waiting) if w} == {"rows"} else logging.WARNING
        if self.waiting is not None and self.waiting != before:
            logger.log(level, "the snapshot waits: %s", self.waiting.reason)
        elif self.waiting is None and before is not None:
            logger.log(level, "the snapshot no longer waits after %.0f s", time.time() - before.since)
        if self._tell is not None:
            self._tell(*now)
