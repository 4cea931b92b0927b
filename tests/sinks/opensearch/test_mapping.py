"""What an index finds, how it sorts, and what it refuses: asked of a real OpenSearch.

Documents are built by a source, from rows, and sent as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tailrace.config.index import load_index, parse_index
from tailrace.documents.mapping import derive_mapping
from tailrace.model.errors import ConfigError
from tailrace.sinks.opensearch.analysis import TEXT
from tailrace.sinks.opensearch.mapping import RESERVED, index_body, mapping_hash
from tests.documents.rendering import PostgresSource
from tests.documents.test_mapping import EXAMPLES
from tests.sinks.opensearch.shelves import Shelf, Shelves
from tests.support.opensearch import Client, Refused
from tests.support.postgres import Server

ANALYSES = ("builtin", "icu")
Rows = list[list[Any]]


@pytest.fixture
def shelves(opensearch: Client, prefix: str) -> Shelves:
    return Shelves(opensearch, prefix)


@pytest.fixture(scope="module")
def source(postgres: Server) -> Iterator[PostgresSource]:
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()


def mapped(fields: str) -> dict[str, Any]:
    """The mapping of a schema with these fields."""
    schema = parse_index(f"version: 1\ntable: t\nprimary_key: id\nfields:\n{fields}", "file")
    return derive_mapping(schema).to_json()


# Texts


@pytest.mark.parametrize("analysis", ANALYSES)
def test_natural_text_is_found_by_its_words_and_exactly_and_in_lower_case(
    shelves: Shelves, analysis: Any
) -> None:
    texts = ["Café au Lait", "café au lait", "A cafe", "Lait", None, "", "word " * 400]
    shelf = shelves.of(" - text: v", "v text", [[text] for text in texts], analysis=analysis)
    assert shelf.match("v", "CAFE") == {"1", "2", "3"}
    assert shelf.match("v", {"query": "café lait", "operator": "and"}) == {"1", "2"}
    assert shelf.match("v", "au lait", "match_phrase") == {"1", "2"}
    assert shelf.match("v", "word") == {"7"}
    assert shelf.term("v.keyword", "Café au Lait") == {"1"}
    assert shelf.term("v.lower", "CAFÉ AU LAIT") == {"1", "2"}
    # Too long to be compared as a whole, and kept all the same.
    assert shelf.find({"exists": {"field": "v.keyword"}}) == {"1", "2", "3", "4", "6"}
    assert shelf.sorted("v.lower")[:4] == ["6", "3", "1", "2"]


def test_icu_finds_words_of_every_script(shelves: Shelves) -> None:
    texts = ["สวัสดีชาวโลก", "Ｆｕｌｌ ｗｉｄｔｈ", "STRASSE", "Straße", "東京都の天気"]
    shelf = shelves.of(" - text: v", "v text", [[text] for text in texts], analysis="icu")
    # Thai has no blanks between words.
    assert shelf.match("v", "โลก") == {"1"}
    assert shelf.match("v", "full") == {"2"}
    assert shelf.match("v", "straße") == {"3", "4"}
    assert shelf.match("v", {"query": "天気", "operator": "and"}) == {"5"}
    assert shelf.term("v.lower", "full width") == {"2"}
    assert shelf.term("v.lower", "strasse") == {"3", "4"}


CODES = {
    "1": "C-01234",
    "2": "C01234",
    "3": "c 01234",
    "4": "C-01235",
    "5": "INV/2024/000123",
    "6": "AB12-34",
    "7": "01234",
    "8": "DE89 3704 0044 0532",
    "9": "Äb_7.x",
    "10": "---",
    "11": None,
    "12": "0",
    "13": "C-01234-B",
}
FOUND = {
    # As it stands, in any case, with any separator, or without its first parts.
    "C-01234": "1 2 3",
    "C01234": "1 2 3",
    "c-01234": "1 2 3",
    "c.01234": "1 2 3",
    "01234": "1 2 3 7 13",
    "C-01234-B": "13",
    "01234b": "13",
    # Without the zeros that a number begins with, but with no others.
    "1234": "1 2 3 6 7 13",
    "C1234": "1 2 3",
    "001234": "",
    "0": "12",
    "12340": "",
    # A part of a number is not the number.
    "0123": "",
    "123": "5",
    "34": "6",
    "234": "",
    # Several parts, and each of them.
    "INV-2024-000123": "5",
    "inv2024000123": "5",
    "2024/000123": "5",
    "2024": "5",
    "inv": "5",
    "AB1234": "6",
    "12-34": "1 2 3 6 7 13",
    "ab12": "6",
    # Blanks are separators like others, and words of a query are looked for one by one too.
    "DE89370400440532": "8",
    "DE89 3704 0044 0532": "8",
    "de-89.3704-0044/0532": "8",
    "C 01234": "1 2 3 4 7 13",
    "customer C-01234": "1 2 3",
    "the invoice INV/2024/000123, please": "5",
    # Accents do not count.
    "ab7x": "9",
    "ÄB-7-X": "9",
    "???": "",
}


@pytest.mark.parametrize("analysis", ANALYSES)
def test_an_identifier_is_found_by_its_parts_whatever_separates_them(shelves: Shelves, analysis: Any) -> None:
    rows: Rows = [[code] for code in CODES.values()]
    shelf = shelves.of(" - identifier: v", "v text", rows, analysis=analysis)
    assert {asked: " ".join(sorted(shelf.match("v", asked), key=int)) for asked in FOUND} == FOUND
    # The first characters find it where that is asked for.
    for begun, found in {"C-012": "1 2 3 4 13", "c012": "1 2 3 4 13", "0123": "1 2 3 4 7 13"}.items():
        assert shelf.match("v", begun, "match_bool_prefix") == set(found.split())
    assert shelf.term("v.keyword", "C-01234") == {"1"}
    assert shelf.term("v.lower", "c-01234") == {"1"}
    # What has more of the words comes first.
    assert set(shelf.client.search(shelf.name, {"match": {"v": "C 01234"}})[:3]) == {"1", "2", "3"}


@pytest.mark.long
def test_a_long_text_in_an_identifier_costs_no_more_than_a_long_word(shelves: Shelves) -> None:
    long = " ".join(f"A{at}" for at in range(5_000))
    shelf = shelves.of(" - identifier: v", "v text", [[long], ["x" * 40_000]])
    assert shelf.match("v", "A1") == {"1"}


@pytest.mark.parametrize("analysis", ["builtin", pytest.param("icu", marks=pytest.mark.long)])
def test_a_keyword_is_compared_as_a_whole_and_has_its_words_beside(shelves: Shelves, analysis: Any) -> None:
    texts = ["Paid In Full", "paid in full", "paid", None, "é" * 20_000]
    shelf = shelves.of(" - keyword: v", "v text", [[text] for text in texts], analysis=analysis)
    assert shelf.match("v", "paid") == {"3"}
    assert shelf.term("v", "Paid In Full") == {"1"}
    assert shelf.term("v.lower", "PAID IN FULL") == {"1", "2"}
    assert shelf.match("v.text", "full") == {"1", "2"}
    assert shelf.sorted("v")[:3] == ["1", "3", "2"]


def test_a_uuid_is_found_in_any_case(shelves: Shelves, source: PostgresSource) -> None:
    given = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    shelf = shelves.of(" - uuid: v", "v uuid", [[given], [given[:-1] + "2"], [None]], source=source)
    assert shelf.term("v", given) == {"1"}
    assert shelf.term("v", given.lower()) == {"1"}


# Enums


def test_an_ordered_enum_sorts_and_ranges_by_rank(shelves: Shelves) -> None:
    tiers = ["bronze", "silver", "gold"]
    fields = " - enum: v\n   variants: [bronze, silver, gold]\n - enum: w"
    rows: Rows = [[tier, tier] for tier in ("gold", "bronze", None, "silver", "other", "bronze")]
    shelf = shelves.of(fields, "v text, w text", rows)
    # What is no variant comes after them, and what is null last.
    assert shelf.sorted("v.rank") == ["2", "6", "4", "1", "5", "3"]
    assert shelf.sorted({"v.rank": "desc"}) == ["5", "1", "4", "2", "6", "3"]
    assert shelf.between("v.rank", gte="silver", lte="gold") == {"1", "4"}
    assert shelf.between("v.rank", lt="silver") == {"2", "6"}
    assert shelf.term("v", "gold") == {"1"}
    assert shelf.term("v.lower", "GOLD") == {"1"}
    assert shelf.sorted("w") == ["2", "6", "1", "5", "4", "3"]
    counted = {"size": 0, "aggs": {"tiers": {"terms": {"field": "v"}}}}
    buckets = shelf.client.do("POST", f"/{shelf.name}/_search", counted)["aggregations"]["tiers"]["buckets"]
    assert {bucket["key"] for bucket in buckets} == {*tiers, "other"}


def test_any_texts_can_be_ranked(shelves: Shelves) -> None:
    variants = [
        "zz",
        "z",
        "zzz",
        "a => b",
        "a",
        " lead",
        "tail ",
        "back\\slash",
        "\\u0041",
        "new\nline",
        "😀",
        "é",
        "É",
        '"quoted"',
        "0003",
        "#",
    ]
    fields = " - enum: v\n   variants: " + json.dumps(variants, ensure_ascii=False)
    shelf = shelves.of(fields, "v text", [[variant] for variant in (*variants, "A", "zzzz", "aa")])
    assert shelf.sorted("v.rank")[: len(variants)] == [str(at) for at in range(1, len(variants) + 1)]


# Numbers


def test_whole_numbers_are_exact_to_their_last_digit(shelves: Shelves) -> None:
    numbers = [2**63 - 1, 2**63 - 2, -(2**63), 0, None, 2**53 + 1, 2**53]
    shelf = shelves.of(" - long: v", "v bigint", [[number] for number in numbers])
    assert shelf.sorted("v") == ["3", "4", "7", "6", "2", "1", "5"]
    assert shelf.term("v", 2**63 - 1) == {"1"}
    assert shelf.between("v", gt=2**53) == {"1", "2", "6"}


def test_a_number_that_does_not_fit_is_refused_and_never_rounded(
    shelves: Shelves, source: PostgresSource
) -> None:
    fields = " - short: s\n - integer: i\n - long: l\n - float: f\n - double: d\n - decimal: e"
    columns = "s text, i text, l text, f text, d text, e text"
    wrong = {
        "s": ["32768", "1.5"],
        "i": ["2147483648", "0.1"],
        "l": ["9223372036854775808", "1.5"],
        "f": ["1e39"],
        "d": ["1e309"],
        "e": ["1e309"],
    }
    rows: Rows = []
    for at, name in enumerate(wrong):
        rows += [[text if at == column else "1" for column in range(6)] for text in wrong[name]]
    fine = [
        ["32767", "2147483647", "9223372036854775807", "1e38", "1e308", "1e308"],
        ["1.0", "1e3"] + ["2"] * 4,
    ]
    shelf = shelves.of(fields, columns, [*rows, *fine], source=source, refused=True)
    everything = {str(at) for at in range(1, len(rows) + 3)}
    assert shelf.find({"match_all": {}}) == {str(len(rows) + 1), str(len(rows) + 2)}
    why = shelf.put({name: shelf.documents[name] for name in everything})
    assert set(why) == {str(at) for at in range(1, len(rows) + 1)}
    assert all(said.startswith("mapper_parsing_exception") for said in why.values())


def test_decimals_sort_and_range_as_numbers_and_are_equal_digit_by_digit(
    shelves: Shelves, source: PostgresSource
) -> None:
    digits = "1234567890123456789012345678.01234567"
    numbers = [
        Decimal(digits + "89"),
        Decimal(digits + "9"),
        Decimal("-0.01"),
        Decimal("1.50"),
        10,
        "NaN",
        None,
    ]
    shelf = shelves.of(" - decimal: v", "v numeric", [[number] for number in numbers], source=source)
    assert shelf.sorted("v")[:3] == ["3", "4", "5"]
    assert shelf.between("v", gte=1.5, lt=11) == {"4", "5"}
    # The same double, and not the same number.
    assert shelf.term("v", float(digits)) == {"1", "2"}
    assert shelf.term("v.exact", digits + "89") == {"1"}
    for text in ("1.5", "1.50", 1.5):
        assert shelf.term("v.exact", text) == {"4"}
    assert shelf.term("v.exact", "10.00") == {"5"}
    found = shelf.client.do(
        "POST", f"/{shelf.name}/_search", {"size": 0, "aggs": {"v": {"max": {"field": "v"}}}}
    )
    assert found["aggregations"]["v"]["value"] == float(digits)


def test_floats_are_found_by_what_documents_show(shelves: Shelves, source: PostgresSource) -> None:
    rows: Rows = [[0.1, 0.1], ["NaN", "Infinity"], [-2.5, 1e300], [None, None]]
    shelf = shelves.of(" - float: f\n - double: d", "f real, d float8", rows, source=source)
    assert shelf.term("f", 0.1) == {"1"}
    assert shelf.sorted("f") == ["3", "1", "2", "4"]
    assert shelf.between("d", gte=1e299) == {"3"}
    assert shelf.find({"exists": {"field": "d"}}) == {"1", "3"}


def test_booleans_are_true_false_or_nothing(shelves: Shelves) -> None:
    shelf = shelves.of(" - boolean: v", "v boolean", [[1], [0], [None]])
    assert shelf.term("v", True) == {"1"}
    assert shelf.term("v", False) == {"2"}


# Times


def test_dates_and_times_are_moments(shelves: Shelves, source: PostgresSource) -> None:
    rows: Rows = [
        ["2024-02-29", "2024-02-29 12:00:00.5+02", "2024-02-29 12:00:00"],
        ["0001-01-01", "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999"],
        ["9999-12-31", "2024-02-29 10:00:00.123456+00", "2024-02-29 12:00:00.12"],
        ["infinity", "-infinity", "infinity"],
        ["0044-03-15 BC", "10000-01-01 00:00:00+00", None],
    ]
    fields = " - date: d\n - timestamp: z\n - timestamp: l"
    shelf = shelves.of(fields, "d date, z timestamptz, l timestamp", rows, source=source)
    assert shelf.sorted("d")[:3] == ["2", "1", "3"]
    assert shelf.sorted("z")[:3] == ["2", "3", "1"]
    assert shelf.sorted("l")[:3] == ["1", "3", "2"]
    assert shelf.term("d", "2024-02-29") == {"1"}
    assert shelf.between("z", gte="2024-02-29T10:00:00Z", lt="2024-02-29T10:00:00.2Z") == {"3"}
    assert shelf.between("z", gte="2024-02-29T11:00:00", time_zone="+01:00") == {"1", "3"}
    assert shelf.between("l", gte="2024-02||/M", lt="2024-03||/M") == {"1", "3"}
    # What has no moment in a document has none in the index.
    assert shelf.find({"exists": {"field": "d"}}) == {"1", "2", "3"}


def test_what_is_no_moment_is_refused(shelves: Shelves, source: PostgresSource) -> None:
    shelf = shelves.of(" - timestamp: v", "v time", [["10:20:30"]], source=source, refused=True)
    assert shelf.find({"match_all": {}}) == set()
    other = shelves.shelf(mapped(" - date: d\n - timestamp: t"))
    wrong: list[Any] = ["2024-13-01", "2023-02-29", "24-1-1", "soon", "", 1704164645, 1.5, True, {"a": 1}]
    for name in ("d", "t"):
        assert len(other.put({f"{name}{at}": {name: one} for at, one in enumerate(wrong)})) == len(wrong)
    assert other.put({"x": {"d": "2024-01-01T00:00:00"}, "y": {"d": "2024"}}).keys() == {"x", "y"}


# Everything else


def test_binary_and_json_are_kept_and_not_searched(shelves: Shelves, source: PostgresSource) -> None:
    rows: Rows = [
        [b"\0\xff", '{"a": {"b": [1, "x", null]}, "b.c": 1, "": 2}'],
        [b"", "[[1], {}]"],
        [None, '"text"'],
        [None, "12345678901234567890123"],
        [None, "null"],
        [None, '{"a": "another type"}'],
    ]
    shelf = shelves.of(" - binary: b\n - json: j", "b bytea, j jsonb", rows, source=source)
    assert shelf.find({"match_all": {}}) == {"1", "2", "3", "4", "5", "6"}
    assert shelf.find({"exists": {"field": "j.a"}}) == set()


def test_json_with_a_key_twice_is_refused(shelves: Shelves, source: PostgresSource) -> None:
    rows: Rows = [['{"a": 1, "a": 2}'], ['{"a": 1}']]
    shelf = shelves.of(" - json: j", "j json", rows, source=source, refused=True)
    assert shelf.find({"match_all": {}}) == {"2"}


def test_points_are_found_by_where_they_are(shelves: Shelves, source: PostgresSource) -> None:
    rows: Rows = [
        [60.39, 5.32, "(5.32,60.39)"],
        [-33.87, 151.21, None],
        [None, 1, "(0,0)"],
        [90, -180, "(180,-90)"],
    ]
    fields = " - geo: v\n   lat: a\n   lon: b\n - geo: p"
    shelf = shelves.of(fields, "a float8, b float8, p point", rows, source=source)
    near = {"geo_distance": {"distance": "10km", "v": {"lat": 60.4, "lon": 5.3}}}
    assert shelf.find(near) == {"1"}
    assert shelf.find({"exists": {"field": "v"}}) == {"1", "2", "4"}
    box = {"top_left": {"lat": 61, "lon": 5}, "bottom_right": {"lat": 60, "lon": 6}}
    assert shelf.find({"geo_bounding_box": {"p": box}}) == {"1"}
    assert shelf.sorted({"_geo_distance": {"v": {"lat": -33, "lon": 151}}})[0] == "2"


def test_a_place_off_the_globe_is_refused(shelves: Shelves) -> None:
    rows: Rows = [[91, 0], [0, 181], [0, 0]]
    fields = " - geo: v\n   lat: a\n   lon: b"
    shelf = shelves.of(fields, "a double, b double", rows, refused=True)
    assert shelf.find({"match_all": {}}) == {"3"}


def test_values_of_a_map_are_searched_as_their_kind(shelves: Shelves, source: PostgresSource) -> None:
    kinds = {"t": "text", "n": "decimal", "d": "date", "i": "identifier"}
    fields = "\n".join(f" - map: {name}\n   values: {kind}" for name, kind in kinds.items())
    rows: Rows = [
        [
            '{"en": "The Café", "it": "il caffè"}',
            '{"a": 1.50, "b": 2}',
            '{"x": "2024-01-02"}',
            '{"c": "C-01234"}',
        ],
        ['{"en": "tea", "x.y": "dotted"}', '{"a": 10}', '{"x": null}', "{}"],
        ["null", None, '{"x": "2023-01-02", "y": "2025-01-01"}', '{"c": "D-1"}'],
        ['{"en": 5, "de": true}', '{"b": 12345678901234567890123}', "{}", None],
    ]
    columns = "t jsonb, n jsonb, d jsonb, i jsonb"
    shelf = shelves.of(fields, columns, rows, source=source)
    assert shelf.match("t.en", "cafe") == {"1"}
    assert shelf.match("t.it", "CAFFE") == {"1"}
    assert shelf.find({"multi_match": {"query": "dotted", "fields": ["t.*"]}}) == {"2"}
    assert shelf.term("t.en.keyword", "tea") == {"2"}
    assert shelf.match("t.en", "5") == {"4"}
    assert shelf.sorted("n.a")[:2] == ["1", "2"]
    assert shelf.term("n.a.exact", "1.5") == {"1"}
    assert shelf.term("n.b.exact", "12345678901234567890123") == {"4"}
    assert shelf.between("d.x", gte="2024-01-01") == {"1"}
    assert shelf.match("i.c", "c1234") == {"1"}


def test_a_map_refuses_values_of_another_kind(shelves: Shelves) -> None:
    shelf = shelves.shelf(mapped(" - map: n\n   values: long\n - map: d\n   values: date"))
    wrong: dict[str, Any] = {
        "a": {"n": {"x": "many"}},
        "b": {"n": {"x": 1.5}},
        "c": {"d": {"x": "soon"}},
        "d": {"d": {"x": 5}},
        "e": {"n": 5},
        "f": {"n": {"x": True}},
        "h": {"n": {"": 1}},
        "i": {"n": {"y": 1, "y.z": 2}},
        "j": {"n": {f"k{at}": at for at in range(1_001)}},
    }
    assert set(shelf.put({**wrong, "g": {"n": {"x": 1}, "d": {"x": "2024-01-01"}}})) == set(wrong)
    assert shelf.put({"k": {"n": {f"k{at}": at for at in range(900)}}}) == {}


def test_a_map_may_be_flat(shelves: Shelves, source: PostgresSource) -> None:
    fields = " - map: m\n   values: text\n   options: { type: flat_object }"
    rows: Rows = [
        [json.dumps({f"key {at}": f"v {at}" for at in range(1, 3000)})],
        ['{"key 7": "v 7"}'],
        [None],
    ]
    shelf = shelves.of(fields, "m jsonb", rows, source=source)
    assert shelf.term("m.key 7", "v 7") == {"1", "2"}
    assert shelf.term("m", "v 2999") == {"1"}


def test_a_custom_field_is_of_the_type_that_it_names(shelves: Shelves, source: PostgresSource) -> None:
    fields = (
        " - custom: price\n   opensearch: scaled_float\n   options: { scaling_factor: 100 }\n"
        " - custom: address\n   opensearch: ip\n - custom: span\n   opensearch: integer_range"
    )
    rows: Rows = [
        ["1.234", "10.0.0.1", '{"gte": 1, "lt": 5}'],
        ["2", "192.168.0.1", None],
        [None, None, None],
    ]
    shelf = shelves.of(fields, "price numeric, address inet, span jsonb", rows, source=source)
    assert shelf.term("price", 1.23) == {"1"}
    assert shelf.term("address", "10.0.0.0/8") == {"1"}
    assert shelf.term("span", 3) == {"1"}


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


def test_a_hash_tells_what_changes_how_documents_are_stored_and_nothing_else() -> None:
    fields = " - text: v\n - enum: e\n   variants: [b, a]"
    mapping = mapped(fields + FAMILY + " - map: m\n   values: text\n - map: l\n   values: long")
    assert mapping_hash(index_body(mapping)) == mapping_hash(index_body(dict(reversed(mapping.items()))))
    mapping = mapped(fields)
    first = mapping_hash(index_body(mapping))
    same = [
        index_body(dict(reversed(mapping.items())), shards=3, replicas=0),
        index_body(mapping, settings={"refresh_interval": "9s", "mapping.total_fields.limit": 5000}),
        {**index_body(mapping), "mappings": {**index_body(mapping)["mappings"], "_meta": {"a": 1}}},
    ]
    assert {mapping_hash(body) for body in same} == {first}
    others = [
        index_body(mapping, analysis="icu"),
        index_body(mapping, settings={"sort.field": "e"}),
        index_body(mapped(fields.replace("[b, a]", "[a, b]"))),
        index_body(mapped(fields.replace("text: v", "text: w"))),
        index_body(mapped(fields.replace("text: v", "keyword: v"))),
        index_body(mapped(" - text: v\n   options: {boost: 2}\n - enum: e\n   variants: [b, a]")),
    ]
    assert len({first, *map(mapping_hash, others)}) == len(others) + 1


def test_the_order_of_fields_in_a_mapping_decides_nothing() -> None:
    # A mapping that a cluster kept comes back with its fields in another order, inner ones first.
    mapping = derive_mapping(load_index(EXAMPLES / "everything.schema.yml")).to_json()
    assert mapping_hash(index_body(dict(reversed(mapping.items())))) == mapping_hash(index_body(mapping))
