"""The throttle alone, by a clock of the test's; and its ceiling on a stream of SQLite."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tailrace import app
from tailrace.capture.contract import Lag, Load
from tailrace.changelog.filesystem import open_filesystem
from tailrace.config import load_config
from tailrace.model.errors import Transient
from tailrace.model.units import parse_limit, parse_share
from tailrace.spark import waits
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.sampling import STALE_SECONDS, Sampler
from tailrace.spark.source import open_capture
from tailrace.spark.throttle import BURST_SECONDS, UNKNOWN_SECONDS, Limits, Throttle, dealt
from tailrace.spark.waits import Wait
from tests.spark.pacing import kept
from tests.support.shop import Shop
from tests.support.waiting import wait_until


@dataclass
class World:
    """A source, a query and a clock, as a test wants them."""

    now: float = 100.0
    lag: Lag | None = field(default_factory=Lag)
    load: Load | None = field(default_factory=Load)
    told: list[tuple[Wait | None, tuple[str, ...]]] = field(default_factory=list)

    def throttle(self, limits: Limits) -> Throttle:
        return Throttle(
            limits,
            lag=lambda: self.lag,
            load=lambda: self.load,
            tell=lambda wait, unseen: self.told.append((wait, unseen)),
            clock=lambda: self.now,
        )


@pytest.fixture
def world() -> World:
    return World()


def taken(throttle: Throttle, *chunks: int) -> int:
    """How many of the chunks a round takes."""
    with throttle.round() as this:
        return len([rows for rows in chunks if this.take(rows)])


def waits_for(throttle: Throttle) -> str | None:
    return None if throttle.waiting is None else throttle.waiting.kind


def test_without_limits_every_chunk_is_taken_and_the_source_is_not_asked(world: World) -> None:
    def never() -> Load:
        raise AssertionError("asked")

    throttle = Throttle(Limits(), lag=lambda: pytest.fail("asked"), load=never)
    assert taken(throttle, *[10**9] * 50) == 50
    assert throttle.report() is None


def test_rows_a_second_are_kept_over_any_number_of_rounds(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=1000))
    taken(throttle)
    began, rows = world.now, 0
    for _ in range(1000):
        world.now += 0.037
        rows += 100 * taken(throttle, *[100] * 20)
        assert rows <= 1000 * (world.now - began)
    assert rows >= 1000 * (world.now - began) - 100


def test_a_chunk_that_is_larger_than_any_budget_waits_accordingly_and_is_taken(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=10))
    for _ in range(2):
        waited = 0.0
        while not taken(throttle, 1000):
            assert waits_for(throttle) == "rows"
            assert throttle.patience(1e9) == pytest.approx(100 - waited)
            world.now += 0.5
            waited += 0.5
        assert waited == pytest.approx(100)


def test_what_was_not_wanted_or_not_allowed_is_not_made_up_for(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=100, lag=parse_limit("30s")))
    taken(throttle)
    world.now += 1000
    taken(throttle)
    assert taken(throttle, *[10] * 100) == 10

    world.lag = Lag(seconds=31)
    for _ in range(100):
        assert taken(throttle, 10) == 0
        world.now += 1
    world.lag = Lag(seconds=0)
    # A second's worth from before, and the second since the last look.
    assert taken(throttle, *[10] * 100) <= 20


def test_the_budget_of_a_long_batch_is_bounded(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=100))
    taken(throttle)
    world.now += 1
    assert taken(throttle, *[10] * 100) == 10
    world.now += 2
    assert taken(throttle, *[10] * 100) == 20
    world.now += 1000
    assert taken(throttle, *[10] * 100) == 10 * BURST_SECONDS


def test_a_round_that_fails_spends_nothing(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=100))
    taken(throttle)
    world.now += 1

    def fail() -> None:
        with throttle.round() as this:
            assert this.take(100)
            raise Transient("the plan cannot be read")

    with pytest.raises(Transient):
        fail()
    assert taken(throttle, 100) == 1


def test_after_a_no_a_smaller_chunk_is_not_taken_before_the_larger_one(world: World) -> None:
    throttle = world.throttle(Limits(rows_per_second=100))
    taken(throttle)
    world.now += 1
    with throttle.round() as this:
        assert [this.take(rows) for rows in (60, 60, 10)] == [True, False, False]


@pytest.mark.parametrize(
    ("limits", "states", "kind"),
    [
        (Limits(lag=parse_limit("100B")), (Lag(bytes=101), Lag(bytes=90), Lag(bytes=80)), "lag.bytes"),
        (Limits(lag=parse_limit("10s")), (Lag(seconds=11), Lag(seconds=9), Lag(seconds=8)), "lag.seconds"),
        (Limits(lag=parse_limit("50 changes")), (Lag(51), Lag(45), Lag(40)), "lag.changes"),
        (
            Limits(standby_lag=parse_limit("100B, 10s")),
            (
                Load(standby_bytes=1, standby_seconds=11),
                Load(standby_bytes=1, standby_seconds=9),
                Load(standby_bytes=1, standby_seconds=1),
            ),
            "standby.seconds",
        ),
        (
            Limits(others=parse_share("80%")),
            (Load(81, max_connections=100), Load(70, max_connections=100), Load(64, max_connections=100)),
            "connections",
        ),
        (Limits(others=parse_share("10")), (Load(11), Load(9), Load(8)), "connections"),
        (Limits(active=5), (Load(active=6), Load(active=5), Load(active=4)), "active"),
        (Limits(retained=100), (Load(retained=101), Load(retained=100), Load(retained=79)), "retained"),
    ],
)
def test_a_pause_begins_above_its_limit_and_ends_well_below_it(
    world: World, limits: Limits, states: tuple[Lag | Load, Lag | Load, Lag | Load], kind: str
) -> None:
    above, between, below = states
    throttle = world.throttle(limits)

    def now(state: Lag | Load) -> int:
        if isinstance(state, Lag):
            world.lag = state
        else:
            world.load = state
        return taken(throttle, 1)

    assert now(between) == 1
    assert now(above) == 0
    assert waits_for(throttle) == kind
    assert now(between) == 0
    assert now(below) == 1
    assert throttle.waiting is None
    assert now(between) == 1
    assert now(above) == 0


def test_of_several_pauses_the_last_one_to_end_counts(world: World) -> None:
    throttle = world.throttle(Limits(lag=parse_limit("100B, 10s"), active=5))
    world.lag, world.load = Lag(bytes=200, seconds=20), Load(active=9)
    assert taken(throttle, 1) == 0
    world.lag = Lag(bytes=0, seconds=20)
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "lag.seconds")
    world.lag = Lag(bytes=0, seconds=0)
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "active")
    world.load = Load(active=0)
    assert taken(throttle, 1) == 1


def test_what_is_not_known_neither_begins_nor_ends_a_pause(world: World) -> None:
    throttle = world.throttle(Limits(lag=parse_limit("100B")))
    world.lag = Lag()
    assert taken(throttle, 1) == 1
    world.lag = Lag(bytes=101)
    assert taken(throttle, 1) == 0
    world.lag = Lag()
    assert taken(throttle, 1) == 0


def test_a_bounded_query_that_has_its_log_waits_for_no_lag_of_its_own(world: World) -> None:
    throttle = world.throttle(Limits(lag=parse_limit("100B"), retained=100, active=5))
    world.lag, world.load = Lag(bytes=200), Load(active=9, retained=200)
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "lag.bytes")
    world.lag = None
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "active")
    world.load = Load(active=0, retained=300)
    assert taken(throttle, 1) == 1


def test_a_load_that_is_not_known_yet_is_waited_for_but_not_for_ever(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = world.throttle(Limits(active=5))
    world.load = None
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "unknown")
    world.now += UNKNOWN_SECONDS + 1
    assert taken(throttle, 1) == 1
    assert "cannot be learnt" in caplog.text
    world.load = Load(active=6)
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "active")


def test_a_source_that_falls_silent_during_a_pause_does_not_hold_it_for_ever(world: World) -> None:
    throttle = world.throttle(Limits(active=5))
    world.load = Load(active=9)
    assert (taken(throttle, 1), waits_for(throttle)) == (0, "active")
    world.load = None
    assert taken(throttle, 1) == 0
    world.now += UNKNOWN_SECONDS + 1
    assert taken(throttle, 1) == 1


def test_a_lag_in_a_unit_that_the_source_does_not_count_is_told(world: World) -> None:
    throttle = world.throttle(Limits(lag=parse_limit("10 changes")))
    world.lag = Lag(bytes=5)
    assert taken(throttle, 1) == 1
    assert any("snapshotPauseLag cannot be kept" in text for text in throttle.unseen)


def test_a_limit_that_the_source_says_nothing_about_is_told_once_with_the_remedy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = world.throttle(Limits(active=5, standby_lag=parse_limit("1GB")))
    world.load = Load(connections=1, remedy="GRANT pg_read_all_stats TO tailrace")
    assert [taken(throttle, 1) for _ in range(3)] == [1, 1, 1]
    assert len(throttle.unseen) == 2
    assert caplog.text.count("snapshotPauseActive cannot be kept") == 1
    assert caplog.text.count("GRANT pg_read_all_stats TO tailrace") == 2
    assert world.told[-1] == (None, throttle.unseen)


def test_beginning_and_end_of_a_pause_are_told_once_each(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = world.throttle(Limits(lag=parse_limit("256MB")))
    assert taken(throttle, 1) == 1
    world.lag = Lag(bytes=300 << 20)
    for _ in range(5):
        assert taken(throttle, 1) == 0
    report = throttle.report()
    assert report is not None
    assert report["reason"] == "the query is more than 256MB behind"
    world.lag = Lag(bytes=0)
    for _ in range(5):
        assert taken(throttle, 1) == 1
    assert caplog.text.count("the snapshot waits: the query is more than 256MB behind") == 1
    assert caplog.text.count("the snapshot no longer waits") == 1
    assert [wait.kind if wait else None for wait, _ in world.told] == [None, "lag.bytes", None]


def test_a_limited_snapshot_is_told_once_and_not_at_every_chunk(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    throttle = world.throttle(Limits(rows_per_second=100))
    for _ in range(100):
        world.now += 0.3
        taken(throttle, *[50] * 2)
    assert caplog.text.count("the snapshot waits: the ceiling is 100 rows a second") == 1
    taken(throttle)
    assert throttle.waiting is None
    assert caplog.text.count("the snapshot no longer waits") == 1


def test_a_pause_is_over_when_no_chunk_is_left(world: World) -> None:
    throttle = world.throttle(Limits(active=5))
    world.load = Load(active=9)
    assert taken(throttle, 1) == 0
    taken(throttle)
    assert throttle.waiting is None


def test_chunks_are_dealt_to_no_more_tasks_than_there_may_be_connections() -> None:
    chunks = list(range(7))
    assert [list(hand) for hand in dealt(chunks, 3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [list(hand) for hand in dealt(chunks, 50)] == [[chunk] for chunk in chunks]
    assert dealt([], 3) == []


def test_a_chunk_is_a_seconds_budget_at_most_but_no_crumb() -> None:
    assert Limits().chunk_rows(100_000) == 100_000
    assert Limits(rows_per_second=20_000).chunk_rows(100_000) == 20_000
    assert Limits(rows_per_second=5).chunk_rows(100_000) == 1_000
    assert Limits(rows_per_second=5).chunk_rows(10) == 10


def test_a_sampler_answers_at_once_and_asks_at_most_once_an_interval() -> None:
    asked: list[float] = []
    release = threading.Event()

    def slow() -> Load:
        asked.append(time.monotonic())
        release.wait(30)
        if len(asked) == 2:
            raise Transient("no answer")
        return Load(active=len(asked))

    sampler = Sampler(slow, interval=0.05)
    assert sampler.newest() is None
    release.set()
    assert (wait_until(sampler.newest) or Load()).active == 1
    wait_until(lambda: (sampler.newest() or Load()).active == 4)
    sampler.close()
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(asked))


def test_a_sampler_outlives_any_fault_and_forgets_what_is_old() -> None:
    asked: list[int] = []

    def load() -> Load:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("anything")
        return Load(active=len(asked))

    sampler = Sampler(load, interval=0.01)
    try:
        wait_until(lambda: sampler.newest() is not None, what="a sample after a fault")
        sampler._taken -= STALE_SECONDS + 1
        sampler.close()
        wait_until(lambda: sampler._thread is None or not sampler._thread.is_alive(), what="the thread's end")
        sampler._taken -= STALE_SECONDS + 1
        assert sampler.newest() is None
    finally:
        sampler.close()


def test_what_waits_can_be_read_by_another_process(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    assert waits.remembered(fs, f"{root}/{waits.THROTTLE}") == (None, ())
    wait = Wait("rows", "the ceiling is 10 rows a second", 12.5)
    waits.remember(fs, f"{root}/{waits.THROTTLE}", wait, ("one limit",))
    assert waits.remembered(fs, f"{root}/{waits.THROTTLE}") == (wait, ("one limit",))
    waits.remember(fs, f"{root}/{waits.THROTTLE}", None, ("one limit",))
    assert waits.remembered(fs, f"{root}/{waits.THROTTLE}") == (None, ("one limit",))
    waits.remember(fs, f"{root}/{waits.THROTTLE}", None, ())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / waits.THROTTLE).write_text("damaged")
    assert waits.remembered(fs, f"{root}/{waits.THROTTLE}") == (None, ())


RATE = 2_000


@pytest.mark.parametrize("bounded", [False, True])
def test_a_ceiling_of_rows_a_second_is_kept_on_sqlite_while_changes_flow(
    shop: Shop, tmp_path: Path, bounded: bool
) -> None:
    shop.insert(0, 5 * RATE)
    given = {
        "url": shop.url,
        "tables": "orders",
        "stateDir": str(tmp_path / "state"),
        "chunkRows": "200",
        "snapshotRowsPerSecond": str(RATE),
    }
    driver = StreamDriver(SourceOptions.parse(given), open_capture)
    if bounded:
        driver.prepare_available_now()
    offset, times = driver.initial(), []
    began = time.monotonic()
    reasons = set()

    def batch() -> bool:
        nonlocal offset
        end = driver.latest(offset, max_rows=None, max_bytes=None)
        done = _chunks(end) - _chunks(offset)
        times.extend([time.monotonic()] * done)
        reasons.add(((driver.report() or {})["snapshot_waits"] or {}).get("kind"))
        # To Spark this would be the end of a bounded run.
        assert not bounded or end != offset or _over(end)
        driver.partitions(offset, end, single=False)
        offset = end
        if len(times) == 10:
            shop.run("UPDATE orders SET city = 'Rome' WHERE id = 1")
        return _over(end)

    wait_until(batch, timeout=60, interval=0)
    driver.close()
    assert len(times) == 5 * RATE // 200
    assert 1.05 * RATE * (times[-1] - began) >= 5 * RATE
    assert kept(times, RATE, 200) >= 0.5 * RATE
    assert "rows" in reasons


@pytest.mark.parametrize("between", [False, True], ids=["at-a-transaction", "between-two"])
def test_a_bounded_run_ends_however_far_the_source_goes_on_meanwhile(
    shop: Shop, tmp_path: Path, between: bool
) -> None:
    shop.insert(0, 500)
    given = {
        "url": shop.url,
        "tables": "orders",
        "stateDir": str(tmp_path / "state"),
        "chunkRows": "100",
        "numPartitions": "1",
        "snapshotPauseLag": "10 changes",
    }
    driver = StreamDriver(SourceOptions.parse(given), open_capture)
    driver.prepare_available_now()
    ends = [driver.initial()]
    if between:
        # A log's end need not be the end of a transaction.
        driver._target = driver._capture.head().version + 50
        shop.insert(500, 600)

    def run() -> None:
        while not _over(ends[-1]):
            ends.append(driver.latest(ends[-1], max_rows=1, max_bytes=None))
            # Changes after its target, which this run does not take.
            shop.insert(1_000 * len(ends), 1_000 * len(ends) + 100)
            wait_until(lambda: (driver.report() or {})["lag"]["changes"] > 10)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert _chunks(ends[-1]) == (6 if between else 5)
    driver.close()


def _chunks(offset: Offset) -> int:
    return sum(cursor.next for cursor in offset.snapshots.values())


def _over(offset: Offset) -> bool:
    return bool(offset.snapshots) and all(cursor.over for cursor in offset.snapshots.values())


CONFIG = """\
[source]
url = "sqlite:shop.db"
[snapshot]
rows_per_second = 1
pause_active = 5
connections = 2
[[feed]]
"""


def test_status_tells_why_the_snapshots_of_a_running_pipeline_wait(shop: Shop, tmp_path: Path) -> None:
    shop.insert(0, 100)
    (tmp_path / "tailrace.toml").write_text(CONFIG)
    config = load_config(tmp_path / "tailrace.toml", environ={})
    options = app.pipeline_spec(config).options
    assert options["snapshotConnections"] == "2"
    driver = StreamDriver(SourceOptions.parse(options), open_capture)
    start = driver.initial()

    def waiting() -> bool:
        driver.latest(start, max_rows=None, max_bytes=None)
        return app.status(config).snapshots_wait is not None and bool(app.status(config).limits_unseen)

    wait_until(waiting)
    found = app.status(config)
    assert found.running is not None
    assert found.snapshots_wait == "the ceiling is 1 rows a second"
    # A file has no sessions that could be at work.
    assert found.limits_unseen == ["snapshotPauseActive cannot be kept: the source does not tell"]
    notices = (driver.report() or {})["notices"]
    assert [notice["code"] for notice in notices] == ["limit_unseen"]
    driver.close()
    assert app.status(config).snapshots_wait is None
