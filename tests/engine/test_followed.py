"""Mirrors and feeds that come to a pipeline later, or were left out for a while, on a real session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.followed import FILE
from tailrace.engine.spec import Feed, Mirror
from tailrace.model.errors import NeedsOperator, StateUnreadable
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.spark.plans import PlanStore
from tests.engine.test_pipeline import ORDERS, Collected, Setting, setting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["setting"]
pytestmark = pytest.mark.spark


def mirror(setting: Setting, target: str, lake: str = "lake", called: str = "") -> Mirror:
    return Mirror(ORDERS, target, DeltaSink(DeltaConfig(str(setting.directory / lake))), called=called)


def rows(setting: Setting, target: str, lake: str = "lake") -> list[tuple[Any, ...]]:
    table = DeltaTable(str(setting.directory / lake / target)).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def asked(setting: Setting) -> int:
    return setting.observer.count("snapshot.requested")


def test_a_mirror_that_was_left_out_while_changes_came_is_read_anew(setting: Setting) -> None:
    # given a mirror that a run has not had, in which rows came, changed and went
    setting.shop.insert(0, 5)
    setting.once()
    setting.shop.run("UPDATE orders SET city = 'A' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    setting.shop.insert(5, 6)
    setting.once(mirrors=())
    setting.shop.insert(6, 7)
    # when it is there again
    setting.once()
    # then it equals the table, and stays so without another snapshot
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 1
    setting.shop.run("DELETE FROM orders WHERE id = 3")
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 1


def test_a_mirror_that_was_left_out_while_nothing_came_goes_on(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    setting.once()
    setting.once(mirrors=())
    setting.once(mirrors=())
    setting.shop.insert(5, 6)
    setting.once()
    assert asked(setting) == 0
    assert setting.mirrored() == setting.shop.rows()


def test_a_mirror_that_is_new_to_a_table_gets_all_of_its_rows_though_nothing_comes(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    setting.once(mirrors=())
    setting.once(mirrors=(mirror(setting, "orders"),))
    assert rows(setting, "orders") == setting.shop.rows()
    both = (mirror(setting, "orders"), mirror(setting, "twice"))
    setting.once(mirrors=both)
    assert rows(setting, "orders") == rows(setting, "twice") == setting.shop.rows()
    assert asked(setting) == 2


def test_a_mirror_beside_a_feed_that_had_changes_only_gets_all_rows(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    feeds = (Feed(frozenset({ORDERS}), setting.feed, snapshot=False),)
    setting.once(mirrors=(), feeds=feeds)
    setting.shop.insert(5, 6)
    setting.once(mirrors=(), feeds=feeds)
    setting.once(feeds=feeds)
    assert setting.mirrored() == setting.shop.rows()


def test_a_feed_that_is_new_to_a_table_gets_its_rows_first_where_it_is_to(setting: Setting) -> None:
    setting.shop.insert(0, 3)
    setting.once()
    for snapshot, told in ((True, ["s", "r", "r", "r", "c"]), (False, ["c"])):
        late = Collected()
        feeds = (Feed(frozenset({ORDERS}), late, snapshot, called=f"late{snapshot}"),)
        setting.once(feeds=feeds)
        setting.shop.run("INSERT INTO orders VALUES (100, 'B', 1)")
        setting.once(feeds=feeds)
        assert [op for op, _ in late.ops] == told
        setting.shop.run("DELETE FROM orders WHERE id = 100")
        setting.once(feeds=feeds)


def test_a_fresh_snapshot_that_fails_on_its_way_is_asked_for_once_and_comes_again(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    setting.once(mirrors=())

    def fail() -> None:
        raise NeedsOperator("the receiver refuses", remedy="ask it why")

    setting.feed.before = fail
    for _ in range(2):
        with pytest.raises(NeedsOperator, match="refuses"):
            setting.once()
    setting.feed.before = lambda: None
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 1


def test_a_mirror_that_is_elsewhere_for_a_while_is_read_anew_there_and_back(setting: Setting) -> None:
    # given a lake, and another one under the same names, while which a row changes and one goes
    setting.shop.insert(0, 5)
    setting.once()
    setting.once(mirrors=(mirror(setting, "orders", "other"),))
    assert rows(setting, "orders", "other") == setting.shop.rows()
    setting.shop.run("UPDATE orders SET city = 'A' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    setting.once(mirrors=(mirror(setting, "orders", "other"),))
    # when it writes to the first one again, then that equals the table though nothing comes
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 2


def test_a_sink_that_is_only_called_otherwise_is_no_other_mirror(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    setting.once(mirrors=(mirror(setting, "orders", called="lake"),))
    setting.shop.insert(5, 6)
    setting.once(mirrors=(mirror(setting, "orders", called="pond"),))
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 0


def test_a_snapshot_that_has_begun_is_not_taken_for_one_that_waits_for_a_new_mirror(setting: Setting) -> None:
    # given a fresh snapshot whose batch was committed by a run that ended before it heard of that
    setting.shop.insert(0, 5)
    setting.once()
    plans = PlanStore(*open_filesystem(str(setting.directory / "state")))
    request = setting.directory / "state/requests" / f"{plans.request(ORDERS)}.json"
    kept = request.read_bytes()
    setting.once()
    assert [op for op, _ in setting.feed.ops].count("s") == 2
    request.write_bytes(kept)
    assert plans.fresh() == {ORDERS}
    # when another mirror comes, then it has all rows
    setting.once(mirrors=(mirror(setting, "orders"), mirror(setting, "twice")))
    assert rows(setting, "orders") == rows(setting, "twice") == setting.shop.rows()
    assert asked(setting) == 1


def test_a_damaged_record_is_refused_and_not_taken_for_none(setting: Setting) -> None:
    setting.once()
    path: Path = setting.directory / "state" / FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateUnreadable, match="damaged"):
        setting.once()
