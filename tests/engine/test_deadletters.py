"""Dead letters: durable, whole, listed once each, and retried without losing any."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tailrace.engine.deadletters import DeadLetter, DeadLetters
from tailrace.model.errors import StateUnreadable, Transient
from tailrace.sinks.contract import Rejection


class Clock:
    """A second later at each look."""

    moment = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetters:
    return DeadLetters(tmp_path / "state", Clock())


def ids(letters: DeadLetters, index: str | None = None) -> list[str]:
    return [letter.id for letter in letters.letters(index)]


def test_a_rejection_is_kept_with_all_that_is_known_of_it(letters: DeadLetters) -> None:
    assert letters.letters() == []
    letters.append("customers", 7, [Rejection('1"\n', "n: not a number"), Rejection("ä", "too deep")])
    assert letters.letters() == [
        DeadLetter("customers", '1"\n', 7, "n: not a number", "2026-01-02T00:00:01.000000Z"),
        DeadLetter("customers", "ä", 7, "too deep", "2026-01-02T00:00:01.000000Z"),
    ]
    assert len(letters.path.read_bytes().splitlines()) == 2
    assert stat.S_IMODE(letters.path.stat().st_mode) == 0o600


def test_nothing_rejected_leaves_nothing(letters: DeadLetters) -> None:
    letters.append("customers", 7, [])
    assert not letters.path.parent.exists()


def test_a_document_is_listed_once_however_often_it_was_rejected(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "old"), Rejection("b", "old")])
    letters.append("orders", 1, [Rejection("a", "other")])
    letters.append("customers", 2, [Rejection("a", "new")])
    assert [(one.index, one.id, one.reason) for one in letters.letters()] == [
        ("customers", "b", "old"),
        ("orders", "a", "other"),
        ("customers", "a", "new"),
    ]
    assert ids(letters, "orders") == ["a"]


def test_what_a_crash_left_of_a_line_is_cut_off(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x")])
    with letters.path.open("ab") as file:
        file.write(b'{"index":"customers","id":"half')
    assert ids(letters) == ["a"]
    letters.append("customers", 2, [Rejection("b", "y" * 200_000)])
    with letters.path.open("ab") as file:
        file.write(b"z" * 200_000)
    letters.append("customers", 3, [Rejection("c", "z")])
    assert ids(letters) == ["a", "b", "c"]


def test_a_damaged_line_is_named_and_not_passed_over(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x")])
    for damage in (b"nonsense\n", b'{"index":"i"}\n', b"[]\n", b"\n"):
        whole = letters.path.read_bytes()
        letters.path.write_bytes(whole + damage)
        with pytest.raises(StateUnreadable, match="line 2"):
            letters.letters()
        letters.path.write_bytes(whole)


def test_a_full_disk_is_a_passing_fault_and_leaves_whole_lines(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x")])
    before = letters.path.read_bytes()
    letters.path.unlink()
    letters.path.symlink_to("/dev/full")
    with pytest.raises(Transient, match="cannot be written"):
        letters.append("customers", 2, [Rejection("b", "y")])
    letters.path.unlink()
    letters.path.write_bytes(before)
    assert ids(letters) == ["a"]


def test_a_retry_builds_each_document_once_and_keeps_what_is_rejected_still(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x"), Rejection("b", "x")])
    letters.append("orders", 2, [Rejection("a", "x")])
    letters.append("customers", 3, [Rejection("a", "x")])
    asked = []

    def rebuild(index: str, ids: Sequence[str]) -> Sequence[Rejection]:
        asked.append((index, sorted(ids)))
        return [Rejection("b", "worse")] if index == "customers" else []

    done = letters.retry(rebuild)
    assert sorted(asked) == [("customers", ["a", "b"]), ("orders", ["a"])]
    assert done.written == 2
    assert [(one.id, one.version, one.reason) for one in done.rejected] == [("b", 1, "worse")]
    assert [(one.index, one.id, one.reason) for one in letters.letters()] == [("customers", "b", "worse")]


def test_a_retry_can_be_of_one_index_or_of_some_ids(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x"), Rejection("b", "x")])
    letters.append("orders", 1, [Rejection("a", "x")])
    assert letters.retry(lambda *_: [], "customers", ["a", "unknown"]).written == 1
    assert [(one.index, one.id) for one in letters.letters()] == [("customers", "b"), ("orders", "a")]
    assert letters.retry(lambda *_: [], "orders").written == 1
    assert letters.retry(lambda *_: [], "orders").written == 0
    assert ids(letters) == ["b"]


def test_letters_stay_where_building_fails(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x")])
    letters.append("orders", 1, [Rejection("b", "x")])

    def rebuild(index: str, ids: Sequence[str]) -> Sequence[Rejection]:
        if index == "orders":
            raise Transient("the source is away")
        return []

    with pytest.raises(Transient):
        letters.retry(rebuild)
    assert ids(letters) == ["b"]


def test_letters_that_come_during_a_retry_stay(letters: DeadLetters) -> None:
    letters.append("customers", 1, [Rejection("a", "x"), Rejection("b", "x")])

    def rebuild(index: str, ids: Sequence[str]) -> Sequence[Rejection]:
        letters.append("customers", 2, [Rejection("a", "again"), Rejection("c", "new")])
        return []

    letters.retry(rebuild)
    assert [(one.id, one.reason) for one in letters.letters()] == [("a", "again"), ("c", "new")]
    assert [file.name for file in letters.path.parent.iterdir() if file.suffix == ".tmp"] == []


WRITER = """
import sys
from tailrace.engine.deadletters import DeadLetters
from tailrace.sinks.contract import Rejection
letters, part = DeadLetters(sys.argv[1]), sys.argv[2]
for i in range(40):
    letters.append("customers", i, [Rejection(f"{part}-{i}-{j}", "x" * 3000) for j in range(3)])
    if i % 10 == 9:
        letters.retry(lambda index, ids: [], "customers", [f"{part}-{i}-0"])
"""


def test_several_processes_append_and_retry_at_once(tmp_path: Path, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "d"), str(part)], env=environment)
        for part in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = ids(DeadLetters(tmp_path / "d"))
    assert len(found) == len(set(found)) == 3 * (120 - 4)
