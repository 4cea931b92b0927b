"""The throttle on a real server: a standby that falls behind, rows a second, connections, the own lag."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailrace.changelog.filesystem import open_filesystem
from tailrace.spark import waits
from tailrace.spark.offsets import Offset
from tailrace.spark.partitions import Slice
from tailrace.spark.read import read_slice
from tailrace.spark.source import open_capture
from tests.spark.pacing import kept
from tests.spark.querying import Query
from tests.support.postgres import PASSWORD, Database, Server, database, own_server, postgres
from tests.support.standby import Standby
from tests.support.waiting import wait_until

__all__ = ["database", "own_server", "postgres"]

ROWS, CHUNK = 6_000, 100


class Gentle(Query):
    """A query that takes the fewest chunks a batch, if not told otherwise, and remembers when."""

    room: int | None = 1

    def __init__(self, source: Database, state: Path, **options: Any) -> None:
        given = {"tables": "items", "chunkRows": str(CHUNK), "numPartitions": "1", **options}
        super().__init__(source, state, **given)
        self.times: list[float] = []

    def batch(self) -> None:
        end = self.driver.latest(self.offset, max_rows=self.room, max_bytes=None)
        self.times += [time.monotonic()] * (chunks(end) - chunks(self.offset))
        if end != self.offset:
            self.rows += self.read(end)

    @property
    def waits(self) -> str | None:
        report = self.driver.report()
        assert report is not None
        return report["snapshot_waits"] and str(report["snapshot_waits"]["kind"])

    def over(self) -> bool:
        self.batch()
        return bool(self.offset.snapshots) and all(c.over for c in self.offset.snapshots.values())


def chunks(offset: Offset) -> int:
    return sum(cursor.next for cursor in offset.snapshots.values())


def filled(made: Database, rows: int = ROWS) -> Database:
    made.sql("CREATE TABLE items (id int PRIMARY KEY, body text)", "CREATE TABLE noise (body text)")
    made.sql(f"INSERT INTO items SELECT i, 'old' FROM generate_series(1, {rows}) i", "ANALYZE items")
    made.publish("items")
    return made


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return filled(database)


@pytest.fixture
def followed(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Database, Standby]]:
    """A shop on a server of its own, which a standby follows."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    made = filled(own_server.database())
    with own_server.admin() as admin:
        admin.execute("GRANT pg_read_all_stats TO tailrace")
    standby = Standby(own_server)
    yield made, standby
    standby.remove()


