"""O1 of mirrors, O2 of the feed and O3, for lives that last: what was right once is forgotten.

Everything is read by plain means: SQL on the source, Delta's own reader, the lines of the feed, the files of
Spark's and Delta's logs.
"""

from __future__ import annotations

import bisect
import datetime
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.faults.oracles import Sampler, Violation, effective, from_log
from tests.life.grounds import Ground
from tests.life.model import BULK

Place = tuple[int, int]
# How often the acknowledged position is looked at. The files say when they were made.
LOOK_SECONDS = 0.1


def mirror_differs(ground: Ground, table: str, path: Path) -> list[str]:
    """O1 of a mirror: every row of the columns that the table has, none twice, none besides."""
    columns = ground.columns(table)
    wanted = Counter(_plain(row) for row in ground.rows(table, columns))
    mirror = DeltaTable(str(path))
    held = {field.name for field in mirror.schema().fields}
    read = mirror.to_pyarrow_table(columns=[name for name in columns if name in held])
    # A column that no change has shown yet is none of the mirror's; it is null in every row then.
    values = [read[name].to_pylist() if name in held else [None] * read.num_rows for name in columns]
    found = Counter(_plain(row) for row in zip(*values, strict=True))
    missing, extra = wanted - found, found - wanted
    lines = [f"{table}: {row} is missing" for row in list(missing)[:3]]
    lines += [f"{table}: {row} should not be there" for row in list(extra)[:3]]
    if lines:
        lines.append(f"{table}: {missing.total()} missing, {extra.total()} extra, columns {columns}")
    return lines


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    """A value as both sides say it: SQLite has no dates, truths or decimals."""
    if isinstance(value, bool):
        return Fraction(int(value))
    if isinstance(value, int | Decimal):
        return Fraction(value)
    if isinstance(value, float):
        return Fraction(repr(value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


class Book:
    """O2: what the application wrote into the ledger, and what the feed tells of it.

    Numbers of a key rise with every write, also with those that are taken back. Between two idle points the
    feed must tell exactly what was committed between them, in order; what is told again is told alike, only
    after a fault, and never from before the last idle point.
    """

    def __init__(self) -> None:
        self._present: set[int] = set()
        self._wanted: dict[int, list[tuple[int | None, str]]] = {}
        self._failed: set[tuple[int, int]] = set()
        self._began = False
        self._read: dict[Path, int] = {}
        self._seen: dict[Place, str] = {}
        self._delivered: list[dict[str, Any]] = []
        self._settled: Place = (-1, -1)
        self._repeated: Place | None = None
        self._told: list[dict[str, Any]] = []
        # What was told between the last two idle points, each change of the log once.
        self.told: list[dict[str, Any]] = []
        self.changes = 0

    def statements(self, ops: Iterable[Sequence[Any]]) -> list[str]:
        """The writes of a transaction."""
        made = []
        for op, key, number in ops:
            if op == "del":
                made.append(f"DELETE FROM ledger WHERE key = {key}")
            else:
                made.append(
                    f"INSERT INTO ledger VALUES ({key}, {number}, 'n') "
                    f"ON CONFLICT (key) DO UPDATE SET number = {number}"
                )
        return made

    def committed(self, ops: Iterable[Sequence[Any]]) -> None:
        for op, key, number in ops:
            if op == "put":
                self._want(key, number, "u" if key in self._present else "c")
                self._present.add(key)
            elif key in self._present:
                self._want(key, None, "d")
                self._present.discard(key)

    def bulk(self) -> list[int]:
        """The keys that are there of those that come and go by thousands."""
        return sorted(key for key in self._present if key >= BULK)

    def failed(self, ops: Iterable[Sequence[Any]]) -> None:
        self._failed |= {(key, number) for op, key, number in ops if op == "put"}

    def _want(self, key: int, number: int | None, op: str) -> None:
        self._wanted.setdefault(key, []).append((number, op))

    def read(self, feed: Path, *, ended: bool) -> None:
        """Take the feed's new lines. A torn last one was never flushed; the batch comes again."""
        done = self._read.get(feed, 0)
        with feed.open("rb") as file:
            file.seek(done)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read[feed] = done + len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))
        if ended:
            del self._read[feed]
            feed.unlink()

    def _take(self, change: dict[str, Any]) -> None:
        if change["table"] != "ledger":
            raise Violation("O2", f"the feed tells of {change['table']}, which it was not asked for")
        image = change["after"] or change["before"] or {}
        key, number = image.get("key"), image.get("number")
        if change["op"] != "d" and (key, number) in self._failed:
            raise Violation("O2", f"key {key}: number {number} was rolled back and delivered")
        if not from_log(change):
            self._told.append(change)
            return
        place, text = (change["position"], change["seq"]), json.dumps(change, sort_keys=True)
        if place <= self._settled:
            raise Violation("O2", f"the change at {place} came again after its batch was committed")
        if place in self._seen:
            if self._seen[place] != text:
                raise Violation("O2", f"a replay of {place} differs: {text}, not {self._seen[place]}")
            self._repeated = place
            return
        if self._seen and place < next(reversed(self._seen)):
            raise Violation("O2", f"{place} came first after {next(reversed(self._seen))}")
        self._seen[place] = text
        self._told.append(change)
        self._delivered.append(change)

    def settle(self, *, clean: bool) -> None:
        """Compare at an idle point. `clean`: nothing since the last one excuses a repetition."""
        if clean and self._began and self._repeated is not None:
            raise Violation("O2", f"the change at {self._repeated} came twice, and nothing had failed")
        told: dict[int, list[tuple[int | None, str]]] = {}
        for change in self._delivered:
            image = change["after"] or change["before"]
            number = None if change["op"] == "d" else image["number"]
            told.setdefault(image["key"], []).append((number, change["op"]))
        if self._began and told != self._wanted:
            wanted = self._wanted
            keys = [key for key in sorted({*told, *wanted}) if told.get(key) != wanted.get(key)]
            pairs = [(key, told.get(key), wanted.get(key)) for key in keys[:2]]
            raise Violation("O2", f"key, delivered, committed: {pairs}, and {len(keys)} keys in all")
        self.changes += len(self._delivered)
        if self._seen:
            self._settled = max(self._seen)
        self._began = True
        self._seen, self._delivered, self._wanted, self._repeated = {}, [], {}, None
        self.told, self._told = self._told, []


