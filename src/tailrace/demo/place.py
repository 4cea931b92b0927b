"""The demonstration's directory: made anew each time, and never somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from tailrace.demo import shop
from tailrace.model.errors import ConfigError

_MARK = "# Tailrace's demonstration: this directory is made anew at each start.\n"
_CONFIG = (
    _MARK
    + """
name = "demo"

[source]
url = "sqlite:shop.db"

[sinks.lake]
type = "delta"
path = "lake"

[spark]
# For a short run: the JVM compiles quickly instead of well, and starts some seconds sooner.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

[[table]]
name = "*"

[sinks.documents]
type = "sqlite"
path = "documents.db"

[[index]]
name = "customers"
schema = "customers.schema.yml"
"""
)
_SCHEMA = """\
# A customer with everything that was ordered: one document for each row of customers.
version: 1
table: customers
primary_key: id
fields:
  - text: name
  - keyword: email
  - keyword: city
  - boolean: vip
  - count: order_count
    table: orders
    foreign_key: customer_id
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: customer_id
    order_by:
      - column: ordered_at
        direction: desc
    fields:
      - long: id
      - keyword: status
      - text: note
      - keyword: ordered_at
      - sum: pieces
        table: items
        foreign_key: order_id
        column: quantity
        value_type: long
      - has_many: items
        table: items
        primary_key: [order_id, line]
        foreign_key: order_id
        fields:
          - long: line
          - long: quantity
          - double: discount
          - belongs_to: product
            table: products
            primary_key: sku
            column: sku
            fields:
              - keyword: sku
              - text: title
              - decimal: price
"""


def prepare(directory: Path) -> Path:
    """A fresh shop and its tailrace.toml, whose path is returned. A directory that is not ours is refused."""
    config = directory / "tailrace.toml"
    if directory.exists() and any(directory.iterdir()):
        if not (config.is_file() and config.read_text(encoding="utf-8").startswith(_MARK)):
            raise ConfigError(
                f"{directory} is not the demonstration's directory, so it is left as it is",
                remedy=f"move {directory} away, or start the demonstration elsewhere",
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # First, so that a start that is interrupted here is known as ours.
    config.write_text(_CONFIG, encoding="utf-8")
    (directory / "customers.schema.yml").write_text(_SCHEMA, encoding="utf-8")
    shop.create(directory / "shop.db")
    return config