def test_a_snapshot_stops_while_a_standby_does_not_follow_and_changes_flow(
    followed: tuple[Database, Standby], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, standby = followed
    limits = {"snapshotPauseStandbyLag": "1MB", "snapshotRowsPerSecond": "1000"}
    query = Gentle(source, tmp_path, **limits)

    def some() -> bool:
        query.batch()
        return len(query.times) >= 10

    wait_until(some)
    with standby.admin() as there:
        there.execute("SELECT pg_wal_replay_pause()")
        wait_until(lambda: there.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",))
        source.sql("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 2000)")

        def paused() -> bool:
            query.batch()
            return query.waits == "standby.bytes"

        wait_until(paused)
        taken = len(query.times)
        assert 10 <= taken < ROWS // CHUNK
        for number in range(5):
            source.sql(f"INSERT INTO items VALUES ({ROWS + number + 1}, 'new')")
            query.until("items", "c", f'{{"id":{ROWS + number + 1},')
        assert len(query.times) == taken
        fs, root = open_filesystem(str(tmp_path))
        wait, unseen = waits.remembered(fs, f"{root}/{waits.THROTTLE}")
        assert wait is not None
        assert (wait.reason, unseen) == ("a standby is more than 1MB behind", ())
        there.execute("SELECT pg_wal_replay_resume()")
    wait_until(query.over)

    def calm() -> bool:
        query.batch()
        return query.waits is None

    wait_until(calm)
    assert waits.remembered(fs, f"{root}/{waits.THROTTLE}") == (None, ())
    assert caplog.text.count("the snapshot waits: a standby is more than 1MB behind") == 1
    assert "the snapshot no longer waits" in caplog.text or "the ceiling is" in caplog.text
    query.driver.close()
    ids = {row[2].partition(",")[0] for row in query.rows if row[1] == "r"}
    assert {f'{{"id":{number}' for number in range(1, ROWS + 1)} <= ids


def test_a_ceiling_of_rows_a_second_is_kept_within_a_fifth(shop: Database, tmp_path: Path) -> None:
    rate, chunk = 1_000, 250
    query = Gentle(shop, tmp_path, snapshotRowsPerSecond=str(rate), chunkRows=str(chunk))
    query.room = None
    wait_until(query.over)
    query.driver.close()
    assert len(query.times) == ROWS // chunk
    # From the first chunk on: a loaded machine takes its time to start.
    assert 0.5 * rate <= kept(query.times, rate, chunk)


# Sessions that read a chunk, or wait for the table to do so.
READING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'tailrace'"
    " AND state = 'active' AND (query LIKE 'COPY (%%' OR wait_event_type = 'Lock')"
)


@pytest.mark.parametrize(("limit", "expected"), [("2", 2), (None, 4)])
def test_no_more_connections_read_chunks_than_are_allowed(
    shop: Database, tmp_path: Path, limit: str | None, expected: int
) -> None:
    options: dict[str, Any] = {} if limit is None else {"snapshotConnections": limit}
    query = Query(shop, tmp_path, tables="items", chunkRows=str(ROWS // 6), **options)
    end = query.driver.latest(query.offset, max_rows=None, max_bytes=None)
    slices = query.driver.partitions(query.offset, end, single=False)
    assert sum(len(part.chunks) for part in slices) == 6
    lock = shop.connect()
    lock.autocommit = False
    lock.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
    seen, ended = [0], threading.Event()

    def reading() -> int:
        with shop.admin() as admin:
            row = admin.execute(READING, (shop.name,)).fetchone()
        assert row is not None
        return int(row[0])

    def poll() -> None:
        while not ended.is_set():
            seen.append(reading())

    def read(part: Slice) -> int:
        capture = open_capture(query.options)
        try:
            found = read_slice(part, "envelope", f"{tmp_path}/changelog", capture)
            return sum(row["op"] == "r" for batch in found for row in batch.to_pylist())
        finally:
            capture.close()

    with ThreadPoolExecutor(9) as pool:
        watch = pool.submit(poll)
        tasks = [pool.submit(read, part) for part in slices]
        try:
            # Every task that there is waits for the table now, and none has come to its second chunk.
            wait_until(lambda: reading() == expected)
        finally:
            lock.rollback()
            read_rows = [task.result() for task in tasks]
            ended.set()
        watch.result()
    assert sum(read_rows) == ROWS
    assert max(seen) <= expected
    query.driver.close()


@pytest.mark.long
def test_a_query_that_is_behind_takes_no_chunks_until_it_has_caught_up(
    shop: Database, tmp_path: Path
) -> None:
    query = Gentle(shop, tmp_path, snapshotPauseLag="1MB")
    shop.sql(
        *(
            f"INSERT INTO items SELECT i, repeat('x', 1000) FROM generate_series({at}, {at + 499}) i"
            for at in range(100_001, 105_001, 500)
        )
    )
    query.batch()
    assert (query.times, query.waits) == ([], "lag.bytes")

    def begun() -> bool:
        query.batch()
        return bool(query.times)

    wait_until(begun)
    behind = open_capture(query.options).head().version - query.offset.position.version
    assert behind < 1 << 20
    wait_until(query.over)
    query.driver.close()


def test_a_limit_that_the_role_may_not_see_is_told_with_the_grant(
    shop: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Gentle(shop, tmp_path, snapshotPauseActive="10")
    wait_until(query.over)
    assert (
        'snapshotPauseActive cannot be kept: the source does not tell (GRANT pg_read_all_stats TO "tailrace")'
        in (caplog.text)
    )
    fs, root = open_filesystem(str(tmp_path))
    assert len(waits.remembered(fs, f"{root}/{waits.THROTTLE}")[1]) == 1
    query.driver.close()
