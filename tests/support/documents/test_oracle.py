"""The oracle itself, on cases small enough to be checked by eye."""

from __future__ import annotations

import hashlib
import sqlite3
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.support.documents.compare import Near, compare, differences, parsed
from tests.support.documents.oracle import rebuild

SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, referrer BIGINT, gone BOOLEAN, score INTEGER);
CREATE TABLE orders
    (id BIGINT PRIMARY KEY, customer_id INTEGER, total DECIMAL(10,2), placed TEXT, state TEXT);
CREATE TABLE items
    (order_id INTEGER, line INTEGER, product VARCHAR(9), n INTEGER, PRIMARY KEY (order_id, line));
CREATE TABLE products (code TEXT PRIMARY KEY, title TEXT);
CREATE TABLE tags (id INTEGER PRIMARY KEY, word TEXT);
CREATE TABLE tagged (customer_id INTEGER, tag_id INTEGER, weight INTEGER);
INSERT INTO customers VALUES
    (1, 'Ada', NULL, NULL, 3), (2, 'Grace', 1, false, NULL), (3, 'Edsger', 99, NULL, 1);
INSERT INTO orders VALUES (10, 1, 9.50, '2026-01-02', 'paid'), (11, 1, 20, '2026-01-01', NULL),
    (12, 1, 0.10, NULL, 'open'), (13, 2, NULL, '2026-01-01', 'paid'), (14, NULL, 5, NULL, 'paid');
INSERT INTO items VALUES (10, 2, 'b', 1), (10, 1, 'a', 2), (12, 1, 'zz', 3), (13, 1, NULL, 4);
INSERT INTO products VALUES ('a', 'Abacus'), ('b', 'Babbage');
INSERT INTO tags VALUES (1, 'x'), (2, 'y'), (3, 'z');
INSERT INTO tagged VALUES (1, 3, 1), (1, 1, 2), (1, 3, 9), (2, 2, NULL), (2, 7, 1);
"""


def fill(connection: Any, script: str) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            connection.execute(statement)


@pytest.fixture
def shop(connection: Any) -> Any:
    fill(connection, SHOP)
    return connection


def documents(connection: Any, fields: str, top: str = "") -> dict[str, Any]:
    """The documents of customers with these fields."""
    return rebuild(yaml.safe_load(f"version: 1\ntable: customers\n{top}\nfields:\n{fields}"), connection)


def one(connection: Any, fields: str, top: str = "") -> dict[str, Any]:
    """Of a single field, by id."""
    return {id_: value for id_, made in documents(connection, fields, top).items() for value in made.values()}


def test_a_document_is_a_row_with_what_hangs_on_it_at_any_depth(shop: Any) -> None:
    found = documents(
        shop,
        """
- keyword: name
- constant: kind
  value: { a: [1, null] }
- object: inner
  fields:
    - integer: points
      column: score
      default: 0
    - belongs_to: referrer
      table: customers
      fields: [{ keyword: name }]
- has_many: orders
  table: orders
  foreign_key: customer_id
  fields:
    - long: id
    - decimal: total
    - has_many: items
      table: items
      primary_key: [order_id, line]
      foreign_key: order_id
      fields:
        - integer: n
        - belongs_to: product
          table: products
          primary_key: code
          fields: [{ text: title }]
