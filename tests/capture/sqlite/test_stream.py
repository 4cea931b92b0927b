"""The live stream: positions, slices, several consumers, and every start that must be refused."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.model.change import Part
from tailrace.model.errors import IdentityMismatch, LogLost, SetupMissing, Transient, UsageError
from tailrace.model.position import Position
from tests.capture.sqlite.support import CONSUMER, Source, seen
from tests.support.waiting import wait_until

Make = Callable[..., Source]
T = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)"
U = "CREATE TABLE u (id INTEGER PRIMARY KEY, v TEXT)"


def copy(source: Path, target: Path) -> None:
    """By another process: a descriptor of the file closed in this one would drop its connections' locks."""
    subprocess.run(["cp", str(source), str(target)], check=True, timeout=30)


def fill(s: Source, table: str, first: int, count: int, size: int = 1) -> None:
    s.run("BEGIN")
    rows = ((i, "x" * size) for i in range(first, first + count))
    s.app.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    s.run("COMMIT")


def test_a_stop_and_start_without_writes_delivers_nothing(source: Make) -> None:
    s = source(T).install()
    fill(s, "t", 0, 10)
    assert len(s.changes()) == 10
    assert s.parts() == []


def test_changes_of_several_tables_share_one_order_and_one_position(source: Make) -> None:
    s = source(T, U).install()
    s.run("BEGIN")
    for i in range(5):
        s.run(
            f"INSERT INTO t VALUES ({i}, 'a')", f"INSERT INTO u VALUES ({i}, 'b')", f"UPDATE t SET v = 'c{i}'"
        )
    s.run("COMMIT")
    found = s.changes()
    assert [c.table for c in found[:4]] == ["t", "u", "t", "t"]
    assert len({c.position for c in found}) == 1
    assert len({c.seq for c in found}) == len(found)


