"""The OpenSearch sink in front of a server that goes wrong: requests lost, refused, slow, applied in part."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tailrace.model.errors import NeedsOperator, TailraceError, Transient
from tailrace.sinks.contract import DocumentReport
from tailrace.sinks.opensearch import OpenSearchSink
from tests.sinks.documents import FIRST, MARKER, SECOND, batch_of, held
from tests.sinks.opensearch.sinks import MAPPING, Make
from tests.support.httpproxy import (
    Action,
    Answer,
    CutAfter,
    CutBefore,
    HttpProxy,
    Item,
    Refuse,
    Request,
    Rewrite,
    Wait,
)
from tests.support.opensearch import Client

SECOND_MARKER = replace(MARKER, generation=SECOND)
FULL = (429, "rejected_execution_exception", "queue is full")


@pytest.fixture
def sink(through: Make, index: str) -> OpenSearchSink:
    made = through()
    made.ensure(index, FIRST, MAPPING)
    return made


PASSING: list[Action] = [
    Answer(429),
    Answer(503),
    Answer(502, body=b"<html>bad gateway</html>"),
    Answer(504),
    CutBefore(),
    CutAfter(),
    CutAfter(passed=60),
]


def test_whatever_fails_for_a_moment_is_sent_again_until_it_is_there(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    told: list[tuple[str, float]] = []
    sink.watch(lambda why, seconds: told.append((why, seconds)))
    proxy.next("_bulk", *PASSING)
    assert sink.write(batch_of(1, {"a": {"n": 1}, "b": None}, index)) == DocumentReport(1, 1)
    assert proxy.left == 0
    assert proxy.seen("_bulk") == len(PASSING) + 1
    assert len(told) == len(PASSING)
    assert "status 429" in told[0][0]
    assert "the connection was lost" in told[4][0]
    assert held(sink, index) == {"a": {"n": 1}}


def test_a_slow_answer_is_given_up_and_what_it_did_is_harmless(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sink = through(timeout=0.5)
    sink.ensure(index, FIRST, MAPPING)
    late, reached = threading.Event(), threading.Event()

    def answered(said: Any) -> Any:
        reached.set()
        return said

    proxy.next("_bulk", Wait(late, then=Rewrite(answered)))
    assert sink.write(batch_of(1, {"a": {"n": 1}}, index)).written == 1
    sink.write(batch_of(2, {"a": {"n": 2}}, index))
    # Now the first request reaches the server, after a newer version.
    late.set()
    assert reached.wait(60)
    assert held(sink, index) == {"a": {"n": 2}}


def test_never_sooner_than_the_server_asks(sink: OpenSearchSink, proxy: HttpProxy, index: str) -> None:
    proxy.next("_bulk", Answer(429, retry_after=1))
    begun = time.monotonic()
    sink.write(batch_of(1, {"a": {"n": 1}}, index))
    assert time.monotonic() - begun >= 1


def test_a_long_outage_is_a_passing_fault_that_says_what_it_waits_for(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sink = through(max_elapsed=0.3)
    sink.ensure(index, FIRST, MAPPING)
    proxy.always("_bulk", Answer(503))
    with pytest.raises(Transient, match="status 503") as error:
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    assert error.value.place == proxy.url
    proxy.clear()
    proxy.next("_bulk", Answer(429, retry_after=60))
    with pytest.raises(Transient, match="status 429"):
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    # The engine comes again sooner: it is not passed on to the server.
    seen = proxy.seen("_bulk")
    with pytest.raises(Transient, match="asked to wait"):
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    # A task that comes afterwards makes a sink of its own.
    with pytest.raises(Transient, match=r"status 429, .*; asked to wait"):
        through().write(batch_of(1, {"a": {"n": 1}}, index))
    assert proxy.seen("_bulk") == seen


def test_a_stop_ends_the_waiting(through: Make, proxy: HttpProxy, index: str) -> None:
    sink = through(max_elapsed=600.0, backoff=600.0, max_backoff=600.0)
    sink.ensure(index, FIRST, MAPPING)
    proxy.always("_bulk", Answer(503))
    sink.watch(lambda _why, _seconds: sink.hurry())
    with pytest.raises(Transient):
        sink.write(batch_of(1, {"a": {"n": 1}}, index))


def test_of_a_mixed_answer_only_what_can_be_retried_is_sent_again(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    sink.write(batch_of(5, {"newer": {"n": 5}, "gone": {"n": 5}}, index))
    before = proxy.seen("_bulk")

    def judge(item: Item) -> Any:
        if item.id in ("busy", "busy-delete"):
            return FULL
        if item.id == "moving":
            return 503, "unavailable_shards_exception", "primary shard is not active"
        if item.id == "poison":
            return 400, "mapper_parsing_exception", "failed to parse field [n] of type [long] 'hidden'"
        return None

    proxy.next("_bulk", Refuse(judge))
    documents = {
        "ok": {"n": 4},
        "busy": {"n": 4},
        "newer": {"n": 4},
        "poison": {"n": "hidden"},
        "busy-delete": None,
        "nowhere": None,
        "moving": {"n": 4},
    }
    report = sink.write(batch_of(4, documents, index))
    assert (report.written, report.deleted, report.stale) == (3, 2, 1)
    assert [(one.id, one.reason) for one in report.rejected] == [
        ("poison", "mapper_parsing_exception: field n of type long")
    ]
    assert proxy.seen("_bulk") == before + 2
    resent = [item.id for item in proxy.requests[-1].items()]
    assert resent == ["busy", "busy-delete", "moving"]
    assert set(held(sink, index)) == {"ok", "busy", "moving", "newer", "gone"}


def test_a_storm_of_full_queues_ends_with_every_document_written_once_it_is_over(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sink = through(bulk_actions=10, parallel=3)
    sink.ensure(index, FIRST, MAPPING)
    tries: dict[str, int] = {}
    lock = threading.Lock()

    def storm(item: Item) -> Any:
        with lock:
            tries[item.id] = tries.get(item.id, 0) + 1
            return FULL if tries[item.id] <= int(item.id) % 4 else None

    proxy.always("_bulk", Refuse(storm))
    documents = {f"{number}": {"n": number} for number in range(100)}
    assert sink.write(batch_of(1, documents, index)) == DocumentReport(written=100)
    proxy.clear()
    assert held(sink, index) == documents


def test_a_request_that_is_too_large_comes_in_halves_and_one_document_too_large_is_rejected(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    def limit(request: Request) -> Action | None:
        return Answer(413) if len(request.body) > 1_000 else None

    proxy.always("_bulk", limit)
    documents = {f"{number}": {"s": "x" * 100} for number in range(20)} | {"huge": {"s": "x" * 2_000}}
    report = sink.write(batch_of(1, documents, index))
    assert report.written == 20
    assert [one.id for one in report.rejected] == ["huge"]
    assert "larger than the server takes" in report.rejected[0].reason
    proxy.clear()
    assert len(held(sink, index)) == 20


def test_a_read_only_index_is_waited_for_and_the_remedy_is_told(
    through: Make, opensearch: Client, index: str
) -> None:
    sink = through(max_elapsed=0.3)
    told: list[str] = []
    sink.watch(lambda why, _seconds: told.append(why))
    sink.ensure(index, FIRST, MAPPING)
    (place,) = opensearch.indexes(index)
    block = "index.blocks.read_only_allow_delete"
    opensearch.do("PUT", f"/{place}/_settings", {block: True})
    try:
        with pytest.raises(Transient, match="read-only") as error:
            sink.write(batch_of(1, {"a": {"n": 1}}, index))
        assert "watermark" in (error.value.remedy or "")
        assert told
        assert all("read-only; remedy: free disk space" in why for why in told)
        assert f", tried {len(told) + 1} times" in error.value.message
    finally:
        opensearch.do("PUT", f"/{place}/_settings", {block: None})
    assert sink.write(batch_of(1, {"a": {"n": 1}}, index)).written == 1


@pytest.mark.parametrize("status", [401, 403, 302])
def test_who_is_not_let_in_is_told_and_nothing_is_tried_again(
    sink: OpenSearchSink, proxy: HttpProxy, index: str, status: int
) -> None:
    before = proxy.seen("_bulk")
    proxy.next("_bulk", Answer(status))
    with pytest.raises(NeedsOperator) as error:
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    assert error.value.remedy
    assert proxy.seen("_bulk") == before + 1


def test_a_pipeline_that_does_not_exist_stops_and_rejects_nothing(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    words = "pipeline with id [nobody] does not exist"
    proxy.next("_bulk", Refuse(lambda _: (400, "illegal_argument_exception", words)))
    with pytest.raises(NeedsOperator, match="ingest pipeline of the sink does not exist"):
        sink.write(batch_of(1, {"a": {"n": 1}}, index))


def test_a_pipeline_is_asked_for_with_every_document(through: Make, proxy: HttpProxy, index: str) -> None:
    sink = through(pipeline="clean")
    sink.ensure(index, FIRST, MAPPING)
    proxy.next("_bulk", Answer(200, body={"errors": False, "items": [{"index": {"status": 201}}]}))
    assert sink.write(batch_of(1, {"a": {"n": 1}}, index)).written == 1
    assert proxy.requests[-1].parameters["pipeline"] == "clean"


def test_a_batch_that_comes_three_times_in_pieces_of_any_order_leaves_the_same(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sinks = [through(bulk_actions=size) for size in (2, 3, 50)]
    sinks[0].ensure(index, FIRST, MAPPING)
    documents: dict[str, Any] = {f"{n}": None if n % 3 == 0 else {"n": n} for n in range(30)}
    proxy.next("_bulk", CutAfter(), CutAfter(), Answer(429), CutAfter())
    twins = [threading.Thread(target=one.write, args=(batch_of(7, documents, index),)) for one in sinks]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join(60)
    # An old batch arrives after all of them.
    old = sinks[1].write(batch_of(6, {id_: {"n": -1} for id_ in documents}, index))
    assert old.stale == 30
    assert held(sinks[0], index) == {id_: one for id_, one in documents.items() if one is not None}


def test_retiring_and_reading_survive_lost_pages(sink: OpenSearchSink, proxy: HttpProxy, index: str) -> None:
    documents = {f"{number}": {"n": number} for number in range(10)}
    sink.write(batch_of(1, documents, index))
    sink.write(batch_of(5, {"1": {"n": 1}}, index))
    from tailrace.sinks.opensearch import sink as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RETIRE_PAGE", 3)
        patch.setattr(module, "_READ_PAGE", 3)
        proxy.next("/_search/scroll", CutAfter(), CutBefore())
        assert held(sink, index) == documents
        proxy.next("/_search/scroll", CutAfter(), Answer(503))
        assert sink.retire(index, FIRST, 5) == 9
    assert held(sink, index) == {"1": {"n": 1}}


Call = Callable[[OpenSearchSink], None]


def walk(through: Make, proxy: HttpProxy, call: Call, check: Callable[[], None]) -> int:
    """Break `call` off at each of its requests, before and after the server did it; how many there are.

    After each break `check` looks at what is there, and then the call is made again by another process.
    """
    for number in range(60):
        broken = through(backoff=0.0)
        broken.hurry()
        cut: Action = CutAfter() if number % 2 else CutBefore()
        count = iter(range(1_000))

        def rule(_: Request, cut: Action = cut, at: int = number // 2, count: Any = count) -> Action | None:
            return cut if next(count) == at else None

        proxy.always("", rule)
        try:
            call(broken)
        except Transient:
            pass
        else:
            proxy.clear()
            return number // 2
        finally:
            broken.close()
        proxy.clear()
        check()
    raise AssertionError("it never ended")


def test_broken_off_at_any_request_a_publication_shows_the_old_or_the_new_one_whole(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through()
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"old": {"n": 1}}, index))
    sink.publish(index, MARKER)
    sink.ensure(index, SECOND, MAPPING)
    sink.write(batch_of(1, {"new": {"n": 1}, "newer": {"n": 1}}, index, SECOND))

    def check() -> None:
        seen = opensearch.search(index)
        seeded = sink.seeded(index)
        assert (sorted(seen), seeded) in [(["old"], MARKER), (["new", "newer"], SECOND_MARKER)]

    def publish(broken: OpenSearchSink) -> None:
        broken.publish(index, SECOND_MARKER)

    assert walk(through, proxy, publish, check) >= 3
    check()
    assert sink.seeded(index) == SECOND_MARKER
    assert opensearch.aliases(index)[index] == [one for one in opensearch.indexes(index) if SECOND in one]


def test_broken_off_at_any_request_a_first_publication_is_complete_or_not_and_never_half(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through()
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"a": {"n": 1}}, index))

    def check() -> None:
        if sink.seeded(index) is not None:
            assert sink.seeded(index) == MARKER
            assert opensearch.search(index) == ["a"]

    walk(through, proxy, lambda broken: broken.publish(index, MARKER), check)
    check()
    assert sink.seeded(index) == MARKER


def test_broken_off_at_any_request_a_new_filling_begins_beside_what_readers_see(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through()
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"old": {"n": 1}}, index))
    sink.publish(index, MARKER)
    sink.ensure(index, "abandoned", MAPPING)

    def check() -> None:
        assert opensearch.search(index) == ["old"]
        assert sink.seeded(index) == MARKER

    walk(through, proxy, lambda broken: broken.ensure(index, SECOND, MAPPING), check)
    check()
    assert sink.write(batch_of(1, {"new": {"n": 1}}, index, SECOND)).written == 1
    names = {name.rpartition("_")[2] for name in opensearch.indexes(index)}
    assert names == {FIRST, SECOND}


def test_no_error_shows_a_document_or_who_asks(through: Make, proxy: HttpProxy, index: str) -> None:
    from tailrace.sinks.opensearch import Credential

    sink = through(max_elapsed=0.05, username="ada", password=Credential("pa55word"))
    sink.ensure(index, FIRST, MAPPING)
    words = {"error": {"type": "boom", "reason": "hidden-value"}, "status": 500}
    for status in (500, 401, 403, 418):
        proxy.next("_bulk", *[Answer(status, body=words)] * 30)
        with pytest.raises(TailraceError) as error:
            sink.write(batch_of(1, {"a": {"s": "hidden-value"}}, index))
        shown = f"{error.value!r} {error.value}"
        assert "hidden-value" not in shown
        assert "pa55word" not in shown
        proxy.clear()
    assert "Basic" in json.dumps([request.headers for request in proxy.requests])
