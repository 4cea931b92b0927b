"""Odd names, wide and deep documents, keys of any kind, and what cannot be built: on every engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tailrace.documents.plan import (
    Member,
    Order,
    Raw,
    Scalar,
)
from tailrace.documents.render import Keys, Range, build_query
from tailrace.model.errors import ConfigError, UsageError
from tests.documents.rendering import (
    Build,
    PostgresSource,
    Source,
    SparkEngine,
    SqliteSource,
    aggregate,
    place,
    related,
    root,
    scalars,
)

if TYPE_CHECKING:
    pass


def test_is_not_misled_by_names_that_quotes_and_keywords_are_in(source: Source, build: Build) -> None:
    table, key, other = 'or"der %s', 'se"lect', "c0 :x ?1"
    named = [name.replace('"', '""') for name in (table, key, other)]
    source.sql('CREATE TABLE "{}" ("{}" int PRIMARY KEY, "{}" text, "l0" int)'.format(*named))
    source.insert(table, (1, "x", 1))
    made = source.table(table)
    long = 'n"' * 50
    plan = root(
        made,
        Member(long, Scalar(other, "text")),
        related(
            "{}", "has_many", made, Member("'", Scalar(key, "long")), parent=key, own="l0",
            filters=(Raw('l0 = 1 AND "c0 :x ?1" <> \'%s\''),),
        ),
    )  # fmt: skip
    assert build(plan) == {"1": {long: "x", "{}": [{"'": 1}]}}
    assert build(plan, pa.table({key: pa.array([1], pa.int32())})) == {"1": {long: "x", "{}": [{"'": 1}]}}


def test_takes_a_hundred_and_fifty_columns_and_eighty_relations(source: Source, build: Build) -> None:
    columns = ", ".join(f"v{at} int" for at in range(150))
    source.sql(f"CREATE TABLE a (id int PRIMARY KEY, {columns})")
    source.insert("a", (1, *range(150)))
    a = source.table("a")
    wide = scalars(a, **{f"v{at}": "long" for at in range(150)})
    many = [
        related(f"r{at}", "has_many", a, Member("x", Scalar(f"v{at}", "long")), parent="id", own="id")
        for at in range(80)
    ]
    assert build(root(a, *wide)) == {"1": {f"v{at}": at for at in range(150)}}
    if not isinstance(getattr(build, "__self__", None), SparkEngine):
        inner = related("again", "has_one", a, *many, parent="id", own="id")
        found = build(root(a, *many, inner))["1"]
        expected = {f"r{at}": [{"x": at}] for at in range(80)}
        assert found == {**expected, "again": expected}


def test_goes_ten_levels_deep(source: Source, build: Build) -> None:
    source.sql("CREATE TABLE a (id int PRIMARY KEY, up int)")
    source.insert("a", *((at, at - 1) for at in range(1, 13)))
    a = source.table("a")
    members = scalars(a, id="long")
    for _ in range(10):
        members = [*scalars(a, id="long"), related("below", "has_many", a, *members, parent="id", own="up")]
    found = build(root(a, *members))
    deepest, depth = found["1"], 0
    while deepest["below"]:
        deepest, depth = deepest["below"][0], depth + 1
        if "below" not in deepest:
            break
    assert (depth, deepest["id"]) == (10, 11)


def test_refuses_what_it_cannot_build() -> None:
    source = SqliteSource()
    source.sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE keyless (x int)")
    plan = root(source.table("a"))
    with pytest.raises(ConfigError, match="known"):
        build_query(plan, "oracle")
    with pytest.raises(ConfigError, match="primary key"):
        build_query(root(source.table("keyless"), key=()), "sqlite")
    with pytest.raises(ConfigError, match="view"):
        build_query(plan, "spark", source="sqlite")
    with pytest.raises(ConfigError, match="view"):
        build_query(plan, "spark", source="sqlite", views={})
    with pytest.raises(ConfigError, match="come from"):
        build_query(plan, "spark", views={})
    for sql in ("1 = 1) OR (1 = 1", "1; 2", "(1", "", "'x"):
        with pytest.raises(ConfigError, match="not one expression"):
            build_query(root(source.table("a"), filters=(Raw(sql),)), "sqlite")
    with pytest.raises(UsageError):
        build_query(plan, "sqlite", Keys()).bind()
    with pytest.raises(UsageError):
        build_query(plan, "sqlite").bind(pa.table({"id": [1]}))
    with pytest.raises(UsageError):
        build_query(plan, "sqlite", Range()).bind_range((1,))


def test_builds_by_keys_that_their_type_cannot_hold(shared: PostgresSource) -> None:
    shared.sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "CREATE TABLE t (d date PRIMARY KEY)")
    shared.insert("t", ("infinity",), ("0044-03-15 BC",), ("2024-01-01",))
    table = shared.table("t")
    texts = ["infinity", "0044-03-15 BC", "2024-01-01", "-infinity"]
    typed = pa.array([None, None, date(2024, 1, 1), None], pa.date32())
    plan = root(table, *scalars(table, d="date"))
    assert shared.documents(plan, pa.table({"d": typed, "d:text": texts})) == {
        "infinity": {"d": None},
        "0044-03-15 BC": {"d": None},
        "2024-01-01": {"d": "2024-01-01"},
    }


def test_asks_by_index_for_a_few_keys_of_large_tables(shared: PostgresSource) -> None:
    shared.sql(
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "CREATE TABLE a (id int PRIMARY KEY, b bigint)",
        "CREATE TABLE b (id bigint PRIMARY KEY, a int, c int)",
        "CREATE INDEX ON b (a)",
        "INSERT INTO a SELECT n, n % 100 FROM generate_series(1, 20000) n",
        "INSERT INTO b SELECT n, n % 20000, n FROM generate_series(1, 20000) n",
        "ANALYZE",
    )
    lite = SqliteSource()
    lite.sql(
        "CREATE TABLE a (id integer PRIMARY KEY, b integer)",
        "CREATE TABLE b (id integer PRIMARY KEY, a integer, c integer)",
        "CREATE INDEX of_a ON b (a)",
    )
    for source in (shared, lite):
        a, b = source.table("a"), source.table("b")
        below = place("x", "has_many", b, parent="id", own="a")
        plan = root(
            a,
            related(
                "b", "has_many", b, *scalars(b, c="long"),
                related("a", "belongs_to", a, *scalars(a, id="long"), parent="a", own="id"),
                parent="id", own="a", order=(Order("c", True),), limit=2, filters=(Raw("c > 1"),),
            ),
            related("up", "belongs_to", b, *scalars(b, c="long"), parent="b", own="id"),
            aggregate("n", "count", below),
        )  # fmt: skip
        query = build_query(plan, source.dialect, Keys())
        parameters = query.bind(pa.table({"id": pa.array([5, 7], pa.int32())}))
        explain = "EXPLAIN " if source is shared else "EXPLAIN QUERY PLAN "
        steps = [str(row) for row in source.run(replace(query, sql=explain + query.sql), parameters)]
        scanned = [step for step in steps if "Seq Scan" in step or ("SCAN a" in step or "SCAN b" in step)]
        assert scanned == []
