"""Chunks hold every row once, whatever the key: its type, gaps, skew, and rows that come after the plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import catalog, chunks, snapshot
from tailrace.capture.postgres.client import session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import ConfigError, NeedsOperator, StateUnreadable
from tailrace.model.table import TableRef
from tests.capture.postgres.reading import batches, described, rows
from tests.capture.postgres.values import SETUP, TYPES
from tests.support.postgres import Database, Server

pytestmark = pytest.mark.timeout(120)
QUICK = settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
KEYS = (
    *("int8", "numeric", "float8", "text", 'text COLLATE "C"', "text COLLATE german", "char(5)", "uuid"),
    *("ext.citext", "bytea", "date", "timestamptz", "interval", "mood", "label", "jsonb", "inet", "int4[]"),
    *("pair", "numrange", "money", "boolean", "varbit", "text COLLATE nocase", "float4", "numeric(38,10)"),
    *("price", "timestamp", "timetz", "int4multirange", "name"),
)


@pytest.fixture
def config(database: Database) -> PostgresConfig:
    return PostgresConfig.from_url(database.url())


def planned(config: PostgresConfig, name: str, size: int, nbytes: int | None = None) -> list[Chunk]:
    """A plan as it comes out of the state: bounds travel as JSON."""
    found = snapshot.plan(config, TableRef("public", name), size, nbytes)
    return [replace(chunk, bounds=json.loads(json.dumps(chunk.bounds))) for chunk in found]


def ids(config: PostgresConfig, name: str, plan: list[Chunk], column: str = "id") -> list[list[Any]]:
    table = described(config, name)
    return [[row[column] for row in rows(batches(config, table, chunk))] for chunk in plan]


def every(database: Database, name: str, column: str = "id") -> Counter[Any]:
    return Counter(value for (value,) in database.rows(f"SELECT {column} FROM {name}"))


def union(parts: list[list[Any]]) -> Counter[Any]:
    return Counter(value for part in parts for value in part)


@pytest.fixture(scope="module")
def keyed(postgres: Server) -> Iterator[Database]:
    """A table for each kind of key."""
    made = postgres.database()
    made.sql(
        *SETUP,
        "CREATE COLLATION german (provider = icu, locale = 'de-u-kn')",
        # Texts that differ in bytes are equal here.
        "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    )
    for place, kind in enumerate(KEYS):
        made.app.execute(f"CREATE TABLE t{place} (k {kind}, j int, id serial, PRIMARY KEY (k, j))")
    yield made
    made.drop()


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_cuts_the_table_cleanly(kind: str, keyed: Database) -> None:
    config = PostgresConfig.from_url(keyed.url())
    name = f"t{KEYS.index(kind)}"
    plain = kind.partition(" COLLATE")[0]
    strategy = TYPES[plain]

    @QUICK
    @given(
        found=st.lists(st.tuples(strategy, st.integers(-3, 3)), max_size=20),
        later=st.lists(st.tuples(strategy, st.integers(-3, 3)), max_size=10),
        size=st.integers(2, 9),
    )
    def cuts(found: list[tuple[str, int]], later: list[tuple[str, int]], size: int) -> None:
        keyed.sql(f"TRUNCATE {name}")
        add = f"INSERT INTO {name} (k, j) VALUES (CAST(%s AS {plain}), %s) ON CONFLICT DO NOTHING"
        with keyed.app.cursor() as cursor:
            cursor.executemany(add, found)
        plan = planned(config, name, size)
        before = ids(config, name, plan)
        assert union(before) == every(keyed, name)
        assert all(len(part) == size for part in before[:-1])
        assert [chunk.rows for chunk in plan] == [len(part) for part in before]
        assert len(before[-1]) > 0 or len(plan) == 1
        with keyed.app.cursor() as cursor:
            cursor.executemany(add, later)
        assert union(ids(config, name, plan)) == every(keyed, name)

    cuts()


def test_an_empty_table_is_one_chunk_which_later_rows_are_in(
    database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)")
    plan = planned(config, "t", 10)
    assert [(chunk.index, chunk.rows) for chunk in plan] == [(0, 0)]
    database.sql("INSERT INTO t VALUES (-5), (7)")
    assert sorted(ids(config, "t", plan)[0]) == [-5, 7]


def test_a_large_table_is_cut_evenly_by_a_sample_in_spite_of_gaps_and_skew(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (tenant text, id int8, pad text, PRIMARY KEY (tenant, id))",
        # Nine tenths belong to one tenant; the ids are dense, then have gaps of a million.
        "INSERT INTO t SELECT CASE WHEN i % 10 = 0 THEN 'tenant ' || i ELSE 'big' END,"
        " CASE WHEN i < 30000 THEN i ELSE i::int8 * 1000000 END, repeat('x', 400)"
        " FROM generate_series(1, 60000) i ORDER BY random()",
        "ANALYZE t",
    )
    with session(config) as connection:
        snapshot.begin(connection)
        plan = chunks.plan(
            connection, catalog.existing(connection, TableRef("public", "t")), 6000, all_keys=1000
        )
    parts = ids(config, "t", plan)
    assert union(parts) == every(database, "t")
    assert 8 <= len(plan) <= 12
    assert max(map(len, parts)) < 9000
    assert min(map(len, parts)) > 3000
    assert 50_000 < sum(chunk.rows for chunk in plan) < 70_000
    assert all(len(chunk.bounds["from"] or "ab") == 2 for chunk in plan)


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "CHECK (true)"])
def test_a_partitioned_table_is_cut_by_its_root(key: str, database: Database, config: PostgresConfig) -> None:
    database.sql(
        f"CREATE TABLE t (id int, pad text, {key}) PARTITION BY RANGE (id)",
        "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (MINVALUE) TO (1000)",
        "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (1000) TO (5000) PARTITION BY LIST (id)",
        "CREATE TABLE t_rest PARTITION OF t_high DEFAULT",
        "INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 4000) i",
        "ANALYZE t",
    )
    plan = planned(config, "t", 500)
    assert len(plan) >= 6
    parts = ids(config, "t", plan)
    assert union(parts) == every(database, "t")
    assert max(map(len, parts)) < 1200


def test_a_table_without_a_key_is_cut_by_the_place_of_its_rows(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int, pad text)",
        "INSERT INTO t SELECT i % 1000, repeat('x', 300) FROM generate_series(1, 5000) i",
        "DELETE FROM t WHERE id < 100",
        "ANALYZE t",
    )
    plan = planned(config, "t", 1000)
    assert 4 <= len(plan) <= 6
    assert union(ids(config, "t", plan)) == every(database, "t")
    database.sql("INSERT INTO t SELECT i, 'later' FROM generate_series(1, 3000) i")
    assert union(ids(config, "t", plan)) == every(database, "t")


def test_a_rewrite_of_a_table_without_a_key_stops_its_snapshot(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int, pad text)",
        "INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 2000) i",
        "ANALYZE t",
    )
    plan = planned(config, "t", 500)
    assert len(plan) > 1
    database.sql("VACUUM FULL t")
    with pytest.raises(NeedsOperator, match="was rewritten during its snapshot") as caught:
        ids(config, "t", plan)
    assert "tailrace snapshot --table public.t" in str(caught.value.remedy)


def test_a_unique_index_without_nulls_serves_where_there_is_no_primary_key(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int NOT NULL, maybe int UNIQUE, part int NOT NULL, UNIQUE (id))",
        "CREATE UNIQUE INDEX partial ON t (part) WHERE part > 5",
        "INSERT INTO t SELECT i, NULL, i FROM generate_series(1, 100) i",
    )
    plan = planned(config, "t", 30)
    assert [chunk.bounds for chunk in plan] == [
        {"from": None, "below": ["31"]},
        {"from": ["31"], "below": ["61"]},
        {"from": ["61"], "below": ["91"]},
        {"from": ["91"], "below": None},
    ]
    assert union(ids(config, "t", plan)) == every(database, "t")


def test_names_of_any_characters_are_cut_and_read(database: Database, config: PostgresConfig) -> None:
    columns = ("place", "total", "k1", "100%", "%s", 'q"q', "two words", "n")
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    typed = ", ".join('"' + name.replace('"', '""') + '" int' for name in columns)
    database.app.execute(f"CREATE TABLE t ({typed}, id int, PRIMARY KEY ({listed}))")
    database.app.execute("INSERT INTO t SELECT 1, 1, 1, 1, i % 3, 1, 1, i, i FROM generate_series(1, 50) i")
    for all_keys in (10**6, -1):
        with session(config) as connection:
            snapshot.begin(connection)
            found = catalog.existing(connection, TableRef("public", "t"))
            plan = chunks.plan(connection, found, 7 if all_keys > 0 else 10**4, all_keys=all_keys)
        assert union(ids(config, "t", plan)) == every(database, "t")


def test_a_key_whose_operators_the_role_cannot_reach_is_refused_with_the_grant(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE SCHEMA ext",
        "CREATE EXTENSION citext SCHEMA ext",
        "CREATE TABLE t (id ext.citext PRIMARY KEY)",
        "INSERT INTO t VALUES ('a'), ('B'), ('c'), ('D')",
    )
    with pytest.raises(NeedsOperator) as caught:
        planned(config, "t", 1)
    assert caught.value.remedy == 'GRANT USAGE ON SCHEMA "ext" TO "tailrace"'
    database.sql(str(caught.value.remedy))
    assert ids(config, "t", planned(config, "t", 1)) == [["a"], ["B"], ["c"], ["D"]]


def test_a_plan_of_no_rows_a_chunk_and_a_bound_of_another_key_are_refused(
    database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(ConfigError):
        planned(config, "t", 0)
    chunk = Chunk(TableRef("public", "t"), 0, {"from": ["1", "2"], "below": None})
    with pytest.raises(StateUnreadable):
        ids(config, "t", [chunk])


WIDE = "repeat(md5(i::text), 300)"


@pytest.mark.parametrize("key", ["id int PRIMARY KEY", "id int"])
@pytest.mark.parametrize("analysed", [True, False])
def test_rows_of_many_bytes_make_chunks_of_fewer_rows(
    key: str, analysed: bool, database: Database, config: PostgresConfig
) -> None:
    database.sql(
        f"CREATE TABLE t ({key}, a text)",
        # As it is, so that its size is known.
        "ALTER TABLE t ALTER a SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT i, {WIDE} FROM generate_series(1, 500) i",
        *(["ANALYZE t"] if analysed else []),
    )
    plan = planned(config, "t", 100_000, 480_000)
    parts = ids(config, "t", plan)
    assert union(parts) == every(database, "t")
    # Rows of 9,600 bytes: 50 a chunk. Without a key it has at least a block of rows, which here are pointers.
    most = 2 if analysed and "KEY" in key else 4
    assert 50 / most <= max(map(len, parts)) <= 50 * most, [len(part) for part in parts]


def test_large_values_of_partitions_count_too(database: Database, config: PostgresConfig) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (250)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (250) TO (1000)",
        "ALTER TABLE t1 ALTER a SET STORAGE EXTERNAL",
        "ALTER TABLE t2 ALTER a SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT i, {WIDE} FROM generate_series(1, 500) i",
        "ANALYZE t",
    )
    parts = ids(config, "t", planned(config, "t", 100_000, 480_000))
    assert union(parts) == every(database, "t")
    assert 25 <= max(map(len, parts)) <= 100


def test_rows_of_few_bytes_make_chunks_of_the_rows_asked_for(
    database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 1000)")
    assert [len(part) for part in ids(config, "t", planned(config, "t", 300, 10**9))] == [300, 300, 300, 100]


def test_no_chunk_is_smaller_than_a_row(database: Database, config: PostgresConfig) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 3)")
    parts = ids(config, "t", planned(config, "t", 300, 1))
    assert union(parts) == every(database, "t")
    with pytest.raises(ConfigError):
        planned(config, "t", 300, 0)


@pytest.mark.parametrize("key", ["id int PRIMARY KEY", "id int"])
def test_statistics_of_a_table_when_it_was_empty_do_not_cut_it_row_by_row_nor_into_one(
    key: str, database: Database, config: PostgresConfig
) -> None:
    fill = "INSERT INTO t SELECT i, repeat('x', 90) FROM generate_series(1, 20000) i"
    database.sql(
        f"CREATE TABLE t ({key}, a text) WITH (autovacuum_enabled = off)",
        fill,
        "DELETE FROM t",
        # Its blocks stay, so that the catalog says: so many of them, and no row.
        "VACUUM (TRUNCATE false) t",
        fill,
    )
    assert database.rows("SELECT reltuples::int, relpages > 100 FROM pg_class WHERE relname = 't'") == [
        (0, True)
    ]
    parts = ids(config, "t", planned(config, "t", 100_000, 1_000_000))
    assert union(parts) == every(database, "t")
    # About 2.6 MB. As if a block had one row, where nothing else is known.
    assert 3 <= len(parts) <= 200
