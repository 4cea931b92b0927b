"""An application that does everything to a table while its snapshot is read."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.faults.databases import ROWS, TABLE, Postgres
from tests.faults.oracles import Violation
from tests.faults.rig import Rig
from tests.snapshots.applications import FIRST, Writing

PARTITIONS = 4


def partitioned(rig: Rig, rows: int) -> None:
    """Where there are partitions: the ledger in four of them, cut by key."""
    if not isinstance(rig.ledger, Postgres):
        return
    cuts = [FIRST + 2 * rows * number // PARTITIONS for number in range(1, PARTITIONS)]
    bounds = ["MINVALUE", *map(str, cuts), "MAXVALUE"]
    rig.run(
        "DROP TABLE ledger",
        f"{TABLE} PARTITION BY RANGE (key)",
        *(
            f"CREATE TABLE part{number} PARTITION OF ledger"
            f" FOR VALUES FROM ({bounds[number]}) TO ({bounds[number + 1]})"
            for number in range(PARTITIONS)
        ),
    )
    rig.ledger.admin("ALTER PUBLICATION tailrace ADD TABLE ledger")


def fill(rig: Rig, rows: int, every: int = 1, note: str = ":bulk") -> list[str]:
    """Statements that insert every so manieth of the even keys."""
    if isinstance(rig.ledger, Postgres):
        numbers = f"generate_series(0, {rows - 1}, {every}) n(i)"
        return [f"INSERT INTO ledger SELECT {FIRST} + 2 * i, 1, '{note}' FROM {numbers}"]
    return [
        f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + {every} FROM n WHERE i + {every} < {rows}) "
        f"INSERT INTO ledger SELECT {FIRST} + 2 * i, 1, '{note}' FROM n"
    ]


class Churn(Writing):
    """Inserts, updates, deletes, changed keys, rows moved to another partition; on demand a truncation.

    Even keys are there from the beginning, odd ones come later; a key that was deleted, or changed into
    another one, comes again only by a truncation. `done` counts what was done while `snapshot` was true.
    """

    pause = 0.004

    def __init__(self, rig: Rig, rows: int, chance: random.Random) -> None:
        super().__init__(rig)
        self._rows, self._dice = rows, chance
        self._every = 1
        self._extra: set[int] = set()
        self._gone: set[int] = set()
        self._buried: set[int] = set()
        self._used: set[int] = set()
        self.truncate = False
        self.snapshot = True
        self.done: Counter[str] = Counter()

    @property
    def graves(self) -> set[int]:
        """Keys that are gone for good, and were never there a second time as those that a truncated table is
        filled with again: a chunk may show these before the log tells of them."""
        return {key for key in self._buried if self._every == 1 or not self._first(key)}

    def transaction(self, connection: Any) -> None:
        postgres = isinstance(self._rig.ledger, Postgres)
        connection.execute("BEGIN" if postgres else "BEGIN IMMEDIATE")
        told: list[str] = []
        if self.truncate:
            self.truncate = False
            self._truncate(connection, postgres)
            told.append("truncate")
        else:
            for _ in range(self._dice.randint(1, 4)):
                what = self._dice.choice(("insert", "update", "update", "delete", "rekey", "move"))
                told.append(what if getattr(self, f"_{what}")(connection) else "nothing")
        connection.execute("COMMIT")
        if self.snapshot:
            self.done.update(told)

    def _truncate(self, connection: Any, postgres: bool) -> None:
        connection.execute("TRUNCATE ledger" if postgres else "DELETE FROM ledger")
        self._every = 3
        for statement in fill(self._rig, self._rows, self._every, ":second"):
            connection.execute(statement)
        self._extra.clear()
        self._gone.clear()

    def _first(self, key: int) -> bool:
        """Whether the table was filled with it."""
        place, odd = divmod(key - FIRST, 2)
        return not odd and place % self._every == 0

    def _living(self) -> int | None:
        if self._extra and self._dice.random() < 0.3:
            return self._dice.choice(tuple(self._extra)[:50])
        key = FIRST + 2 * self._every * self._dice.randrange(self._rows // self._every)
        return None if key in self._gone else key

    def _free(self, near: int | None = None) -> int | None:
        """An odd key that was never used: anywhere, or in another partition than `near`."""
        place = self._dice.randrange(self._rows)
        if near is not None:
            step = self._dice.randrange(1, PARTITIONS) * self._rows // PARTITIONS
            place = ((near - FIRST) // 2 + step) % self._rows
        key = FIRST + 2 * place + 1
        if key in self._used:
            return None
        self._used.add(key)
        return key

    def _bury(self, key: int) -> None:
        self._extra.discard(key)
        self._gone.add(key)
        self._buried.add(key)

    def _insert(self, connection: Any) -> bool:
        if (key := self._free()) is None:
            return False
        connection.execute(f"INSERT INTO ledger VALUES ({key}, 1, ':new')")
        self._extra.add(key)
        return True

    def _update(self, connection: Any) -> bool:
        begin = FIRST + 2 * self._dice.randrange(self._rows)
        connection.execute(
            f"UPDATE ledger SET number = number + 1 WHERE key BETWEEN {begin} AND {begin + 20}"
        )
        return True

    def _delete(self, connection: Any) -> bool:
        if (key := self._living()) is None:
            return False
        connection.execute(f"DELETE FROM ledger WHERE key = {key}")
        self._bury(key)
        return True

    def _rekey(self, connection: Any, *, far: bool = False) -> bool:
        key = self._living()
        other = self._free(key if far else None) if key is not None else None
        if key is None or other is None:
            return False
        connection.execute(f"UPDATE ledger SET key = {other}, number = number + 1 WHERE key = {key}")
        self._bury(key)
        self._extra.add(other)
        return True

    def _move(self, connection: Any) -> bool:
        return self._rekey(connection, far=True)


def equal(rig: Rig) -> int:
    """O1 by columns, for a million rows: the mirror is the source, row by row. How many rows that are."""
    connection = rig.connect()
    try:
        columns = list(zip(*connection.execute(ROWS).fetchall(), strict=True))
    finally:
        connection.close()
    names = ("key", "number", "note")
    kinds = (pa.int64(), pa.int64(), pa.string())
    source = pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})
    mirror = DeltaTable(str(rig.lake)).to_pyarrow_table(columns=list(names)).cast(source.schema)
    source, mirror = (table.sort_by("key").combine_chunks() for table in (source, mirror))
    if not source.equals(mirror):
        there, here = (set(table["key"].to_pylist()) for table in (source, mirror))
        rows = (dict(zip(t["key"].to_pylist(), t.to_pylist(), strict=True)) for t in (source, mirror))
        wanted, found = rows
        different = [key for key in there & here if wanted[key] != found[key]]
        raise Violation(
            "O1",
            f"{len(there - here)} missing {sorted(there - here)[:5]}, {len(here - there)} extra"
            f" {sorted(here - there)[:5]}, {len(different)} different"
            f" {[(wanted[key], found[key]) for key in different[:3]]}; {mirror.num_rows} rows",
        )
    return int(source.num_rows)


def risen(feed: Path, graves: set[int]) -> set[int]:
    """Keys that are gone for good, and of which the feed told once more after it had told that."""
    buried: set[int] = set()
    found: set[int] = set()
    with feed.open() as lines:
        for line in lines:
            change = json.loads(line)["change"]
            before, after = (image and image.get("key") for image in (change["before"], change["after"]))
            if after in buried:
                found.add(after)
            if before in graves and before != after:
                buried.add(before)
    return found
