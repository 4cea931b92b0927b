"""Whatever a role or database sets for its sessions: documents and affected keys are the same."""

from __future__ import annotations

from typing import Any

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.documents.plan import (
    Comparison,
    Constant,
    Expression,
    IndexPlan,
    Link,
    Member,
    Place,
    Related,
    Scalar,
)
from tailrace.documents.render import Keys, build_query
from tailrace.documents.resolve import Resolver
from tests.documents.resolving import PostgresWorld
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]

SETTINGS = {
    "DateStyle": "'German, DMY'",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "bytea_output": "escape",
    "IntervalStyle": "iso_8601",
    "TimeZone": "'Asia/Kolkata'",
    "extra_float_digits": "-3",
    "search_path": "''",
}
JOINED = ("ts", "b", "f", "d", "l")


def _plan(world: PostgresWorld) -> IndexPlan:
    table, child = world.described("r"), world.described("c")
    shown = [Member(c.name, Scalar(c.name, "custom", (), "d\\'", True)) for c in table.columns]
    related = [
        Member(
            f"by_{name}",
            Related(
                Place(
                    at,
                    (f"by_{name}",),
                    child,
                    ("id",),
                    (Member("n", Scalar("n", "long")),),
                    Link("has_many", (name,), (name,)),
                )
            ),
        )
        for at, name in enumerate(JOINED, 1)
    ]
    fixed = (Member("k", Constant("a\\'b")), Member("e", Expression("ts", "timestamp")))
    filters = (
        Comparison("d", "gte", "2024-03-01"),
        Comparison("ts", "gt", "2024-01-02 03:04:05"),
        Comparison("t", "like", "a\\\\b%"),
        Comparison("t", "neq", "x\\y"),
    )
    return IndexPlan("test", Place(0, (), table, ("id",), (*shown, *fixed, *related), filters=filters))


def _documents(world: PostgresWorld, plan: IndexPlan) -> list[dict[str, Any]]:
    """Those that a change of the child touches."""
    world.sql("UPDATE public.c SET id = id + 1")
    affected = Resolver(plan, "postgres").resolve(world.changes(), world.capture)
    query = build_query(plan, "postgres", Keys())
    batches = world.capture.query(query.sql, query.bind(affected.keys), query.columns)
    return [row for batch in batches for row in batch.to_pylist()]


def test_documents_do_not_depend_on_what_a_session_is_set_to(database: Database) -> None:
    world = PostgresWorld(
        database,
        "CREATE TABLE r (id int8 PRIMARY KEY, t text, b bytea, f float8, ts timestamptz, l timestamp, d date,"
        " iv interval, n numeric, g real, m money)",
        "CREATE TABLE c (id int PRIMARY KEY, n int, ts timestamptz, b bytea, f float8, d date, l timestamp)",
        "ALTER TABLE c REPLICA IDENTITY FULL",
    )
    world.sql(
        "INSERT INTO r VALUES (1, E'a\\\\b''c', decode('00ff5c', 'hex'), 0.1::float8 + 0.2,"
        " '2024-01-02 03:04:05.6+00', '2024-01-02 03:04:05', '2024-03-04', '1 day 02:00', 1.50, 0.1, 5)",
        "INSERT INTO c SELECT 1, 7, ts, b, f, d, l FROM r",
    )
    world.skip()
    plan = _plan(world)
    found = _documents(world, plan)
    assert [row["id"] for row in found] == ["1"]
    assert found[0]["document"].endswith(",".join(f'"by_{name}":[{{"n":7}}]' for name in JOINED) + "}")
    for name, value in SETTINGS.items():
        world.admin.execute(f"ALTER DATABASE {database.name} SET {name} = {value}".encode())
    world.capture.close()
    world.live = None
    world.capture = PostgresCapture(PostgresConfig.from_url(database.superuser_url()))
    assert _documents(world, plan) == found
    world.close()
