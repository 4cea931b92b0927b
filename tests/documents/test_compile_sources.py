"""Schemas compile against the catalogs of real sources, and what they compile to builds their documents."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tailrace.capture.contract import Capture
from tailrace.capture.postgres import PostgresCapture
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.config.index import parse_index
from tailrace.documents.compile import catalog_of, compile_index
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render import build_query
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef
from tests.docs.blocks import code_blocks
from tests.support.postgres import Database

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
    "INSERT INTO cities VALUES (1, 'Bergen')",
    "INSERT INTO customers VALUES (1, ' Ada@X.org ', 'gold', '2024-01-02 03:04:05', NULL, 1),"
    " (2, NULL, NULL, NULL, NULL, NULL), (3, 'gone', NULL, NULL, '2024-01-01 00:00:00', 1)",
    "INSERT INTO orders VALUES (10, 1, 'paid', 5.50, '2024-02-01 00:00:00'),"
    " (11, 1, 'cancelled', 7, '2024-02-02 00:00:00'), (12, 1, 'paid', 2, '2024-02-03 00:00:00')",
    "INSERT INTO products VALUES (7, 'Map')",
    "INSERT INTO order_items VALUES (100, 10, 7, 3)",
    "INSERT INTO tags VALUES (5, 'vip')",
    "INSERT INTO customer_tags VALUES (1, 5)",
)

Open = Callable[..., Capture]


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Makes tables, and opens the source that has them."""

    def sqlite(*statements: str) -> Capture:
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            for statement in ("PRAGMA journal_mode=WAL", *statements):
                connection.execute(statement)
            connection.commit()
        return SqliteCapture(SqliteConfig(tmp_path / "shop.db"))

    def postgres(*statements: str) -> Capture:
        database: Database = request.getfixturevalue("database")
        database.sql(*statements)
        return PostgresCapture(PostgresConfig.from_url(database.url()))

    return sqlite if request.param == "sqlite" else postgres


def built(capture: Capture, plan: IndexPlan) -> dict[str, Any]:
    query = build_query(plan, capture.kind)
    return {
        row["id"]: json.loads(row["document"], parse_float=Decimal)
        for batch in capture.query(query.sql, query.bind(), query.columns)
        for row in batch.to_pylist()
    }


def test_the_example_of_the_reference_builds_its_documents(source: Open, root: Path) -> None:
    page = (root / "docs/index-language.md").read_text(encoding="utf-8")
    schema = parse_index(code_blocks(page, "yaml")[0].body, "docs/index-language.md")
    capture = source(*SHOP)
    documents = built(capture, compile_index("customers", schema, catalog_of(capture)))
    assert documents == {
        "1": {
            "id": 1,
            "email": "ada@x.org",
            "account": {"tier": "gold", "createdAt": "2024-01-02T03:04:05"},
            "city": {"name": "Bergen"},
            "orders": [
                {"total": 2, "items": []},
                {"total": Decimal("5.5"), "items": [{"quantity": 3, "product": {"name": "Map"}}]},
            ],
            "tags": [{"label": "vip"}],
            "orderCount": 3,
            "spent": Decimal("14.5"),
        },
        "2": {
            "id": 2,
            "email": None,
            "account": {"tier": None, "createdAt": None},
            "city": None,
            "orders": [],
            "tags": [],
            "orderCount": 0,
            "spent": None,
        },
    }


def test_a_missing_table_is_told_as_the_source_tells_it(source: Open) -> None:
    capture = source(*SHOP[:2])
    schema = parse_index("version: 1\ntable: custmers\nfields: []\n", "file")
    with pytest.raises(ConfigError) as raised:
        compile_index("a", schema, catalog_of(capture))
    assert raised.value.place == "file:2 (table)"
    assert "customers" in str(raised.value)


def test_names_with_dots_stars_quotes_and_capitals_are_found(source: Open) -> None:
    names = ["odd.name", "*", 'quo"te', "Mixed Case", "select", "a'b"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    capture = source(*(f'CREATE TABLE {name} (id bigint PRIMARY KEY, "Value" bigint)' for name in quoted))
    catalog = catalog_of(capture)
    for name in names:
        text = json.dumps({"version": 1, "table": name, "fields": [{"long": "value"}]})
        plan = compile_index("a", parse_index(text, "file"), catalog)
        assert plan.root.table.ref.name == name
        assert built(capture, plan) == {}


def test_a_join_reaches_into_another_schema(database: Database) -> None:
    database.sql(
        "CREATE SCHEMA geo",
        "GRANT USAGE ON SCHEMA geo TO PUBLIC",
        "CREATE TABLE geo.customers (id bigint PRIMARY KEY, name text)",
        "CREATE TABLE customers (id bigint PRIMARY KEY, city bigint)",
        "GRANT SELECT ON ALL TABLES IN SCHEMA geo TO PUBLIC",
        "INSERT INTO geo.customers VALUES (1, 'Bergen')",
        "INSERT INTO customers VALUES (1, 1)",
    )
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    text = (
        "version: 1\ntable: customers\nfields:\n"
        "  - belongs_to: city\n    table: geo.customers\n    fields: [{text: name}]\n"
        "  - belongs_to: id\n    table: customers\n    fields: [{long: city}]\n"
    )
    plan = compile_index("a", parse_index(text, "file"), catalog_of(capture))
    assert [place.table.ref for place in plan.root.below()] == [
        TableRef("geo", "customers"),
        TableRef("public", "customers"),
    ]
    assert built(capture, plan) == {"1": {"city": {"name": "Bergen"}, "id": {"city": 1}}}
    inside = parse_index("version: 1\nschema: geo\ntable: customers\nfields: [{text: name}]\n", "file")
    assert compile_index("a", inside, catalog_of(capture)).root.table.ref == TableRef("geo", "customers")
