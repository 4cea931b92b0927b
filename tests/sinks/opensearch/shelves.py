"""Indexes of a real OpenSearch with documents as a source really builds them, and what queries find there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.config.index import parse_index
from tailrace.documents.compile import compile_index
from tailrace.documents.mapping import derive_mapping
from tailrace.documents.render import build_query
from tailrace.model.table import TableSchema
from tailrace.sinks.opensearch.mapping import index_body
from tests.documents.rendering import Source, SqliteSource
from tests.support.opensearch import Client

ANALYSES = ("builtin", "icu")
Rows = list[list[Any]]


class Shelf:
    """An index, and the texts of the documents that were sent to it."""

    def __init__(self, client: Client, name: str, mapping: Mapping[str, Any], **body: Any) -> None:
        self.client, self.name = client, name
        self.documents: dict[str, str] = {}
        client.create(name, index_body(mapping, replicas=0, **body))

    def put(self, documents: Mapping[str, Any]) -> dict[str, str]:
        """Add documents; says which of them were refused, and why."""
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in documents.items()}
        self.documents.update(texts)
        return self.client.put(self.name, texts)

    def find(self, query: Any) -> set[str]:
        """The ids of what matches."""
        return set(self.client.search(self.name, query))

    def match(self, field: str, text: Any, kind: str = "match") -> set[str]:
        return self.find({kind: {field: text}})

    def term(self, field: str, value: Any) -> set[str]:
        return self.find({"term": {field: {"value": value}}})

    def between(self, field: str, **bounds: Any) -> set[str]:
        return self.find({"range": {field: bounds}})

    def sorted(self, *fields: Any) -> list[str]:
        """All ids in the order of these fields, and then of the ids themselves."""
        return self.client.search(self.name, sort=[*fields, "_id"])

    def words(self, analyzer: str, text: str) -> list[str]:
        """What an analyzer of the index makes of a text."""
        found = self.client.do("POST", f"/{self.name}/_analyze", {"analyzer": analyzer, "text": text})
        return [token["token"] for token in found["tokens"]]

    def kept(self) -> bool:
        """Whether the documents come back exactly as they were sent."""
        body = {"query": {"match_all": {}}, "size": 10_000}
        hits = self.client.do("POST", f"/{self.name}/_search", body)["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in hits} == {
            name: json.loads(text) for name, text in self.documents.items()
        }


class Shelves:
    """Makes indexes of a test's own."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client, self._prefix, self._made = client, prefix, 0

    def shelf(self, mapping: Mapping[str, Any], **body: Any) -> Shelf:
        self._made += 1
        return Shelf(self.client, f"{self._prefix}{self._made}", mapping, **body)

    def of(
        self,
        fields: str,
        columns: str,
        rows: Sequence[Sequence[Any]],
        *,
        source: Source | None = None,
        refused: bool = False,
        **body: Any,
    ) -> Shelf:
        """An index of the table `t`, whose rows get the ids 1, 2, …; nothing may be refused unless said so.

        `columns` are those beside `id`, as SQL has them; `fields` are those of the schema, as YAML has them.
        """
        place = source or SqliteSource()
        place.sql("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id bigint PRIMARY KEY, {columns})")
        place.insert("t", *((at, *row) for at, row in enumerate(rows, start=1)))
        text = f"version: 1\ntable: t\nprimary_key: id\nfields:\n{fields}"
        schema = parse_index(text, "file")
        plan = compile_index("t", schema, lambda _, name: _table(place, name))
        query = build_query(plan, place.dialect)
        made = self.shelf(derive_mapping(schema).to_json(), **body)
        why = made.put(dict(place.run(query, query.bind(None))))
        if not refused:
            assert why == {}
            assert made.kept()
        return made


def _table(source: Source, name: str) -> TableSchema:
    return source.table(name)


def mapped(fields: str) -> dict[str, Any]:
    """The mapping of a schema with these fields."""
    schema = parse_index(f"version: 1\ntable: t\nprimary_key: id\nfields:\n{fields}", "file")
    return derive_mapping(schema).to_json()
