"""Which mirrors and feeds have had everything of their tables: `followed.json` in the state directory.

One that is new to a table whose snapshot is over lacks its rows, and one that was away for some batches has
missed their changes. Changes alone would leave it wrong for good, so its table is read anew for it.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Collection, Iterator, Mapping, Sequence

from tailrace.changelog.filesystem import is_local, make_directory, open_filesystem
from tailrace.changelog.statefile import read_state, write_state
from tailrace.engine.progress import committed, logged
from tailrace.engine.spec import Feed, Mirror
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableRef
from tailrace.spark.plans import PlanStore

FILE, KIND = "followed.json", "followed"


class Followed:
    """The mirrors and feeds of one pipeline. Written between two batches, or by the thread that writes them.

    What follows is on record with None, what was left out with the last batch that was committed before.
    """

    def __init__(
        self, state_dir: str, checkpoint: str, mirrors: Sequence[Mirror], feeds: Sequence[Feed]
    ) -> None:
        self._fs, self._root = open_filesystem(state_dir)
        self._path = f"{self._root}/{FILE}"
        self._checkpoint = checkpoint
        # Seen from the state directory, so that both can move together.
        seen_from = self._root if is_local(self._fs) else ""
        self._tables = dict([*_mirrors(mirrors, seen_from), *_feeds(feeds)])
        self._known: dict[str, int | None] = {}
        self._lacking: dict[TableRef, str] = {}

    def lacking(self) -> dict[TableRef, str]:
        """The tables that must be read anew, each with one that lacks rows of it, in words."""
        offset, known = logged(self._checkpoint), self._read()
        if offset is None or known is None:
            # All begin with their tables; or a version wrote this state that had no record.
            return {}
        batch, waiting = self._batch(), self._waiting()
        found = {}
        for name, table in self._tables.items():
            cursor = offset.snapshots.get(str(table))
            # One whose snapshot is still to come gets it from its beginning.
            if (
                cursor is not None
                and cursor.whole
                and table not in waiting
                and not _whole(known, name, batch)
            ):
                found[table] = _words(name)
        return found

    def begin(self) -> dict[TableRef, str]:
        """Before the first batch: remember who follows from here, and ask for what they lack.

        Called again after a failure, it also tells of what was asked for before that.
        """
        lacking, batch = self.lacking(), self._batch()
        for table in lacking:
            PlanStore(self._fs, self._root).request(table, remembered=True)
        self._lacking.update(lacking)
        known = self._read()
        if known is None or logged(self._checkpoint) is None:
            known = dict.fromkeys(self._tables)
        here = {name: None for name in self._tables if _whole(known, name, batch)}
        away = {
            name: batch if left is None else left for name, left in known.items() if name not in self._tables
        }
        # Who is away for longer than this batch has missed something, and need not be known any more.
        self._save({**{name: left for name, left in away.items() if left == batch}, **here})
        return self._lacking

    def anew(self, tables: Collection[TableRef]) -> None:
        """A batch was written with which whole snapshots of these tables began: who is here has them."""
        fresh = {name: None for name, table in self._tables.items() if table in tables}
        if fresh.keys() - {name for name, left in self._known.items() if left is None}:
            self._save({**self._known, **fresh})

    def _waiting(self) -> set[TableRef]:
        """Whose whole snapshot is still to begin. An uncommitted batch comes again for who is here."""
        last = committed(self._checkpoint)
        begun = {cursor.plan for cursor in last[1].snapshots.values()} if last is not None else set()
        return PlanStore(self._fs, self._root).fresh(begun)

    def _batch(self) -> int:
        last = committed(self._checkpoint)
        return -1 if last is None else last[0]

    def _save(self, known: dict[str, int | None]) -> None:
        if known != self._read():
            make_directory(self._fs, self._root)
            write_state(self._fs, self._path, KIND, {"targets": known})
        self._known = known

    def _read(self) -> dict[str, int | None] | None:
        body = read_state(self._fs, self._path, KIND)
        if body is None:
            return None
        if not isinstance(body.get("targets"), dict):
            raise StateUnreadable("the record of mirrors and feeds lacks fields", place=self._path)
        return dict(body["targets"])


def _whole(known: Mapping[str, int | None], name: str, batch: int) -> bool:
    """Whether it has had everything up to this batch."""
    return name in known and known[name] in (None, batch)


def _mirrors(mirrors: Sequence[Mirror], seen_from: str) -> Iterator[tuple[str, TableRef]]:
    """By where they are: a sink may get another path, or another name."""
    for one in mirrors:
        place = one.sink.place(one.target)
        if place and seen_from and "://" not in place:
            place = os.path.relpath(place, seen_from)
        yield json.dumps(["mirror", place or one.called, one.target, str(one.table)]), one.table


def _feeds(feeds: Sequence[Feed]) -> Iterator[tuple[str, TableRef]]:
    """Those that are to have existing rows first."""
    for feed in feeds:
        for table in feed.tables if feed.snapshot else ():
            yield json.dumps(["feed", feed.called, "", str(table)]), table


def _words(name: str) -> str:
    kind, called, target, table = json.loads(name)
    who = f"the mirror {target}" if kind == "mirror" else f"the feed {called}"
    return f"{who} lacks rows of {table}: it is new, or was left out for a while"
