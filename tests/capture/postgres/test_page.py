"""docs/postgres.md cannot lie: its grants are enough, its options are all there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.table import TableRef
from tests.docs.blocks import code_blocks
from tests.support.postgres import Database

ORDERS, CUSTOMERS = TableRef("public", "orders"), TableRef("public", "customers")


def page(root: Path) -> str:
    return (root / "docs/postgres.md").read_text(encoding="utf-8")


def test_every_option_is_documented_and_no_other(root: Path) -> None:
    table = page(root).split("### Options")[1].split("## Roles")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert documented == [f.name for f in fields(PostgresConfig) if f.name not in ("dsn", "name", "types")]


def test_the_grants_of_the_page_are_enough_and_none_is_too_much(root: Path, database: Database) -> None:
    database.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, a text)", "CREATE TABLE customers (id int PRIMARY KEY)"
    )
    database.sql(
        "INSERT INTO orders VALUES (1, 'x')", "REVOKE ALL ON orders, customers FROM tailrace, PUBLIC"
    )
    role, publish, _ = [block.body for block in code_blocks(page(root), "sql")]
    # The role of the page has a name of its own here: the one of the other tests has been granted more.
    name = f"r{database.name}"
    statements = role.replace("TO tailrace", f"TO {name}").replace("ROLE tailrace", f"ROLE {name}")
    statements = statements.replace("DATABASE shop", f"DATABASE {database.name}")
    config = PostgresConfig.from_url(database.socket_url(name))
    with database.admin() as admin:
        admin.execute(
            f"REVOKE ALL ON DATABASE {database.name} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC"
        )
        single = [statement.strip() for statement in statements.split(";") if statement.strip()]
        assert len(single) == 4
        for statement in single:
            admin.execute(statement)
    try:
        database.sql(publish)
        capture = PostgresCapture(config)
        found = [f for f in capture.coverage([ORDERS, CUSTOMERS]) if f.severity == "error"]
        assert found == []
        capture.register("documented")
        table = capture.describe(ORDERS)
        (chunk,) = capture.plan(ORDERS, rows_per_chunk=10)
        (batch,) = capture.snapshot(table, chunk, position=0, seq=0)
        assert batch.data.column("after").to_pylist() == [{"id": 1, "a": "x"}]
        capture.forget("documented")
        with database.admin() as admin:
            admin.execute(f"REVOKE SELECT ON orders FROM {name}")
        (lacking,) = [f for f in capture.coverage([ORDERS, CUSTOMERS]) if f.severity == "error"]
        assert lacking.remedy == f'GRANT SELECT ON "public"."orders" TO "{name}"'
    finally:
        with database.admin() as admin:
            admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
