"""What somebody else did to an index: restored it, copied it, wrote into its notes, gave its alias away.

Nothing of it may pass for what Tailrace has filled, and no document may be blamed for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace.model.errors import NeedsOperator, TailraceError, Transient
from tailrace.sinks.opensearch import OpenSearchSink
from tailrace.sinks.retry_after import seconds_of
from tests.sinks.documents import FIRST, MARKER, SECOND, batch_of, held
from tests.sinks.opensearch.sinks import MAPPING, Make
from tests.support.httpproxy import HttpProxy, Refuse
from tests.support.opensearch import Client

Restore = Callable[..., Any]


@pytest.fixture
def make(make: Make) -> Make:
    """They give up soon."""
    return partial(make, max_elapsed=3.0)


@pytest.fixture
def backup(opensearch: Client) -> Iterator[Callable[[str], Restore]]:
    """Takes a backup of an index, and gives what restores it."""
    name = f"r{uuid.uuid4().hex[:8]}"
    opensearch.do("PUT", f"/_snapshot/{name}", {"type": "fs", "settings": {"location": name}})

    def take(place: str) -> Restore:
        of = {"indices": place, "include_global_state": False}
        opensearch.do("PUT", f"/_snapshot/{name}/s", of, wait_for_completion="true")

        def restore(**more: Any) -> Any:
            path = f"/_snapshot/{name}/s/_restore"
            return opensearch.do("POST", path, {**of, **more}, wait_for_completion="true")

        return restore

    yield take
    opensearch.ask("DELETE", f"/_snapshot/{name}/s")
    opensearch.ask("DELETE", f"/_snapshot/{name}")


def live(sink: OpenSearchSink, index: str, documents: dict[str, Any], generation: str = FIRST) -> None:
    sink.ensure(index, generation, MAPPING)
    sink.write(batch_of(1, documents, index, generation))
    sink.flush()
    sink.publish(index, replace(MARKER, generation=generation))


def place_of(opensearch: Client, index: str) -> str:
    (place,) = opensearch.indexes(index)
    return place


def test_a_backup_restored_over_the_index_is_not_taken_for_complete(
    make: Make, opensearch: Client, index: str, backup: Callable[[str], Restore]
) -> None:
    sink = make()
    live(sink, index, {"deleted": {"n": 1}, "kept": {"n": 1}})
    place = place_of(opensearch, index)
    restore = backup(place)
    sink.write(batch_of(5, {"deleted": None, "later": {"n": 5}}, index))
    sink.flush()
    assert make().seeded(index) == MARKER
    opensearch.do("POST", f"/{place}/_close")
    restore()
    again = make()
    assert again.seeded(index) is None
    assert not again.holds(index, FIRST)
    live(again, index, {"kept": {"n": 1}, "later": {"n": 5}}, SECOND)
    assert set(held(again, index)) == {"kept", "later"}


def test_a_backup_of_an_unfinished_filling_is_not_gone_on_with(
    make: Make, opensearch: Client, index: str, backup: Callable[[str], Restore]
) -> None:
    sink = make()
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"first": {"n": 1}}, index))
    sink.flush()
    place = place_of(opensearch, index)
    restore = backup(place)
    sink.write(batch_of(1, {"second": {"n": 1}}, index))
    sink.flush()
    opensearch.do("DELETE", f"/{place}")
    restore()
    again = make()
    assert not again.holds(index, FIRST)
    assert again.holding(index, FIRST) is None
    # Whoever begins it again under that name begins with nothing.
    again.ensure(index, FIRST, MAPPING)
    assert held(again, index) == {}


def test_a_backup_restored_by_another_name_beside_the_index_blames_no_document(
    make: Make, opensearch: Client, index: str, backup: Callable[[str], Restore]
) -> None:
    sink = make()
    live(sink, index, {"a": {"n": 1}, "b": {"n": 1}})
    place = place_of(opensearch, index)
    backup(place)(rename_pattern="(.+)", rename_replacement="$1-old")
    with pytest.raises(NeedsOperator, match="several indexes are behind the alias"):
        sink.write(batch_of(5, {"a": None, "c": {"n": 5}}, index))
    opensearch.do("DELETE", f"/{place}-old")
    assert sink.write(batch_of(5, {"a": None, "c": {"n": 5}}, index)).written == 1


@pytest.mark.parametrize(
    ("key", "value"), [("marker", {"later": 1}), ("mapping", "x"), ("mapping", {"n": 5})]
)
def test_notes_that_this_version_cannot_read_are_those_of_another_filling(
    make: Make, opensearch: Client, index: str, key: str, value: Any
) -> None:
    live(make(), index, {"a": {"n": 1}})
    place = place_of(opensearch, index)
    meta = opensearch.do("GET", f"/{place}/_mapping")[place]["mappings"]["_meta"]
    before = meta["tailrace"][key]
    meta["tailrace"][key] = {**before, **value} if key == "marker" else value
    opensearch.do("PUT", f"/{place}/_mapping", {"_meta": meta})
    sink = make()
    assert sink.seeded(index) is None
    live(sink, index, {"b": {"n": 1}}, SECOND)
    assert set(held(sink, index)) == {"b"}


def test_an_index_whose_write_alias_somebody_took_away_is_not_complete(
    make: Make, opensearch: Client, index: str
) -> None:
    live(make(), index, {"a": {"n": 1}})
    place = place_of(opensearch, index)
    action = {"remove": {"alias": f"{index}_{FIRST}", "index": place}}
    opensearch.do("POST", "/_aliases", {"actions": [action]})
    assert make().seeded(index) is None


def test_a_template_that_gives_the_alias_shows_no_unfinished_filling(
    make: Make, opensearch: Client, index: str
) -> None:
    body = {"index_patterns": [f"{index}*"], "priority": 900, "template": {"aliases": {index: {}}}}
    opensearch.do("PUT", f"/_index_template/{index}", body)
    try:
        sink = make()
        sink.ensure(index, FIRST, MAPPING)
        assert opensearch.ask("GET", f"/{index}/_search")[0] == 404
        sink.publish(index, MARKER)
        assert opensearch.ask("GET", f"/{index}/_search")[0] == 200
    finally:
        opensearch.do("DELETE", f"/_index_template/{index}")


def test_an_old_generation_that_cannot_be_removed_holds_nothing_up(
    make: Make, opensearch: Client, index: str
) -> None:
    sink = make(keep=1)
    live(sink, index, {"a": {"n": 1}})
    old = place_of(opensearch, index)
    live(sink, index, {"a": {"n": 2}}, SECOND)
    opensearch.do("PUT", f"/{old}/_settings", {"index.blocks.read_only": True})
    try:
        live(sink, index, {"a": {"n": 3}}, "third")
        assert held(sink, index) == {"a": {"n": 3}}
        assert old in opensearch.indexes(index)
    finally:
        opensearch.do("PUT", f"/{old}/_settings", {"index.blocks.read_only": None})
    sink.ensure(index, "third", MAPPING)
    assert old not in opensearch.indexes(index)


def test_a_delete_of_what_is_left_that_is_refused_is_no_success(
    make: Make, index: str, proxy: HttpProxy
) -> None:
    sink = make(proxy.url)
    live(sink, index, {"a": {"n": 1}, "b": {"n": 1}})
    why = (400, "mapper_parsing_exception", "whatever it means")
    proxy.always("_bulk", Refuse(lambda item: why if item.action == "delete" else None))
    with pytest.raises(TailraceError, match="could not be deleted"):
        sink.retire(index, FIRST, 9)


@pytest.mark.parametrize("header", ["inf", "1e999", "nan", "-inf"])
def test_a_wait_without_an_end_is_none(header: str) -> None:
    assert seconds_of(header) is None


def test_a_shard_that_no_node_has_is_not_left_out_of_what_is_retired(
    make: Make, opensearch: Client, index: str, proxy: HttpProxy
) -> None:
    sink = make(proxy.url, shards=2)
    live(sink, index, {str(number): {"n": number} for number in range(20)})
    place = place_of(opensearch, index)
    node = next(iter(opensearch.do("GET", "/_nodes")["nodes"]))
    nowhere = "index.routing.allocation.require._name"

    def lose(_: object) -> None:
        proxy.clear()
        opensearch.do("PUT", f"/{place}/_settings", {nowhere: "nobody"})
        cancel = {"index": place, "shard": 0, "node": node, "allow_primary": True}
        opensearch.do("POST", "/_cluster/reroute", {"commands": [{"cancel": cancel}]})

    waits: list[str] = []
    sink.watch(lambda reason, _: waits.append(reason))
    proxy.always("_search", lose)
    try:
        retired = sink.retire(index, FIRST, 9)
    except Transient:
        retired = 0
    finally:
        opensearch.do("PUT", f"/{place}/_settings", {nowhere: None})
    assert any("could not be read" in reason for reason in waits)
    health = opensearch.do("GET", f"/_cluster/health/{place}", wait_for_status="yellow", timeout="60s")
    assert not health["timed_out"]
    if not retired:
        sink.retire(index, FIRST, 9)
    sink.flush()
    assert held(make(), index) == {}
