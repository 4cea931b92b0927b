import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.changelog.log import Changelog
from tailrace.changelog.reader import read_windows
from tailrace.changelog.segment import WindowRef
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import IdentityMismatch, LogLost, StateOwned, UsageError
from tailrace.model.position import Position
from tests.changelog.support import (
    LINES,
    ORDERS,
    SOURCE,
    all_rows,
    at,
    changes,
    expected,
    in_parts,
    part,
    rows_of,
    several,
    table_named,
)


@pytest.fixture(params=["{}", "memory://log-test{}"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def opened(uri: str, **options: float) -> Changelog:
    return Changelog.open(uri, owner_name="test", source=SOURCE, **options)  # type: ignore[arg-type]


def begun(uri: str, **options: float) -> Changelog:
    log = opened(uri, **options)
    log.begin(at(0))
    return log


def test_what_is_flushed_is_read_in_order_and_again_after_reopening(uri: str) -> None:
    with begun(uri) as log:
        for position in range(1, 21):
            log.append(part(position, rows=position % 4 + 1))
            if position % 6 == 0:
                assert log.flush() == position
        log.flush()
        rows = all_rows(log)
        assert rows == [row for position in range(1, 21) for row in expected(position, position % 4 + 1)]
    with opened(uri) as log:
        assert log.end == 20
        assert all_rows(log) == rows


def test_several_transactions_in_one_part_are_told_apart_again(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(1))
        log.append(several([2, 3, 5, 6]))
        log.append(part(7))
        log.append(several([8, 9], rows=1))
        log.flush()
        assert [log.bound(0, max_rows=rows) for rows in (1, 3, 8, 9, 12)] == [1, 1, 2, 3, 5]
        assert log.bound(3, up_to=4) == 3
        assert rows_of(uri, log.plan(2, 5)) == [*expected(3, 3), *expected(5, 3)]
        everything = [row for n in (1, 2, 3, 5, 6, 7) for row in expected(n, 3)]
        assert all_rows(log) == [*everything, *expected(8, 1), *expected(9, 1)]
        with pytest.raises(UsageError, match="came after"):
            log.append(several([9, 10]))


def test_a_part_of_several_transactions_gives_them_back_one_by_one() -> None:
    one_by_one = list(several([2, 3, 5]).transactions())
    assert [(one.position, one.rows, one.ends) for one in one_by_one] == [(at(n), 3, None) for n in (2, 3, 5)]
    assert [[batch.data["seq"].to_pylist() for batch in one.batches] for one in one_by_one] == [
        [[0, 2], [1]]
    ] * 3


def test_what_is_not_flushed_is_not_visible_and_comes_again_after_a_close(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(1))
        assert log.end == 0
        assert log.plan(0, 0) == []
    with opened(uri) as log:
        assert log.end == 0
        log.append(part(1))
        assert log.flush() == 1


def test_a_transaction_in_parts_is_visible_only_when_complete(uri: str) -> None:
    with begun(uri) as log:
        *most, last = in_parts(5, 40, 10)
        log.append(part(4))
        for piece in most:
            log.append(piece)
        assert log.flush() == 4
        log.append(last)
        assert log.flush() == 5
        assert all_rows(log) == expected(4, 3) + expected(5, 40)


def test_a_transaction_larger_than_memory_is_spilled_and_read_whole(uri: str) -> None:
    with begun(uri, spill_bytes=20_000) as log:
        log.append(part(1))
        for piece in in_parts(2, 5000, 250):
            log.append(piece)
        log.append(part(3))
        log.flush()
        assert [rows for _, rows, _, _ in all_rows(log)] == [*range(3), *range(5000), *range(3)]
        plan = log.plan(1, 2)
        files = {block.external for ref in plan for block in ref.blocks}
        assert len(files - {None}) > 3
        assert rows_of(uri, plan) == expected(2, 5000)
    with opened(uri) as log:
        assert rows_of(uri, log.plan(1, 2)) == expected(2, 5000)
        log.acknowledge(at(3))
        assert log.prune() == 2
        assert not [name for name in _files(log) if name.endswith((".spill", ".seg"))]


def test_a_large_part_leaves_memory_before_the_next_one_is_made(uri: str) -> None:
    with begun(uri, spill_bytes=5000) as log:
        first, *rest = in_parts(1, 2000, 1000)
        log.append(first)
        assert [name for name in _files(log) if name.endswith(".spill")]
        for piece in rest:
            log.append(piece)
        log.flush()
        assert all_rows(log) == expected(1, 2000)


def _files(log: Changelog) -> list[str]:
    from tailrace.changelog.filesystem import listing, open_filesystem

    return sorted(listing(*open_filesystem(log.uri)))


def test_spill_files_of_a_transaction_that_never_ended_are_removed_at_the_next_opening(
    tmp_path: Path,
) -> None:
    log = begun(str(tmp_path), spill_bytes=5000)
    for piece in list(in_parts(1, 2000, 100))[:-1]:
        log.append(piece)
    assert any(name.endswith(".spill") for name in _files(log))
    # What a killed process leaves: nothing is cleaned up, and its ownership ends.
    log._owner.release()
    with opened(str(tmp_path)) as again:
        assert not any(name.endswith(".spill") for name in _files(again))


def test_a_range_can_begin_and_end_at_any_transaction(uri: str) -> None:
    with begun(uri) as log:
        for position in range(10, 90, 10):
            log.append(part(position, rows=5))
            if position == 40:
                log.flush()
        log.flush()
        for start in range(0, 90, 10):
            for end in range(start, 90, 10):
                refs = log.plan(start, end)
                wanted = [row for p in range(start + 10, end + 1, 10) for row in expected(p, 5)]
                assert rows_of(uri, refs) == wanted
                assert sum(ref.rows for ref in refs) == len(wanted) == log.rows(start, end)


def test_small_transactions_share_a_window(tmp_path: Path) -> None:
    with begun(str(tmp_path)) as log:
        for position in range(1, 501):
            log.append(part(position, rows=1))
        log.flush()
        assert len(log.plan(0, 500)) == 1


def test_a_table_that_changes_its_columns_gets_a_new_window_and_keeps_its_order(tmp_path: Path) -> None:
    old, new = ORDERS, table_named("orders", generation="2")
    with begun(str(tmp_path)) as log:
        log.append(Part((changes(old, 1, [0]),), at(1)))
        log.append(Part((changes(new, 2, [0]),), at(2)))
        log.append(Part((changes(old, 3, [0, 2]), changes(LINES, 3, [1]), changes(new, 3, [3])), at(3)))
        log.append(Part((changes(new, 4, [0]),), at(4)))
        log.flush()
        groups = list(read_windows(log.uri, log.plan(0, 4)))
    assert [[(b.table.generation, len(b)) for b in group] for group in groups] == [
        [("", 1)],
        [("2", 1)],
        [("", 2), ("", 1), ("2", 1)],
        [("2", 1)],
    ]


def test_optional_columns_of_one_batch_do_not_disturb_its_neighbours(tmp_path: Path) -> None:
    plain = changes(ORDERS, 1, [0])
    absent = pa.array([["text"]], pa.list_(pa.string()))
    extended = ChangeBatch(ORDERS, changes(ORDERS, 2, [0]).data.append_column("after_absent", absent))
    with begun(str(tmp_path)) as log:
        for position, batch in ((1, plain), (2, extended)):
            log.append(Part((batch,), at(position)))
        log.flush()
        groups = list(read_windows(log.uri, log.plan(0, 2)))
    assert [group[0].data.schema.names[-1] for group in groups] == ["after", "after_absent"]
    assert groups[1][0].data.equals(extended.data)


def test_references_survive_pickle_and_json(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(1, rows=9))
        log.append(part(2, rows=9))
        log.flush()
        [ref] = log.plan(0, 1)
        for copy in (
            pickle.loads(pickle.dumps(ref)),  # noqa: S301
            WindowRef.from_json(json.loads(json.dumps(ref.to_json()))),
        ):
            assert copy == ref
            assert rows_of(uri, [copy]) == expected(1, 9)


def test_only_the_tables_that_are_asked_for_are_read(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(1, rows=9))
        log.flush()
        [ref] = log.plan(0, 1)
        [[batch]] = read_windows(uri, [ref], tables={LINES.ref})
        assert (batch.table, len(batch)) == (LINES, 4)
        assert list(read_windows(uri, [ref], tables=set())) == [[]]


def test_an_empty_part_moves_the_end_without_rows(uri: str) -> None:
    with begun(uri) as log:
        log.append(Part((), at(7)))
        assert log.flush() == 7
        assert log.plan(0, 7) == []
        assert log.bound(0) == 7


def test_bound_respects_limits_at_transaction_ends_and_always_makes_progress(uri: str) -> None:
    with begun(uri) as log:
        for position in range(1, 13):
            log.append(part(position, rows=10))
            if position in {4, 8}:
                log.flush()
        log.flush()
        size = log.plan(0, 1)[0].bytes
        assert log.bound(0) == 12
        assert log.bound(0, up_to=6) == 6
        assert log.bound(0, max_rows=10) == 1
        assert log.bound(0, max_rows=9) == 1
        assert log.bound(0, max_rows=49) == 4
        assert log.bound(0, max_rows=50) == 5
        assert log.bound(2, max_rows=50) == 7
        assert log.bound(2, max_rows=50, up_to=5) == 5
        assert log.bound(3, max_bytes=size * 2 + 20) == 5
        assert log.bound(3, max_bytes=1) == 4
        assert log.bound(12) == 12
        assert log.bound(3, up_to=3) == 3
        assert log.rows(0, 12) == 120
        assert log.rows(5, 12) == 70
        assert log.rows(12, 12) == 0


def test_parts_out_of_order_are_refused_and_change_nothing(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as log:
        with pytest.raises(UsageError, match="begin"):
            log.append(part(1))
        log.begin(at(0))
        log.append(part(2))
        with pytest.raises(UsageError, match="after 2"):
            log.append(part(2))
        log.append(part(3, complete=False))
        with pytest.raises(UsageError, match="before the transaction at 3"):
            log.append(part(4))
        with pytest.raises(IdentityMismatch):
            log.append(Part((), Position("another", 9)))
        log.append(part(3, first=3))
        log.flush()
        assert all_rows(log) == expected(2, 3) + expected(3, 6)


def test_what_is_unpublished_can_be_forgotten_and_captured_again(tmp_path: Path) -> None:
    with begun(str(tmp_path), spill_bytes=1000) as log:
        log.append(part(1))
        log.flush()
        log.append(part(2))
        for piece in list(in_parts(3, 300, 50))[:-1]:
            log.append(piece)
        log.forget_unpublished()
        assert not any(name.endswith(".spill") for name in _files(log))
        log.append(part(2))
        log.flush()
        assert all_rows(log) == expected(1, 3) + expected(2, 3)


def test_acknowledged_segments_are_pruned_and_an_empty_changelog_knows_its_end(uri: str) -> None:
    with begun(uri) as log:
        for position in (1, 2, 3):
            log.append(part(position))
            log.flush()
        log.acknowledge(at(2))
        assert log.prune() == 2
        assert log.plan(2, 3)
        with pytest.raises(LogLost):
            log.plan(1, 3)
        log.acknowledge(at(99))
        assert log.acknowledged == 3
        assert log.prune() == 1
        assert log.stats().segments == 0
    with opened(uri) as log:
        assert (log.end, log.acknowledged) == (3, 3)
        log.append(part(4))
        assert log.flush() == 4


def test_acknowledged_segments_stay_for_their_retention(tmp_path: Path) -> None:
    with begun(str(tmp_path), retention=3600) as log:
        log.append(part(1))
        log.flush()
        log.acknowledge(at(1))
        assert log.prune() == 0
    with opened(str(tmp_path), retention=0) as log:
        assert all_rows(log) == expected(1, 3)
        assert log.prune() == 1


def test_pruning_needs_no_other_files_than_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with begun(str(tmp_path)) as log:
        log.append(part(1))
        log.flush()
        log.acknowledge(at(1))
        log.prune()
    with opened(str(tmp_path)):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_append_waits_for_the_acknowledgement_and_goes_on_with_it(tmp_path: Path) -> None:
    waited = threading.Event()
    log = Changelog.open(
        str(tmp_path), owner_name="t", source=SOURCE, max_bytes=1, segment_bytes=1, on_wait=waited.set
    )
    log.begin(at(0))
    log.append(part(1))
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(log.append, part(2))
        assert waited.wait(60)
        assert not blocked.done()
        assert log.end == 1
        log.acknowledge(at(1))
        blocked.result(60)
    assert log.flush() == 2
    log.close()


def test_an_open_transaction_is_let_through_whatever_is_unacknowledged(tmp_path: Path) -> None:
    with begun(str(tmp_path), max_bytes=1, spill_bytes=1000) as log:
        for piece in in_parts(1, 500, 50):
            log.append(piece)
        assert log.flush() == 1


def test_close_ends_a_waiting_append_and_a_waiting_reader(tmp_path: Path) -> None:
    waited = threading.Event()
    log = Changelog.open(str(tmp_path), owner_name="t", source=SOURCE, max_bytes=1, on_wait=waited.set)
    log.begin(at(0))
    log.append(part(1))
    log.flush()
    with ThreadPoolExecutor(2) as pool:
        blocked, reader = pool.submit(log.append, part(2)), pool.submit(log.wait, 1, 60)
        assert waited.wait(60)
        log.close()
        with pytest.raises(UsageError, match="closed"):
            blocked.result(60)
        assert reader.result(60) == 1
    log.close()


def test_wait_returns_as_soon_as_something_is_published(tmp_path: Path) -> None:
    with begun(str(tmp_path)) as log, ThreadPoolExecutor(1) as pool:
        assert log.wait(0, 0.01) == 0
        reader = pool.submit(log.wait, 0, 60)
        log.append(part(5))
        log.flush()
        assert reader.result(60) == 5
        assert log.wait(4, 60) == 5


@pytest.mark.parametrize("position", range(6))
def test_truncation_leaves_exactly_what_lies_before(uri: str, position: int) -> None:
    with begun(uri) as log:
        for group in ((1, 2, 3), (4, 5)):
            for version in group:
                log.append(part(version))
            log.flush()
        log.append(part(6))
        log.truncate_after(at(position))
        kept = [row for p in range(1, position + 1) for row in expected(p, 3)]
        assert log.end == position
        assert all_rows(log) == kept
        log.append(part(position + 1))
        log.flush()
    with opened(uri) as log:
        assert all_rows(log) == kept + expected(position + 1, 3)
        log.acknowledge(at(position + 1))
        with pytest.raises(UsageError, match="acknowledged"):
            log.truncate_after(at(position))


def test_reset_starts_anew_anywhere(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(10))
        log.flush()
        log.reset(at(4))
        assert (log.end, log.stats().segments) == (4, 0)
        log.append(part(5))
        log.flush()
    with opened(uri) as log:
        assert all_rows(log, 4) == expected(5, 3)


def test_a_changelog_with_changes_cannot_begin_elsewhere(tmp_path: Path) -> None:
    with begun(str(tmp_path)) as log:
        log.begin(at(3))
        log.begin(at(3))
        with pytest.raises(UsageError):
            log.begin(at(2))
        log.append(part(4))
        log.flush()
        with pytest.raises(UsageError):
            log.begin(at(9))


def test_another_source_is_refused(uri: str) -> None:
    begun(uri).close()
    with pytest.raises(IdentityMismatch, match="other-source"):
        Changelog.open(uri, owner_name="test", source="other-source")
    opened(uri).close()


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with begun(str(tmp_path)), pytest.raises(StateOwned):
        opened(str(tmp_path), wait=0.05)


def test_every_file_is_for_its_user_alone(tmp_path: Path) -> None:
    with begun(str(tmp_path / "log"), spill_bytes=1000) as log:
        for piece in in_parts(1, 500, 50):
            log.append(piece)
        log.flush()
        files = [path for path in (tmp_path / "log").rglob("*") if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700


def test_a_changelog_of_a_name_that_the_source_no_longer_has_is_emptied(uri: str) -> None:
    with begun(uri) as log:
        log.append(part(1))
        log.flush()
    with pytest.raises(IdentityMismatch):
        Changelog.open(uri, owner_name="test", source="later")
    with pytest.raises(IdentityMismatch):
        Changelog.open(uri, owner_name="test", source="later", formerly="another")
    with Changelog.open(uri, owner_name="test", source="later", formerly=SOURCE) as log:
        assert not log.begun
        log.begin(Position("later", 1))
        assert log.end == 1
    with Changelog.open(uri, owner_name="test", source="later", formerly=SOURCE) as log:
        assert log.begun
    with pytest.raises(IdentityMismatch):
        opened(uri)
