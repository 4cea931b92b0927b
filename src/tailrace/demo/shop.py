"""The shop: six tables with foreign keys, and goods on its shelves."""

from __future__ import annotations

import random

from tailrace.demo.database import Database

TABLES = ("customers", "products", "tags", "product_tags", "orders", "items")

# For both databases; only SQLite has tables without a rowid.
_SCHEMA = """
CREATE TABLE customers (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  email TEXT NOT NULL UNIQUE,
  city TEXT,
  vip BOOLEAN NOT NULL DEFAULT false
);
CREATE TABLE products (
  sku TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  price DECIMAL(10,2) NOT NULL,
  stock INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tags (id INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE);
CREATE TABLE product_tags (
  sku TEXT NOT NULL REFERENCES products(sku) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags(id) ON DELETE CASCADE,
  PRIMARY KEY (sku, tag_id)
) WITHOUT ROWID;
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customers(id) ON UPDATE CASCADE ON DELETE CASCADE,
  status TEXT NOT NULL DEFAULT 'new',
  note TEXT,
  ordered_at TEXT NOT NULL
);
CREATE TABLE items (
  order_id INTEGER NOT NULL REFERENCES orders(id) ON DELETE CASCADE,
  line INTEGER NOT NULL,
  sku TEXT NOT NULL REFERENCES products(sku) DEFERRABLE,
  quantity INTEGER NOT NULL,
  discount DOUBLE PRECISION,
  PRIMARY KEY (order_id, line)
);
CREATE INDEX orders_of_customer ON orders (customer_id);
CREATE INDEX items_of_product ON items (sku);
CREATE INDEX product_tags_of_tag ON product_tags (tag_id);
"""

FIRST = (
    "Ada",
    "Blaise",
    "Carl",
    "Dorothy",
    "Emmy",
    "Grace",
    "Hedy",
    "Joan",
    "Katherine",
    "Leonhard",
    "Mary",
    "Zoë",
)
LAST = (
    "Lovelace",
    "Pascal",
    "Gauß",
    "Vaughan",
    "Noether",
    "Hopper",
    "Lamarr",
    "Clarke",
    "Johnson",
    "Euler",
    "Cartwright",
)
CITIES = ("Graz", "Lyon", "Porto", "Bergen", "Zürich", "Kraków", "Gent", None)
WARES = (
    "kettle",
    "lamp",
    "chair",
    "notebook",
    "teapot",
    "blanket",
    "clock",
    "mug",
    "vase",
    "basket",
    "mirror",
    "shelf",
)
LOOKS = ("red", "green", "oak", "steel", "linen", "tall", "small", "folding")
TAGS = ("new", "sale", "handmade", "gift", "kitchen", "office", "garden", "last chance")


def create(database: Database, seed: int = 7) -> None:
    """The shop's tables, with some customers, products and orders."""
    database.create(_SCHEMA)
    database.begin()
    _fill(database, random.Random(seed))  # noqa: S311 - goods, not secrets
    database.commit()


def _fill(database: Database, dice: random.Random) -> None:
    database.many("INSERT INTO tags (id, label) VALUES (?, ?)", enumerate(TAGS, 1))
    products = [
        (f"{ware[:3].upper()}-{number:03d}", f"{look} {ware}", f"{dice.randint(300, 19999) / 100:.2f}", 100)
        for number, (ware, look) in enumerate(((ware, look) for ware in WARES for look in LOOKS), 1)
    ]
    database.many("INSERT INTO products VALUES (?, ?, ?, ?)", products)
    skus = [sku for sku, *_ in products]
    database.many(
        "INSERT INTO product_tags VALUES (?, ?)",
        [(sku, tag) for sku in skus for tag in dice.sample(range(1, len(TAGS) + 1), 2)],
    )
    for number in range(1, 201):
        add_customer(database, dice, number)
    for number in range(1, 301):
        add_order(database, dice, number, dice.randint(1, 200), skus)


def add_customer(database: Database, dice: random.Random, number: int) -> None:
    """A customer of that number."""
    name = f"{dice.choice(FIRST)} {dice.choice(LAST)}"
    email = f"{name.split(maxsplit=1)[0].lower()}.{number}@example.org"
    database.execute(
        "INSERT INTO customers (id, name, email, city, vip) VALUES (?, ?, ?, ?, ?)",
        *(number, name, email, dice.choice(CITIES), dice.random() < 0.1),
    )


def add_order(database: Database, dice: random.Random, number: int, customer: int, skus: list[str]) -> None:
    """An order with one to four lines, as one transaction's worth of writes."""
    moment = (
        f"2026-0{dice.randint(1, 9)}-{dice.randint(10, 28)}T{dice.randint(10, 23)}:{dice.randint(10, 59)}:00"
    )
    database.execute(
        "INSERT INTO orders (id, customer_id, ordered_at) VALUES (?, ?, ?)", number, customer, moment
    )
    lines = [
        (number, line, dice.choice(skus), dice.randint(1, 5), dice.choice((None, 0.05, 0.1, 0.125)))
        for line in range(1, dice.randint(2, 5))
    ]
    database.many("INSERT INTO items VALUES (?, ?, ?, ?, ?)", lines)


def counts(database: Database, tables: tuple[str, ...]) -> dict[str, int]:
    """How many rows some tables have, at one moment."""
    texts = [f"(SELECT count(*) FROM {name})" for name in tables]
    found = database.one(f"SELECT {', '.join(texts)}")
    return dict(zip(tables, map(int, found), strict=True))
