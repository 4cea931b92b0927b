"""What every sink that keeps documents promises, tried on OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tailrace.model.errors import NeedsOperator
from tailrace.sinks.contract import DocumentSink
from tailrace.sinks.opensearch import OpenSearchSink
from tailrace.sinks.opensearch import sink as sink_module
from tests.sinks import test_document_sinks as contract
from tests.sinks.documents import FIRST, MARKER, SECOND, batch, batch_of, held
from tests.sinks.opensearch.sinks import Named, config_of
from tests.support.opensearch import Client

# Of what it fills first this one shows nothing, so nobody misses it when another filling begins.
SHOWING = "test_a_first_filling_that_was_abandoned_is_seen_until_another_is_complete"
TESTS = {name: value for name, value in vars(contract).items() if name.startswith("test_")}
del TESTS[SHOWING]
globals().update(TESTS)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "_RETIRE_PAGE", 2)
    monkeypatch.setattr(sink_module, "_READ_PAGE", 5)


@pytest.fixture
def sink(opensearch: Client, prefix: str) -> Iterator[DocumentSink]:
    # What is kept of old generations must count as gone to all who ask by the contract.
    made = Named(OpenSearchSink(config_of(opensearch.url, bulk_actions=3, keep=1)), prefix)
    made.ensure("customers", FIRST, {})
    yield made
    made.close()
    made.close()


def test_a_first_filling_that_was_abandoned_is_removed_when_another_begins(sink: DocumentSink) -> None:
    sink.write(batch(5, a={"n": 1}))
    sink.ensure("customers", SECOND, {})
    sink.write(batch(3, "customers", SECOND, b={"n": 2}))
    assert not sink.holds("customers", FIRST)
    assert sink.seeded("customers") is None
    sink.publish("customers", replace(MARKER, generation=SECOND))
    assert held(sink) == {"b": {"n": 2}}


def test_ids_may_be_any_text_and_are_told_apart_exactly(sink: DocumentSink) -> None:
    ids = [" ", "a", "A", "a ", "ä", "a\u0308", '["x","y"]', "'\"\\", "a\0b", "a\0c", "\n", "😀", "x" * 512]
    ids += ["1", "01", "1.0", "YWJj", "_id", "a,b", "/", "%2F", "\x7f"]
    assert sink.write(batch_of(1, {id_: {"of": id_} for id_ in ids})).written == len(ids)
    assert held(sink) == {id_: {"of": id_} for id_ in ids}
    sink.write(batch_of(2, dict.fromkeys(ids[::2])))
    assert set(held(sink)) == set(ids[1::2])


def test_an_id_that_opensearch_cannot_have_is_rejected_and_the_others_are_written(sink: DocumentSink) -> None:
    report = sink.write(batch_of(1, {"": {"n": 1}, "x" * 513: {"n": 1}, "a": {"n": 1}, "é" * 256: {"n": 1}}))
    assert report.written == 2
    assert {one.id for one in report.rejected} == {"", "x" * 513}
    assert all("512 bytes" in one.reason for one in report.rejected)
    assert sink.write(batch_of(2, {"": None, "a": None})).deleted == 2
    assert set(held(sink)) == {"é" * 256}


def test_what_was_not_written_again_is_retired_as_of_that_version_in_its_generation_alone(
    sink: DocumentSink,
) -> None:
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    old = {id_: {"n": 1} for id_ in "abcdefg"}
    sink.write(batch_of(3, old))
    sink.write(batch_of(3, old, "customers", SECOND))
    sink.write(batch(5, b={"n": 5}, x=None))
    sink.write(batch(7, d={"n": 7}, z={"n": 7}))
    assert sink.retire("customers", FIRST, 5) == 5
    sink.flush()
    assert held(sink) == {"b": {"n": 5}, "d": {"n": 7}, "z": {"n": 7}}
    assert held(sink, "customers", SECOND) == old
    assert sink.retire("customers", FIRST, 5) == 0
    # It is a delete of that version: late ones do not undo it, later ones do.
    assert sink.write(batch(4, a={"n": 4})).stale == 1
    assert sink.write(batch(5, c={"n": 5})).written == 1
    assert set(held(sink)) == {"b", "c", "d", "z"}
    with pytest.raises(NeedsOperator, match="gone"):
        sink.retire("customers", "third", 9)


def test_texts_are_kept_to_the_letter(sink: DocumentSink) -> None:
    texts = {
        "numbers": '{"n":123456789012345678901234567890.10,"e":1E5}',
        "escapes": '{"s":"\\u0000\\ud83d\\ude00\\/"}',
        "spaces": ' { "a" : [ ] }',
    }
    assert sink.write(batch_of(1, texts)).written == 3
    found = {row["id"]: row["document"] for row in sink.read("customers").to_pylist()}
    assert found == {**texts, "spaces": texts["spaces"].strip()}


def test_a_line_break_between_values_is_no_end_of_a_document(sink: DocumentSink) -> None:
    assert sink.write(batch_of(1, {"a": '{"n":\n1}\n', "b": '{"n":2}'})).written == 2
    assert held(sink) == {"a": {"n": 1}, "b": {"n": 2}}


@pytest.mark.parametrize("text", ["17", "null", '{"n":1,"n":2}', '{"n":', ""])
def test_what_is_no_object_is_rejected_alone(sink: DocumentSink, text: str) -> None:
    report = sink.write(batch_of(1, {"bad": text, "good": {"n": 1}}))
    assert ([one.id for one in report.rejected], report.written) == (["bad"], 1)
    assert set(held(sink)) == {"good"}
