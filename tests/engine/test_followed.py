"""Mirrors and feeds that come to a pipeline later, or were left out for a while, on a real session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.followed import FILE, Followed
from tailrace.engine.spec import Feed, Mirror
from tailrace.model.errors import NeedsOperator, StateUnreadable, Transient
from tailrace.model.table import TableRef
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.spark.plans import PlanStore
from tests.engine.test_pipeline import ORDERS, Collected, Setting, setting
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["setting"]
pytestmark = pytest.mark.spark


class At(Collected):
    """A feed whose receiver is somewhere."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def place(self) -> str:
        return self._url


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


def test_a_feed_whose_receiver_is_another_gets_existing_rows_there_and_back(setting: Setting) -> None:
    setting.shop.insert(0, 2)
    here, there = At("https://a.example.com/changes"), At("https://b.example.com/changes")
    # when changes go to one receiver, to another one under the same name, and to the first one again
    for sink, new, told in (
        (here, 2, [("s", None), ("r", 0), ("r", 1)]),
        (there, 2, [("s", None), ("r", 0), ("r", 1)]),
        (there, 3, [("c", 2)]),
        (here, 3, [("s", None), ("r", 0), ("r", 1), ("r", 2)]),
        (here, 4, [("c", 3)]),
    ):
        setting.shop.insert(len(setting.shop.rows()), new)
        sink.ops.clear()
        setting.once(feeds=(Feed(frozenset({ORDERS}), sink, called="hook"),))
        # then each has had every row
        assert sink.ops == told


