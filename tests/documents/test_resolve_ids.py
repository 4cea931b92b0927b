"""The ids of affected documents are those that documents are built with, for keys of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.documents.render.query import Keys, build_query
from tailrace.documents.resolve import Resolver
from tests.documents.resolving import Node, PostgresWorld, SqliteWorld, World
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]

CONTROLS = "".join(map(chr, range(1, 32))) + '"\\/\x7f\u2028'
# Each type of a key, and its values in SQL.
POSTGRES = {
    "int4": ("-1", "2147483647"),
    "int8": ("9223372036854775807", "0"),
    "text": ("'it''s'", "''", "'[1]'", "'a \"b\" \\ %s'", "'é😀'", f"'{CONTROLS}'"),
    "char(4)": ("'ab'",),
    "varchar(20)": ("' x '",),
    "uuid": ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",),
    "date": ("'2026-01-02'", "'infinity'", "'0044-03-15 BC'", "'10000-01-01'"),
    "mood": ("'so-so'",),
    "bool": ("true", "false"),
    "numeric(10,3)": ("1.5", "-0.001", "100"),
    "numeric": ("1.50", "12345678901234567890123456789.1", "'NaN'", "100"),
    "timestamptz": ("'2026-01-02 03:04:05.600+02'", "'2026-01-02 00:00:00Z'", "'-infinity'"),
    "timestamp": ("'2026-01-02 03:04:05'",),
    "bytea": ("'\\x00ff'",),
    "float8": ("0.5", "1", "1e20", "1e-7", "1234567890123456", "1e15", "123456789012345", "'NaN'", "'inf'"),
    "bit(3)": ("B'101'", "B'100'"),
    "interval": ("'1 day'", "'1 mon -2 hours'"),
    "time": ("'10:20:30.5'",),
    "inet": ("'10.0.0.1'", "'10.0.0.0/8'"),
    "money": ("5", "-1234.5"),
    "jsonb": ("'{\"a\": [1.50]}'",),
    "text[]": ("'{a,\"b c\",NULL}'",),
    "int4range": ("'[1,5)'",),
    "oid": ("7",),
    "positive": ("7",),
    "code": ("'x y'",),
    '"char"': ("'x'",),
    "real": ("0.1", "1e6", "123456", "1e-5", "0.0001", "-16777216"),
}
TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'so-so')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN code AS varchar(5)",
)
# Any column holds anything.
SQLITE = {
    "INTEGER": ("-1", "9223372036854775807"),
    "INT": ("'x'", "1.5", "x'00ff'"),
    "TEXT": (
        "'it''s'",
        "''",
        "'é😀'",
        "'2026-01-02'",
        "'a' || char(0) || 'b'",
        f"'{CONTROLS}'",
        "x'ff'",
        "CAST(x'41ff' AS TEXT)",
    ),
    "BLOB": ("x'00ff'", "'text'", "7"),
    "BOOLEAN": ("1", "0", "2", "'yes'"),
    "DECIMAL(12,6)": ("1.5", "3", "0.000001", "0.0000005", "'x'"),
    "REAL": ("0.1", "1e16", "1e15", "1e-5", "5", "9e999"),
    "NUMERIC": ("5", "1.5", "9007199254740993"),
    "UUID": ("'ABC'", "'abc'", "x'000102030405060708090a0b0c0d0e0f'"),
    "": ("5", "'x'", "1.5", "x'ff'"),
    "DATETIME": ("1704164645", "'2026-01-02 03:04:05'"),
}


def disagreeing(world: World, kinds: dict[str, tuple[str, ...]]) -> list[str]:
    """Where the ids of inserted keys are not those of their documents."""
    found = []
    for at, kind in enumerate(kinds):
        table, pair = f"t{at}", f"p{at}"
        for name in (table, pair):
            plan = world.plan(Node(name))
            values = [f"({value}{', 7' if name == pair else ''})" for value in kinds[kind]]
            world.sql(f"INSERT INTO {name} VALUES {', '.join(values)}")
            affected = Resolver(plan, world.capture.dialect).resolve(world.changes(), world.capture)
            query = build_query(plan, world.capture.dialect, Keys())
            batches = world.capture.query(query.sql, query.bind(affected.keys), query.columns)
            built = [one for batch in batches for one in batch.column("id").to_pylist()]
            if sorted(built) != sorted(affected.ids.to_pylist()) or len(built) != len(kinds[kind]):
                found.append(f"{kind}: built {built}, affected {affected.ids.to_pylist()}")
    return found


def ddl(kinds: dict[str, tuple[str, ...]]) -> list[str]:
    made = []
    for at, kind in enumerate(kinds):
        made.append(f"CREATE TABLE t{at} (k {kind} PRIMARY KEY)")
        made.append(f"CREATE TABLE p{at} (k {kind}, i integer, PRIMARY KEY (k, i))")
    return made


def test_ids_agree_on_postgres(database: Database) -> None:
    world = PostgresWorld(database, *TYPES, *ddl(POSTGRES))
    assert "\n".join(disagreeing(world, POSTGRES)) == ""
    world.capture.close()
    if world.live is not None:
        world.live.close()  # type: ignore[attr-defined]


def test_ids_agree_on_sqlite(tmp_path: Path) -> None:
    world = SqliteWorld(tmp_path / "a.db", *ddl(SQLITE))
    try:
        assert "\n".join(disagreeing(world, SQLITE)) == ""
    finally:
        world.close()


@pytest.mark.long
def test_ids_agree_for_a_table_of_many_rows(database: Database) -> None:
    world = PostgresWorld(database, "CREATE TABLE t (a text, b date, PRIMARY KEY (a, b))")
    plan = world.plan(Node("t"))
    world.sql("INSERT INTO t SELECT 'x' || i, date '2026-01-01' + i FROM generate_series(1, 100000) i")
    affected = Resolver(plan, "postgres").resolve(world.changes(), world.capture)
    assert len(affected) == 100_000
    query = build_query(plan, "postgres", Keys())
    batches = world.capture.query(query.sql, query.bind(affected.keys), query.columns)
    built = {one for batch in batches for one in batch.column("id").to_pylist()}
    assert built == set(affected.ids.to_pylist())
    world.capture.close()