class Watch(Sampler):
    """O3 all the time, of a mirror and of Spark's log, for as long as it lasts."""

    def __init__(self, ground: Ground, checkpoint: Path, lake: Path) -> None:
        super().__init__(ground, checkpoint, lake, lake / "no feed")  # type: ignore[arg-type]
        self._base: int | None = None
        # The keys that the mirror had the last time, and how often it was looked until then.
        self._mirrored: set[int] = set()
        self._judged = 0

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def judge(self, told: Sequence[dict[str, Any]]) -> None:
        """Raise if a position was acknowledged early; forget what was judged.

        `told` is what was told of the mirrored table since the last time.
        """
        if not self._thread.is_alive() or self.samples <= self._judged:
            raise Violation("O3", "nobody looked at the acknowledgement")
        self._look()
        self._judged = self.samples
        places = effective(told, self._mirrored, self.ends)
        cursors, commits, delta = list(self._cursors), dict(self._commits), dict(self._delta)
        if not cursors:
            raise Violation("O3", "no cursor was ever seen")
        base = self._base if self._base is not None else cursors[0][1]
        fresh = [place for place in places if place > base]
        for moment, cursor in cursors:
            if cursor <= base:
                continue
            # A log goes on also where nothing of the table is in it: the mirror hears of changes alone.
            before = bisect.bisect_right(fresh, cursor)
            change = fresh[before - 1] if before else -1
            for name, made, wanted in (("Spark's commit", commits, cursor), ("the mirror", delta, change)):
                if wanted >= 0 and not any(at <= moment and end >= wanted for at, end in made.values()):
                    raise Violation("O3", f"{cursor} was acknowledged before {name} had {wanted}")
        self._base = cursors[-1][1]
        del self._cursors[: len(cursors) - 1]
        # Not what was told: a chunk that is told may be lost with its run, and be another one the next time.
        keys = DeltaTable(str(self._log.parent)).to_pyarrow_table(columns=["key"])["key"]
        self._mirrored = set(keys.to_pylist())