def test_state_and_lake_that_are_moved_together_or_apart_are_the_same(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    lake, state = "base/lake", {"stateDir": str(setting.directory / "base/state")}
    setting.once(mirrors=(mirror(setting, "orders", lake),), options=state)
    # when both are moved, and then the state alone
    (setting.directory / "base").rename(setting.directory / "elsewhere")
    lake, state = "elsewhere/lake", {"stateDir": str(setting.directory / "elsewhere/state")}
    setting.shop.insert(5, 6)
    setting.once(mirrors=(mirror(setting, "orders", lake),), options=state)
    (setting.directory / "deep/down").mkdir(parents=True)
    (setting.directory / "elsewhere/state").rename(setting.directory / "deep/down/state")
    state = {"stateDir": str(setting.directory / "deep/down/state")}
    setting.shop.insert(6, 7)
    setting.once(mirrors=(mirror(setting, "orders", lake),), options=state)
    # then nothing is read anew, by a link neither
    (setting.directory / "link").symlink_to(setting.directory / "elsewhere")
    setting.shop.insert(7, 8)
    setting.once(mirrors=(mirror(setting, "orders", "link/lake"),), options=state)
    assert asked(setting) == 0
    assert rows(setting, "orders", lake) == setting.shop.rows()


def test_a_run_that_is_refused_leaves_the_record_as_it_is(setting: Setting) -> None:
    setting.shop.insert(0, 5)
    setting.once()
    # given a run without the mirror that has written nothing yet, and one with it that is refused
    pipeline = setting.make(mirrors=())
    run = threading.Thread(target=pipeline.run, daemon=True)
    run.start()
    wait_until(lambda: setting.observer.count("pipeline.started") == 2, what="the query")
    state, checkpoint = (str(setting.directory / name) for name in ("state", "checkpoint"))
    assert Followed(state, checkpoint, (mirror(setting, "orders"),), ()).begin() == {}
    # when changes come
    setting.shop.run("UPDATE orders SET city = 'A' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    wait_until(lambda: setting.feed.ops[-1] == ("d", 2), what="the changes")
    pipeline.request_stop()
    run.join(60)
    # then it is known that the mirror lacks them
    setting.once()
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 1


def test_what_another_run_wrote_after_the_look_is_asked_for_with_the_first_batch(
    setting: Setting,
) -> None:
    # given a run with a mirror that has looked, and one without it that wrote before the first began
    setting.shop.insert(0, 5)
    setting.once()
    state, checkpoint = (str(setting.directory / name) for name in ("state", "checkpoint"))
    followed = Followed(state, checkpoint, (mirror(setting, "orders"),), ())
    assert followed.begin() == {}
    setting.shop.run("DELETE FROM orders WHERE id = 2")
    setting.once(mirrors=())
    # then its first batch asks for the table, once, and until that is read nobody takes the mirror for whole
    assert list(followed.settle()) == [ORDERS]
    assert followed.settle() == {}
    assert Followed(state, checkpoint, (mirror(setting, "orders"),), ()).begin() == {}
    setting.once()
    assert setting.mirrored() == setting.shop.rows()


def test_a_process_that_thaws_leaves_the_record_of_its_successor(setting: Setting) -> None:
    # given a process, frozen in a batch with which a snapshot began, and a successor without the mirror
    setting.shop.insert(0, 5)
    setting.once(mirrors=())
    state, checkpoint = (str(setting.directory / name) for name in ("state", "checkpoint"))
    feeds = (Feed(frozenset({ORDERS}), setting.feed),)
    frozen = Followed(state, checkpoint, (mirror(setting, "orders"),), feeds)
    assert list(frozen.settle()) == [ORDERS]
    setting.shop.insert(5, 6)
    setting.once(mirrors=())
    record = (setting.directory / "state" / FILE).read_bytes()
    # when it goes on
    frozen.anew({ORDERS})
    assert (setting.directory / "state" / FILE).read_bytes() == record


def test_a_table_that_is_new_is_read_once_for_what_is_new_with_it(setting: Setting) -> None:
    # given a pipeline that goes on, and another table that comes to it with a feed and a mirror
    setting.shop.insert(0, 2)
    setting.once()
    setting.shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (7)")
    items, added = TableRef("main", "items"), Collected()
    sink = DeltaSink(DeltaConfig(str(setting.directory / "lake")))
    more: dict[str, Any] = {
        "feeds": (Feed(frozenset({ORDERS}), setting.feed), Feed(frozenset({items}), added, called="added")),
        "mirrors": (mirror(setting, "orders"), Mirror(items, "items", sink)),
        "options": {"tables": "orders,items"},
    }
    for _ in range(2):
        setting.once(**more)
    # then its snapshot, which comes by itself, is the only one
    assert added.ops == [("s", None), ("r", 7)]
    assert rows(setting, "items") == [(7,)]
    assert asked(setting) == 0


def test_a_feed_that_comes_before_there_were_changes_gets_existing_rows(setting: Setting) -> None:
    # given a quiet source, of which a feed is to have what is new
    setting.shop.insert(0, 2)
    changes = Feed(frozenset({ORDERS}), setting.feed, snapshot=False)
    latest = {"startingOffsets": "latest"}
    setting.once(mirrors=(), feeds=(changes,), options=latest)
    # when one comes that is to have everything
    late = Collected()
    both = (changes, Feed(frozenset({ORDERS}), late, called="late"))
    setting.once(mirrors=(), feeds=both, options=latest)
    setting.shop.insert(2, 3)
    setting.once(mirrors=(), feeds=both, options=latest)
    assert late.ops == [("s", None), ("r", 0), ("r", 1), ("c", 2)]
    assert asked(setting) == 1


@pytest.mark.parametrize("recorded", [False, True])
def test_a_feed_that_comes_after_a_kill_in_the_first_batch_gets_existing_rows(
    setting: Setting, recorded: bool
) -> None:
    # given a feed that is to have what is new, whose first batch was logged, and not committed
    setting.shop.insert(0, 2)
    changes = Feed(frozenset({ORDERS}), setting.feed, snapshot=False)
    latest = {"startingOffsets": "latest"}
    setting.once(mirrors=(), feeds=(changes,), options=latest)
    (setting.directory / "checkpoint/commits/0").unlink()
    if not recorded:
        (setting.directory / "state" / FILE).unlink()
    # when one comes that is to have everything
    late = Collected()
    both = (changes, Feed(frozenset({ORDERS}), late, called="late"))
    for _ in range(2):
        setting.once(mirrors=(), feeds=both, options=latest)
    setting.shop.insert(2, 3)
    setting.once(mirrors=(), feeds=both, options=latest)
    # then it has, once
    assert late.ops == [("s", None), ("r", 0), ("r", 1), ("c", 2)]
    assert asked(setting) == 1


def test_receivers_at_one_place_that_a_header_tells_apart_get_existing_rows_each(setting: Setting) -> None:
    setting.shop.insert(0, 2)
    one, two = At("https://in.example.com/collect"), At("https://in.example.com/collect")
    feeds = [Feed(frozenset({ORDERS}), sink, called=name) for sink, name in ((one, "one"), (two, "two"))]
    everything = [("s", None), ("r", 0), ("r", 1)]
    # when one is there, then both, both again, and one of them
    setting.once(feeds=feeds[:1])
    assert one.ops == everything
    for _ in range(2):
        setting.once(feeds=feeds)
    assert two.ops == everything
    for feed in feeds:
        setting.once(feeds=(feed,))
    # then nobody was read to for want of a name
    assert asked(setting) == 1


def test_two_feeds_that_nothing_tells_apart_are_not_read_to_again_and_again(setting: Setting) -> None:
    setting.shop.insert(0, 2)
    feeds = [Feed(frozenset({ORDERS}), Collected(), called="same") for _ in range(2)]
    for _ in range(2):
        setting.once(feeds=feeds)
    assert asked(setting) == 0


def test_a_place_of_another_kind_is_no_path_of_this_directory(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = (Feed(frozenset({ORDERS}), At("kafka:broker/topic")),)
    setting.once(feeds=feeds)
    (setting.directory / "elsewhere").mkdir()
    monkeypatch.chdir(setting.directory / "elsewhere")
    setting.once(feeds=feeds)
    assert asked(setting) == 0


@pytest.mark.parametrize("call", ["settle", "anew"])
def test_a_passing_fault_of_the_state_directory_is_waited_for_and_told_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    setting.shop.insert(0, 3)
    setting.once(mirrors=())
    faults, method = [OSError(28, "No space left on device")], getattr(Followed, call)

    def failing(self: Followed, *arguments: Any, **named: Any) -> Any:
        with monkeypatch.context() as patched:
            if faults:
                error = faults.pop()
                patched.setattr("tailrace.engine.followed.write_state", lambda *_: _raise(error))
            return method(self, *arguments, **named)

    def _raise(error: OSError) -> None:
        raise Transient("the disk is full", remedy="free some") from error

    monkeypatch.setattr(Followed, call, failing)
    setting.once()
    assert faults == []
    assert setting.mirrored() == setting.shop.rows()
    assert asked(setting) == 1
    assert [op for op, _ in setting.feed.ops].count("s") == 2


def test_nothing_of_a_receivers_url_is_written_down(setting: Setting) -> None:
    hook = At("https://hooks.example.com/services/canary-in-a-path?sig=canary-in-a-query")
    setting.once(feeds=(Feed(frozenset({ORDERS}), hook, called="hook"),))
    assert "canary" not in (setting.directory / "state" / FILE).read_text()


def test_a_bucket_at_another_endpoint_is_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(options: dict[str, str]) -> str:
        return DeltaSink(DeltaConfig("s3://lake", storage_options=options)).place("orders")

    here = place({"AWS_ENDPOINT_URL": "http://a.example.com", "AWS_SECRET_ACCESS_KEY": "canary"})
    assert here != place({"AWS_ENDPOINT_URL": "http://b.example.com", "AWS_SECRET_ACCESS_KEY": "canary"})
    assert here == place({"aws_endpoint_url": "http://a.example.com", "AWS_SECRET_ACCESS_KEY": "rotated"})
    assert "canary" not in here
    # when nothing but a variable says which
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a.example.com")
    assert place({}) == here
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b.example.com")
    assert place({}) != here
    assert DeltaSink(DeltaConfig("/lake")).place("orders") == "/lake/orders"


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
