"""Rows within rows, options and settings: what an index makes of them, asked of a real OpenSearch."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.index import load_index
from tailrace.documents.mapping import derive_mapping
from tailrace.model.errors import ConfigError
from tailrace.sinks.opensearch.analysis import TEXT
from tailrace.sinks.opensearch.mapping import RESERVED, canonical, index_body
from tests.documents.test_mapping import EXAMPLES
from tests.sinks.opensearch.shelves import ANALYSES, Rows, Shelf, Shelves, mapped
from tests.support.opensearch import Client, Refused

# Rows within rows


def tree(*orders: dict[str, Any]) -> dict[str, Any]:
    return {"home": None, "orders": list(orders)}


FAMILY = """
 - belongs_to: home
   table: cities
   column: city
   primary_key: id
   fields: [{text: title}]
 - has_many: orders
   table: orders
   foreign_key: t
   primary_key: id
   fields:
     - enum: status
       variants: [late, fine]
     - long: n
     - object: sum
       fields: [{decimal: total}]
     - has_many: items
       table: items
       foreign_key: o
       primary_key: id
       fields: [{keyword: sku}, {long: n}]
"""


@pytest.fixture
def family(shelves: Shelves) -> Shelf:
    shelf = shelves.shelf(mapped(FAMILY))
    item, other = {"sku": "a", "n": 1}, {"sku": "b", "n": 2}
    first = tree(
        {"status": "fine", "n": 1, "sum": {"total": 5}, "items": [item]},
        {"status": "late", "n": 2, "sum": {"total": None}, "items": [other]},
    )
    second = tree({"status": "fine", "n": 2, "sum": {"total": 7.5}, "items": [item, other]})
    refused = shelf.put(
        {"1": first, "2": second, "3": tree(), "4": {"home": {"title": "Bergen"}, "orders": []}}
    )
    assert refused == {}
    return shelf


def in_orders(*queries: Any) -> Any:
    return {"nested": {"path": "orders", "query": {"bool": {"must": list(queries)}}}}


def test_each_row_of_an_array_is_found_as_a_whole(family: Shelf) -> None:
    fine, two = {"term": {"orders.status": "fine"}}, {"term": {"orders.n": 2}}
    # The first has one that is fine, and another one that is the second.
    assert family.find(in_orders(fine, two)) == {"2"}
    assert family.find({"bool": {"must": [in_orders(fine), in_orders(two)]}}) == {"1", "2"}
    items = [{"term": {"orders.items.sku": "b"}}, {"term": {"orders.items.n": 2}}]
    deep = {"nested": {"path": "orders.items", "query": {"bool": {"must": items}}}}
    assert family.find(in_orders({"term": {"orders.n": 1}}, deep)) == set()
    assert family.find(in_orders(fine, deep)) == {"2"}
    assert family.find(in_orders({"range": {"orders.sum.total": {"gt": 6}}})) == {"2"}
    assert family.match("home.title", "bergen") == {"4"}


def test_documents_sort_by_rows_of_their_arrays_and_by_their_ranks(family: Shelf) -> None:
    by = {"orders.n": {"order": "desc", "mode": "max", "nested": {"path": "orders"}}}
    assert family.sorted(by)[:2] == ["1", "2"]
    rank = {"orders.status.rank": {"order": "asc", "mode": "min", "nested": {"path": "orders"}}}
    assert family.sorted(rank)[:2] == ["1", "2"]


def test_a_field_that_the_schema_does_not_have_is_refused_at_every_level(family: Shelf) -> None:
    order = {"status": "fine", "n": 1, "sum": {"total": 5}, "items": []}
    wrong: dict[str, Any] = {
        "root": {"new": 1},
        "object": {"home": {"title": "x", "new": 1}},
        "nested": tree({**order, "new": 1}),
        "inner": tree({**order, "sum": {"total": 1, "new": 1}}),
        "deep": tree({**order, "items": [{"sku": "x", "new": {"a": 1}}]}),
    }
    refused = family.put(wrong)
    assert refused.keys() == wrong.keys()
    assert all(said.startswith("strict_dynamic_mapping_exception") for said in refused.values())
    assert family.find({"match_all": {}}) == {"1", "2", "3", "4"}


@pytest.mark.long
def test_the_limits_of_the_server_are_raised_as_far_as_a_mapping_needs(shelves: Shelves) -> None:
    mapping: dict[str, Any] = {}
    path = ""
    for at in range(48):
        path = f"{path}n{at}"
        mapping[path] = {"type": "nested", "nullable": False, "many": True}
        path += "."
    mapping[f"{path}v"] = {"type": "long", "nullable": True}
    for at in range(60):
        mapping[f"a{at}"] = {"type": "nested", "nullable": False, "many": True}
        mapping[f"a{at}.v"] = {"type": "text", "nullable": True}
    for at in range(600):
        mapping[f"f{at}"] = {"type": "text", "nullable": True}
    inner: dict[str, Any] = {"v": 7}
    for at in reversed(range(48)):
        inner = {f"n{at}": [inner]}
    document = {**inner, "a3": [{"v": "x"}] * 12_000}
    shelf = shelves.shelf(mapping)
    assert shelf.put({"1": document, "2": {"f599": "y"}}) == {}
    deep: Any = {"term": {f"{path}v": 7}}
    for at in reversed(range(48)):
        deep = {"nested": {"path": ".".join(f"n{upper}" for upper in range(at + 1)), "query": deep}}
    assert shelf.find(deep) == {"1"}
    assert shelf.match("f599", "y") == {"2"}


# Options and settings


def test_options_override_whatever_was_derived(shelves: Shelves) -> None:
    fields = (
        " - text: e\n   options: { analyzer: english }\n"
        " - text: s\n   options:\n"
        "     fields: { keyword: { ignore_above: 3 }, lower: null, more: { type: keyword } }\n"
        " - keyword: k\n   options: { index: false, doc_values: false, fields: null }\n"
        " - timestamp: n\n   options: { type: date_nanos }\n"
        " - long: c\n   options: { coerce: true }\n"
        " - decimal: d\n   options: { type: scaled_float, scaling_factor: 100 }"
    )
    rows: Rows = [["running", "abcd", "a", "2024-01-02T03:04:05.123457", "7.9", "1.239"]]
    rows += [["ran", "abc", "b", "2024-01-02T03:04:05.123456", "8", "1.2"]]
    shelf = shelves.of(fields, "e text, s text, k text, n text, c text, d text", rows)
    assert shelf.match("e", "runs") == {"1"}
    assert shelf.find({"exists": {"field": "s.keyword"}}) == {"2"}
    assert shelf.find({"exists": {"field": "s.lower"}}) == set()
    assert shelf.term("s.more", "abcd") == {"1"}
    with pytest.raises(Refused, match="not indexed"):
        shelf.term("k", "a")
    assert shelf.sorted("n") == ["2", "1"]
    assert shelf.term("c", 7) == {"1"}
    assert shelf.term("d", 1.24) == {"1"}


def test_options_of_arrays_and_maps_are_obeyed(shelves: Shelves) -> None:
    fields = FAMILY.replace(
        "   foreign_key: t\n", "   foreign_key: t\n   options: { include_in_parent: true }\n"
    )
    shelf = shelves.shelf(mapped(fields + " - map: m\n   values: text\n   options: { analyzer: english }"))
    order = {"status": "fine", "n": 1, "sum": {"total": 5}, "items": []}
    assert shelf.put({"1": {**tree(order), "m": {"x": "running"}}}) == {}
    # Without saying in which of the rows.
    assert shelf.term("orders.status", "fine") == {"1"}
    assert shelf.match("m.x", "runs") == {"1"}
    flat = shelves.shelf(
        mapped(FAMILY.replace("   foreign_key: t\n", "   foreign_key: t\n   options: { type: object }\n"))
    )
    assert flat.put({"1": tree(order)}) == {}
    assert flat.term("orders.status", "fine") == {"1"}
    assert set(flat.put({"2": tree({"new": 1})})) == {"2"}


def test_settings_override_those_of_the_index(shelves: Shelves) -> None:
    settings = {
        "index.refresh_interval": "7s",
        "sort": {"field": "n", "order": "desc"},
        "analysis": {"analyzer": {TEXT: {"filter": ["uppercase"]}, "mine": {"type": "simple"}}},
        "index": {"mapping.total_fields.limit": 40},
    }
    fields = " - text: v\n - long: n\n - text: w\n   options: { analyzer: mine }"
    shelf = shelves.of(
        fields, "v text, n bigint, w text", [["é", 1, "a1b"], ["e", 2, None]], settings=settings
    )
    assert shelf.match("v", "E") == {"2"}
    assert shelf.match("w", "b") == {"1"}
    found = shelf.client.do("GET", f"/{shelf.name}/_settings", flat_settings=True)[shelf.name]["settings"]
    assert found["index.refresh_interval"] == "7s"
    assert found["index.mapping.total_fields.limit"] == "40"
    assert shelf.client.search(shelf.name) == ["2", "1"]


def test_a_name_that_the_server_keeps_for_itself_is_refused_before_it_is_asked(shelves: Shelves) -> None:
    long = {"type": "long", "nullable": True}
    for name in sorted(RESERVED):
        with pytest.raises(ConfigError, match=name) as raised:
            index_body({name: long})
        assert raised.value.remedy
    # Others may begin so, and these may stand further down.
    shelf = shelves.shelf({"_mine": long, "o": {"type": "object", "nullable": False}, "o._id": long})
    assert shelf.put({"1": {"_mine": 1, "o": {"_id": 2}}}) == {}
    assert shelf.term("o._id", 2) == {"1"}


@pytest.mark.long
def test_the_reserved_names_are_those_that_the_server_refuses(opensearch: Client, prefix: str) -> None:
    others = ["_mine", "_all", "_ttl", "_meta", "_parent", "_uid", "_timestamp", "_score"]
    opensearch.create(f"{prefix}a", {})
    refused = set()
    for name in (*others, *RESERVED):
        status, _ = opensearch.ask("PUT", f"/{prefix}a/_mapping", {"properties": {name: {"type": "long"}}})
        if status == 200:
            status, _ = opensearch.ask("PUT", f"/{prefix}a/_doc/1", {name: 1})
        if status >= 400:
            refused.add(name)
    # Plugins that are not here, and newer servers, have others.
    assert RESERVED - refused <= {"_size", "_tier"}
    assert refused <= RESERVED


def test_every_kind_of_the_language_is_accepted(shelves: Shelves) -> None:
    mapping = derive_mapping(load_index(EXAMPLES / "everything.schema.yml")).to_json()
    for analysis in ANALYSES:
        shelf = shelves.shelf(mapping, analysis=analysis)
        assert shelf.put({"1": {name: None for name in mapping if "." not in name}}) == {}


def test_the_form_tells_what_changes_how_documents_are_stored_and_nothing_else() -> None:
    fields = " - text: v\n - enum: e\n   variants: [b, a]"
    mapping = mapped(fields + FAMILY + " - map: m\n   values: text\n - map: l\n   values: long")
    assert canonical(index_body(mapping)) == canonical(index_body(dict(reversed(mapping.items()))))
    mapping = mapped(fields)
    first = canonical(index_body(mapping))
    same = [
        index_body(dict(reversed(mapping.items())), shards=3, replicas=0),
        index_body(mapping, settings={"refresh_interval": "9s", "mapping.total_fields.limit": 5000}),
        {**index_body(mapping), "mappings": {**index_body(mapping)["mappings"], "_meta": {"a": 1}}},
    ]
    assert {canonical(body) for body in same} == {first}
    others = [
        index_body(mapping, analysis="icu"),
        index_body(mapping, settings={"sort.field": "e"}),
        index_body(mapped(fields.replace("[b, a]", "[a, b]"))),
        index_body(mapped(fields.replace("text: v", "text: w"))),
        index_body(mapped(fields.replace("text: v", "keyword: v"))),
        index_body(mapped(" - text: v\n   options: {boost: 2}\n - enum: e\n   variants: [b, a]")),
    ]
    assert len({first, *map(canonical, others)}) == len(others) + 1


def test_the_order_of_fields_in_a_mapping_decides_nothing() -> None:
    # A mapping that a cluster kept comes back with its fields in another order, inner ones first.
    mapping = derive_mapping(load_index(EXAMPLES / "everything.schema.yml")).to_json()
    assert canonical(index_body(dict(reversed(mapping.items())))) == canonical(index_body(mapping))
