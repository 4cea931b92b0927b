"""O2 over a feed: every kind of lie is caught, and what a fault excuses is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.oracles import Violation
from tests.life.model import BULK
from tests.life.oracles import Book


class Feed:
    """A book with one idle point behind it, and a feed that tells what a test says."""

    def __init__(self, path: Path) -> None:
        self.path, self.book, self._seq = path, Book(), 0
        path.touch()
        self.book.committed([["put", 1, 1]])
        self.book.settle(clean=True)

    def tell(self, op: str, key: int, number: int, *, place: int | None = None) -> int:
        """A change of the log, at the next place or at this one."""
        self._seq += 1
        image = {"key": key, "number": number, "note": "n"}
        before, after = (image, None) if op == "d" else (None, image)
        at = place or self._seq
        line: dict[str, Any] = {"op": op, "table": "ledger", "before": before, "after": after}
        with self.path.open("a") as file:
            file.write(json.dumps({**line, "position": at, "seq": 0}) + "\n")
        return at

    def settle(self, *, clean: bool = True) -> None:
        self.book.read(self.path, ended=False)
        self.book.settle(clean=clean)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "feed.ndjson")


def test_what_was_committed_and_told_in_order_is_right(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2], ["del", 1, 3], ["put", 1, 4], ["put", 2, 1]])
    for op, key, number in (("u", 1, 2), ("d", 1, 2), ("c", 1, 4), ("c", 2, 1)):
        feed.tell(op, key, number)
    feed.settle()
    assert feed.book.changes == 4


def test_a_watch_is_told_of_every_change_once_with_what_a_snapshot_read(feed: Feed) -> None:
    feed.book.committed([["put", 2, 1], ["put", 3, 1]])
    first = feed.tell("c", 2, 1)
    feed.tell("s", 0, 0)
    feed.tell("r", 1, 1)
    feed.tell("c", 2, 1, place=first)
    last = feed.tell("c", 3, 1)
    feed.settle(clean=False)
    assert [change["op"] for change in feed.book.told] == ["c", "s", "r", "c"]
    assert [change["position"] for change in feed.book.told][::3] == [first, last]
    feed.settle()
    assert feed.book.told == []


def test_a_lost_change_is_caught(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2], ["put", 1, 3]])
    feed.tell("u", 1, 3)
    with pytest.raises(Violation, match="O2: key, delivered, committed"):
        feed.settle()


def test_rows_that_come_and_go_by_thousands_are_compared_one_by_one(feed: Feed) -> None:
    feed.book.committed(["put", BULK + number, 1] for number in range(3))
    for number in range(3):
        feed.tell("c", BULK + number, 1)
    feed.settle()
    assert feed.book.bulk() == [BULK, BULK + 1, BULK + 2]
    feed.book.committed(["del", key, 0] for key in feed.book.bulk())
    for number in (0, 2):
        feed.tell("d", BULK + number, 1)
    with pytest.raises(Violation, match=r"O2: key, delivered, committed: .*1000001"):
        feed.settle()


def test_a_change_that_nobody_made_is_caught(feed: Feed) -> None:
    feed.tell("u", 1, 2)
    with pytest.raises(Violation, match="O2"):
        feed.settle()


def test_changes_in_the_wrong_order_are_caught(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2], ["put", 1, 3]])
    feed.tell("u", 1, 3, place=20)
    feed.tell("u", 1, 2, place=19)
    with pytest.raises(Violation, match="came first after"):
        feed.settle()


def test_what_was_rolled_back_is_caught_in_the_log_and_in_a_snapshot(feed: Feed) -> None:
    feed.book.failed([["put", 1, 2]])
    feed.tell("r", 1, 2)
    with pytest.raises(Violation, match="rolled back"):
        feed.settle()


def test_a_repetition_is_excused_by_a_fault_alone(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2]])
    place = feed.tell("u", 1, 2)
    feed.tell("u", 1, 2, place=place)
    with pytest.raises(Violation, match="came twice"):
        feed.settle()
    feed.book._repeated = None
    feed.settle(clean=False)


def test_a_repetition_that_differs_is_never_excused(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2]])
    place = feed.tell("u", 1, 2)
    feed.tell("u", 1, 3, place=place)
    with pytest.raises(Violation, match="differs"):
        feed.settle(clean=False)


def test_nothing_comes_again_that_was_committed_at_an_idle_point(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2]])
    place = feed.tell("u", 1, 2)
    feed.settle()
    feed.tell("u", 1, 2, place=place)
    with pytest.raises(Violation, match="after its batch was committed"):
        feed.settle(clean=False)


def test_a_torn_line_waits_for_its_end_and_a_read_feed_of_an_ended_run_goes(feed: Feed) -> None:
    feed.book.committed([["put", 1, 2]])
    feed.tell("u", 1, 2)
    with feed.path.open("a") as file:
        file.write('{"op": "u", "tab')
    feed.settle()
    feed.book.read(feed.path, ended=True)
    assert not feed.path.exists()
