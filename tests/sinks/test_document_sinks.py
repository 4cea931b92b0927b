"""What every sink that keeps documents promises, tried on each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.model.errors import NeedsOperator, UsageError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, DocumentSink, Held
from tailrace.sinks.fanout import FanOut
from tailrace.sinks.memory import MemoryDocumentSink
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tailrace.sinks.sqlite import sink as sink_module
from tests.sinks.documents import FIRST, MARKER, SECOND, batch, batch_of, held, versions


@pytest.fixture(params=["memory", "sqlite", "fanout"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentSink]:
    path = str(tmp_path / "documents.db")
    made: DocumentSink
    if request.param == "memory":
        made = MemoryDocumentSink()
    elif request.param == "sqlite":
        made = SqliteSink(SqliteStoreConfig(path, piece_documents=3))
    else:
        made = FanOut({"memory": MemoryDocumentSink(), "store": SqliteSink(SqliteStoreConfig(path))})
    made.ensure("customers", FIRST, {})
    yield made
    made.close()
    made.close()


def test_documents_are_written_replaced_and_deleted(sink: DocumentSink) -> None:
    assert sink.write(batch(1, a={"n": 1}, b={"n": 2})) == DocumentReport(written=2)
    assert sink.write(batch(2, a={"n": 3}, b=None, c=None)) == DocumentReport(written=1, deleted=2)
    sink.flush()
    assert held(sink) == {"a": {"n": 3}}
    assert versions(sink) == {"a": 2}


def test_an_older_version_changes_nothing_and_is_counted(sink: DocumentSink) -> None:
    sink.write(batch(5, a={"n": 5}, b=None))
    report = sink.write(batch(4, a={"n": 4}, b={"n": 4}, c={"n": 4}))
    assert (report.written, report.stale) == (1, 2)
    assert sink.write(batch(4, a=None)) == DocumentReport(stale=1)
    assert held(sink) == {"a": {"n": 5}, "c": {"n": 4}}


def test_an_equal_version_is_written_again_as_it_was_built_last(sink: DocumentSink) -> None:
    sink.write(batch(5, a={"n": 1}, b={"n": 1}, c=None))
    sink.write(batch(5, a={"n": 2}, b=None, c={"n": 2}))
    assert held(sink) == {"a": {"n": 2}, "c": {"n": 2}}


def test_a_deleted_document_stays_deleted_whoever_comes_late_and_comes_back_with_a_newer_version(
    sink: DocumentSink,
) -> None:
    sink.write(batch(3, a={"n": 1}))
    sink.write(batch(7, a=None))
    for version in (3, 6):
        assert sink.write(batch(version, a={"n": 1})).stale == 1
        assert held(sink) == {}
    sink.write(batch(8, a={"n": 2}))
    assert held(sink) == {"a": {"n": 2}}


def test_indexes_are_apart(sink: DocumentSink) -> None:
    sink.ensure("orders", FIRST, {})
    sink.write(batch(1, a={"of": "customers"}))
    sink.write(batch(9, "orders", a={"of": "orders"}))
    sink.publish("orders", MARKER)
    assert sink.seeded("customers") is None
    sink.drop("customers")
    assert held(sink, "orders") == {"a": {"of": "orders"}}
    assert sink.seeded("orders") == MARKER


def test_a_first_filling_can_be_checked_while_it_goes_on_and_is_complete_only_when_published(
    sink: DocumentSink,
) -> None:
    sink.write(batch(1, a={"n": 1}))
    assert held(sink) == held(sink, "customers", FIRST) == {"a": {"n": 1}}
    assert sink.seeded("customers") is None
    sink.publish("customers", MARKER)
    assert held(sink) == {"a": {"n": 1}}
    assert sink.seeded("customers") == MARKER


def test_a_marker_is_kept_until_another_is_published(sink: DocumentSink) -> None:
    sink.publish("customers", MARKER)
    sink.ensure("customers", FIRST, {"n": "long"})
    assert sink.seeded("customers") == MARKER
    later = replace(MARKER, position=9, horizon=12)
    sink.publish("customers", later)
    assert sink.seeded("customers") == later
    sink.ensure("customers", SECOND, {})
    assert sink.seeded("customers") == later


def test_readers_see_the_old_filling_whole_until_the_new_one_is_published(sink: DocumentSink) -> None:
    sink.write(batch(50, a={"n": 1}, b={"n": 1}, c=None))
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    # Lower versions: it may be another source.
    assert sink.write(batch(3, "customers", SECOND, b={"n": 2}, c={"n": 2})) == DocumentReport(written=2)
    assert sink.write(batch(2, "customers", SECOND, b={"n": 0})).stale == 1
    assert held(sink) == {"a": {"n": 1}, "b": {"n": 1}}
    # Live changes still reach what readers see.
    sink.write(batch(60, a={"n": 3}))
    assert held(sink) == {"a": {"n": 3}, "b": {"n": 1}}
    assert held(sink, "customers", SECOND) == {"b": {"n": 2}, "c": {"n": 2}}
    sink.publish("customers", replace(MARKER, generation=SECOND, position=3))
    assert held(sink) == {"b": {"n": 2}, "c": {"n": 2}}
    assert sink.seeded("customers") == replace(MARKER, generation=SECOND, position=3)
    with pytest.raises(UsageError, match=FIRST):
        sink.read("customers", FIRST)


def test_a_filling_goes_on_where_it_was_when_it_is_ensured_again(sink: DocumentSink) -> None:
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    sink.write(batch(3, "customers", SECOND, a={"n": 1}))
    sink.ensure("customers", SECOND, {})
    assert held(sink, "customers", SECOND) == {"a": {"n": 1}}
    assert held(sink) == {}
    assert sink.seeded("customers") == MARKER


def test_an_abandoned_filling_is_removed_when_another_begins(sink: DocumentSink) -> None:
    sink.write(batch(5, a={"n": 1}))
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    sink.write(batch(3, "customers", SECOND, a={"n": 2}))
    sink.ensure("customers", "third", {})
    with pytest.raises(UsageError, match=SECOND):
        sink.read("customers", SECOND)
    assert held(sink, "customers", "third") == {}
    assert held(sink) == {"a": {"n": 1}}
    # To go on with what readers see ends every filling beside it.
    sink.ensure("customers", FIRST, {})
    with pytest.raises(UsageError, match="third"):
        sink.read("customers", "third")
    assert held(sink) == {"a": {"n": 1}}
    assert sink.seeded("customers") == MARKER


def test_a_first_filling_that_was_abandoned_is_seen_until_another_is_complete(sink: DocumentSink) -> None:
    sink.write(batch(5, a={"n": 1}))
    sink.ensure("customers", SECOND, {})
    sink.write(batch(3, "customers", SECOND, b={"n": 2}))
    assert held(sink) == {"a": {"n": 1}}
    assert sink.seeded("customers") is None
    sink.publish("customers", replace(MARKER, generation=SECOND))
    assert held(sink) == {"b": {"n": 2}}


def test_a_late_writer_of_a_filling_that_is_gone_is_told_and_changes_nothing(sink: DocumentSink) -> None:
    sink.ensure("customers", SECOND, {})
    sink.write(batch(3, "customers", SECOND, a={"n": 2}))
    sink.publish("customers", replace(MARKER, generation=SECOND))
    with pytest.raises(NeedsOperator, match=f"generation {FIRST} of index customers is gone") as error:
        sink.write(batch(99, a={"n": 1}, b={"n": 1}))
    assert error.value.remedy
    with pytest.raises(NeedsOperator, match=f"generation {FIRST} of index customers is gone"):
        sink.publish("customers", MARKER)
    assert held(sink) == {"a": {"n": 2}}
    assert sink.seeded("customers") == replace(MARKER, generation=SECOND)


def test_an_index_that_was_dropped_is_forgotten_and_can_begin_again(sink: DocumentSink) -> None:
    sink.write(batch(9, a={"n": 1}, b=None))
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    sink.drop("customers")
    sink.drop("customers")
    assert sink.seeded("customers") is None
    with pytest.raises(UsageError, match="customers"):
        sink.read("customers")
    with pytest.raises(NeedsOperator):
        sink.write(batch(9, a={"n": 1}))
    sink.ensure("customers", FIRST, {})
    assert held(sink) == {}
    assert sink.seeded("customers") is None
    assert sink.write(batch(1, a={"n": 1}, b={"n": 1})).stale == 0
    assert set(held(sink)) == {"a", "b"}


def test_it_says_which_generations_it_holds(sink: DocumentSink) -> None:
    assert sink.holds("customers", FIRST)
    assert not sink.holds("customers", SECOND)
    assert not sink.holds("nowhere", FIRST)
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    assert sink.holds("customers", FIRST)
    assert sink.holds("customers", SECOND)
    sink.publish("customers", replace(MARKER, generation=SECOND))
    assert not sink.holds("customers", FIRST)
    assert sink.holds("customers", SECOND)


def test_what_was_not_written_again_is_retired_as_of_that_version_in_its_generation_alone(
    sink: DocumentSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "_RETIRE_ROWS", 2)
    sink.ensure("customers", SECOND, {})
    old = {id_: {"n": 1} for id_ in ("", "a", "b", "c", "d", "e", "f")}
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


def test_ids_may_be_any_text_and_are_told_apart_exactly(sink: DocumentSink) -> None:
    ids = ["", " ", "a", "A", "a ", "ä", "a\u0308", '["x","y"]', "'\"\\", "a\0b", "a\0c", "😀", "x" * 5000]
    sink.write(batch_of(1, {id_: {"of": id_} for id_ in ids}))
    assert held(sink) == {id_: {"of": id_} for id_ in ids}
    sink.write(batch_of(2, dict.fromkeys(ids[::2])))
    assert set(held(sink)) == set(ids[1::2])


def test_texts_are_kept_to_the_letter(sink: DocumentSink) -> None:
    texts = {
        "numbers": '{"n":123456789012345678901234567890.10,"e":1E5}',
        "escapes": '{"s":"\\u0000\\ud83d\\ude00\\/"}',
        "spaces": ' { "a" : [ ] }\n',
        "twice": '{"a":1,"a":2}',
        "scalar": "17",
    }
    sink.write(batch_of(1, texts))
    assert {row["id"]: row["document"] for row in sink.read("customers").to_pylist()} == texts


def test_an_empty_batch_does_nothing(sink: DocumentSink) -> None:
    assert sink.write(batch(1)) == DocumentReport()
    sink.flush()
    assert held(sink) == {}


def test_large_strings_of_arrow_are_taken(sink: DocumentSink) -> None:
    ids, documents = pa.array(["a", "b"], pa.large_string()), pa.array(['{"n":1}', None], pa.large_string())
    assert sink.write(DocumentBatch("customers", FIRST, ids, documents, 1)) == DocumentReport(1, 1)
    assert held(sink) == {"a": {"n": 1}}


def test_slices_of_arrays_are_taken(sink: DocumentSink) -> None:
    ids, documents = pa.array(["x", "a", "b"]), pa.array(['"no"', '{"n":1}', None])
    sink.write(DocumentBatch("customers", FIRST, ids.slice(1), documents.slice(1), 1))
    assert held(sink) == {"a": {"n": 1}}


def test_whatever_the_order_of_batches_the_newest_version_of_each_document_stays(sink: DocumentSink) -> None:
    dice = random.Random(4)
    batches = [
        batch_of(
            version,
            {
                id_: None if dice.random() < 0.3 else {"v": version, "of": id_}
                for id_ in dice.sample("abcdefgh", dice.randint(1, 8))
            },
        )
        for version in range(1, 25)
    ]
    newest: dict[str, str | None] = {}
    for one in batches:
        newest |= dict(zip(one.ids.to_pylist(), one.documents.to_pylist(), strict=True))
    replayed = batches * 2
    dice.shuffle(replayed)
    for one in replayed:
        report = sink.write(one)
        assert report.written + report.deleted + report.stale == len(one)
    found = {row["id"]: row["document"] for row in sink.read("customers").to_pylist()}
    assert found == {id_: text for id_, text in newest.items() if text is not None}


def test_an_index_that_was_not_ensured_is_refused(sink: DocumentSink) -> None:
    with pytest.raises(NeedsOperator, match="nowhere"):
        sink.write(batch(1, "nowhere", a={}))
    with pytest.raises(UsageError, match="nowhere"):
        sink.read("nowhere")
    assert sink.seeded("nowhere") is None


def test_a_batch_with_an_id_twice_or_without_one_cannot_be_made() -> None:
    two = pa.array(["{}", "{}"])
    with pytest.raises(UsageError, match="twice"):
        DocumentBatch("i", FIRST, pa.array(["a", "a"]), two, 1)
    with pytest.raises(UsageError, match="null"):
        DocumentBatch("i", FIRST, pa.array(["a", None]), two, 1)
    with pytest.raises(UsageError, match="1 ids and 2 documents"):
        DocumentBatch("i", FIRST, pa.array(["a"]), two, 1)


def test_a_look_tells_what_readers_see_and_changes_nothing(sink: DocumentSink) -> None:
    sink.write(batch(1, a={"n": 1}, b={"n": 2}, c=None))
    sink.flush()
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    sink.write(batch(2, "customers", SECOND, a={"n": 1}))
    sink.flush()
    found = sink.look("customers")
    assert (found.shown, found.marker) == (FIRST, MARKER)
    assert found.documents in (None, 2)
    assert sink.look("others") == Held()


def test_what_readers_see_can_be_written_while_another_is_filled(sink: DocumentSink) -> None:
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    shown = sink.holding("customers", FIRST)
    assert shown is not None
    shown.write(batch(3, a={"n": 3}))
    shown.flush()
    sink.write(batch(3, "customers", SECOND, b={"n": 4}))
    sink.flush()
    assert held(sink) == {"a": {"n": 3}}
    sink.publish("customers", replace(MARKER, generation=SECOND))
    assert held(sink) == {"b": {"n": 4}}
