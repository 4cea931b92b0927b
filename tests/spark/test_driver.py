"""The driver's side of a stream without a session: names of cursors, bounded runs, a full changelog."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.read import read_slice
from tailrace.spark.source import open_capture
from tests.support.shop import Shop
from tests.support.waiting import wait_until


def driver(shop: Shop, state: str, **options: Any) -> StreamDriver:
    given = {"url": shop.url, "tables": "orders", "stateDir": state, "startingOffsets": "latest", **options}
    return StreamDriver(SourceOptions.parse(given), open_capture)


def test_queries_with_the_same_relative_directory_in_two_places_have_two_cursors(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        query = driver(shop, "state")
        query.initial()
        query.close()
    capture = open_capture(SourceOptions.parse({"url": shop.url, "tables": "orders"}))
    assert len(capture.consumers()) == 2
    monkeypatch.chdir(tmp_path / "here")
    again = driver(shop, str(tmp_path / "here" / "state"))
    again.initial()
    again.close()
    assert len(capture.consumers()) == 2
    capture.close()


def test_a_bounded_run_makes_room_in_a_full_changelog_and_ends(shop: Shop, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    limit = {"maxChangelogBytes": "1"}
    running = driver(shop, state, **limit)
    start = running.initial()
    shop.insert(0, 1)
    wait_until(lambda: running.latest(start, max_rows=None, max_bytes=None) != start)
    assert running.report() is not None
    shop.insert(1, 2)
    wait_until(lambda: (running.report() or {})["state"] == "waiting for room")
    running.close()
    shop.insert(2, 3)

    once = driver(shop, state, **limit)
    once.prepare_available_now()
    ends: list[Offset] = [start]

    def run() -> None:
        while (end := once.latest(ends[-1], max_rows=None, max_bytes=None)) != ends[-1]:
            once.partitions(ends[-1], end, single=False)
            ends.append(end)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(ends) > 2
    assert (
        ends[-1].position == open_capture(SourceOptions.parse({"url": shop.url, "tables": "orders"})).head()
    )
    once.close()


def test_changes_of_a_table_left_out_by_a_run_that_came_to_nothing_are_captured_again(
    shop: Shop, tmp_path: Path
) -> None:
    shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    state = str(tmp_path / "state")
    both = {"tables": "orders,items"}
    first = driver(shop, state, **both)
    start = first.initial()
    first.close()
    shop.insert(0, 2)
    shop.run("INSERT INTO items VALUES (1)")

    # Its changelog has the items only, and Spark never logged an offset of it.
    killed = driver(shop, state, tables="items")
    wait_until(lambda: killed.latest(start, max_rows=None, max_bytes=None) != start)
    killed.close()

    again = driver(shop, state, **both)
    again.prepare_available_now()
    end = again.latest(start, max_rows=None, max_bytes=None)
    capture = open_capture(SourceOptions.parse({"url": shop.url, "tables": "orders"}))
    seen = [
        (row["table"], row["op"])
        for part in again.partitions(start, end, single=False)
        for batch in read_slice(part, "envelope", f"{state}/changelog", capture)
        for row in batch.to_pylist()
    ]
    assert seen == [("orders", "c"), ("orders", "c"), ("items", "c")]
    capture.close()
    again.close()
