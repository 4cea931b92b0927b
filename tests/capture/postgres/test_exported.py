"""A moment: what several connections read by it is what was there when it began, all of it or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tailrace.app import capture_for
from tailrace.capture.contract import Capture, Chunk
from tailrace.model.errors import SchemaDrift, UsageError
from tailrace.model.table import TableRef, TableSchema
from tests.support.postgres import Database
from tests.support.waiting import wait_until

REF = TableRef("public", "t")
ROWS = [
    "CREATE TABLE t (id int PRIMARY KEY, n int)",
    "INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i",
]


@pytest.fixture
def capture(database: Database) -> Iterator[Capture]:
    with closing(capture_for(database.url())) as made:
        yield made


def read(capture: Capture, table: TableSchema, moment: str, parts: int = 1) -> list[dict[str, Any]]:
    chunks = [Chunk(REF, 0)] if parts == 1 else capture.plan(REF, rows_per_chunk=-(-100 // parts))
    return [
        row
        for chunk in chunks
        for batch in capture.snapshot(table, replace(chunk, moment=moment), position=0, seq=0)
        for row in batch.data.column("after").to_pylist()
    ]


def holders(database: Database) -> int:
    query = (
        "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
    )
    with database.admin() as admin:
        return len(admin.execute(query).fetchall())


def test_what_is_written_after_a_moment_is_not_in_it(database: Database, capture: Capture) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with capture.moment() as moment:
        for step in range(3):
            database.sql(
                "UPDATE t SET n = n + 1",
                f"DELETE FROM t WHERE id = {step + 1}",
                f"UPDATE t SET id = id + 1000 WHERE id = {50 + step}",
                f"INSERT INTO t VALUES ({200 + step}, 0)",
            )
            found = read(capture, table, moment, parts=4)
            assert sorted((row["id"], row["n"]) for row in found) == [(i, 0) for i in range(1, 101)]
    assert holders(database) == 0


def test_a_moment_outlives_the_patience_of_the_server(database: Database, capture: Capture) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with database.admin() as admin:
        role = f"ALTER ROLE tailrace IN DATABASE {database.name}"
        admin.execute(f"{role} SET idle_in_transaction_session_timeout = '50ms'")
    with capture.moment() as moment:
        began = database.rows("SELECT clock_timestamp()")[0][0]
        wait_until(
            lambda: (database.rows("SELECT clock_timestamp()")[0][0] - began).total_seconds() > 0.3,
            timeout=10,
            what="the server's patience to be over",
        )
        assert len(read(capture, table, moment)) == 100


def test_a_read_after_the_block_says_that_the_moment_has_ended(database: Database, capture: Capture) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with capture.moment() as moment:
        pass
    with pytest.raises(UsageError, match="has ended") as caught:
        read(capture, table, moment)
    assert "inside" in str(caught.value.remedy)
    with pytest.raises(UsageError, match="not the id"):
        read(capture, table, "'; DROP TABLE t; --")


def test_the_transaction_ends_with_the_block_whatever_happens_in_it(
    database: Database, capture: Capture
) -> None:
    database.sql(*ROWS)

    def fail() -> None:
        with capture.moment():
            assert holders(database) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    wait_until(lambda: holders(database) == 0, timeout=10, what="the end of the transaction")


def test_the_id_of_another_snapshot_is_never_taken_for_ours(database: Database, capture: Capture) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with capture.moment() as first:
        database.sql("INSERT INTO t VALUES (500, 0)")
        with capture.moment() as second:
            mixed = second.partition("/")[0] + "/" + first.partition("/")[2]
            with pytest.raises(UsageError, match="has ended"):
                read(capture, table, mixed)


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE t",
        "ALTER TABLE t ALTER n TYPE bigint",
        "TRUNCATE t; INSERT INTO t VALUES (1, 1)",
        "VACUUM FULL t",
        "DROP TABLE t",
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n int)",
        "ALTER TABLE t RENAME TO former; CREATE TABLE t (id int PRIMARY KEY, n int)",
        "ALTER TABLE t RENAME id TO m; ALTER TABLE t RENAME n TO id; ALTER TABLE t RENAME m TO n",
    ],
)
def test_a_table_that_was_rewritten_since_is_refused_not_empty(
    database: Database, capture: Capture, change: str
) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with capture.moment() as moment:
        database.sql(*change.split("; "))
        with pytest.raises(SchemaDrift):
            read(capture, table, moment)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DETACH PARTITION low",
        "ALTER TABLE t ATTACH PARTITION other FOR VALUES FROM (1000) TO (2000)",
        "TRUNCATE low",
        "CREATE TABLE newer PARTITION OF t FOR VALUES FROM (5000) TO (6000)",
    ],
)
def test_a_partitioned_table_has_the_partitions_of_the_moment(
    database: Database, capture: Capture, change: str
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (50) TO (500)",
        "CREATE TABLE other (id int PRIMARY KEY, n int)",
        "INSERT INTO other VALUES (1000, 0)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i",
    )
    table = capture.describe(REF)
    with capture.moment() as moment:
        assert len(read(capture, table, moment, parts=3)) == 100
        database.sql(change)
        with pytest.raises(SchemaDrift, match="since its moment"):
            read(capture, table, moment)


def test_an_added_column_is_none_of_a_moment_before_it(database: Database, capture: Capture) -> None:
    database.sql(*ROWS)
    table = capture.describe(REF)
    with capture.moment() as moment:
        database.sql("ALTER TABLE t ADD COLUMN more int DEFAULT 5")
        assert len(read(capture, table, moment)) == 100