""",
    )
    nobody = {"points": 1, "referrer": None}
    assert found["3"] == {"name": "Edsger", "kind": {"a": [1, None]}, "inner": nobody, "orders": []}
    assert found["2"]["inner"] == {"points": 0, "referrer": {"name": "Ada"}}
    assert found["2"]["orders"] == [{"id": 13, "total": None, "items": [{"n": 4, "product": None}]}]
    first, second, third = found["1"]["orders"]
    assert first["items"] == [
        {"n": 2, "product": {"title": "Abacus"}},
        {"n": 1, "product": {"title": "Babbage"}},
    ]
    assert (first["total"], second["total"], second["items"]) == (Decimal("9.50"), 20, [])
    assert third["items"] == [{"n": 3, "product": None}]


def test_many_to_many_shows_a_row_as_often_as_the_junction_leads_to_it(shop: Any) -> None:
    through = "through: { table: tagged, left_key: customer_id, right_key: tag_id }"
    tags = f"- many_to_many: tags\n  table: tags\n  {through}\n  fields: [{{ keyword: word }}]\n"
    words = {id_: [tag["word"] for tag in found] for id_, found in one(shop, tags).items()}
    assert words == {"1": ["x", "z", "z"], "2": ["y"], "3": []}
    ordered = tags + "  order_by: [{ column: word, direction: desc }]\n  limit: 2\n"
    assert [tag["word"] for tag in one(shop, ordered)["1"]] == ["z", "z"]
    heavy = tags.replace("tag_id }", "tag_id, filters: [{ column: weight, op: gt, value: 1 }] }")
    assert [tag["word"] for tag in one(shop, heavy)["1"]] == ["x", "z"]


def test_aggregates_and_what_they_are_of_nothing(shop: Any) -> None:
    of = "table: orders\n  foreign_key: customer_id"
    assert one(shop, f"- count: n\n  {of}") == {"1": 3, "2": 1, "3": 0}
    assert one(shop, f"- sum: n\n  {of}\n  column: total\n  value_type: decimal") == {
        "1": Decimal("29.60"),
        "2": None,
        "3": None,
    }
    assert one(shop, f"- min: n\n  {of}\n  column: placed\n  value_type: date")["1"] == "2026-01-01"
    assert one(shop, f"- max: n\n  {of}\n  column: total\n  value_type: decimal") == {
        "1": 20,
        "2": None,
        "3": None,
    }
    average = one(shop, f"- avg: n\n  {of}\n  column: total")
    assert average["1"].is_like(29.6 / 3)
    assert (average["2"], average["3"]) == (None, None)
    assert one(shop, f"- ids: n\n  {of}\n  element_type: long") == {"1": [10, 11, 12], "2": [13], "3": []}
    paid = f"{of}\n  filters: [{{ column: state, op: eq, value: paid }}]"
    assert one(shop, f"- count: n\n  {paid}") == {"1": 1, "2": 1, "3": 0}


def test_aggregates_through_a_junction_count_a_row_once_only_if_distinct(shop: Any) -> None:
    of = "table: tags\n  through: { table: tagged, left_key: customer_id, right_key: tag_id }"
    assert one(shop, f"- count: n\n  {of}") == {"1": 3, "2": 1, "3": 0}
    assert one(shop, f"- count: n\n  {of}\n  distinct: true") == {"1": 2, "2": 1, "3": 0}
    assert one(shop, f"- sum: n\n  {of}\n  column: id\n  value_type: long")["1"] == 7
    assert one(shop, f"- ids: n\n  {of}\n  element_type: long\n  distinct: true")["1"] == [1, 3]


def test_the_first_row_by_order_nulls_last_ties_by_key(shop: Any) -> None:
    def first(order: str) -> Any:
        field = f"- has_one: o\n  table: orders\n  foreign_key: customer_id\n  order_by: {order}\n"
        found = one(shop, field + "  fields: [{ long: id }]")
        assert found["3"] is None
        return found["1"]["id"]

    assert first("[{ column: placed }]") == 11
    assert first("[{ column: placed, direction: desc }]") == 10
    assert first("[{ column: customer_id }, { column: total, direction: desc }]") == 11
    assert first("[{ column: customer_id, direction: desc }]") == 10
    many = "- has_many: o\n  table: orders\n  foreign_key: customer_id\n  fields: [{ long: id }]\n"
    by_date = one(shop, many + "  order_by: [{ column: placed, direction: desc }]\n")["1"]
    assert [order["id"] for order in by_date] == [10, 11, 12]
    assert [order["id"] for order in one(shop, many + "  limit: 2\n")["1"]] == [10, 11]


FILTERS: list[tuple[str, list[int]]] = [
    ("column: state, op: eq, value: paid", [10]),
    ("column: state, op: neq, value: paid", [12]),
    ("column: state, op: is_null", [11]),
    ("column: state, op: is_not_null", [10, 12]),
    ("column: state, op: in, value: [paid, open]", [10, 12]),
    ("column: state, op: not_in, value: [paid]", [12]),
    ("column: state, op: like, value: 'p%d'", [10]),
    ("column: state, op: like, value: 'P%'", []),
    ("column: state, op: like, value: 'p_i\\d'", [10]),
    ("column: state, op: ilike, value: 'P%'", [10]),
    ("column: total, op: gt, value: 9.5", [11]),
    ("column: total, op: gte, value: 9.5", [10, 11]),
    ("column: total, op: lt, value: 9.5", [12]),
    ("column: total, op: lte, value: 0.1", [12]),
    ("column: total, op: between, value: [0.1, 9.5]", [10, 12]),
    ("column: placed, op: gte, value: '2026-01-02'", [10]),
    ("raw: \"state LIKE 'p%' OR orders.id = 11\"", [10, 11]),
    ('raw: "NULL"', []),
]


def test_filters_keep_what_is_true_and_nothing_else(shop: Any) -> None:
    field = "- ids: n\n  table: orders\n  foreign_key: customer_id\n  element_type: long\n"
    for condition, expected in FILTERS:
        found = one(shop, field + f"  filters: [{{ {condition} }}]")
        assert found["1"] == expected, condition


def test_roots_outside_their_filters_or_deleted_softly_have_no_document(shop: Any) -> None:
    def kept(top: str) -> list[str]:
        return sorted(documents(shop, "- keyword: name\n- boolean: out\n  column: gone", top))

    shop.execute("UPDATE customers SET gone = true WHERE id = 3")
    assert kept("filters: [{ column: score, op: gt, value: 1 }]") == ["1"]
    assert kept("soft_delete: { column: gone }") == ["1", "2"]
    assert kept("soft_delete: { field: out }") == ["1", "2"]
    # Not a boolean: deleted where it is not null.
    assert kept("soft_delete: { column: score }") == ["2"]
    assert kept("soft_delete: { column: score, when: [{ column: score, op: gt, value: 2 }] }") == ["2", "3"]
    assert kept("soft_delete: { column: name, when: [{ column: score, op: lt, value: 9 }] }") == ["2"]


def test_a_composite_id_is_the_array_of_its_texts(shop: Any) -> None:
    schema = {"table": "items", "fields": [{"integer": "n"}]}
    assert list(rebuild(schema, shop)) == ['["10","1"]', '["10","2"]', '["12","1"]', '["13","1"]']


def test_a_geo_point_is_null_if_either_number_is(connection: Any) -> None:
    fill(
        connection,
        """CREATE TABLE customers (id INTEGER PRIMARY KEY, a REAL, b REAL, p TEXT);
