"""What an index finds, how it sorts, and what it refuses: asked of a real OpenSearch.

Documents are built by a source, from rows, and sent as they are.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.documents.rendering import PostgresSource
from tests.sinks.opensearch.shelves import ANALYSES, Rows, Shelves, mapped

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

# Every word must be there.
ALL_WORDS = {
    "C 01234": "1 2 3 13",
    "c 01234 b": "13",
    "2024 inv": "5",
    "DE89 3704": "8",
    "customer C-01234": "",
    "C-01234": "1 2 3",
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
    for asked, found in ALL_WORDS.items():
        every = shelf.match("v", {"query": asked, "operator": "and"})
        assert " ".join(sorted(every, key=int)) == found, asked
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
    # A word that is no variant is found nowhere else, and never equal to another that is none.
    assert shelf.term("v.rank", "gold") == {"1"}
    assert shelf.term("v.rank", "other") == {"5"}
    assert shelf.term("v.rank", "ruby") == set()
    assert shelf.find({"query_string": {"query": "lovelace"}}) == set()
    assert shelf.find({"multi_match": {"query": "lovelace", "fields": ["*"]}}) == set()
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
    shelf = shelves.of(fields, "v text", [[variant] for variant in (*variants, "A", "zzzz", "é" * 20_000)])
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
        ['{"pi": 3.14, "far": 123456789012345678901}', None, None, '{"r": 2.5}'],
    ]
    columns = "t jsonb, n jsonb, d jsonb, i jsonb"
    shelf = shelves.of(fields, columns, rows, source=source)
    assert shelf.match("t.en", "cafe") == {"1"}
    assert shelf.match("t.it", "CAFFE") == {"1"}
    assert shelf.find({"multi_match": {"query": "dotted", "fields": ["t.*"]}}) == {"2"}
    assert shelf.find({"query_string": {"query": "3.14", "fields": ["t.*"]}}) == {"5"}
    assert shelf.find({"multi_match": {"query": "123456789012345678901", "fields": ["t.*"]}}) == {"5"}
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


@pytest.mark.parametrize("kind", ["text", "identifier", "keyword", "enum", "uuid", "decimal", "float"])
@pytest.mark.parametrize("first", ["short", "double"])
def test_a_number_under_a_new_key_of_a_map_is_never_taken_for_the_next_one(
    shelves: Shelves, kind: str, first: str
) -> None:
    """The server's parser gives out a number that it looked at, and did not read, for the one behind it."""
    fields = f" - map: m\n   values: {kind}\n - short: s\n - integer: i\n - long: n\n - double: d"
    shelf = shelves.shelf(mapped(fields))
    maps = [
        '{"a":1.50}',
        '{"b":[2,2.5,null]}',
        '{"c":{"d":3.5}}',
        '{"a":[4.5,5.5],"e":6.5}',
        '{"f":0.12345678901234567}',
        '{"k":9223372036854775808}',
        '{"l":[-123456789012345678901,5]}',
    ]
    if kind not in ("decimal", "float"):
        maps += ['{"a":"x","g":["y",7.5]}', '{"h":8.5,"i":true}', '{"h":false}', '{"j":1e400}']
    behind = '"s":7,"i":70000,"n":9007199254740993,"d":7'
    if first == "double":
        behind = '"d":7,"s":7,"i":70000,"n":9007199254740993'
    documents = {str(at): f'{{"m":{one},{behind}}}' for at, one in enumerate(maps)}
    assert shelf.put(documents) == {}
    found = set(documents)
    assert shelf.term("s", 7) == shelf.term("i", 70000) == shelf.term("n", 9007199254740993) == found
    assert shelf.term("n", 9007199254740992) == set()
    assert shelf.term("d", 7) == found
    assert shelf.kept()
    # A fraction of its own is refused as ever.
    assert shelf.put({"no": '{"m":{"z":1.5},"n":1.5}'}).keys() == {"no"}


def test_a_map_of_texts_may_be_anywhere_and_have_fields_and_copies_of_its_own(shelves: Shelves) -> None:
    fields = (
        " - map: m\n   values: text\n   options: { copy_to: all, fields: { number: { type: double } } }\n"
        " - text: all\n - short: s\n"
        " - has_many: lines\n   table: lines\n   primary_key: id\n   foreign_key: t\n"
        "   fields: [{ map: m, values: keyword }, { short: s }]\n"
        " - keyword: _tailrace_numbers"
    )
    shelf = shelves.shelf(mapped(fields))
    document = (
        '{"m":{"a":1.5,"b":20000000000000000000},"s":7,'
        '"lines":[{"m":{"a":2.5},"s":8},{"m":{"c":3.5},"s":9}],"_tailrace_numbers":"mine"}'
    )
    assert shelf.put({"1": document}) == {}
    assert shelf.between("m.a.number", gte=1.5, lte=1.5) == {"1"}
    assert shelf.match("all", "1.5") == shelf.term("_tailrace_numbers", "mine") == {"1"}
    row = {"bool": {"must": [{"term": {"lines.s": 9}}, {"term": {"lines.m.c": "3.5"}}]}}
    assert shelf.find({"nested": {"path": "lines", "query": row}}) == {"1"}
    assert shelf.term("s", 7) == {"1"}


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
