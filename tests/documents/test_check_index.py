"""What `check_index` finds in an index, by its file alone and with its source, and what mends it."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.capture.contract import Capture, Finding
from tailrace.capture.postgres import PostgresCapture
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.config.index import parse_index
from tailrace.documents.check import check_index
from tests.docs.blocks import code_blocks
from tests.support.postgres import Database

Run = Callable[..., Capture]
# What the example of the reference is about.
SHOP = (
    "CREATE TABLE cities (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE customers (id bigint PRIMARY KEY, email text, tier text, created_at timestamp,"
    " deleted_at timestamp, city_id int)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, status text, total numeric(10,2),"
    " placed_at timestamp)",
    "CREATE TABLE products (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE order_items (id bigint PRIMARY KEY, order_id bigint, product_id bigint, quantity int)",
    "CREATE TABLE tags (id bigint PRIMARY KEY, label text)",
    "CREATE TABLE customer_tags (customer_id bigint, tag_id bigint, PRIMARY KEY (customer_id, tag_id))",
)
INDEXES = (
    "CREATE INDEX ON customers (city_id)",
    "CREATE INDEX ON orders USING hash (customer_id)",
    "CREATE INDEX ON order_items (order_id, quantity)",
    "CREATE INDEX ON order_items (product_id)",
    "CREATE INDEX ON customer_tags (tag_id)",
)
HEAD = "version: 1\ntable: customers\nfields:\n"


@pytest.fixture
def lite(tmp_path: Path) -> Run:
    """Runs statements on a SQLite source and opens it."""

    def run(*statements: str) -> Capture:
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            for statement in ("PRAGMA journal_mode=WAL", *statements):
                connection.execute(statement)
            connection.commit()
        return SqliteCapture(SqliteConfig(tmp_path / "shop.db"))

    return run


@pytest.fixture
def server(database: Database) -> Run:
    """Runs statements on a PostgreSQL source and opens it."""

    def run(*statements: str) -> Capture:
        database.sql(*statements)
        return PostgresCapture(PostgresConfig.from_url(database.url()))

    return run


@pytest.fixture(params=["lite", "server"])
def source(request: pytest.FixtureRequest) -> Run:
    """Either of them."""
    run: Run = request.getfixturevalue(request.param)
    return run


def checked(text: str, capture: Capture | None = None, dialect: str = "") -> list[Finding]:
    found = check_index("shop", parse_index(text, "file"), capture, dialect=dialect)
    assert all(finding.index == "shop" and finding.place for finding in found)
    return found


def grave(found: list[Finding]) -> list[tuple[str, str]]:
    """Code and place of errors and warnings."""
    return [(one.code, one.place or "") for one in found if one.severity != "info"]


def example(root: Path) -> str:
    page = (root / "docs/index-language.md").read_text(encoding="utf-8")
    return code_blocks(page, "yaml")[0].body


def test_a_sound_index_has_no_errors_and_no_warnings(source: Run, root: Path) -> None:
    capture = source(*SHOP)
    if capture.kind == "sqlite":
        capture = source(*(one.replace(" ON ", f" i{at} ON ") for at, one in enumerate(INDEXES) if at != 1))
        capture = source("CREATE INDEX i1 ON orders (customer_id)")
    else:
        capture = source(*INDEXES)
    assert grave(checked(example(root), capture)) == []


def test_everything_that_is_not_there_is_told_at_once_with_its_line_and_the_nearest_name(source: Run) -> None:
    capture = source(*SHOP)
    text = (
        "version: 1\ntable: customers\nprimary_key: email\n"
        "soft_delete: { column: deleted }\n"
        "filters: [{ column: teir, op: eq, value: gold }]\n"
        "fields:\n"
        "  - keyword: emial\n"
        "  - has_many: bills\n"
        "    table: ordrs\n"
        "    foreign_key: customer_id\n"
        "    fields:\n"
        "      - has_many: items\n"
        "        table: order_itms\n"
        "        foreign_key: order_id\n"
        "        fields: []\n"
        "  - has_many: orders\n"
        "    table: orders\n"
        "    primary_key: [id, status]\n"
        "    foreign_key: customr_id\n"
        "    order_by: [{ column: place_at }]\n"
        "    fields: [{ decimal: totl }]\n"
        "  - many_to_many: tags\n"
        "    table: tags\n"
        "    through: { table: customer_tags, left_key: customerid, right_key: tagid }\n"
        "    fields: [{ date: label }]\n"
    )
    errors = [one for one in checked(text, capture) if one.severity == "error"]
    assert [one.place for one in errors if one.code == "catalog"] == [
        "file:3 (primary_key)",
        "file:4 (soft_delete.column)",
        "file:5 (filters[0].column)",
        "file:7 (field emial, keyword)",
        "file:9 (field bills, table)",
        "file:13 (field bills.items, table)",
        "file:18 (field orders, primary_key)",
        "file:19 (field orders, foreign_key)",
        "file:20 (field orders, order_by[0].column)",
        "file:21 (field orders.totl, decimal)",
        "file:24 (field tags, through.left_key)",
        "file:24 (field tags, through.right_key)",
    ]
    told = " ".join(f"{one.message} {one.remedy}" for one in errors)
    for name in ("orders", "email", "tier", "customer_id", "placed_at", "total", "tag_id", "order_items"):
        assert name in told


KINDS = [
    ("smallint", "short", None),
    ("integer", "short", "warning"),
    ("bigint", "integer", "warning"),
    ("bigint", "long", None),
    ("bigint", "decimal", None),
    ("numeric(10,2)", "decimal", None),
    ("numeric(10,2)", "long", "warning"),
    ("numeric(10,0)", "long", None),
    ("numeric", "double", None),
    ("double precision", "long", "warning"),
    ("money", "decimal", None),
    ("text", "long", "warning"),
    ("date", "long", "error"),
    ("uuid", "long", "error"),
    ("bytea", "decimal", "error"),
    ("boolean", "boolean", None),
    ("integer", "boolean", None),
    ("text", "boolean", "warning"),
    ("date", "boolean", "error"),
    ("date", "date", None),
    ("timestamptz", "date", None),
    ("date", "timestamp", None),
    ("text", "timestamp", "warning"),
    ("bigint", "timestamp", "warning"),
    ("boolean", "date", "error"),
    ("jsonb", "timestamp", "error"),
    ("uuid", "uuid", None),
    ("text", "uuid", None),
    ("integer", "uuid", "error"),
    ("bytea", "binary", None),
    ("text", "binary", "warning"),
    ("bytea", "keyword", "warning"),
    ("jsonb", "json", None),
    ("integer[]", "json", None),
    ("text", "json", "warning"),
    ("inet", "keyword", None),
    ("timestamp", "text", None),
    ("character(3)", "enum", None),
]


def test_a_column_fits_the_kind_that_shows_it(server: Run) -> None:
    columns = ", ".join(f"c{at} {native}" for at, (native, _, _) in enumerate(KINDS))
    capture = server(f"CREATE TABLE customers (id int PRIMARY KEY, {columns})")
    fields = "".join(f"  - {kind}: c{at}\n" for at, (_, kind, _) in enumerate(KINDS))
    found = [one for one in checked(HEAD + fields, capture) if one.code == "type"]
    told = {(one.place or "").partition("field ")[2].partition(",")[0]: one.severity for one in found}
    expected = {f"c{at}": severity for at, (_, _, severity) in enumerate(KINDS) if severity}
    assert told == expected
    assert all(one.remedy for one in found)


def test_points_maps_and_custom_types_fit_too(server: Run) -> None:
    capture = server(
        "CREATE TABLE customers (id int PRIMARY KEY, at point, day date, lat real, lon text, tags jsonb,"
        " note text, numbers int[], code varchar(9), moment timestamptz)"
    )
    found = checked(
        HEAD + "  - geo: at\n"
        "  - geo: day\n"
        "  - { geo: two, lat: lat, lon: lon }\n"
        "  - { map: tags, values: text }\n"
        "  - { map: note, values: text }\n"
        "  - { map: numbers, values: long }\n"
        "  - { custom: code, postgres: [varchar, text], opensearch: keyword }\n"
        "  - { custom: moment, postgres: timestamp, opensearch: date }\n"
        "  - { custom: lat, opensearch: float }\n",
        capture,
    )
    assert [(one.severity, one.place) for one in found if one.code == "type"] == [
        ("error", "file:5 (field day, geo)"),
        ("error", "file:8 (field note, map)"),
        ("error", "file:9 (field numbers, map)"),
        ("error", "file:11 (field moment, custom)"),
        ("warning", "file:6 (field two, lon)"),
    ]


def test_sums_need_numbers_and_keys_are_listed_as_what_they_are(server: Run) -> None:
    capture = server(
        "CREATE TABLE customers (id int PRIMARY KEY)",
        "CREATE TABLE notes (id uuid PRIMARY KEY, customer int, day date, size text, n bigint)",
        "CREATE INDEX ON notes (customer)",
    )
    near = "table: notes, foreign_key: customer"
    found = checked(
        HEAD + f"  - {{ sum: a, {near}, column: day, value_type: long }}\n"
        f"  - {{ avg: b, {near}, column: size }}\n"
        f"  - {{ max: c, {near}, column: day, value_type: date }}\n"
        f"  - {{ min: d, {near}, column: n, value_type: integer }}\n"
        f"  - {{ ids: e, {near}, element_type: long }}\n"
        f"  - {{ ids: f, {near}, element_type: uuid }}\n"
        f"  - {{ count: g, {near} }}\n",
        capture,
    )
    assert [(one.severity, one.place, one.remedy) for one in found if one.code == "type"] == [
        ("error", "file:4 (field a, column)", "name a column of numbers"),
        ("error", "file:8 (field e, element_type)", "write `element_type: uuid`"),
        ("warning", "file:5 (field b, column)", "name a column of numbers"),
        ("warning", "file:7 (field d, value_type)", "write `value_type: long`"),
    ]


def test_sqlite_binds_no_values_to_types_so_nothing_of_them_is_an_error(lite: Run) -> None:
    capture = lite(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, day DATE, at INTEGER, doc TEXT, name TEXT, raw BLOB,"
        " flag BOOLEAN, any, total REAL, small INT)"
    )
    found = checked(
        HEAD + "  - date: day\n"
        "  - timestamp: at\n"
        "  - json: doc\n"
        "  - long: name\n"
        "  - long: raw\n"
        "  - { uuid: key, column: raw }\n"
        "  - boolean: flag\n"
        "  - long: any\n"
        "  - long: total\n"
        "  - short: small\n",
        capture,
    )
    assert [(one.severity, one.place) for one in found if one.code == "type"] == [
        ("warning", "file:7 (field name, long)"),
        ("warning", "file:8 (field raw, long)"),
        ("warning", "file:12 (field total, long)"),
    ]


def test_a_required_field_over_a_column_that_can_be_null_is_told(source: Run) -> None:
    text = HEAD + (
        "  - { long: id, required: true }\n"
        "  - { text: a, required: true }\n"
        "  - { text: b, required: true }\n"
        "  - { text: c, required: true, default: none }\n"
        "  - { belongs_to: boss, table: customers, required: true, fields: [] }\n"
    )
    make = "CREATE TABLE customers (id bigint PRIMARY KEY, a text NOT NULL, b text, c text, boss bigint)"
    found = checked(text, source(make))
    assert [(one.severity, one.place) for one in found if one.code == "nullable"] == [
        ("warning", "file:6 (field b, required)"),
        ("warning", "file:8 (field boss, required)"),
    ]


def test_keys_that_cannot_be_equal_are_errors_and_the_remedy_mends_them(server: Run) -> None:
    make = (
        "CREATE TABLE customers (id bigint PRIMARY KEY, code text, day date)",
        "CREATE TABLE codes (id uuid PRIMARY KEY)",
        "CREATE TABLE days (id int PRIMARY KEY)",
        "CREATE TABLE orders (id int PRIMARY KEY, small int, words text, born date)",
        "CREATE INDEX ON orders (small)",
        "CREATE INDEX ON orders (words)",
        "CREATE INDEX ON customers (code)",
        "CREATE INDEX ON customers (day)",
        "CREATE INDEX ON orders (born)",
    )
    text = HEAD + (
        "  - { belongs_to: code, table: codes, fields: [] }\n"
        "  - { belongs_to: day, table: days, fields: [] }\n"
        "  - { count: a, table: orders, foreign_key: small }\n"
        "  - { count: b, table: orders, foreign_key: words }\n"
        "  - { count: c, table: orders, foreign_key: born }\n"
    )
    found = [one for one in checked(text, server(*make)) if one.code == "key_type"]
    assert [(one.severity, one.place) for one in found] == [
        ("error", "file:5 (field day, belongs_to)"),
        ("error", "file:8 (field c, foreign_key)"),
        ("warning", "file:4 (field code, belongs_to)"),
        ("warning", "file:7 (field b, foreign_key)"),
    ]
    mended = [one.remedy or "" for one in found if one.severity == "warning"]
    assert [one for one in checked(text, server(*mended)) if one.severity == "warning"] == []


def test_a_missing_index_is_told_once_with_the_sql_that_makes_it(source: Run, root: Path) -> None:
    found = [one for one in checked(example(root), source(*SHOP)) if one.code == "no_index"]
    assert [(one.severity, one.table and one.table.partition(".")[2]) for one in found] == [
        ("warning", "customers"),
        ("warning", "orders"),
        ("warning", "order_items"),
        ("warning", "order_items"),
        ("warning", "customer_tags"),
    ]
    assert "foreign_key" in (found[1].place or "")
    remedies = [one.remedy or "" for one in found]
    capture = source(*remedies)
    assert capture.kind == "sqlite" or all(one.startswith("CREATE INDEX CONCURRENTLY ON") for one in remedies)
    assert [one for one in checked(example(root), capture) if one.code == "no_index"] == []


def test_only_an_index_that_has_every_row_and_begins_with_the_columns_counts(server: Run) -> None:
    make = (
        "CREATE TABLE customers (a int, b int, PRIMARY KEY (a, b))",
        "CREATE TABLE orders (id int PRIMARY KEY, x int, y int) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (1) TO (9)",
        "CREATE INDEX ON orders (x) WHERE y > 0",
        "CREATE INDEX ON orders (x)",
        "CREATE INDEX ON orders ((x + 1), y)",
        "CREATE INDEX ON orders (y) INCLUDE (x)",
        "CREATE INDEX ON orders USING brin (x, y)",
    )
    text = HEAD + "  - { count: a, table: orders, foreign_key: [x, y] }\n"
    (found,) = [one for one in checked(text, server(*make)) if one.code == "no_index"]
    assert found.remedy == 'CREATE INDEX ON "public"."orders" ("x", "y")'
    # In another order it serves as well.
    after = checked(text, server("CREATE INDEX ON orders (y, x, id)"))
    assert [one for one in after if one.code == "no_index"] == []


def test_in_sqlite_partial_indexes_and_expressions_do_not_count_and_the_rowid_does(lite: Run) -> None:
    capture = lite(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY)",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, x INTEGER, y INTEGER)",
        "CREATE INDEX one ON orders (x) WHERE y > 0",
        "CREATE INDEX two ON orders (x + 1)",
        "CREATE TABLE pairs (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID",
    )
    text = HEAD + (
        "  - { count: a, table: orders, foreign_key: x }\n"
        "  - { count: b, table: orders, foreign_key: id }\n"
        "  - { count: c, table: pairs, foreign_key: a }\n"
        "  - { count: d, table: pairs, foreign_key: b }\n"
    )
    found = [one for one in checked(text, capture) if one.code == "no_index"]
    assert [one.place for one in found] == ["file:4 (field a, foreign_key)", "file:7 (field d, foreign_key)"]
    assert found[0].remedy == 'CREATE INDEX "orders_x_idx" ON "orders" ("x")'


def test_sql_of_the_file_that_the_source_refuses_is_told_where_it_stands(source: Run) -> None:
    capture = source(*SHOP)
    text = (
        "version: 1\ntable: customers\n"
        "filters:\n  - { raw: no_such_column = 1 }\n  - { raw: id = 1; DROP TABLE customers }\n"
        "fields:\n"
        "  - { expression: good, sql: \"coalesce(email, 'x')\", type: keyword }\n"
        "  - { expression: bad, sql: no_such_function(email), type: keyword }\n"
        "  - has_many: orders\n"
        "    table: orders\n"
        "    foreign_key: customer_id\n"
        "    filters:\n"
        "      - { raw: total > 5 -- a comment }\n"
        "      - { column: total, op: gt, value: many }\n"
        "    fields: []\n"
    )
    found = [one for one in checked(text, capture) if one.severity == "error"]
    assert [one.place for one in found] == [
        "file:4 (filters[0].raw)",
        "file:5 (filters[1].raw)",
        "file:8 (field bad, sql)",
        "file:14 (field orders, filters[1].value)",
    ]
    assert "no_such_column" in found[0].message
    assert "no_such_function" in found[2].message


def test_values_of_filters_and_kinds_of_expressions_must_fit_in_postgresql(server: Run) -> None:
    capture = server(*SHOP)
    text = (
        "version: 1\ntable: customers\n"
        "filters:\n"
        "  - { column: created_at, op: gt, value: yesterday noon }\n"
        "  - { column: created_at, op: gt, value: 2024-01-01 }\n"
        "fields:\n"
        "  - { expression: day, sql: id, type: date }\n"
        "  - { expression: other, sql: id + 1, type: long }\n"
    )
    assert grave(checked(text, capture)) == [
        ("sql", "file:4 (filters[0].value)"),
        ("sql", "file:7 (field day, sql)"),
    ]


def test_a_statement_that_the_source_refuses_as_a_whole_is_an_error(lite: Run) -> None:
    capture = lite("CREATE TABLE customers (id bigint PRIMARY KEY)")

    def found(depth: int) -> list[tuple[str, str]]:
        deep = "id" + " AND id" * depth
        text = f"version: 1\ntable: customers\nfilters: [{{ raw: {deep} }}]\nfields: [{{ long: id }}]\n"
        return grave(checked(text, capture))

    # SQLite takes a thousand levels: the deepest condition that it takes leaves none for what is around it.
    assert found(900) == []
    assert found(999) == [("build", "file:1")]
    assert found(1000) == [("sql", "file:3 (filters[0].raw)")]


def test_soft_deletes_that_delete_everything_are_errors(source: Run) -> None:
    capture = source(
        "CREATE TABLE customers (id bigint PRIMARY KEY, gone int NOT NULL, flag boolean NOT NULL,"
        " at timestamp, n int)"
    )

    def told(rule: str) -> list[str]:
        text = f"version: 1\ntable: customers\nsoft_delete: {rule}\nfields: [{{ long: id }}]\n"
        return [one.severity for one in checked(text, capture) if one.code == "soft_delete"]

    assert told("{ column: gone }") == ["error"]
    assert told("{ column: gone, when: [{ column: gone, op: eq, value: 1 }] }") == []
    assert told("{ column: flag }") == []
    assert told("{ column: at }") == []
    assert told("{ column: n }") == ["warning"]


def test_every_relation_says_where_its_old_parents_come_from_and_what_is_cheaper(server: Run) -> None:
    capture = server(*SHOP, "CREATE INDEX ON orders (customer_id)")
    text = HEAD + (
        "  - { long: id }\n"
        "  - { has_many: orders, table: orders, foreign_key: customer_id, fields: [{ keyword: status }] }\n"
        "  - { has_many: gone, table: nothing, foreign_key: x, fields: [] }\n"
    )

    def told() -> list[tuple[str, str, str | None]]:
        found = [one for one in checked(text, capture) if one.code.startswith("old_parents")]
        return [(one.severity, one.place or "", one.remedy) for one in found]

    cheaper = 'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL'
    root = ("info", "file:2 (table)", None)
    place = "file:5 (field orders)"
    # One relation that is broken does not hide the others.
    assert told() == [root, ("info", place, cheaper)]
    server("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    assert told() == [("error", place, cheaper), root]
    server(cheaper)
    assert told() == [root, ("info", place, None)]


def test_of_a_partitioned_table_the_identity_of_every_partition_is_told_and_mends_it(server: Run) -> None:
    make = (
        "CREATE TABLE customers (id int PRIMARY KEY)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer int) PARTITION BY RANGE (id)",
        "CREATE INDEX ON orders (customer)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (1) TO (9)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (9) TO (99) PARTITION BY RANGE (id)",
        "CREATE TABLE highest PARTITION OF high FOR VALUES FROM (50) TO (99)",
    )
    text = HEAD + "  - { count: n, table: orders, foreign_key: customer }\n"
    _, found = checked(text, server(*make))
    assert found.remedy == (
        'ALTER TABLE "public"."highest" REPLICA IDENTITY FULL; '
        'ALTER TABLE "public"."low" REPLICA IDENTITY FULL'
    )
    _, after = checked(text, server(*found.remedy.split("; ")))
    assert (after.code, after.remedy) == ("old_parents", None)
    assert "comes with the log" in after.message


def test_without_a_source_the_file_is_judged_alone(root: Path) -> None:
    assert checked(example(root)) == []
    text = (
        "version: 1\ntable: customers\n"
        'filters: [{ raw: "a = 1) OR (b = 2" }]\n'
        "fields:\n"
        "  - { expression: odd, sql: 'a ~~~> b', type: long }\n"
        "  - { count: n, table: orders, through: { table: t, left_key: a, right_key: b,"
        " filters: [{ raw: x; y }] } }\n"
    )
    assert grave(checked(text, dialect="postgres")) == [
        ("sql", "file:3 (filters[0].raw)"),
        ("sql", "file:6 (field n, through.filters[0].raw)"),
        ("not_for_spark", "file:5 (field odd, sql)"),
    ]
    assert grave(checked("version: 1\ntable: customers\nfields: []\n")) == [("empty", "file:3 (fields)")]


def test_a_subquery_is_refused_for_the_rows_that_it_reads() -> None:
    text = 'version: 1\ntable: customers\nfilters: [{ raw: "id = (SELECT 1)" }]\nfields: [{ long: id }]\n'
    (only,) = checked(text, dialect="sqlite")
    assert (only.severity, only.code) == ("error", "sql")
    assert "reads other rows" in only.message


def test_every_code_is_documented(root: Path) -> None:
    page = (root / "docs/check.md").read_text(encoding="utf-8")
    sources = [*(root / "src/tailrace/documents/check").glob("*.py")]
    sources.append(root / "src/tailrace/documents/resolve/parents.py")
    text = "".join(one.read_text(encoding="utf-8") for one in sources)
    codes = set(re.findall(r'(?:"(?:error|warning|info)"|severity),\s+"([a-z_]+)",', text))
    codes -= {"error", "warning", "info"}
    assert {"type", "no_index", "old_parents", "key_type"} <= codes
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def test_names_that_need_quotes_are_checked_and_mended_like_others(source: Run) -> None:
    make = (
        'CREATE TABLE "odd.na""me" ("I d" bigint PRIMARY KEY, "select" bigint)',
        'CREATE TABLE "100%" ("k%s" bigint PRIMARY KEY, "who\'s" bigint)',
    )
    text = (
        "version: 1\ntable: 'odd.na\"me'\nfields:\n"
        "  - { has_many: kids, table: '100%', foreign_key: \"who's\", fields: [{ long: k, column: 'k%s' }],"
        " filters: [{ column: 'k%s', op: like, value: '1%' }, { raw: '\"k%s\" % 2 = 1' }] }\n"
        "  - { belongs_to: up, table: 'odd.na\"me', column: select, fields: [] }\n"
    )
    found = checked(text, source(*make))
    assert [one.code for one in found if one.severity != "info"] == ["no_index", "no_index"]
    assert grave(checked(text, source(*(one.remedy or "" for one in found if one.severity != "info")))) == []
