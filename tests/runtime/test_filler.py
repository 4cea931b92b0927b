"""The filler: from a source to the changelog, acknowledgements back, faults in between."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from tailrace.capture.scripted import Event, Faults, ScriptedCapture, ScriptedSource
from tailrace.changelog.log import Changelog
from tailrace.changelog.reader import read_windows
from tailrace.model.change import ChangeBatch, Ends, Op, Part
from tailrace.model.errors import DataError, IdentityMismatch, LogLost, Transient, UsageError
from tailrace.model.position import Position
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.cutting import Cutter
from tailrace.runtime.feed import Feed
from tailrace.runtime.filler import Filler
from tailrace.runtime.observer import Recorder
from tests.runtime.support import row
from tests.support.waiting import wait_until

Make = Callable[..., Filler]


@pytest.fixture
def source() -> ScriptedSource:
    made = ScriptedSource()
    made.table("items")
    return made


@pytest.fixture
def make(source: ScriptedSource, tmp_path: Path) -> Iterator[Make]:
    """Fillers on one changelog, one after the other; the former is closed first."""
    made: list[Filler] = []

    def end() -> None:
        while made:
            filler = made.pop()
            filler.close()
            assert not filler._thread.is_alive()
            filler.changelog.close()

    def build(capture: ScriptedCapture | None = None, start: bool = True, **settings: Any) -> Filler:
        end()
        settings.setdefault("wait", 0.01)
        settings.setdefault("backoff", Backoff(0.01, 0.05))
        uri = str(tmp_path / "changelog")
        filler = Filler.open(
            capture or ScriptedCapture(source), list(source.schemas), uri=uri, consumer="c", **settings
        )
        made.append(filler)
        ScriptedCapture(source).register("c")
        if start:
            filler.start()
        return filler

    yield build
    end()


def _ids(changelog: Changelog, start: int = 0) -> list[int]:
    refs = changelog.plan(start, changelog.end)
    batches = [batch for window in read_windows(changelog.uri, refs) for batch in window]
    found = [change for batch in batches for change in batch.data.to_pylist()]
    return [(change["after"] or change["before"])["id"] for change in found]


def _insert(source: ScriptedSource, *numbers: int) -> int:
    (items,) = source.schemas
    return source.insert(items, *(row(number) for number in numbers))


def test_changes_reach_the_changelog_when_the_source_pauses(source: ScriptedSource, make: Make) -> None:
    filler = make()
    wait_until(lambda: filler.changelog.begun)
    _insert(source, 1, 2)
    assert filler.wait(0, 60.0) == 1
    assert _ids(filler.changelog) == [1, 2]
    assert filler.health().state == "running"


def test_a_new_filler_goes_on_at_the_end_of_the_changelog(source: ScriptedSource, make: Make) -> None:
    filler = make()
    filler.catch_up(timeout=60)
    for number in range(5):
        _insert(source, number)
    filler.catch_up(timeout=60)
    filler = make()
    _insert(source, 5)
    filler.catch_up(timeout=60)
    assert _ids(filler.changelog) == [0, 1, 2, 3, 4, 5]


def test_a_recorded_start_beyond_the_end_of_the_changelog_wins(source: ScriptedSource, make: Make) -> None:
    make().catch_up(timeout=60)
    for number in range(5):
        _insert(source, number)
    filler = make(start=False)
    filler._start = source.at(3)
    filler.start()
    filler.catch_up(timeout=60)
    assert _ids(filler.changelog, 3) == [3, 4]


def test_catch_up_returns_when_the_changelog_holds_what_the_source_had(
    source: ScriptedSource, make: Make
) -> None:
    filler = make()
    other = source.table("other")
    head = _insert_other(source, other)
    assert filler.catch_up(timeout=60) >= head, "also if nothing of it is ours"
    assert filler.catch_up(Position(source.name, head), timeout=60) >= head
    assert filler.catch_up(head, timeout=60) >= head
    with pytest.raises(Transient, match="not 99"):
        filler.catch_up(99, timeout=0.05)


def _insert_other(source: ScriptedSource, other: Any) -> int:
    return source.insert(other, row(1))


def test_the_source_is_acknowledged_only_when_the_consumer_is_done(
    source: ScriptedSource, make: Make
) -> None:
    filler = make()
    filler.catch_up(timeout=60)
    for number in range(4):
        _insert(source, number)
    filler.catch_up(timeout=60)
    assert source.cursors["c"] == 0
    filler.acknowledge(source.at(2))
    wait_until(lambda: source.cursors["c"] == 2)
    assert filler.changelog.acknowledged == 2
    assert filler.health().acknowledged == 2


def test_with_ack_changelog_the_source_is_acknowledged_once_durable(
    source: ScriptedSource, make: Make
) -> None:
    filler = make(ack="changelog")
    filler.catch_up(timeout=60)
    _insert(source, 1)
    filler.catch_up(timeout=60)
    wait_until(lambda: source.cursors["c"] == 1)
    assert filler.changelog.acknowledged == 0, "the consumer has not read it yet"
    assert _ids(filler.changelog) == [1]


def test_acknowledged_segments_are_pruned(source: ScriptedSource, make: Make) -> None:
    filler = make()
    filler.catch_up(timeout=60)
    for number in range(3):
        _insert(source, number)
        filler.catch_up(timeout=60)
    assert filler.changelog.stats().segments == 3
    filler.acknowledge(source.at(2))
    wait_until(lambda: filler.changelog.stats().segments == 1)


def test_acknowledgements_and_closing_work_while_the_changelog_is_full(
    source: ScriptedSource, make: Make
) -> None:
    filler = make(limits={"max_bytes": 1, "segment_bytes": 1})
    filler.catch_up(timeout=60)
    for number in range(4):
        _insert(source, number)
    wait_until(lambda: filler.health().state == "waiting for room")
    end = filler.changelog.end
    assert end < 4
    filler.acknowledge(source.at(end))
    wait_until(lambda: source.cursors["c"] == end)
    wait_until(lambda: filler.changelog.end > end)
    wait_until(lambda: filler.health().state == "waiting for room")
    filler.close()
    assert filler.health().state == "stopped"


def test_passing_faults_are_retried_and_nothing_is_lost_or_doubled(
    source: ScriptedSource, make: Make
) -> None:
    observer = Recorder()
    capture = ScriptedCapture(source)
    filler = make(capture, start=False, observer=observer)
    capture.faults = Faults(connect=2)
    filler.start()
    wait_until(lambda: filler.changelog.begun)
    assert observer.count("filler.retry") == 2
    (items,) = source.schemas
    capture.faults = Faults(at_part=4)
    source.commit(*(Event(Op.INSERT, items, None, row(number)) for number in range(10)), parts=5)
    filler.catch_up(timeout=60)
    assert observer.count("filler.retry") == 3
    assert _ids(filler.changelog) == list(range(10))
    wait_until(lambda: filler.health().attempt == 0)


def test_a_source_that_stays_away_is_visible_in_health(source: ScriptedSource, make: Make) -> None:
    capture = ScriptedCapture(source)
    filler = make(capture, start=False)
    capture.faults = Faults(connect=10**6)
    filler.start()
    wait_until(lambda: filler.health().attempt >= 3)
    health = filler.health()
    assert health.state in ("retrying", "connecting")
    assert health.error == "the script fails connect"
    filler.raise_if_failed()


def test_another_error_ends_it_and_is_raised_to_whoever_asks(source: ScriptedSource, make: Make) -> None:
    observer = Recorder()
    capture = ScriptedCapture(source, faults=Faults(error=DataError, at_part=1))
    filler = make(capture, observer=observer)
    filler.catch_up(0, timeout=60)
    head = _insert(source, 1)
    with pytest.raises(DataError):
        filler.catch_up(head, timeout=60)
    with pytest.raises(DataError):
        filler.raise_if_failed()
    assert filler.wait(0, 60.0) == 0, "waiting for a dead thread ends at once"
    assert filler.health().state == "failed"
    assert observer.count("filler.failed") == 1


def test_an_acknowledgement_that_fails_is_tried_again(source: ScriptedSource, make: Make) -> None:
    capture = ScriptedCapture(source)
    filler = make(capture)
    filler.catch_up(timeout=60)
    _insert(source, 1)
    filler.catch_up(timeout=60)
    capture.faults = Faults(acknowledge=2)
    filler.acknowledge(source.at(1))
    wait_until(lambda: source.cursors["c"] == 1)


def test_a_source_restored_from_an_old_backup_is_refused(source: ScriptedSource, make: Make) -> None:
    filler = make(ack="changelog")
    filler.catch_up(timeout=60)
    for number in range(5):
        _insert(source, number)
    filler.catch_up(timeout=60)
    wait_until(lambda: source.cursors["c"] == 5)
    filler.close()
    source.cursors["c"] = 1
    filler = make()
    with pytest.raises(IdentityMismatch, match="restored from an older copy"):
        filler.catch_up(99, timeout=60)


def test_a_state_older_than_the_purged_log_is_log_lost(source: ScriptedSource, make: Make) -> None:
    make().catch_up(timeout=60)
    for number in range(5):
        _insert(source, number)
    filler = make(start=False)
    source.prune(4)
    source.cursors["c"] = 0
    filler._changelog.truncate_after(source.at(0))
    filler.start()
    with pytest.raises(LogLost):
        filler.catch_up(99, timeout=60)


def test_another_source_is_refused(source: ScriptedSource, make: Make) -> None:
    filler = make()
    filler.catch_up(timeout=60)
    with pytest.raises(IdentityMismatch):
        filler.acknowledge(Position("another", 1))
    filler.close()
    source.name = "another"
    with pytest.raises(IdentityMismatch):
        make()


def test_progress_without_rows_reaches_the_source_in_the_end(
    source: ScriptedSource, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.filler.EMPTY_FLUSH_SECONDS", 0.05)
    filler = make(ack="changelog")
    filler.catch_up(timeout=60)
    other = source.table("other")
    for number in range(5):
        source.insert(other, row(number))
    wait_until(lambda: source.cursors["c"] == 5)


def test_lag_is_sampled_at_most_once_a_second(source: ScriptedSource, make: Make) -> None:
    class Counting(ScriptedCapture):
        asked = 0

        def lag(self, position: Position) -> Any:
            Counting.asked += 1
            return super().lag(position)

    filler = make(Counting(source))
    filler.catch_up(timeout=60)
    _insert(source, 1)
    began = time.monotonic()
    assert [filler.lag().changes for _ in range(50)] == [1] * 50
    assert Counting.asked <= 1 + (time.monotonic() - began)


def test_who_waits_for_a_far_target_gets_what_is_enough_before(source: ScriptedSource, make: Make) -> None:
    filler = make()
    end = _insert(source, 1, 2)
    assert filler.catch_up(99, timeout=60, past=0, enough=1) == end
    with pytest.raises(Transient, match="not 99"):
        filler.catch_up(99, timeout=0.2, past=end, enough=1)
    with pytest.raises(Transient, match="not 99"):
        filler.catch_up(99, timeout=0.2, past=0, enough=1 << 30)


def test_a_busy_source_that_never_pauses_is_published_in_time(source: ScriptedSource, make: Make) -> None:
    filler = make()
    filler.catch_up(timeout=60)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.001):
            _insert(source, number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        first = filler.wait(0, 60.0)
        assert filler.wait(first, 60.0) > first
    finally:
        stop.set()
        writer.join(60)
    filler.catch_up(timeout=60)
    ids = _ids(filler.changelog)
    assert ids == list(range(len(ids)))


def test_it_starts_once_and_closes_from_any_thread(source: ScriptedSource, make: Make) -> None:
    filler = make()
    with pytest.raises(UsageError):
        filler.start()
    closer = threading.Thread(target=filler.close)
    closer.start()
    closer.join(60)
    assert filler.health().state == "stopped"
    filler.close()
    with pytest.raises(UsageError, match="closed"):
        filler.catch_up(99, timeout=60)


def _group(source: ScriptedSource, version: int, seqs: list[int], complete: bool = True) -> Part:
    from tailrace.capture.scripted import batch_of

    (items,) = source.schemas
    events = [Event(Op.INSERT, items, None, row(seq)) for seq in seqs]
    batches = (batch_of(source.schemas[items], events, version, seqs),) if seqs else ()
    return Part(batches, source.at(version), complete)


def _shape(parts: list[Part]) -> list[tuple[int, bool, list[tuple[int, int]]]]:
    return [
        (
            part.position.version,
            part.complete,
            [(c["position"], c["seq"]) for batch in part.batches for c in batch.data.to_pylist()],
        )
        for part in parts
    ]


def test_a_group_that_reaches_beyond_the_cut_is_cut_there(source: ScriptedSource) -> None:
    cutter = Cutter(10, 0)
    parts = [piece for part in (_group(source, 12, [7, 9, 11, 12]),) for piece in cutter.pieces(part)]
    assert _shape(parts) == [(10, True, [(10, 7), (10, 9)]), (12, True, [(12, 11), (12, 12)])]
    assert _shape(list(cutter.pieces(_group(source, 14, [13])))) == [(14, True, [(14, 13)])]


def test_a_cut_inside_of_a_group_in_parts_ends_where_its_rows_end(source: ScriptedSource) -> None:
    cutter = Cutter(10, 0)
    group = [_group(source, 12, [7, 8], False), _group(source, 12, [9, 11], False), _group(source, 12, [12])]
    parts = [piece for part in group for piece in cutter.pieces(part)]
    assert _shape(parts) == [
        (10, False, [(10, 7), (10, 8)]),
        (10, True, [(10, 9)]),
        (12, False, [(12, 11)]),
        (12, True, [(12, 12)]),
    ]


def test_what_ends_at_the_cut_or_is_beyond_it_already_is_left_alone(source: ScriptedSource) -> None:
    assert _shape(list(Cutter(10, 0).pieces(_group(source, 10, [9, 10])))) == [
        (10, True, [(10, 9), (10, 10)])
    ]
    assert _shape(list(Cutter(10, 10).pieces(_group(source, 12, [11])))) == [(12, True, [(12, 11)])]
    assert _shape(list(Cutter(None, 0).pieces(_group(source, 12, [3])))) == [(12, True, [(12, 3)])]
    assert _shape(list(Cutter(10, 0).pieces(_group(source, 12, [])))) == [(10, True, []), (12, True, [])]


def _together(source: ScriptedSource, *versions: int) -> Part:
    groups = [_group(source, version, [version]) for version in versions]
    data = pa.concat_batches([group.batches[0].data for group in groups])
    ends = Ends(np.array(versions), np.arange(1, len(versions) + 1))
    return Part((ChangeBatch(groups[0].batches[0].table, data),), source.at(versions[-1]), ends=ends)


@pytest.mark.parametrize("together", [False, True])
def test_a_range_that_ended_between_two_transactions_is_the_same_when_it_is_captured_again(
    source: ScriptedSource, make: Make, together: bool
) -> None:
    alone = [_group(source, 8, [0, 1]), _group(source, 12, [0, 1, 2])]

    class Ended(ScriptedCapture):
        def live(self, *_: Any, **__: Any) -> Iterator[Part | None]:
            yield from [_together(source, 8, 12)] if together else alone
            while not self.closed:
                yield None

    # A keepalive ended it once, at 10, and does not come again.
    filler = make(Ended(source), cut=10)
    filler.catch_up(12, timeout=60)
    log = filler.changelog

    def found(start: int, end: int) -> set[int]:
        batches = [batch for window in read_windows(log.uri, log.plan(start, end)) for batch in window]
        return {position for batch in batches for position in batch.data.column("position").to_pylist()}

    assert found(0, 10) == {8}
    assert log.bound(10) == 12
    assert found(10, 12) == {12}
    assert log.rows(10, 12) == (1 if together else 3)


def test_transactions_that_come_together_and_are_repeated_in_other_groups_are_taken_once(
    source: ScriptedSource,
) -> None:
    def together(*versions: int) -> Part:
        return _together(source, *versions)

    class Grouping(ScriptedCapture):
        lives: ClassVar = [[together(1, 2)], [together(1, 2), together(2, 3, 4), together(5, 6)]]

        def live(self, *_: Any, **__: Any) -> Iterator[Part | None]:
            yield from self.lives.pop(0)
            raise Transient("cut")

    (items,) = source.schemas
    feed = Feed(Grouping(source), [items], consumer="test", start=source.at(0), wait=0.1)
    taken: list[int] = []
    while len(taken) < 6:
        with contextlib.suppress(Transient):
            part = feed.take()
            assert part is not None
            assert part.ends is not None
            taken += [one.position.version for one in part.transactions() if one.rows == 1]
    assert taken == [1, 2, 3, 4, 5, 6]
    assert feed.deduplicated == 3
