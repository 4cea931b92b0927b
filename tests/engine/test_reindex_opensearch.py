"""Indexes of OpenSearch that are filled again while somebody reads their alias: nothing vanishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.model.errors import NeedsOperator
from tailrace.sinks.opensearch import OpenSearchSink
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.engine.test_documents import shorter
from tests.engine.test_reindex import LIVE, SLOW, state, steering
from tests.support.documents.polling import Polling
from tests.support.opensearch import Client, opensearch, opensearch_server, prefix
from tests.support.postgres import Database, database, postgres
from tests.support.waiting import wait_until

EVE = "UPDATE customers SET name = 'Eve' WHERE id = 5"
__all__ = ["database", "opensearch", "opensearch_server", "postgres", "prefix"]


class InOpenSearch(Documents):
    """A pipeline whose documents are in a cluster, and read by its alias alone."""

    def __init__(self, directory: Path, cluster: Client, prefix: str, database: Database | None) -> None:
        super().__init__(directory, database)
        self._cluster, self._prefix = cluster, prefix
        self.kept = f'[sinks.store]\ntype = "opensearch"\nurl = "{cluster.url}"\nreplicas = 0\n'
        self.head = f'prefix = "{prefix}"\n'

    def name(self, index: str) -> str:
        """What an index is called there, and in the pipeline's state."""
        return f"{self._prefix}{index}"

    def hits(self, index: str = "customers") -> list[dict[str, Any]]:
        """All that a search by the alias finds at this moment."""
        status, answer = self._cluster.ask(
            "POST", f"/{self.name(index)}/_search", {"size": 1000, "version": True}
        )
        assert status == 200, answer
        return list(answer["hits"]["hits"])

    def read(self) -> dict[str, Any]:
        return {hit["_id"]: hit["_source"] for hit in self.hits()}

    def found(self, index: str = "customers") -> pa.Table:
        rows = sorted((hit["_id"], hit["_version"], json.dumps(hit["_source"])) for hit in self.hits(index))
        types = (pa.string(), pa.int64(), pa.large_string())
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pa.table(arrays, names=["id", "version", "document"])

    def places(self) -> set[str]:
        """The indexes behind the alias."""
        status, answer = self._cluster.ask("GET", f"/_alias/{self.name('customers')}")
        return set(answer) if status == 200 else set()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def shop(request: pytest.FixtureRequest, tmp_path: Path, opensearch: Client, prefix: str) -> InOpenSearch:
    source = request.getfixturevalue("database") if request.param == "postgres" else None
    made = InOpenSearch(tmp_path, opensearch, prefix, source)
    made.transaction(*filling(*FEW))
    made.index("customers")
    made.run()
    made.check()
    return made


def test_while_an_index_is_filled_again_its_alias_shows_every_change_and_loses_no_document(
    shop: InOpenSearch,
) -> None:
    before, name = shop.places(), shop.name("customers")
    shop.options = SLOW
    with shop.running() as error, Polling(shop.read).reading() as reader:
        steering(shop).reindex("customers")
        wait_until(lambda: state(shop, name).state == "filling", timeout=60, what="a filling")
        steering(shop).pause("customers")
        for statement, right in LIVE:
            reader.deletes("4")
            shop.transaction(statement)
            reader.sees(statement, right)
            assert shop.places() == before, "it was seen before the new one was complete"
        steering(shop).resume()
        wait_until(lambda: error() or state(shop, name).state == "complete", timeout=60, what="the new one")
        shop.settles(error=error)
    after = shop.places()
    assert len(after) == 1
    assert after.isdisjoint(before)
    shop.check()


def test_a_changed_schema_is_shown_in_one_step_when_it_is_complete(shop: InOpenSearch) -> None:
    before = shop.places()
    shop.index("customers", shorter(SCHEMA))
    shop.options = SLOW
    with Polling(shop.read).reading() as reader, shop.running() as error:
        reader.deletes("4")
        shop.transaction(
            "DELETE FROM customers WHERE id = 4", "UPDATE customers SET name = 'Eve' WHERE id = 5"
        )
        shop.settles(error=error)
    assert shop.places().isdisjoint(before)
    # Back to what was before is no reason to show what stood still.
    shop.index("customers")
    shop.options = {}
    with Polling(shop.read).reading():
        shop.run()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize("method", ["ensure", "write", "flush", "publish"])
@pytest.mark.parametrize("after", [False, True])
def test_a_life_that_ends_while_an_index_is_filled_again_takes_no_document_away(
    shop: InOpenSearch, monkeypatch: pytest.MonkeyPatch, method: str, after: bool
) -> None:
    steering(shop).reindex("customers")
    shop.transaction(EVE, "DELETE FROM customers WHERE id = 6")
    real, left = getattr(OpenSearchSink, method), [1]

    def broken(self: OpenSearchSink, *arguments: Any) -> Any:
        if left and after:
            real(self, *arguments)
        if left:
            left.pop()
            raise NeedsOperator("the end of a life")
        return real(self, *arguments)

    monkeypatch.setattr(OpenSearchSink, method, broken)
    with Polling(shop.read).reading() as reader:
        reader.deletes("6")
        with pytest.raises(NeedsOperator, match="the end of a life"):
            shop.run()
        shop.run()
    shop.check()


@pytest.mark.long
def test_an_index_that_somebody_deleted_is_filled_anew_and_never_taken_for_complete(
    shop: InOpenSearch, opensearch: Client
) -> None:
    for place in shop.places():
        opensearch.do("DELETE", f"/{place}")
    shop.transaction(EVE)
    shop.run()
    shop.check()


@pytest.mark.long
def test_a_restored_copy_of_an_index_is_not_taken_for_the_index(
    shop: InOpenSearch, opensearch: Client
) -> None:
    (place,) = shop.places()
    opensearch.do("PUT", f"/{place}/_settings", {"index.blocks.write": True})
    opensearch.do("POST", f"/{place}/_clone/{place}x")
    opensearch.do("DELETE", f"/{place}")
    wait_until(
        lambda: opensearch.ask("GET", f"/_cluster/health/{place}x", wait_for_status="yellow")[0] == 200
    )
    opensearch.do("POST", f"/{place}x/_clone/{place}", {"settings": {"index.blocks.write": None}})
    opensearch.do(
        "POST", "/_aliases", {"actions": [{"add": {"index": place, "alias": shop.name("customers")}}]}
    )
    opensearch.do("DELETE", f"/{place}x")
    shop.transaction(EVE)
    shop.run()
    shop.check()
    assert shop.fillings()
