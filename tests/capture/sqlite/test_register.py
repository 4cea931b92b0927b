"""Cursors: where a new consumer may begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.model.errors import LogLost
from tests.support.shop import Shop


def test_a_new_consumer_may_begin_where_another_has_kept_the_log_and_nowhere_else(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    refs = capture.resolve(["orders"])
    capture.setup(refs)
    nowhere = capture.head()
    with pytest.raises(LogLost):
        capture.register("early", nowhere)
    kept = capture.register("first")
    shop.insert(0, 3)
    assert capture.register("second", kept) == kept
    shop.insert(3, 4)
    assert capture.register("third").version > kept.version
    part = next(iter(capture.live(kept, refs, consumer="second")))
    assert part is not None
    assert part.rows == 4
    capture.close()


def test_a_large_backlog_is_told_by_the_counter_and_a_small_one_counted(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.setup(capture.resolve(["orders"]))
    start = capture.register("first")
    shop.insert(0, 10)
    shop.run("UPDATE orders SET city = 'x'")
    assert capture.lag(start).changes == 20
    shop.insert(10, 20_010)
    changes = capture.lag(start).changes
    assert changes is not None
    assert changes >= 20_020
    capture.close()
