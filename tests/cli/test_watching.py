"""What a person and a program are told of a running pipeline."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

from rich.console import Console

from tailrace.cli.lines import Level, LogFormat, LogLines
from tailrace.cli.live import render
from tailrace.cli.screen import columns, counted, seconds, size
from tailrace.cli.watch import Watch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def written(watch: Watch, rows: int, **tables: int) -> None:
    watch.event(
        "batch.written", batch=1, rows=rows, position=5, seconds=0.5, tables=tables, written=rows, deleted=0
    )


def test_changes_are_added_up_by_table() -> None:
    watch = Watch()
    written(watch, 5, orders=3, items=2)
    written(watch, 1, orders=1)
    watch.event("mirror.applied", table="main.orders", target="orders", written=3, deleted=1, skipped=False)
    look = watch.look()
    assert (look.batches, look.changes) == (2, 6)
    assert look.tables["orders"].changes == 4
    assert (look.tables["orders"].written, look.tables["orders"].deleted) == (3, 1)
    assert look.tables["items"].changes == 2


def test_the_rate_forgets_what_is_long_past() -> None:
    clock = Clock()
    watch = Watch(clock=clock)
    clock.now += 10
    written(watch, 100, orders=100)
    assert watch.look().rate == 10
    clock.now += 11
    assert watch.look().rate == 0
    assert watch.look().last_batch_ago == 11


def test_lag_and_snapshot_progress_come_from_the_source_as_text_or_as_an_object() -> None:
    watch = Watch()
    source = {"position": 3, "lag": {"changes": 7, "seconds": 1.5}, "chunks_left": 4}
    watch.event("pipeline.progress", batch=0, rows=0, rate=0.0, source=json.dumps(source))
    watch.event("pipeline.progress", batch=0, rows=0, rate=0.0, source={**source, "chunks_left": 1})
    look = watch.look()
    assert (look.lag_changes, look.lag_seconds) == (7, 1.5)
    assert (look.chunks_done, look.chunks) == (3, 4)


def test_progress_that_says_nothing_changes_nothing() -> None:
    watch = Watch()
    for source in (None, "null", "not json", 5):
        watch.event("pipeline.progress", batch=0, rows=0, rate=0.0, source=source)
    assert watch.look().lag_changes is None


def test_the_view_says_that_spark_starts_before_anything_else() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(render(Watch().look(), "shop", "*"))
    assert "Starting Spark" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_view_shows_tables_and_the_snapshot_while_it_lasts() -> None:
    watch = Watch()
    written(watch, 1234, **{"[bold]odd": 1234})
    watch.event("pipeline.progress", source={"lag": {"changes": 9, "seconds": 2.0}, "chunks_left": 4})
    watch.event("pipeline.progress", source={"lag": {"changes": 9, "seconds": 2.0}, "chunks_left": 1})
    console = Console(file=io.StringIO(), width=100)
    console.print(render(watch.look(), "shop", "*"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]odd" in text
    assert "1,234" in text
    assert "3 of 4 chunks" in text
    assert "lag 9 changes" in text
    watch.event("pipeline.progress", source={"lag": {"bytes": 4096, "seconds": 2.0}, "chunks_left": 1})
    assert watch.look().lag_bytes == 4096


def snapshot(table: str, **changes: object) -> dict[str, object]:
    numbers = {"chunks_done": 3, "chunks": 12, "rows_done": 300, "rows": 1200, "where": None}
    return {"table": table, "state": "running", "rate": 50.0, "seconds_left": 18.0, **numbers, **changes}


def test_the_view_has_a_bar_for_every_running_snapshot_with_rate_and_time_left() -> None:
    watch = Watch()
    running, paused = (
        snapshot("main.orders"),
        snapshot("main.items", state="paused", rate=None, seconds_left=None),
    )
    stopped = snapshot("main.customers", state="stopped")
    watch.event("pipeline.progress", source={"snapshots": [running, paused, stopped], "chunks_left": 18})
    console = Console(file=io.StringIO(), width=120)
    console.print(render(watch.look(), "shop", "*"))
    orders, items = [
        line
        for line in console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        if "snapshot of" in line
    ]
    assert "snapshot of orders" in orders
    assert "━" in orders
    assert "3 of 12 chunks, 300 of about 1,200 rows, 50/s, 18.0 s left" in orders
    assert "3 of 12 chunks, 300 of about 1,200 rows, paused" in items
    watch.event("pipeline.progress", source={"snapshots": [], "chunks_left": 0})
    assert watch.look().snapshots == ()


def test_lines_are_json_that_reads_back() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, form=LogFormat.json, now=lambda: datetime(2026, 1, 2, tzinfo=UTC))
    lines.event("batch.written", rows=3, tables={"orders": 3})
    assert json.loads(stream.getvalue()) == {
        "ts": "2026-01-02T00:00:00.000Z",
        "level": "info",
        "event": "batch.written",
        "rows": 3,
        "tables": {"orders": 3},
    }


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, level=Level.warning)
    lines.event("batch.written", rows=1)
    lines.event("sink.retry", message="a\nsecond line", seconds=0.25)
    (line,) = stream.getvalue().splitlines()
    assert "sink.retry" in line
    assert "seconds=0.250" in line


def test_sizes_and_durations_are_for_people() -> None:
    assert [size(n) for n in (0, 900, 2048, 5 << 20)] == ["0 B", "900 B", "2.0 KB", "5.0 MB"]
    assert [seconds(s) for s in (None, 0.02, 2.5, 130, 7300)] == [
        "unknown",
        "20 ms",
        "2.5 s",
        "2 min 10 s",
        "2 h 1 min",
    ]


def test_the_view_counts_seconds_until_the_first_batch() -> None:
    clock = Clock()
    watch = Watch(clock=clock)
    clock.now += 7
    console = Console(file=io.StringIO(), width=100)
    console.print(render(watch.look(), "shop", "*"))
    assert "Starting Spark… 7 s" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_sink_that_does_not_answer_is_shown_with_the_next_try_until_a_batch_is_written() -> None:
    clock = Clock()
    watch = Watch(clock=clock)
    watch.event("sink.retry", message="connection refused", seconds=8.0)
    assert watch.look().trouble == "the sink does not answer: connection refused; next try in 8 s"
    clock.now += 9
    assert watch.look().trouble == "the sink does not answer: connection refused; trying again"
    written(watch, 1, orders=1)
    assert watch.look().trouble is None


def test_one_of_a_thing_is_not_several() -> None:
    assert counted(1, "change") == "1 change"
    assert counted(0, "change") == "0 changes"
    assert counted(1200, "batch", "batches") == "1,200 batches"


def test_columns_are_aligned_and_end_without_blanks() -> None:
    lines = [line.plain for line in columns([("table", "snapshot"), ("größe", ""), ("日本", "complete")])]
    assert lines == ["table  snapshot", "größe", "日本   complete"]


def test_what_the_source_lives_with_is_shown_until_it_is_over() -> None:
    watch = Watch(clock=Clock())
    watch.event("source.notice", code="table_stopped", table="public.items", message="items is gone")
    watch.event("source.notice", code="wal_budget", table=None, message="too much log")
    assert watch.look().trouble == "items is gone; too much log"
    watch.event("source.notice.over", code="table_stopped", table="public.items")
    assert watch.look().trouble == "too much log"
    watch.event("source.notice.over", code="wal_budget", table=None)
    assert watch.look().trouble is None


def test_that_a_table_is_read_anew_and_why_is_shown_until_it_comes() -> None:
    watch = Watch(clock=Clock())
    why = "the mirror late lacks rows of main.orders: it is new, or was left out for a while"
    watch.event("snapshot.requested", table="main.orders", message=why)
    assert watch.look().trouble == f"read anew: {why}"
    watch.event("batch.written", rows=1, seconds=0.1, tables={"orders": 1}, anew=["main.items"])
    assert watch.look().trouble == f"read anew: {why}"
    watch.event("batch.written", rows=1, seconds=0.1, tables={"orders": 1}, anew=["main.orders"])
    assert watch.look().trouble is None
