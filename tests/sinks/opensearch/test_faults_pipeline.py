"""A pipeline that keeps documents in OpenSearch, from the configuration to the index, through faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace import app
from tailrace.model.errors import DataError
from tailrace.sinks.opensearch import OpenSearchSink
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.sinks.opensearch.sinks import config_of
from tests.support.httpproxy import Answer, CutAfter, CutBefore, HttpProxy, Item, Refuse
from tests.support.opensearch import Client
from tests.support.waiting import wait_until


class Searched(Documents):
    """The same, with its documents in OpenSearch, which it reaches through a proxy."""

    def __init__(self, directory: Path, url: str, proxy: str, index: str) -> None:
        super().__init__(directory)
        self.name, self._url, self._proxy = index, url, proxy
        self.settings()
        self.transaction(*filling(*FEW))
        self.index(index, sinks='["search"]')

    def settings(self, more: str = "") -> None:
        self.more = f'[sinks.search]\ntype = "opensearch"\nurl = "{self._proxy}"\nreplicas = 0\n{more}\n'

    def found(self, index: str = "") -> pa.Table:
        with closing(OpenSearchSink(config_of(self._url))) as sink:
            return sink.read(index or self.name)


@pytest.fixture
def documents(tmp_path: Path, opensearch: Client, proxy: HttpProxy, prefix: str) -> Iterator[Searched]:
    yield Searched(tmp_path, opensearch.url, proxy.url, f"{prefix}customers")
    proxy.clear()


def test_documents_equal_a_rebuild_though_requests_fail_and_answers_are_lost(
    documents: Searched, proxy: HttpProxy
) -> None:
    proxy.next("_bulk", Answer(429), CutAfter(), Answer(503), CutBefore())
    proxy.next("_aliases", CutAfter())
    proxy.next("_mapping", CutAfter())
    documents.run()
    documents.check()
    assert proxy.left <= 1
    told = [event["message"] for event in documents.events("sink.retry")]
    assert any("status 429" in message for message in told)
    assert any("the connection was lost" in message for message in told)
    assert len(documents.events("index.complete")) == 1
    proxy.next("_bulk", CutAfter())
    documents.transaction(
        "UPDATE cities SET title = 'Torino' WHERE id = 1",
        "DELETE FROM customers WHERE id = 7",
        "DELETE FROM orders WHERE id = 3",
    )
    documents.run()
    documents.check()
    # It is complete, and was not filled again.
    assert documents.fillings() == []


def test_an_outage_is_told_while_it_lasts_and_nothing_is_lost(documents: Searched, proxy: HttpProxy) -> None:
    documents.run()
    with documents.running() as error:
        wait_until(lambda: documents.status().running is not None)
        proxy.always("", Answer(503))
        documents.sql("INSERT INTO customers VALUES (500, 'late', 1)")
        wait_until(lambda: any("503" in event["message"] for event in documents.events("sink.retry")))
        assert error() is None
        wait = documents.status().held_up
        assert wait is not None
        assert (wait.sink, "503" in wait.reason, proxy.url in wait.reason) == ("search", True, True)
        (look,) = app.indexes(documents.config()).indexes
        assert look.held_up is not None
        assert look.held_up.since == wait.since
        proxy.clear()
        documents.settles(error=error)
        wait_until(lambda: documents.status().held_up is None)
    assert documents.status().stopped is None
    assert "500" in documents.ids(documents.name)


def test_what_a_run_stopped_on_is_told_until_the_next_one_begins(
    documents: Searched, proxy: HttpProxy
) -> None:
    documents.run()
    proxy.always("_bulk", Refuse(lambda _: (400, "mapper_parsing_exception", "failed to parse")))
    documents.sql("INSERT INTO customers VALUES (501, 'bad', 1)")
    with pytest.raises(DataError):
        documents.run()
    found = documents.status().stopped
    assert found is not None
    assert (found.error, documents.name in found.message, "501" in found.message) == ("DataError", True, True)
    proxy.clear()
    documents.run()
    assert documents.status().stopped is None


def test_a_document_that_does_not_fit_becomes_a_dead_letter_with_its_reason(
    documents: Searched, proxy: HttpProxy
) -> None:
    documents.index(documents.name, sinks='["search"]', on_error='"skip"')

    def judge(item: Item) -> tuple[int, str, str] | None:
        why = "failed to parse field [name] of type [text] in document with id '3'. Preview: 'customer 3'"
        return (400, "mapper_parsing_exception", why) if item.id == "3" else None

    proxy.always("_bulk", Refuse(judge))
    documents.run()
    (letter,) = documents.letters()
    assert (letter.id, letter.reason) == ("3", "mapper_parsing_exception: field name of type text")
    assert documents.differences(documents.name, without=["3"]) == []
    proxy.clear()
    documents.retry()
    assert documents.letters() == []
    documents.check()


def test_what_is_not_what_was_filled_is_filled_again_and_never_served_as_complete(
    documents: Searched, opensearch: Client
) -> None:
    name = documents.name
    documents.run()
    # Deleted by somebody.
    opensearch.drop(name)
    documents.run()
    assert [index for index, _ in documents.fillings()][:1] == [name]
    documents.check()
    # Schema A, B, and A again: each is filled, with what changed meanwhile.
    other = SCHEMA.replace("  - text: name\n", "")
    for schema in (other, SCHEMA):
        documents.sql(f"INSERT INTO customers VALUES ({600 + len(schema)}, 'between', 2)")
        documents.index(name, schema, sinks='["search"]')
        documents.run()
        assert (name, "its schema changed") in documents.fillings()
        documents.check()
    # Stored otherwise.
    documents.settings('analysis = "icu"')
    documents.run()
    assert (name, "its sink holds something else") in documents.fillings()
    documents.check()
    # Left out for a while, in which something happened.
    documents.index(name, SCHEMA, sinks='["search"]', enabled="false")
    documents.index("others", SCHEMA, sinks='["store"]')
    documents.sql("DELETE FROM customers WHERE id = 4")
    documents.run()
    documents.index(name, SCHEMA, sinks='["search"]')
    documents.run()
    assert name in {index for index, _ in documents.fillings()}
    documents.check(name)