@pytest.mark.parametrize(
    "limits", [{"slice_rows": 2}, {"slice_rows": 7}, {"slice_bytes": 1}, {"slice_bytes": 3000}]
)
def test_slices_of_any_size_hold_every_change_once_and_no_half_update(
    source: Make, limits: dict[str, int]
) -> None:
    s = source(T, U, **limits).install()
    s.run("BEGIN")
    fillers = [(i, "x" * (i % 50)) for i in range(120)]
    s.app.executemany("INSERT INTO t VALUES (?, ?)", fillers)
    s.run("UPDATE t SET v = v || '!'")
    s.app.executemany("INSERT INTO u VALUES (?, ?)", fillers)
    s.run("UPDATE u SET id = -id - 1", "UPDATE t SET v = 'end' WHERE id % 3 = 0", "DELETE FROM u", "COMMIT")
    parts = s.parts()
    assert len(parts) > 1
    assert [part.complete for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len({part.position for part in parts}) == 1
    found = [c for part in parts for c in seen(part.batches)]
    assert [c.seq for c in found] == sorted({c.seq for c in found})
    assert [c.op for c in found] == ["c"] * 120 + ["u"] * 120 + ["c"] * 120 + ["u"] * 120 + ["u"] * 40 + [
        "d"
    ] * 120
    for change in found:
        if change.op == "u" and change.table == "t":
            assert change.before is not None
            assert change.after is not None
            assert change.before["id"] == change.after["id"]
            assert change.before["v"] != change.after["v"]


def test_a_transaction_of_300_000_rows_is_delivered_in_bounded_memory(source: Make) -> None:
    s = source(T, slice_rows=5000).install()
    fill(s, "t", 0, 300_000, size=40)
    rows = 0
    assert s.position is not None
    arrow = 0
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    for part in s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01):
        if part is None:
            break
        rows += part.rows
        arrow = max(arrow, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 300_000
    assert peak < 10_000_000
    assert arrow < 10_000_000


def test_large_rows_make_slices_short(source: Make) -> None:
    s = source(T, slice_bytes=1_000_000).install()
    fill(s, "t", 0, 200, size=5)
    fill(s, "t", 200, 100, size=200_000)
    parts = s.parts()
    assert sum(part.rows for part in parts) == 300
    assert max(part.nbytes for part in parts) < 5_000_000
    assert len(parts) > 10


def test_a_source_that_moved_on_elsewhere_gives_a_complete_part_without_rows(source: Make) -> None:
    s = source(T, U).install()
    s.tables = [s.ref("t")]
    fill(s, "u", 0, 3)
    (part,) = s.parts()
    assert (part.rows, part.complete) == (0, True)
    assert part.position == s.capture.head()
    # What is none of its tables' is acknowledged all the same, and the log of it is not kept for it.
    head = part.position
    wait_until(lambda: s.capture.acknowledge(head, consumer=CONSUMER) == head)
    assert [(one.acknowledged, one.pending) for one in s.capture.consumers()] == [(head.version, 0)]


def test_the_log_is_pruned_below_the_slowest_consumer_and_numbers_never_restart(source: Make) -> None:
    s = source(T).install()
    slow = s.capture.register("slow")
    fill(s, "t", 0, 50)
    first = s.capture.head()
    s.changes()
    wait_until(lambda: s.capture.acknowledge(first, consumer=CONSUMER) == first)
    (log,) = s.app.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%log_%'").fetchone()
    count = f"SELECT count(*) FROM {log}"
    assert s.app.execute(count).fetchone() == (50,)
    assert [(c.name, c.acknowledged, c.pending) for c in s.capture.consumers()] == [
        ("slow", slow.version, 50),
        (CONSUMER, first.version, 0),
    ]
    assert s.capture.acknowledge(slow, consumer="slow") == slow
    wait_until(lambda: s.capture.acknowledge(first, consumer="slow") == first)
    assert s.app.execute(count).fetchone() == (0,)
    s.capture.close()
    again = s.open()
    fill(s, "t", 50, 1)
    assert again.head().version == first.version + 1
    again.forget("slow")
    assert [c.name for c in again.consumers()] == [CONSUMER]


def test_acknowledging_an_older_position_changes_nothing(source: Make) -> None:
    s = source(T).install()
    start = s.position
    assert start is not None
    fill(s, "t", 0, 5)
    head = s.capture.head()
    assert s.capture.acknowledge(head, consumer=CONSUMER) == head
    assert s.capture.acknowledge(start, consumer=CONSUMER) == head


def test_a_locked_database_delays_an_acknowledgement_and_close_writes_it(source: Make) -> None:
    s = source(T).install()
    fill(s, "t", 0, 5)
    head = s.capture.head()
    s.run("BEGIN IMMEDIATE")
    begun = time.monotonic()
    assert s.capture.acknowledge(head, consumer=CONSUMER) < head
    assert time.monotonic() - begun < 3
    s.run("COMMIT")
    s.capture.close()
    assert s.open().register(CONSUMER) == head


def test_an_idle_stream_writes_what_was_acknowledged_while_the_source_was_busy(source: Make) -> None:
    s = source(T, prune_seconds=60.0).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.05)
    fill(s, "t", 0, 5)
    part = next(live)
    assert isinstance(part, Part)
    s.run("BEGIN IMMEDIATE")
    assert s.capture.acknowledge(part.position, consumer=CONSUMER) < part.position
    s.run("COMMIT")
    wait_until(lambda: next(live) is None and s.capture.consumers()[0].acknowledged == part.position.version)


def test_lag_counts_changes_and_the_age_of_the_oldest(source: Make) -> None:
    s = source(T).install()
    start = s.capture.head()
    assert (s.capture.lag(start).changes, s.capture.lag(start).seconds) == (0, 0.0)
    fill(s, "t", 0, 5)
    s.run("UPDATE t SET v = 'y'")
    lag = s.capture.lag(start)
    assert lag.changes == 10
    assert lag.seconds is not None
    assert 0 <= lag.seconds < 60
    assert s.capture.lag(s.capture.head()).changes == 0


def test_wait_visible_returns_at_once_or_says_that_time_ran_out(source: Make) -> None:
    s = source(T).install()
    head = s.capture.head()
    s.capture.wait_visible(head, timeout=0)
    with pytest.raises(Transient, match="not visible"):
        s.capture.wait_visible(head.at(head.version + 1), timeout=0.02)


def test_a_position_of_another_database_is_refused(source: Make) -> None:
    s = source(T).install()
    s.position = Position("sqlite:other", 1)
    with pytest.raises(IdentityMismatch):
        s.parts()
    with pytest.raises(IdentityMismatch):
        s.capture.acknowledge(s.position, consumer=CONSUMER)


def test_a_database_restored_from_a_backup_is_refused(source: Make, tmp_path: Path) -> None:
    s = source(T).install()
    s.app.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy(s.path, tmp_path / "backup.db")
    fill(s, "t", 0, 5)
    s.changes()
    assert s.position is not None
    older = SqliteCapture(SqliteConfig(tmp_path / "backup.db"))
    with pytest.raises(IdentityMismatch, match="restored from a backup"):
        next(older.live(s.position, s.tables, consumer=CONSUMER))
    older.close()


