"""Reading a chunk: its batches, its columns, what stops it, and what it never does."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import PostgresCapture, client, kept, snapshot
from tailrace.capture.postgres.client import session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.copying import buffers
from tailrace.capture.postgres.framed import LEAD
from tailrace.model.errors import ConfigError, NeedsOperator, SchemaDrift, Transient
from tailrace.model.table import TableRef
from tests.capture.postgres.reading import batches, described, read_all, rows
from tests.support.postgres import Database, Server
from tests.support.waiting import wait_until

WHOLE = Chunk(TableRef("public", "t"), 0, {"from": None, "below": None})
ALTERED = [
    "ALTER TABLE t DROP COLUMN a",
    "ALTER TABLE t RENAME COLUMN a TO b",
    "ALTER TABLE t ALTER COLUMN a TYPE bigint",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t RENAME TO elsewhere",
    "DROP TABLE t",
    "DROP TABLE t; CREATE VIEW t AS SELECT 1 AS id, 2 AS a",
]


@pytest.fixture
def config(database: Database) -> PostgresConfig:
    return PostgresConfig.from_url(database.url())


def sessions(database: Database) -> int:
    (count,) = database.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'tailrace' AND datname = current_database()"
    )[0]
    return int(count)


def test_rows_are_numbered_reads_at_the_position_asked_for(
    database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    before = time.time()
    (batch,) = snapshot.read(config, described(config, "t"), WHOLE, position=42, seq=100)
    data = batch.data.to_pydict()
    assert data["op"] == ["r", "r"]
    assert data["position"] == [42, 42]
    assert data["seq"] == [100, 101]
    assert data["xid"] == data["before"] == [None, None]
    assert data["after"] == [{"id": 1, "a": "x"}, {"id": 2, "a": None}]
    assert before - 1 <= data["ts"][0].timestamp() <= time.time() + 1


def test_batches_are_bounded_by_bytes_and_numbered_through(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 150000) i",
    )
    table = described(config, "t")
    found = batches(config, table, WHOLE)
    assert len(found) > 2
    seqs = [seq for batch in found for seq in batch.data.column("seq").to_pylist()]
    assert seqs == list(range(150_000))
    small = PostgresConfig.from_url(database.url(), {"batch_bytes": 100_000})
    assert max(batch.nbytes for batch in batches(small, table, WHOLE)) < 400_000


def test_only_the_columns_asked_for_are_read_and_may_be_read(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text, secret text)",
        "INSERT INTO t VALUES (1, 'x', 'y')",
        "REVOKE ALL ON t FROM tailrace",
        "GRANT SELECT (id, a) ON t TO tailrace",
    )
    table = described(config, "t")
    found = batches(config, table, WHOLE, columns=["a", "id"])
    assert rows(found) == [{"a": "x", "id": 1}]
    assert [column.name for column in found[0].table.columns] == ["a", "id"]
    with pytest.raises(ConfigError, match="no column nope"):
        batches(config, table, WHOLE, columns=["id", "nope"])
    with pytest.raises(NeedsOperator) as caught:
        batches(config, table, WHOLE)
    assert caught.value.remedy == 'GRANT SELECT ON "public"."t" TO "tailrace"'


@pytest.mark.parametrize("change", ALTERED)
def test_a_table_that_lost_a_column_or_its_key_is_drift(
    change: str, database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 2)")
    table = described(config, "t")
    database.sql(change)
    with pytest.raises(SchemaDrift, match=r"public\.t"):
        batches(config, table, WHOLE)


@pytest.mark.parametrize(
    "change",
    [*ALTERED, "DROP TABLE t; CREATE TABLE t (id int, a int PRIMARY KEY); INSERT INTO t VALUES (1, 2)"],
)
def test_a_table_that_is_altered_between_two_chunks_of_one_connection_is_drift(
    change: str, database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 2)")
    table = described(config, "t")
    capture = PostgresCapture(config)
    with capture.together():
        for _ in range(2):
            assert rows(list(capture.snapshot(table, WHOLE, position=1, seq=1))) == [{"id": 1, "a": 2}]
        database.sql(change)
        with pytest.raises(SchemaDrift, match=r"public\.t"):
            list(capture.snapshot(table, WHOLE, position=1, seq=1))


def test_chunks_of_one_connection_follow_a_table_to_its_successor_and_its_new_columns(
    database: Database, config: PostgresConfig
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 2)")
    table = described(config, "t")
    capture = PostgresCapture(config)
    with capture.together():
        assert rows(list(capture.snapshot(table, WHOLE, position=1, seq=1))) == [{"id": 1, "a": 2}]
        database.sql("ALTER TABLE t ADD COLUMN b int DEFAULT 5")
        assert rows(list(capture.snapshot(table, WHOLE, position=1, seq=1))) == [{"id": 1, "a": 2}]
        database.sql(
            "DROP TABLE t",
            "CREATE TABLE t (b int, a int, id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE t1 PARTITION OF t DEFAULT",
            "INSERT INTO t VALUES (7, 8, 9)",
        )
        assert rows(list(capture.snapshot(table, WHOLE, position=1, seq=1))) == [{"id": 9, "a": 8}]


def test_an_added_column_is_none_of_a_running_snapshots(database: Database, config: PostgresConfig) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    table = described(config, "t")
    database.sql("ALTER TABLE t ADD COLUMN b int DEFAULT 5")
    assert rows(batches(config, table, WHOLE)) == [{"id": 1}]


def test_nobody_alters_a_table_while_a_chunk_of_it_is_read(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i",
    )
    small = PostgresConfig.from_url(database.url(), {"batch_bytes": 10_000})
    reading = snapshot.read(small, described(config, "t"), WHOLE, position=1, seq=0)
    next(reading)
    database.sql("SET lock_timeout = '50ms'", "UPDATE t SET a = 'new' WHERE id = 1")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        database.sql("ALTER TABLE t ADD COLUMN b int")
    del reading
    database.sql("SET lock_timeout = '5s'", "ALTER TABLE t ADD COLUMN b int")
    wait_until(lambda: sessions(database) == 0, timeout=5)


def test_the_rows_of_a_table_that_inherits_are_its_own(database: Database, config: PostgresConfig) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE child (extra int) INHERITS (t)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO child VALUES (2, 3)",
    )
    assert read_all(config, "t") == [[{"id": 1}]]
    assert read_all(config, "child") == [[{"id": 2, "extra": 3}]]


def test_row_security_stops_a_snapshot_instead_of_hiding_rows(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
    )
    table = described(config, "t")
    database.sql(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY partly ON t FOR SELECT TO tailrace USING (id = 1)",
    )
    for act in (lambda: snapshot.plan(config, table.ref, 10), lambda: batches(config, table, WHOLE)):
        with pytest.raises(NeedsOperator, match="row security hides rows") as caught:
            act()
        assert caught.value.remedy == 'ALTER ROLE "tailrace" BYPASSRLS'


def test_generated_columns_are_left_out_and_a_table_of_nothing_else_still_counts(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED, PRIMARY KEY (b))",
        "INSERT INTO t SELECT i FROM generate_series(1, 5) i",
        "CREATE TABLE bare ()",
        "INSERT INTO bare DEFAULT VALUES",
    )
    assert read_all(config, "t", 2) == [[{"a": 1}, {"a": 2}], [{"a": 3}, {"a": 4}], [{"a": 5}]]
    assert read_all(config, "bare") == [[{}]]


def test_a_statement_timeout_of_the_role_does_not_end_a_snapshot(
    database: Database, config: PostgresConfig
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 100000) i",
    )
    table = described(config, "t")
    with database.admin() as admin:
        admin.execute(f"ALTER ROLE tailrace IN DATABASE {database.name} SET statement_timeout = '40ms'")
    assert sum(map(len, batches(config, table, WHOLE))) == 100_000


def test_a_killed_session_is_a_passing_fault(database: Database, config: PostgresConfig) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(1, 20000) i",
    )
    small = PostgresConfig.from_url(database.url(), {"batch_bytes": 10_000})
    reading = snapshot.read(small, described(config, "t"), WHOLE, position=1, seq=0)
    next(reading)
    with database.admin() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'tailrace' AND datname = current_database()"
        )
    with pytest.raises(Transient):
        for _ in reading:
            pass


def test_a_frozen_server_is_a_passing_fault(own_server: Server) -> None:
    database = own_server.database()
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text)",
        "INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(1, 20000) i",
    )
    options = {"batch_bytes": 10_000, "timeout": 2.0}
    config = PostgresConfig.from_url(database.url("?connect_timeout=2"), options)
    table = described(config, "t")
    reading = snapshot.read(config, table, WHOLE, position=1, seq=0)
    next(reading)
    own_server.freeze()
    try:
        with pytest.raises(Transient):
            for _ in reading:
                pass
    finally:
        own_server.thaw()
    assert sum(map(len, batches(config, table, WHOLE))) == 20_000
    database.drop()


def test_a_server_that_is_slow_to_send_is_waited_for(database: Database) -> None:
    config = PostgresConfig.from_url(database.url(), {"timeout": 1.0})
    with session(config) as connection:
        found = list(buffers(config, connection, "SELECT 1, pg_sleep(2.2)", 1000))
    assert [(bytes(data), count) for data, count in found] == [(LEAD + b"1\t\n", 1)]


def test_a_copy_that_the_server_ends_is_told_in_its_words(database: Database, config: PostgresConfig) -> None:
    begun = "SELECT i, CASE WHEN i = 90000 THEN pg_sleep(60) END FROM generate_series(1, 100000) i"
    failing = "SELECT 1 / (i - 90000) FROM generate_series(1, 100000) i"
    with pytest.raises(NeedsOperator, match="division by zero"), session(config) as connection:
        list(buffers(config, connection, failing, 1000))

    def terminate() -> bool:
        with database.admin() as admin:
            return bool(
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE query LIKE 'COPY (SELECT i%' AND wait_event = 'PgSleep'"
                ).fetchall()
            )

    ended = threading.Thread(target=lambda: wait_until(terminate))
    ended.start()
    with pytest.raises(Transient, match="administrator command"), session(config) as connection:
        list(buffers(config, connection, begun, 1000))
    ended.join()


def test_two_chunks_are_read_at_the_same_time(database: Database, config: PostgresConfig) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT i FROM generate_series(1, 1000) i"
    )
    table = described(config, "t")
    plan = snapshot.plan(config, table.ref, 250)
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda c=chunk: counts.append(len(rows(batches(config, table, c)))))
        for chunk in plan
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts == [250] * 4


def test_text_of_any_encoding_arrives(postgres: Server) -> None:
    with postgres.admin() as admin:
        for encoding in ("SQL_ASCII", "LATIN1"):
            admin.execute(
                f"CREATE DATABASE {encoding.lower()}_ ENCODING '{encoding}' TEMPLATE template0"
                " LC_COLLATE 'C' LC_CTYPE 'C'"
            )
    found = {}
    for encoding in ("SQL_ASCII", "LATIN1"):
        with postgres.admin(f"{encoding.lower()}_") as admin:
            admin.execute("CREATE TABLE t (id text PRIMARY KEY, a int); GRANT SELECT ON t TO tailrace")
            admin.execute("INSERT INTO t VALUES (E'\\xe9', 1), ('ok', 2)")
        socket = str(postgres.directory).replace("/", "%2F")
        config = PostgresConfig.from_url(
            f"postgresql://tailrace@{socket}:{postgres.port}/{encoding.lower()}_"
        )
        found[encoding] = sorted(
            (row["a"], row["id"]) for chunk in read_all(config, "t", rows_per_chunk=1) for row in chunk
        )
    assert found == {"SQL_ASCII": [(1, "x:6Q=="), (2, "ok")], "LATIN1": [(1, "é"), (2, "ok")]}
    with postgres.admin() as admin:
        for encoding in found:
            admin.execute(f"DROP DATABASE {encoding.lower()}_")


def test_the_chunks_of_a_task_share_a_connection_that_ends_with_it(
    database: Database, config: PostgresConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 100)")
    opened: list[Any] = []

    def connect(given: PostgresConfig) -> Any:
        opened.append(client.connect(given))
        return opened[-1]

    monkeypatch.setattr(kept, "connect", connect)
    capture = PostgresCapture(config)
    with capture.together():
        table = capture.describe(capture.resolve(["t"])[0])
        rows = 0
        for chunk in capture.plan(table.ref, rows_per_chunk=20):
            capture.describe(table.ref)
            rows += sum(len(batch) for batch in capture.snapshot(table, chunk, position=1, seq=1))
        assert rows == 100
        assert len(opened) == 1
        left: Any = capture.snapshot(table, WHOLE, position=1, seq=1)
        next(left)
        left.close()
        assert opened[-1].closed, "a read that was given up is in a transaction"
        assert sum(len(batch) for batch in capture.snapshot(table, WHOLE, position=1, seq=1)) == 100
        assert len(opened) == 2
    assert all(connection.closed for connection in opened)
