"""Filters in PostgreSQL give what Spark would give, or more; never less."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tailrace.app import capture_for
from tailrace.capture.contract import Capture, Chunk
from tailrace.model.filters import Filter
from tailrace.model.table import TableRef, TableSchema
from tests.support.filtering import Filters, Row, passes
from tests.support.postgres import Database, Server

REF = TableRef("public", "t")
COLUMNS = {
    "yes": ("boolean", "NULL", "true", "false"),
    "small": ("smallint", "NULL", "-32768", "0", "1", "32767"),
    "whole": ("integer", "NULL", "-2147483648", "-1", "0", "7", "2147483647"),
    "big": ("bigint", "NULL", "-9223372036854775808", "0", "9007199254740993", "9223372036854775807"),
    "single": ("real", "NULL", "'NaN'", "'-Infinity'", "0.1", "'-0'", "0", "16777216", "1e-45"),
    "double": ("double precision", "NULL", "'NaN'", "'Infinity'", "0.1", "'-0'", "0", "0.30000000000000004"),
    "price": ("numeric(12,2)", "NULL", "0", "-1.10", "1.1", "9999999999.99"),
    "wide": ("numeric(38,10)", "NULL", "0.1", "0.0000000001", "1234567890123456789012345678.0000000001"),
    "any": ("numeric", "NULL", "1", "1.0", "'NaN'"),
    "day": ("date", "NULL", "'0001-01-01'", "'1999-12-31'", "'2024-02-29'", "'9999-12-31'"),
    "at": ("timestamptz", "NULL", "'1969-12-31 23:59:59.999999+00'", "'2024-03-31 02:30+02'", "'0001-02-03'"),
    "clock": ("timestamp", "NULL", "'1969-12-31 23:59:59.999999'", "'2024-03-31 02:30'", "'0001-01-01'"),
    "bytes": ("bytea", "NULL", "''", "'\\x00'", "'\\xff'", "'\\x00ff'", "'\\x7f80'"),
    "id": ("uuid", "NULL", "gen_random_uuid()", "'00000000-0000-0000-0000-00000000000a'"),
    "words": ("text", "NULL", "''", "'a'", "'A'", "'ä'", "'a '", "'a%b_c!'", "'it''s \\'", "'😀'", "'￿'"),
    "short": ("varchar(5)", "NULL", "''", "'a'", "'A'", "'b '", "'é'", "E'e\\u0301'"),
    "padded": ("char(4)", "NULL", "'a'", "'ab'", "'a  b'"),
    "loose": ('text COLLATE "loose"', "NULL", "'a'", "'A'", "'á'", "'b'"),
    "mood": ("mood", "NULL", "'happy'", "'sad'"),
    "pair": ("pair", "NULL", "ROW(NULL, NULL)", "ROW(1, NULL)", "ROW(1, 'x')"),
    "list": ("int[]", "NULL", "'{}'", "'{1,NULL}'"),
    "doc": ("jsonb", "NULL", "'null'", "'{\"a\": 1}'"),
    "own": ("positive", "NULL", "1", "2"),
    'odd "name%s': ("integer", "NULL", "1", "2"),
}


def made(database: Database, rows: int = 150) -> TableSchema:
    dice = random.Random(rows)
    names = ", ".join('"' + name.replace('"', '""') + f'" {kind[0]}' for name, kind in COLUMNS.items())
    values = [f"({i}, {', '.join(dice.choice(kind[1:]) for kind in COLUMNS.values())})" for i in range(rows)]
    with database.connect() as source:
        source.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        source.execute("CREATE TYPE pair AS (a int, b text)")
        source.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
        source.execute(
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        source.execute(f"CREATE TABLE t (key int PRIMARY KEY, {names})".encode())
        source.execute(f"INSERT INTO t VALUES {', '.join(values)}".encode())
    with closing(capture_for(database.url())) as capture:
        return capture.describe(REF)


def read(capture: Capture, table: TableSchema, where: str | None = None) -> list[Row]:
    batches = capture.snapshot(table, Chunk(REF, 0, where=where), position=0, seq=0)
    return [row for batch in batches for row in batch.data.column("after").to_pylist()]


def test_random_filters_lose_no_row_that_spark_would_keep(database: Database) -> None:
    table = made(database)
    pushed = exact = 0
    with closing(capture_for(database.url())) as capture:
        rows = read(capture, table)
        filters = Filters(rows, random.Random(20))
        for _ in range(250):
            asked = filters.some()
            condition = capture.condition(table, asked)
            if condition.sql is None:
                assert condition.exact == ()
                continue
            pushed += 1
            got = {row["key"] for row in read(capture, table, condition.sql)}
            wanted = {row["key"] for row in rows if all(passes(row, one) for one in asked)}
            sure = {row["key"] for row in rows if all(passes(row, one) for one in condition.exact)}
            assert wanted <= got, (asked, condition)
            assert got <= sure, (asked, condition)
            exact += set(condition.exact) == set(asked)
    assert pushed > 100
    assert exact > 40


UNSURE = [
    Filter("any", "=", "1"),
    Filter("padded", "=", "a"),
    Filter("mood", "<", "sad"),
    Filter("own", "=", 1),
    Filter("doc", "=", "null"),
    Filter("whole", "=", True),
    Filter("whole", "=", "1"),
    Filter("whole", "=", 2**64),
    Filter("yes", "=", 1),
    Filter("words", "=", "a\0"),
    Filter("id", "=", "not one"),
    Filter("id", "=", "00000000-0000-0000-0000-00000000000A"),
    Filter("whole", "in", tuple(range(5000))),
    Filter("whole", "in", (1, None), negated=True),
    Filter("whole", "=", None),
    Filter("nothing", "=", 1),
]


def test_a_filter_that_is_not_surely_the_same_is_left_to_spark(database: Database) -> None:
    table = made(database, 1)
    with closing(capture_for(database.url())) as capture:
        assert [one for one in UNSURE if capture.condition(table, [one]).sql is not None] == []


def conditions(database: Database, asked: Sequence[Filter], **settings: Any) -> list[str | None]:
    with closing(capture_for(database.url(), **settings)) as capture:
        return [capture.condition(capture.describe(REF), [one]).sql for one in asked]


def test_a_column_of_another_type_than_its_own_is_asked_for_null_only(database: Database) -> None:
    database.sql("CREATE TABLE t (key int PRIMARY KEY, n int)")
    found = conditions(database, [Filter("n", "=", "1"), Filter("n", "null")], types={"t.n": "string"})
    assert found == [None, '("n" IS NOT DISTINCT FROM NULL)']


def test_text_of_another_encoding_is_left_to_spark(postgres: Server) -> None:
    made = postgres.database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        made.sql("CREATE TABLE t (key int PRIMARY KEY, words text)")
        assert conditions(made, [Filter("words", "=", "\u20ac"), Filter("key", "=", 1)]) == [
            None,
            "(\"key\" = '1'::int8)",
        ]
    finally:
        made.drop()


def test_an_equal_text_is_found_by_the_columns_own_index(database: Database) -> None:
    database.sql(
        "CREATE TABLE t (key int PRIMARY KEY, words text)",
        "INSERT INTO t SELECT i, i::text FROM generate_series(1, 10000) i",
        "CREATE INDEX by_words ON t (words)",
        "ANALYZE t",
    )
    (where,) = conditions(database, [Filter("words", "=", "17")])
    assert "by_words" in str(database.rows(f"EXPLAIN SELECT * FROM t WHERE {where}"))
