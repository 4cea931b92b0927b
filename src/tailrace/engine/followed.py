"""Which mirrors and feeds have had everything of their tables: `followed.json` in the state directory.

One that is new to a table whose snapshot is over lacks its rows, and one that was away for some batches has
missed their changes. Changes alone would leave it wrong for good, so its table is read anew for it.

    begin, before the query ─▶ settle, with the first batch ─▶ anew, behind every batch

Only who writes a batch owns the state, so only then the record is written: a run that is refused leaves it as
it is. What it asked for before that stays: at worst a table is read anew once more.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.changelog.filesystem import is_local, make_directory, open_filesystem
from tailrace.changelog.statefile import read_state, write_state
from tailrace.engine.progress import committed, logged
from tailrace.engine.spec import Feed, Mirror
from tailrace.model.errors import StateUnreadable
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Cursor
from tailrace.spark.plans import PlanStore

FILE, KIND = "followed.json", "followed"
_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class _Target:
    """A mirror or feed of a table. Each of its names stands for it."""

    table: TableRef
    names: tuple[str, ...]
    called: str


class Followed:
    """The mirrors and feeds of one pipeline.

    What follows is on record with None, what was left out with the last batch that was committed before.
    """

    def __init__(
        self, state_dir: str, checkpoint: str, mirrors: Sequence[Mirror], feeds: Sequence[Feed]
    ) -> None:
        self._fs, self._root = open_filesystem(state_dir)
        self._path = f"{self._root}/{FILE}"
        self._checkpoint = checkpoint
        seen_from = os.path.realpath(self._root) if is_local(self._fs) else ""
        self._targets = _told_apart((*_mirrors(mirrors, seen_from), *_feeds(feeds, seen_from)))
        self._asked: dict[TableRef, str] = {}
        self._run = uuid.uuid4().hex
        self._known: dict[str, int | None] | None = None

    def begin(self) -> dict[TableRef, str]:
        """Ask for the tables of which something lacks rows; each with what lacks them, in words.

        Called again after a failure, it also tells of what was asked for before that.
        """
        return self._ask(first=True)

    def settle(self, *, empty: bool = False) -> dict[TableRef, str]:
        """Before the first batch is written: remember who follows from here, and who does not.

        An `empty` batch is one that nobody misses: with it only a first record is made, so that who comes
        before there are changes is known to be new. What another run did since `begin` is asked for now: the
        answer has that too, and nothing where all is settled. Called again after a failure, it goes on.
        """
        if self._known is not None:
            return {}
        before = self._read()
        if empty and before is not None:
            return {}
        asked, batch = self._ask(first=False), self._batch()
        names = {name for target in self._targets for name in target.names}
        # Without a record all begin with their tables; or a version wrote this state that had none.
        known = before[1] if before else _following(one for one in self._targets if one.table not in asked)
        here = _following(one for one in self._targets if _whole(known, one.names, batch))
        away = {name: batch if left is None else left for name, left in known.items() if name not in names}
        # Who is away for longer than this batch has missed something, and need not be known any more.
        self._save({**{name: left for name, left in away.items() if left == batch}, **here})
        return asked

    def anew(self, tables: Collection[TableRef]) -> None:
        """A batch was written with which whole snapshots of these tables began: who is here has them."""
        known = self._known or {}
        fresh = _following(one for one in self._targets if one.table in tables)
        if fresh.keys() - {name for name, left in known.items() if left is None}:
            before = self._read()
            # A process that was frozen may find the record of another, which has gone on since.
            if before is not None and before[0] == self._run:
                self._save({**known, **fresh})

    def _ask(self, *, first: bool) -> dict[TableRef, str]:
        for table, why in self._lacking(first=first).items():
            PlanStore(self._fs, self._root).request(table, remembered=True)
            self._asked[table] = why
        return self._asked

    def _lacking(self, *, first: bool) -> dict[TableRef, str]:
        last, before = committed(self._checkpoint), self._read()
        if last is not None:
            if before is None:
                return {}
            # Of a batch that is not committed everything comes again, and to all who are here.
            batch, cursors = last[0], last[1].snapshots
        else:
            # So does the first one, with its snapshots; but where it began without any, none will come.
            batch, began = -1, logged(self._checkpoint) if first else None
            cursors = {table: one for table, one in began.snapshots.items() if one.of == 0} if began else {}
        known, waiting = before[1] if before else {}, self._waiting(cursors)
        found = {}
        for one in self._targets:
            cursor = cursors.get(str(one.table))
            # One whose snapshot is still to come gets it from its beginning.
            if (
                cursor is not None
                and cursor.whole
                and one.table not in waiting
                and not _whole(known, one.names, batch)
            ):
                found[one.table] = (
                    f"{one.called} lacks rows of {one.table}: it is new, or was left out for a while"
                )
        return found

    def _waiting(self, cursors: Mapping[str, Cursor]) -> set[TableRef]:
        """Whose whole snapshot is still to begin behind these."""
        begun = {cursor.plan for cursor in cursors.values()}
        return PlanStore(self._fs, self._root).fresh(begun)

    def _batch(self) -> int:
        last = committed(self._checkpoint)
        return -1 if last is None else last[0]

    def _save(self, known: dict[str, int | None]) -> None:
        make_directory(self._fs, self._root)
        write_state(self._fs, self._path, KIND, {"run": self._run, "targets": known})
        self._known = known

    def _read(self) -> tuple[str, dict[str, int | None]] | None:
        """Which run wrote the record, and what of."""
        match read_state(self._fs, self._path, KIND):
            case None:
                return None
            case {"run": str(run), "targets": dict(targets)}:
                return run, targets
        raise StateUnreadable("the record of mirrors and feeds lacks fields", place=self._path)


def _whole(known: Mapping[str, int | None], names: Collection[str], batch: int) -> bool:
    """Whether what has one of these names has had everything up to this batch."""
    return any(name in known and known[name] in (None, batch) for name in names)


def _following(targets: Iterable[_Target]) -> dict[str, int | None]:
    return {name: None for one in targets for name in one.names}


def _mirrors(mirrors: Sequence[Mirror], seen_from: str) -> Iterator[_Target]:
    for one in mirrors:
        places = _places(one.sink.place(one.target), seen_from)
        names = _names("mirror", places, one.called, one.target, str(one.table))
        yield _Target(one.table, names, f"the mirror {one.target}")


def _feeds(feeds: Sequence[Feed], seen_from: str) -> Iterator[_Target]:
    """Those that are to have existing rows first."""
    for feed in feeds:
        places = _places(feed.sink.place(), seen_from)
        for table in feed.tables if feed.snapshot else ():
            yield _Target(table, _names("feed", places, feed.called, str(table)), f"the feed {feed.called}")


def _told_apart(targets: Sequence[_Target]) -> tuple[_Target, ...]:
    """Two sinks of one place, as receivers that a header tells apart, each go by their own name only."""
    claims = Counter(name for one in targets for name in one.names)
    own = [tuple(name for name in one.names if claims[name] == 1) for one in targets]
    return tuple(replace(one, names=names or one.names) for one, names in zip(targets, own, strict=True))


def _names(kind: str, places: Sequence[str], called: str, *what: str) -> tuple[str, ...]:
    """By what it is known, at each of its places: with its sink's name, and without, as that may change."""
    if not places:
        return (_name(kind, called, *what),)
    return tuple(_name(kind, place, *by, *what) for place in places for by in ((), (called,)))


def _name(*parts: str) -> str:
    """What it is known by: of a receiver's URL any part may be secret, so it is not written down."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _places(place: str, seen_from: str) -> tuple[str, ...]:
    """By what a place is known: on a disk also as the state directory sees it, for both may be moved.

    A sink may get another name. Nothing where only that tells it.
    """
    if not place or _SCHEME.match(place):
        return (place,) if place else ()
    path = os.path.realpath(open_filesystem(place)[1])
    return (path, os.path.relpath(path, seen_from)) if seen_from else (path,)
