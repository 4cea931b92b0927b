"""The data: customers with their orders, the items of these and their products, and bursts of changes.

Every table is made of numbers alone, so two runs have the same rows; a customer's orders and an order's items
stand far apart in their tables, as they do where rows came one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from bench.postgres_server import ROLE, Server

INDEX = "customers"
ORDERS, ITEMS, PRODUCTS = 2, 2, 1_000
PER_TRANSACTION = 10
# Three levels below the root, and five aggregates: three of the root's, two of an order's.
SCHEMA = """\
version: 1
table: customers
primary_key: id
fields:
  - long: id
  - text: name
  - keyword: email
  - boolean: active
  - timestamp: since
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: customer_id
    order_by: [{column: placed, direction: desc}]
    fields:
      - long: id
      - decimal: total
      - timestamp: placed
      - has_many: items
        table: items
        primary_key: id
        foreign_key: order_id
        fields:
          - long: id
          - integer: quantity
          - belongs_to: product
            table: products
            primary_key: id
            column: product_id
            fields:
              - text: title
              - decimal: price
      - count: item_count
        table: items
        foreign_key: order_id
      - sum: item_quantity
        table: items
        foreign_key: order_id
        column: quantity
        value_type: long
  - count: order_count
    table: orders
    foreign_key: customer_id
  - sum: order_total
    table: orders
    foreign_key: customer_id
    column: total
    value_type: decimal
  - max: last_order
    table: orders
    foreign_key: customer_id
    column: placed
    value_type: timestamp
"""
_TABLES = """
CREATE TABLE products (id bigint PRIMARY KEY, title text NOT NULL, price numeric(10,2) NOT NULL);
CREATE TABLE customers (
    id bigint PRIMARY KEY, name text NOT NULL, email text, active boolean, since timestamptz
);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer_id bigint NOT NULL, total numeric(12,2), placed timestamptz
);
CREATE TABLE items (
    id bigint PRIMARY KEY, order_id bigint NOT NULL, product_id bigint NOT NULL, quantity integer NOT NULL
);
"""
_ROWS = (
    f"INSERT INTO products SELECT i, 'product number ' || i, i * 0.37 FROM generate_series(1, {PRODUCTS}) i",
    "INSERT INTO customers SELECT i, 'customer number ' || i, 'customer' || i || '@example.com', i % 3 = 0,"
    " timestamptz '2026-01-01 10:00+00' + i * interval '1.000137 seconds' FROM generate_series(1, {rows}) i",
    "INSERT INTO orders SELECT i, (i - 1) % {rows} + 1, i % 1000000 * 0.37,"
    " timestamptz '2026-02-01 10:00+00' + i * interval '1.000137 seconds'"
    " FROM generate_series(1, {orders}) i",
    "INSERT INTO items SELECT i, (i - 1) % {orders} + 1, i * 7 % {products} + 1, i % 9 + 1"
    " FROM generate_series(1, {items}) i",
    "CREATE INDEX orders_customer ON orders (customer_id)",
    "CREATE INDEX items_order ON items (order_id)",
    "CREATE INDEX items_product ON items (product_id)",
)
# A customer's name, an order's total and an item's quantity in turns, of documents all over the table.
_BURST = """
DO $$ DECLARE k bigint; BEGIN
    FOR n IN 0..{changes} - 1 LOOP
        k := (n * 7919::bigint + {turn} * 104729::bigint) % {rows} + 1;
        IF n % 5 = 0 THEN
            UPDATE customers SET name = 'customer number ' || k || ', named {turn}' WHERE id = k;
        ELSIF n % 5 < 3 THEN
            UPDATE orders SET total = total + 1 WHERE id = k;
        ELSE
            UPDATE items SET quantity = quantity % 9 + 1 WHERE id = k;
        END IF;
        IF n % {per} = {per} - 1 THEN COMMIT; END IF;
    END LOOP;
END $$
"""


def database(rows: int) -> str:
    """The database with so many customers."""
    return f"documents_{rows}"


def make(server: Server, rows: int) -> None:
    """A database of so many customers, vacuumed, analysed and written out."""
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {database(rows)}")
    numbers = {"rows": rows, "orders": rows * ORDERS, "items": rows * ORDERS * ITEMS, "products": PRODUCTS}
    with server.connect(database(rows)) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '512MB'")
        for statement in (_TABLES, *_ROWS):
            connection.execute(statement.format(**numbers))
        for table in ("products", "customers", "orders", "items"):
            connection.execute(f"VACUUM (ANALYZE) {table}")
        connection.execute("CHECKPOINT")


def burst(connection: psycopg.Connection[Any], rows: int, changes: int, turn: int) -> None:
    """So many changes, in transactions of ten."""
    connection.execute(_BURST.format(rows=rows, changes=changes, turn=turn, per=PER_TRANSACTION))


def configure(directory: Path, port: int, rows: int, name: str) -> Path:
    """The files of a pipeline that keeps the index in a store."""
    directory.mkdir(parents=True)
    (directory / "customers.schema.yml").write_text(SCHEMA)
    file = directory / "tailrace.toml"
    file.write_text(
        f'name = "{name}"\n'
        f'[source]\nurl = "postgresql://{ROLE}@127.0.0.1:{port}/{database(rows)}"\n'
        '[sinks.store]\ntype = "sqlite"\npath = "documents.db"\n'
        f'[[index]]\nname = "{INDEX}"\nschema = "customers.schema.yml"\n'
    )
    return file
