"""Which changes a mirror must have a version of before they are acknowledged: what O3 asks of it."""

from __future__ import annotations

from typing import Any

from tests.faults.oracles import effective, once_each


def told(*changes: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Changes as a feed tells them: kind, key, position. `uK` changes a key into the next one."""
    lines = []
    for seq, (op, key, position) in enumerate(changes):
        after = None if op[0] in "dst" else {"key": key + (op == "uK")}
        before = {"key": key} if op in ("d", "uK") else None
        lines.append({"op": op[0], "before": before, "after": after, "position": position, "seq": seq})
    return lines


def test_what_changes_a_row_needs_a_version() -> None:
    present = {1, 2}
    assert effective(told(("u", 1, 10), ("c", 3, 20), ("d", 2, 30)), present, [30]) == [10, 20, 30]
    assert present == {1, 3}


def test_a_row_that_comes_and_goes_within_one_batch_needs_none() -> None:
    changes = told(("c", 1, 10), ("u", 1, 20), ("d", 1, 30))
    assert effective(changes, set(), [5, 30, 40]) == []


def test_a_row_that_comes_in_one_batch_and_goes_in_the_next_needs_a_version_of_each() -> None:
    changes = told(("c", 1, 10), ("u", 1, 20), ("d", 1, 30))
    assert effective(changes, set(), [20, 30]) == [10, 20, 30]
    assert effective(changes, set(), [10, 30]) == [10, 20, 30]


def test_a_row_that_comes_and_goes_excuses_no_other_of_its_batch() -> None:
    changes = told(("c", 1, 10), ("u", 2, 20), ("d", 1, 30))
    assert effective(changes, {2}, [30]) == [20]


def test_a_row_that_was_there_does_not_come_and_go() -> None:
    assert effective(told(("u", 1, 10), ("d", 1, 20)), {1}, [20]) == [10, 20]
    # Gone, back, and gone again: that it is gone needs a version.
    assert effective(told(("d", 1, 10), ("c", 1, 20), ("d", 1, 30)), {1}, [30]) == [10]


def test_a_row_that_comes_once_more_stays() -> None:
    assert effective(told(("c", 1, 10), ("d", 1, 20), ("c", 1, 30)), set(), [30]) == [30]


def test_a_delete_of_what_a_snapshot_did_not_find_any_more_needs_none() -> None:
    changes = told(("c", 1, 10), ("s", 0, 20), ("r", 2, 20), ("d", 1, 30), ("d", 2, 40))
    assert effective(changes, set(), [20, 30, 40]) == [10, 40]


def test_what_a_snapshot_read_was_there_before_the_batch_that_deletes_it() -> None:
    # Chunks come after the log of their batch, so the delete is of a later one.
    assert effective(told(("r", 1, 10), ("u", 1, 20), ("d", 1, 20)), set(), [10, 20]) == [20]


def test_another_key_is_the_end_of_the_old_one() -> None:
    present = {1}
    assert effective(told(("uK", 1, 10)), present, [10]) == [10]
    assert present == {2}
    assert effective(told(("c", 5, 20), ("uK", 5, 30), ("d", 6, 40)), present, [40]) == []


def test_truncate_needs_a_version_where_something_was_there_before_the_batch() -> None:
    assert effective(told(("t", 0, 10)), {1}, [10]) == [10]
    assert effective(told(("t", 0, 10)), set(), [10]) == []
    assert effective(told(("c", 1, 10), ("t", 0, 20)), set(), [20]) == []
    assert effective(told(("c", 1, 10), ("t", 0, 20)), set(), [10, 20]) == [10, 20]


def test_an_uncommitted_end_is_one_batch() -> None:
    assert effective(told(("c", 1, 10), ("d", 1, 20), ("c", 2, 30)), set(), []) == [30]


def test_what_the_log_told_before_counts_once() -> None:
    changes = told(("c", 1, 10), ("d", 1, 20), ("r", 2, 20))
    assert list(once_each([*changes[:1], *changes, *changes])) == [*changes, changes[2]]