INSERT INTO customers VALUES (1, 1.5, -2, '1.5,-2'), (2, 1, NULL, '{"lat": 3, "lon": 4.25}'),
    (3, NULL, NULL, '[4.25, 3]'), (4, 0, 0, NULL), (5, 0, 0, 'nowhere')""",
    )
    here = {"lat": Decimal("1.5"), "lon": -2}
    there = {"lat": 3, "lon": Decimal("4.25")}
    two = one(connection, "- geo: at\n  lat: a\n  lon: b")
    assert two == {"1": here, "2": None, "3": None, "4": {"lat": 0, "lon": 0}, "5": {"lat": 0, "lon": 0}}
    assert one(connection, "- geo: p") == {"1": here, "2": there, "3": there, "4": None, "5": None}


def test_transforms_follow_one_another_and_a_default_stands_for_null(connection: Any) -> None:
    fill(
        connection,
        """CREATE TABLE customers (id INTEGER PRIMARY KEY, a TEXT);
INSERT INTO customers VALUES (1, '\t Ärger '), (2, NULL)""",
    )
    assert one(connection, "- text: a\n  transforms: [trim, lowercase, { truncate: 3 }]") == {
        "1": "ärg",
        "2": None,
    }
    assert one(connection, "- text: a\n  transforms: [uppercase]\n  default: none")["2"] == "none"
    hashed = one(connection, "- text: a\n  transforms: [trim, hash]")
    assert hashed == {"1": hashlib.sha256("Ärger".encode()).hexdigest(), "2": None}


def test_an_expression_is_over_the_rows_own_columns(shop: Any) -> None:
    upper = "- expression: e\n  sql: upper(name) || '%'\n  type: keyword"
    assert one(shop, upper)["1"] == "ADA%"
    assert one(shop, "- expression: e\n  sql: score + 1 -- more\n  type: integer") == {
        "1": 4,
        "2": None,
        "3": 2,
    }


def test_a_table_may_be_in_another_schema(server: Any) -> None:
    fill(
        server,
        """CREATE TABLE customers (id INTEGER PRIMARY KEY);
