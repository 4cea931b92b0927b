"""Answers that are not OpenSearch's, or not what was expected: never taken for the state of an index."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.model.errors import NeedsOperator, Transient
from tailrace.sinks.contract import DocumentReport
from tailrace.sinks.opensearch import OpenSearchSink
from tests.sinks.documents import FIRST, MARKER, batch_of, held
from tests.sinks.opensearch.sinks import MAPPING, Make
from tests.support.httpproxy import Action, Answer, HttpProxy, Refuse, Request, Rewrite
from tests.support.opensearch import Client

# What a balancer says while its nodes restart, and what is no object of OpenSearch's.
BACKEND: list[Action] = [
    Answer(404, body=b"default backend - 404"),
    Answer(404, body={"error": {"type": "route_not_found", "reason": "nobody is there"}}),
    Answer(404, body={"message": "no Route matched with those values"}),
    Answer(404, body=b"[]"),
]
STRANGE: list[Action] = [
    Answer(200, body=b""),
    Answer(200, body=b"<html>It works!</html>"),
    Answer(200, body=b"[1, 2]"),
    Answer(200, body=b'"ok"'),
    Answer(200, body=b"\xff\xfe"),
]


@pytest.fixture
def sink(through: Make, index: str) -> OpenSearchSink:
    """One whose index is complete and has a document."""
    made = through()
    made.ensure(index, FIRST, MAPPING)
    made.write(batch_of(1, {"a": {"n": 1}}, index))
    made.publish(index, MARKER)
    return made


def test_an_answer_of_somebody_else_is_never_taken_for_an_index_that_is_not_there(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    proxy.next(f"/{index}", *BACKEND, *STRANGE, Answer(200, body={"status": "ok"}))
    assert sink.seeded(index) == MARKER
    assert proxy.left == 0
    proxy.next("_bulk", *BACKEND, *STRANGE, Answer(200, body={"status": "ok"}))
    assert sink.write(batch_of(2, {"b": {"n": 2}}, index)) == DocumentReport(written=1)
    assert proxy.left == 0
    proxy.next("_refresh", *BACKEND, *STRANGE, Answer(200, body={"_shards": "all"}))
    sink.flush()
    assert proxy.left == 0
    assert held(sink, index) == {"a": {"n": 1}, "b": {"n": 2}}


def test_a_publication_goes_on_though_somebody_else_answers(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through(max_elapsed=120.0)
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"a": {"n": 1}}, index))
    for what in (
        "_settings",
        "filter_path=%2A.mappings._meta%2C%2A.settings.index.uuid",
        "_mapping",
        "_aliases",
    ):
        proxy.next(what, BACKEND[0], *STRANGE, Answer(200, body={"status": "ok"}))
    sink.publish(index, MARKER)
    assert proxy.left == 0
    assert sink.seeded(index) == MARKER
    assert opensearch.search(index) == ["a"]


def test_pages_of_somebody_else_are_read_again(sink: OpenSearchSink, proxy: HttpProxy, index: str) -> None:
    proxy.next(
        "_search", *STRANGE, Answer(200, body={"status": "ok"}), Answer(200, body={"hits": {"hits": 3}})
    )
    assert held(sink, index) == {"a": {"n": 1}}
    proxy.next("_search/scroll", STRANGE[1], Answer(200, body={"_scroll_id": "x", "hits": []}))
    assert held(sink, index) == {"a": {"n": 1}}
    assert proxy.left == 0
    proxy.next("_count", *STRANGE, Answer(200, body={"count": 1}))
    assert sink.look(index).documents == 1


def test_results_of_items_that_say_nothing_are_asked_for_again(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    shapes: list[Any] = [
        {"errors": True, "items": [{}]},
        {"errors": True, "items": ["index"]},
        {"errors": True, "items": [{"index": None}]},
        {"errors": True, "items": [{"index": {"status": "odd"}}]},
        {"errors": True, "items": {"index": {"status": 200}}},
        {"errors": True, "items": [{"index": {"status": 503}}]},
    ]
    proxy.next("_bulk", *(Answer(200, body=shape) for shape in shapes))
    assert sink.write(batch_of(2, {"b": {"n": 2}}, index)) == DocumentReport(written=1)
    assert proxy.left == 0


def test_a_refusal_of_every_request_stops_and_rejects_no_document(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sink = through(bulk_actions=4, parallel=2)
    sink.ensure(index, FIRST, MAPPING)
    said = {"error": {"type": "illegal_argument_exception", "reason": "hidden-value"}, "status": 400}
    proxy.always("_bulk", Answer(400, body=said))
    for number in (1, 7):
        documents = {f"{n}": {"n": n} for n in range(number)}
        with pytest.raises(NeedsOperator, match="status 400, illegal_argument_exception") as error:
            sink.write(batch_of(1, documents, index))
        assert "hidden-value" not in str(error.value)
        assert error.value.remedy


def test_of_refused_requests_one_bad_document_among_good_ones_is_rejected_alone(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through()
    sink.ensure(index, FIRST, MAPPING)

    def refuse(request: Request) -> Action | None:
        return Answer(400) if b'"bad"' in request.body else None

    proxy.always("_bulk", refuse)
    documents = {f"{n}": {"n": n} for n in range(6)} | {"bad": {"n": 1}}
    report = sink.write(batch_of(1, documents, index))
    assert report.written == 6
    assert [one.id for one in report.rejected] == ["bad"]


def test_nobody_behind_a_balancer_for_long_is_a_passing_fault(
    through: Make, proxy: HttpProxy, index: str
) -> None:
    sink = through(max_elapsed=0.1)
    proxy.always("", BACKEND[0])
    with pytest.raises(Transient, match="status 404"):
        sink.seeded(index)
    proxy.clear()
    proxy.always("", STRANGE[1])
    with pytest.raises(Transient, match="an answer that is not OpenSearch's"):
        sink.seeded(index)


@pytest.mark.parametrize("status", [503, 403])
def test_a_scroll_that_cannot_be_ended_is_left_to_the_server(
    sink: OpenSearchSink, proxy: HttpProxy, index: str, status: int
) -> None:
    def kept(request: Request) -> Action | None:
        return Answer(status) if request.method == "DELETE" else None

    proxy.always("_search/scroll", kept)
    assert held(sink, index) == {"a": {"n": 1}}
    # The second page, which is empty, and one try to end it.
    assert proxy.seen("_search/scroll") == 2


def test_shards_that_failed_or_that_no_node_has_are_refreshed_again(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    sink.write(batch_of(2, {"b": {"n": 2}}, index))
    shards = [
        {"total": 2, "successful": 1, "failed": 1},
        {"total": 2, "successful": 0, "failed": 0},
        {"total": 0, "successful": 0, "failed": 0},
    ]
    proxy.next("_refresh", *(Answer(200, body={"_shards": said}) for said in shards))
    before = proxy.seen("_refresh")
    sink.flush()
    assert proxy.seen("_refresh") == before + 4
    # A copy that is nowhere is none that readers need.
    sink.write(batch_of(3, {"b": {"n": 3}}, index))
    proxy.next("_refresh", Rewrite(lambda _: {"_shards": {"total": 2, "successful": 1, "failed": 0}}))
    sink.flush()
    assert proxy.seen("_refresh") == before + 5
    # Where a search misses a shard it was the refresh that missed it.
    sink.write(batch_of(4, {"b": {"n": 4}}, index))
    proxy.next("_refresh", Rewrite(lambda _: {"_shards": {"total": 4, "successful": 2, "failed": 0}}))
    proxy.next("_count", Rewrite(lambda _: {"_shards": {"total": 2, "successful": 1, "failed": 0}}))
    sink.flush()
    assert proxy.seen("_refresh") == before + 7


def test_a_change_that_was_not_acknowledged_is_made_again(
    through: Make, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    sink = through()
    sink.ensure(index, FIRST, MAPPING)
    sink.write(batch_of(1, {"a": {"n": 1}}, index))
    late = Rewrite(lambda said: {**said, "acknowledged": False})
    for what in ("_settings", "_mapping", "_aliases"):
        proxy.next(f"/{what}", Answer(200, body={"acknowledged": False}), late)
    sink.publish(index, MARKER)
    assert sink.seeded(index) == MARKER
    assert opensearch.search(index) == ["a"]


def test_who_may_not_write_some_items_is_told_and_nothing_is_rejected(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    words = "no permissions for [indices:data/write/bulk[s]] and User [name=ada]"
    proxy.next("_bulk", Refuse(lambda item: (403, "security_exception", words) if item.id == "b" else None))
    with pytest.raises(NeedsOperator, match="does not permit to write") as error:
        sink.write(batch_of(2, {"a": {"n": 2}, "b": {"n": 2}}, index))
    assert "cluster_composite_ops" in (error.value.remedy or "")
    proxy.next("_bulk", Answer(403))
    with pytest.raises(NeedsOperator, match="does not permit this") as error:
        sink.write(batch_of(2, {"a": {"n": 2}}, index))
    assert "cluster_composite_ops" in (error.value.remedy or "")


def test_documents_that_break_off_five_times_are_a_passing_fault_that_says_why(
    sink: OpenSearchSink, proxy: HttpProxy, index: str
) -> None:
    proxy.next("_search/scroll", *[Answer(404, body={"error": {"type": "search_context_missing"}})] * 20)
    with pytest.raises(Transient, match=r"could not be read to its end in 5 tries: .*search_context_missing"):
        held(sink, index)


BLOCKS = [
    ("[SERVICE_UNAVAILABLE/1/state not recovered / initialized]", 503, "has not recovered", "nodes that may"),
    ("[SERVICE_UNAVAILABLE/2/no cluster-manager]", 503, "has no manager", "nodes that may"),
    ("[TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark]", 429, "read-only", "watermark"),
    ("[FORBIDDEN/5/index read-only (api)]", 403, "read-only", "take the block away"),
    ("[FORBIDDEN/8/index write (api)]", 403, r"blocked \(index write \(api\)\)", "find the block"),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0])
def test_a_block_is_told_by_its_words(
    through: Make, proxy: HttpProxy, index: str, block: tuple[str, int, str, str]
) -> None:
    words, status, told, remedy = block
    sink = through(max_elapsed=0.0)
    said = {"error": {"type": "cluster_block_exception", "reason": f"blocked by: {words};"}, "status": status}
    proxy.next("_bulk", Answer(status, body=said))
    with pytest.raises(Transient, match=told) as error:
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    assert remedy in (error.value.remedy or "")
    proxy.next("_bulk", Refuse(lambda _: (status, "cluster_block_exception", f"blocked by: {words};")))
    with pytest.raises(Transient, match=told) as error:
        sink.write(batch_of(1, {"a": {"n": 1}}, index))
    assert remedy in (error.value.remedy or "")


def test_an_index_of_which_a_backup_is_made_is_not_taken_for_removed(
    sink: OpenSearchSink, proxy: HttpProxy, opensearch: Client, index: str
) -> None:
    (place,) = opensearch.indexes(index)
    said = {"error": {"type": "snapshot_in_progress_exception", "reason": "being snapshotted"}, "status": 400}
    proxy.next(f"/{place}", Answer(400, body=said))
    with pytest.raises(Transient, match=f"keeps {place} for now") as error:
        sink.drop(index)
    assert "backup" in (error.value.remedy or "")
    sink.drop(index)
    assert opensearch.indexes(index) == []
