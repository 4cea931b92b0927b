"""Several sinks: all have a batch before it counts, one that fails fails it, and reports are merged."""

from __future__ import annotations

import io
import json
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.sinks.contract import DocumentBatch, DocumentReport, Rejection
from tailrace.sinks.fanout import FanOut
from tailrace.sinks.memory import MemoryDocumentSink
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tailrace.sinks.stdout import StdoutConfig, StdoutDocumentSink
from tests.sinks.documents import FIRST, MARKER, SECOND, batch, held


class Failing(MemoryDocumentSink):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    def write(self, batch: DocumentBatch) -> DocumentReport:
        if self.error is not None:
            raise self.error
        return super().write(batch)


class Picky(MemoryDocumentSink):
    def write(self, batch: DocumentBatch) -> DocumentReport:
        done = super().write(batch)
        return replace(done, written=done.written - 1, rejected=(Rejection("a", "too odd"),), notes=("hm",))


def test_one_that_fails_fails_the_whole_and_the_others_have_it_when_it_comes_again() -> None:
    good, bad = MemoryDocumentSink(), Failing(Transient("away for a moment"))
    sink = FanOut({"bad": bad, "good": good})
    sink.ensure("customers", FIRST, {})
    with pytest.raises(Transient, match="away"):
        sink.write(batch(1, a={"n": 1}))
    assert held(good) == {"a": {"n": 1}}
    bad.error = None
    assert sink.write(batch(1, a={"n": 1})) == DocumentReport(written=1)
    assert held(bad) == held(good)
    sink.close()


def test_the_error_that_somebody_must_act_on_is_raised_before_a_passing_one() -> None:
    sink = FanOut({"a": Failing(Transient("busy")), "b": Failing(NeedsOperator("full"))})
    with pytest.raises(NeedsOperator, match="full"):
        sink.write(batch(1, a={}))
    sink.close()


def test_every_sink_has_the_batch_when_the_call_returns() -> None:
    arrived = threading.Barrier(2, timeout=30)

    class Slow(MemoryDocumentSink):
        def write(self, batch: DocumentBatch) -> DocumentReport:
            # Both are at work at the same time, or this never ends.
            arrived.wait()
            return super().write(batch)

    first, second = Slow(), Slow()
    sink = FanOut({"first": first, "second": second})
    sink.ensure("customers", FIRST, {})
    sink.write(batch(1, a={"n": 1}))
    assert held(first) == held(second) == {"a": {"n": 1}}
    sink.close()


def test_reports_are_merged_and_a_rejection_says_whose_it_is() -> None:
    sink = FanOut({"good": MemoryDocumentSink(), "picky": Picky()})
    sink.ensure("customers", FIRST, {})
    report = sink.write(batch(1, a={}, b={}, c=None))
    assert report == DocumentReport(1, 1, 0, (Rejection("a", "picky: too odd"),), ("hm",))
    sink.close()


def test_an_index_is_seeded_only_where_all_that_keep_documents_say_so_alike() -> None:
    one, two, out = MemoryDocumentSink(), MemoryDocumentSink(), StdoutDocumentSink(StdoutConfig(io.BytesIO()))
    sink = FanOut({"one": one, "out": out, "two": two})
    sink.ensure("customers", FIRST, {})
    one.publish("customers", MARKER)
    assert sink.seeded("customers") is None
    two.publish("customers", replace(MARKER, position=3, horizon=9))
    assert sink.seeded("customers") == replace(MARKER, position=3, horizon=9)
    two.publish("customers", replace(MARKER, source="another"))
    assert sink.seeded("customers") is None
    sink.publish("customers", MARKER)
    assert sink.seeded("customers") == MARKER
    sink.close()


def test_a_filling_that_one_of_them_has_not_published_is_not_common() -> None:
    one, two = MemoryDocumentSink(), MemoryDocumentSink()
    sink = FanOut({"one": one, "two": two})
    sink.ensure("customers", FIRST, {})
    sink.publish("customers", MARKER)
    sink.ensure("customers", SECOND, {})
    one.publish("customers", replace(MARKER, generation=SECOND))
    assert sink.seeded("customers") is None
    sink.publish("customers", replace(MARKER, generation=SECOND))
    assert sink.seeded("customers") == replace(MARKER, generation=SECOND)
    sink.drop("customers")
    assert one.seeded("customers") is two.seeded("customers") is None
    sink.close()


def test_it_is_local_if_one_of_them_is_and_pickles_as_settings_otherwise(tmp_path: Path) -> None:
    store = SqliteSink(SqliteStoreConfig(str(tmp_path / "a.db")))
    assert FanOut({"a": store, "out": StdoutDocumentSink(StdoutConfig(io.BytesIO()))}).local
    sink = FanOut({"a": store, "b": SqliteSink(SqliteStoreConfig(str(tmp_path / "b.db")))})
    assert not sink.local
    sink.ensure("customers", FIRST, {})
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301
    copy.write(batch(1, a={"n": 1}))
    assert held(sink) == {"a": {"n": 1}}
    copy.close()
    sink.close()


def test_documents_go_to_a_stream_beside_a_store(tmp_path: Path) -> None:
    stream = io.BytesIO()
    store = SqliteSink(SqliteStoreConfig(str(tmp_path / "a.db")))
    sink = FanOut({"out": StdoutDocumentSink(StdoutConfig(stream)), "store": store})
    sink.ensure("customers", FIRST, {})
    assert sink.write(batch(1, a={"n": 1}, b=None)) == DocumentReport(1, 1)
    assert held(sink) == {"a": {"n": 1}}
    assert [json.loads(line)["id"] for line in stream.getvalue().splitlines()] == ["a", "b"]
    sink.close()


def test_no_sink_at_all_is_refused() -> None:
    with pytest.raises(ConfigError):
        FanOut({})


def test_of_a_generation_only_the_sinks_that_have_it_are_written() -> None:
    old, new = MemoryDocumentSink(), MemoryDocumentSink()
    sink = FanOut({"old": old, "new": new, "out": StdoutDocumentSink(StdoutConfig(io.BytesIO()))})
    old.ensure("customers", FIRST, {})
    part = sink.holding("customers", FIRST)
    assert isinstance(part, FanOut)
    assert list(part.sinks) == ["old"]
    assert part.write(batch(1, a={"n": 1})) == DocumentReport(written=1)
    assert held(old) == {"a": {"n": 1}}
    assert sink.holding("customers", SECOND) is None
    sink.close()
