"""The demonstration's directory: made anew each time, and never somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from tailrace.config import Config, load_config
from tailrace.model.errors import ConfigError

MARK = "# Tailrace's demonstration: this directory is made anew at each start.\n"
# What every demonstration has. For a short run the JVM compiles quickly instead of well, and starts sooner.
_COMMON = """
name = "demo"

[spark]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

[[index]]
name = "customers"
schema = "customers.schema.yml"
"""
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


def prepare(directory: Path) -> None:
    """An empty directory that is known as ours. One that is not ours is refused."""
    config = directory / "tailrace.toml"
    if directory.exists() and any(directory.iterdir()):
        if not (config.is_file() and config.read_text(encoding="utf-8").startswith(MARK)):
            raise ConfigError(
                f"{directory} is not the demonstration's directory, so it is left as it is",
                remedy=f"move {directory} away, or start the demonstration elsewhere",
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # First, so that a start that is interrupted is known as ours.
    config.write_text(MARK, encoding="utf-8")


def configure(directory: Path, text: str) -> Config:
    """The pipeline of a prepared directory: `text` says from where, and into what."""
    (directory / "customers.schema.yml").write_text(_SCHEMA, encoding="utf-8")
    config = directory / "tailrace.toml"
    config.write_text(MARK + _COMMON + text, encoding="utf-8")
    return load_config(config, environ={})