DROP SCHEMA IF EXISTS "Other one" CASCADE;
CREATE SCHEMA "Other one";
CREATE TABLE "Other one".notes (id INTEGER PRIMARY KEY, customer INTEGER);
INSERT INTO customers VALUES (1);
INSERT INTO "Other one".notes VALUES (5, 1)""",
    )
    field = "- count: n\n  table: Other one.notes\n  foreign_key: customer"
    assert one(server, field) == {"1": 1}
    schema = {"table": "notes", "schema": "Other one", "fields": [{"integer": "customer"}]}
    assert rebuild(schema, server) == {"5": {"customer": 1}}


POSTGRES_VALUES: list[tuple[str, Any, str, Any]] = [
    ("bigint", "9223372036854775807", "long", 9223372036854775807),
    (
        "numeric",
        "123456789012345678901234567890.120",
        "decimal",
        Decimal("123456789012345678901234567890.12"),
    ),
    ("numeric", "NaN", "decimal", None),
    ("double precision", "0.1", "double", Decimal("0.1")),
    ("double precision", "-Infinity", "double", None),
    ("real", "0.1", "float", Decimal("0.1")),
    ("boolean", "t", "boolean", True),
    ("integer", "0", "boolean", False),
    ("text", "Yes", "boolean", True),
    ("text", "maybe", "boolean", None),
    ("date", "2026-02-03", "date", "2026-02-03"),
    ("date", "infinity", "date", None),
    ("date", "0044-03-15 BC", "date", None),
    ("date", "2026-02-03", "timestamp", "2026-02-03T00:00:00"),
    ("timestamp", "2026-02-03 04:05:06.120", "timestamp", "2026-02-03T04:05:06.12"),
    ("timestamptz", "2026-02-03 04:05:06+02", "timestamp", "2026-02-03T02:05:06Z"),
    ("timestamptz", "2026-02-03 00:30:00+02", "date", "2026-02-02"),
    ("timestamptz", "infinity", "timestamp", None),
    ("timestamp", "20000-01-01 00:00:00", "timestamp", None),
    ("bytea", "\\x00ff10", "binary", "AP8Q"),
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("jsonb", '{"a": [1.50, null, "x"]}', "json", {"a": [Decimal("1.50"), None, "x"]}),
    ("json", '"text"', "json", "text"),
    ("integer[]", "{1,2,NULL}", "json", [1, 2, None]),
    ("integer", "7", "keyword", "7"),
    ("numeric", "1.50", "keyword", "1.5"),
    ("numeric", "7.0", "custom", 7),
    ("varchar(3)", "abc", "custom", "abc"),
]


def check(connection: Any, mark: str, cases: list[tuple[str, Any, str, Any]]) -> None:
    """A row that has all the values, and one that has none."""
    columns = ", ".join(f"v{at} {native}" for at, (native, *_) in enumerate(cases))
    connection.execute(f"CREATE TABLE customers (id INTEGER PRIMARY KEY, {columns})")
    marks = ", ".join(mark for _ in cases)
    values = [value for _, value, _, _ in cases]
    connection.execute(f"INSERT INTO customers VALUES (1, {marks})", values)
    connection.execute("INSERT INTO customers (id) VALUES (2)")
    fields = "\n".join(f"- {kind}: v{at}" for at, (_, _, kind, _) in enumerate(cases))
    found = documents(connection, fields)
    assert set(found["2"].values()) == {None}
    for at, (native, value, kind, expected) in enumerate(cases):
        assert differences(expected, found["1"][f"v{at}"]) == [], (native, value, kind)


def test_values_of_postgres(server: Any) -> None:
    check(server, "%s", POSTGRES_VALUES)


SQLITE_VALUES: list[tuple[str, Any, str, Any]] = [
    ("INTEGER", 2**62, "long", 2**62),
    ("DECIMAL(10,2)", 9.5, "decimal", Decimal("9.5")),
    ("REAL", float("inf"), "double", None),
    ("TEXT", " 12.50 ", "decimal", Decimal("12.50")),
    ("TEXT", "twelve", "long", None),
    ("BOOLEAN", 1, "boolean", True),
    ("BOOLEAN", "off", "boolean", False),
    ("DATE", "2026-02-03", "date", "2026-02-03"),
    ("DATE", "2026-02-30", "date", None),
    ("DATETIME", "2026-02-03 04:05", "timestamp", "2026-02-03T04:05:00"),
    ("DATETIME", "2026-02-03T04:05:06.100", "timestamp", "2026-02-03T04:05:06.1"),
    ("DATETIME", "2026-02-03 04:05:06+02:30", "timestamp", "2026-02-03T01:35:06Z"),
    ("DATETIME", 0, "timestamp", "1970-01-01T00:00:00Z"),
    ("DATETIME", 2440588.25, "timestamp", "1970-01-01T18:00:00Z"),
    ("DATETIME", 86400, "date", "1970-01-02"),
    ("BLOB", b"\x00\xff\x10", "binary", "AP8Q"),
    ("TEXT", "ä", "binary", "w6Q="),
    ("UUID", b"\xa0" * 16, "uuid", "a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0"),
    ("TEXT", "A0", "uuid", "a0"),
    ("JSON", '{"a": 1.10}', "json", {"a": Decimal("1.10")}),
    ("JSON", "no json", "json", None),
    ("INTEGER", 7, "keyword", "7"),
    ("TEXT", "x\ty", "text", "x\ty"),
]


def test_values_of_sqlite(lite: sqlite3.Connection) -> None:
    check(lite, "?", SQLITE_VALUES)


def test_comparing_tells_a_truth_from_a_number_and_a_number_from_its_text() -> None:
    assert differences({"a": 1}, {"a": Decimal("1.0")}) == []
    assert differences({"a": Decimal("0.1")}, {"a": 0.1}) == []
    for expected, found in ((1, True), (True, 1), ("1", 1), (None, 0), ([], {}), ([1], [1, 2]), (0, None)):
        assert differences({"a": expected}, {"a": found}) != []
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]}) == [".a[0].b: 2 is not 1"]
    assert differences({"a": 1, "b": 2}, {"b": 2, "a": 1}) != []
    assert differences(Near(0.3), Decimal("0.30000000000000004")) == []
    assert differences(Near(0.3), Decimal("0.31")) != []
    assert differences(Near(1.0), True) != []


def test_comparing_with_a_sink_names_what_is_missing_too_much_and_wrong() -> None:
    table = pa.table({"id": ["1", "2", "4"], "document": ['{"a":1}', '{"a":3}', "{}"]})
    assert compare({"1": {"a": 1}, "2": {"a": 2}, "3": {}}, table) == [
        "3: is missing",
        "4: should not be there",
        "2: .a: 3 is not 2",
    ]
    with pytest.raises(AssertionError, match="twice"):
        parsed('{"a":1,"a":2}')
    with pytest.raises(AssertionError, match="NaN"):
        parsed('{"a":NaN}')