def test_a_database_restored_in_place_and_written_past_the_position_is_refused(
    source: Make, tmp_path: Path
) -> None:
    s = source(T).install()
    with closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        s.app.backup(backup)
        fill(s, "t", 0, 5)
        s.changes()
        position = s.position
        assert position is not None
        wait_until(lambda: s.capture.acknowledge(position, consumer=CONSUMER) == position)
        backup.backup(s.app)
    fill(s, "t", 100, 50)
    assert s.capture.head() > position
    with pytest.raises(IdentityMismatch, match="restored from a backup"):
        s.changes()


def test_a_remedy_quotes_an_odd_name_for_the_shell(source: Make) -> None:
    s = source(T).install()
    start = s.position
    fill(s, "t", 0, 5)
    s.app.execute('CREATE TABLE "my; t" (id INTEGER PRIMARY KEY)')
    s.tables = s.capture.resolve(["*"])
    s.capture.setup(s.tables)
    s.position = start
    with pytest.raises(LogLost, match="capture began after") as raised:
        s.parts()
    assert raised.value.remedy == "tailrace snapshot --table 'my; t'"


def test_a_consumer_that_is_not_registered_or_is_ahead_has_lost_its_log(source: Make) -> None:
    s = source(T).install()
    start = s.position
    fill(s, "t", 0, 5)
    s.changes()
    assert s.position is not None
    s.capture.acknowledge(s.position, consumer=CONSUMER)
    s.position = start
    with pytest.raises(LogLost, match="acknowledged") as raised:
        s.parts()
    assert "--on-data-loss snapshot" in str(raised.value.remedy)
    s.capture.forget(CONSUMER)
    with pytest.raises(LogLost, match="not registered"):
        s.parts()


def test_a_cursor_lost_while_running_stops_the_stream(source: Make) -> None:
    s = source(T).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01)
    assert next(live) is None
    s.capture.forget(CONSUMER)
    with pytest.raises(LogLost):
        wait_until(lambda: next(live))


def test_a_table_that_is_not_set_up_is_named(source: Make) -> None:
    s = source(T, U).install("t")
    s.tables = [s.ref("u")]
    with pytest.raises(SetupMissing, match="u"):
        s.parts()


def test_a_table_set_up_after_the_start_needs_the_callers_acceptance(source: Make) -> None:
    s = source(T, U).install("t")
    s.tables = [s.ref("t"), s.ref("u")]
    s.capture.setup(s.tables)
    fill(s, "u", 0, 2)
    generation, began = s.capture.generations()[s.ref("u")]
    assert s.position is not None
    assert began > s.position.version
    with pytest.raises(LogLost, match=generation):
        s.parts()
    with pytest.raises(LogLost):
        s.parts(accept={s.ref("u"): "another"})
    assert len(s.changes(accept={s.ref("u"): generation})) == 2


def test_live_without_setup_says_so(source: Make) -> None:
    s = source(T)
    s.tables, s.position = [s.ref("t")], Position("sqlite:x", 0)
    for call in (s.parts, s.capture.identity, s.capture.head, lambda: s.capture.register("x")):
        with pytest.raises(SetupMissing) as raised:
            call()
        assert raised.value.remedy == "tailrace setup"


def test_close_ends_a_waiting_live_from_another_thread(source: Make) -> None:
    s = source(T).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=60)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(list(live)))
    thread.start()
    wait_until(lambda: s.capture._waker is not None)
    begun = time.monotonic()
    s.capture.close()
    s.capture.close()
    thread.join(50)
    assert results == [[]]
    assert time.monotonic() - begun < 50


def test_two_lives_on_one_capture_are_an_error(source: Make) -> None:
    s = source(T).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01)
    assert next(live) is None
    with pytest.raises(UsageError):
        next(s.capture.live(s.position, s.tables, consumer=CONSUMER))


def test_a_file_replaced_under_the_stream_is_noticed(source: Make, tmp_path: Path) -> None:
    s = source(T).install()
    assert s.position is not None
    live = s.capture.live(s.position, s.tables, consumer=CONSUMER, wait=0.01)
    assert next(live) is None
    copy(s.path, tmp_path / "copy")
    (tmp_path / "copy").rename(s.path)
    with pytest.raises(Transient, match="replaced"):
        next(live)
