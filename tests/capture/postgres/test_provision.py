"""Setup, teardown, coverage and consumers, as a role that may little and as one that may enough."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tailrace.capture.contract import Finding
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.postgres.slots import consumer_of, slot_name
from tailrace.model.errors import ConfigError, LogLost, NeedsOperator, SchemaDrift, SetupMissing, Transient
from tailrace.model.secret import Secret
from tests.capture.postgres.streaming import CONSUMER, Source
from tests.support.postgres import Database, Server
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


@pytest.fixture
def managed(database: Database) -> Iterator[PostgresCapture]:
    """A capture whose role may publish: a member of the tables' owner, with CREATE on the database."""
    with database.admin() as admin:
        admin.execute("DROP ROLE IF EXISTS manager")
        admin.execute("CREATE ROLE manager LOGIN REPLICATION IN ROLE app")
    yield PostgresCapture(PostgresConfig.from_url(database.socket_url("manager"), {"timeout": 2.0}))
    with database.admin() as admin:
        admin.execute("DROP OWNED BY manager CASCADE")
        admin.execute("DROP ROLE manager")


def found(capture: PostgresCapture, severity: str = "error") -> dict[str, Finding]:
    refs = capture.tables()
    return {finding.code: finding for finding in capture.coverage(refs) if finding.severity == severity}


def test_a_role_that_may_not_publish_is_told_the_exact_sql(database: Database) -> None:
    database.sql(ITEMS, 'CREATE TABLE "We""ird" (id int PRIMARY KEY)')
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    refs = capture.resolve(["*"])
    with pytest.raises(SetupMissing) as caught:
        capture.setup(refs)
    remedy = caught.value.remedy
    assert remedy is not None
    assert found(capture)["not_permitted"].remedy == remedy
    with pytest.raises(SetupMissing):
        capture.register(CONSUMER)
    assert database.slots() == []
    with database.admin() as admin:
        admin.execute(remedy.encode())
    assert capture.setup(refs) == []
    assert found(capture) == {}
    assert set(capture.generations()) == set(refs)


def test_setup_publishes_once_and_teardown_leaves_nothing(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    items, other = managed.resolve(["items", "other"])
    assert found(managed)["not_set_up"].remedy == "tailrace setup"
    assert managed.setup([items]) == ["created publication tailrace", "published table public.items"]
    assert managed.setup([items]) == []
    assert managed.setup([items, other]) == ["published table public.other"]
    assert found(managed) == {}
    managed.register("one")
    managed.register("two")
    assert [consumer.name for consumer in managed.consumers()] == ["one", "two"]
    managed.forget("one")
    managed.forget("one")
    assert managed.teardown([other]) == ["stopped publishing table public.other"]
    assert managed.teardown() == ["dropped replication slot tailrace_two", "dropped publication tailrace"]
    assert managed.teardown() == []
    assert database.slots() == []
    assert database.rows("SELECT * FROM pg_publication") == []


def test_generations_change_when_table_or_publication_is_made_again(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS)
    refs = managed.resolve(["items"])
    managed.setup(refs)
    seen = [managed.generations()[refs[0]]]
    managed.teardown(refs)
    managed.setup(refs)
    seen.append(managed.generations()[refs[0]])
    database.sql("DROP TABLE items", ITEMS)
    assert refs[0] not in managed.generations()
    managed.setup(refs)
    seen.append(managed.generations()[refs[0]])
    assert len({generation for generation, _ in seen}) == 3
    began = [position for _, position in seen]
    assert began == sorted(began)
    assert began[0] > 0
    assert managed.describe(refs[0]).generation == seen[-1][0]


def test_a_table_that_began_after_the_position_needs_a_snapshot(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS, "CREATE TABLE late (id int PRIMARY KEY)")
    items, late = managed.resolve(["items", "late"])
    managed.setup([items])
    start = managed.register(CONSUMER)
    database.sql("INSERT INTO late VALUES (1)")
    managed.setup([items, late])
    with pytest.raises(LogLost, match=r"public\.late"):
        next(managed.live(start, [late], consumer=CONSUMER, wait=0.1))
    accept = {late: managed.generations()[late][0]}
    next(managed.live(start, [items, late], consumer=CONSUMER, wait=0.1, accept=accept))


def test_setup_waits_for_transactions_that_wrote_before_it(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS)
    refs = managed.resolve(["items"])
    writer = database.connect()
    writer.execute("BEGIN; INSERT INTO items VALUES (1)")
    done = threading.Event()

    def setup() -> None:
        managed.setup(refs)
        done.set()

    thread = threading.Thread(target=setup)
    thread.start()
    wait_until(lambda: database.rows("SELECT 1 FROM pg_publication"))
    assert not done.wait(0.3)
    writer.execute("COMMIT")
    thread.join(10)
    assert done.is_set()
    assert managed.generations()[refs[0]][1] > 0


def test_a_setup_that_did_not_end_is_told_and_ends_later(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS)
    refs = managed.resolve(["items"])
    writer = database.connect()
    writer.execute("BEGIN; INSERT INTO items VALUES (1)")
    with pytest.raises(Transient, match="has not ended"):
        managed.setup(refs)
    assert found(managed)["not_set_up"].message.endswith("is not complete")
    assert managed.generations() == {}
    start = managed.register(CONSUMER) if writer.execute("COMMIT") else None
    assert start is not None
    with pytest.raises(SetupMissing):
        next(managed.live(start, refs, consumer=CONSUMER, wait=0.1))
    assert managed.setup(refs) == ["finished the setup of public.items"]
    assert found(managed) == {}


@pytest.mark.parametrize(
    ("ddl", "remedy"),
    [
        ("CREATE TABLE items (id int)", 'ALTER TABLE "public"."items" REPLICA IDENTITY FULL'),
        (
            "CREATE TABLE items (id int PRIMARY KEY); ALTER TABLE items REPLICA IDENTITY NOTHING",
            'ALTER TABLE "public"."items" REPLICA IDENTITY DEFAULT',
        ),
        (
            "CREATE TABLE items (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE leaf PARTITION OF items FOR VALUES IN (1);"
            "ALTER TABLE leaf REPLICA IDENTITY NOTHING",
            'ALTER TABLE "public"."leaf" REPLICA IDENTITY DEFAULT',
        ),
    ],
)
def test_a_table_whose_rows_the_log_cannot_tell_apart_is_refused_before_it_is_published(
    database: Database, managed: PostgresCapture, ddl: str, remedy: str
) -> None:
    database.sql(ddl)
    refs = managed.resolve(["items"])
    assert found(managed)["identity"].remedy == remedy
    with pytest.raises(NeedsOperator) as caught:
        managed.setup(refs)
    assert caught.value.remedy == remedy
    # The application's own writes go on.
    database.sql("INSERT INTO items VALUES (1)", "UPDATE items SET id = 1", "DELETE FROM items")
    database.sql(remedy)
    managed.setup(refs)
    database.sql("INSERT INTO items VALUES (1)", "UPDATE items SET id = 1", "DELETE FROM items")


def test_coverage_names_missing_rights_with_the_sql_that_gives_them(own_server: Server) -> None:
    database = own_server.database()
    source = Source(database, ITEMS)
    with database.admin() as admin:
        admin.execute("REVOKE SELECT ON items FROM tailrace")
        admin.execute("ALTER ROLE tailrace NOREPLICATION")
        told = found(source.capture)
        assert told["privilege"].remedy == 'GRANT SELECT ON "public"."items" TO "tailrace"'
        assert told["role"].remedy == 'ALTER ROLE "tailrace" REPLICATION'
        for finding in told.values():
            admin.execute((finding.remedy or "").encode())
    assert found(source.capture) == {}
    source.capture.forget(CONSUMER)
    own_server.restart(wal_level="replica")
    told = found(source.open())
    assert "ALTER SYSTEM SET wal_level = logical" in (told["wal_level"].remedy or "")
    with pytest.raises(SetupMissing, match="wal_level"):
        source.open().register(CONSUMER)


def test_a_slot_over_its_budget_is_warned_of(database: Database) -> None:
    source = Source(database, ITEMS, wal_budget=1000)
    source.sql("INSERT INTO items SELECT generate_series(1, 1000)")
    source.head()
    warning = found(source.capture, "warning")["wal_budget"]
    assert "tailrace_test" in warning.message
    assert "pg_drop_replication_slot('tailrace_test')" in (warning.remedy or "")


def test_register_is_idempotent_and_refuses_a_position_whose_log_is_gone(database: Database) -> None:
    source = Source(database, ITEMS)
    assert source.capture.register(CONSUMER) == source.start
    assert source.capture.register(CONSUMER, source.start.at(1)) == source.start
    source.sql("INSERT INTO items VALUES (1)")
    with pytest.raises(LogLost):
        source.capture.register("newcomer", source.start)
    with pytest.raises(LogLost):
        source.capture.register("newcomer", source.head().at(1 << 62))
    assert database.slots() == ["tailrace_test"]


def test_acknowledging_without_a_stream_moves_the_slot(database: Database) -> None:
    source = Source(database, ITEMS)
    source.sql("INSERT INTO items VALUES (1)")
    (part,) = [part for part in source.parts() if part.rows]
    assert source.confirmed() == source.start.version
    other = source.open()
    other.acknowledge(part.position, consumer=CONSUMER)
    assert source.confirmed() == part.position.version
    other.acknowledge(source.start, consumer=CONSUMER)
    assert source.confirmed() == part.position.version
    long = database.connect()
    long.execute("BEGIN; INSERT INTO items VALUES (2)")
    source.sql("INSERT INTO items VALUES (3)")
    later = [part for part in source.parts(part.position) if part.rows][-1].position
    # A transaction that runs may be one whose commit is already in the log: nothing is confirmed over it.
    other.acknowledge(later, consumer=CONSUMER)
    assert source.confirmed() == part.position.version
    long.execute("ROLLBACK")
    other.acknowledge(later, consumer=CONSUMER)
    assert source.confirmed() == later.version


def test_who_acknowledges_by_a_slot_of_another_name_finds_itself_among_the_consumers(
    database: Database,
) -> None:
    source = Source(database, ITEMS, slot="of_another_name")
    source.sql("INSERT INTO items VALUES (1)")
    taken = [part for part in source.parts() if part.rows][-1].position
    other = source.open()
    other.acknowledge(taken, consumer=CONSUMER)
    assert [(one.name, one.acknowledged) for one in other.consumers()] == [(CONSUMER, taken.version)]


@pytest.mark.parametrize("consumer", ["shop", "spark-0a1b2c", "a_b", "a__b", "Ünïcode 1", "_5f", "x.y/z"])
def test_a_consumer_can_be_read_off_its_slot(consumer: str) -> None:
    config = PostgresConfig(Secret(""), "x")
    slot = slot_name(config, consumer)
    assert set(slot) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert consumer_of(slot) == consumer


def test_a_consumer_whose_name_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="63"):
        slot_name(PostgresConfig(Secret(""), "x"), "x" * 60)


@pytest.mark.parametrize("slot", ["other", "tailrace_x_zz", "tailrace_x_"])
def test_a_slot_of_someone_else_is_no_consumer(slot: str) -> None:
    assert consumer_of(slot) is None


def test_a_named_slot_and_publication_are_used(database: Database) -> None:
    database.sql(ITEMS)
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION mine FOR ALL TABLES WITH (publish_via_partition_root = true)")
    options = {"publication": "mine", "slot": "my_slot"}
    capture = PostgresCapture(PostgresConfig.from_url(database.url(), options))
    refs = capture.resolve(["items"])
    assert capture.setup(refs) == []
    start = capture.register(CONSUMER)
    assert database.slots() == ["my_slot"]
    assert [consumer.name for consumer in capture.consumers()] == [CONSUMER]
    database.sql("INSERT INTO items VALUES (1)")
    for part in capture.live(start, refs, consumer=CONSUMER, wait=0.2):
        if part is not None and part.rows:
            break


def test_two_slots_of_one_name_are_made_once(database: Database) -> None:
    source = Source(database, ITEMS)
    source.capture.forget(CONSUMER)
    made: list[int] = []

    def register() -> None:
        while len(made) < 3:
            with contextlib.suppress(Transient):
                made.append(source.open().register(CONSUMER).version)
                return

    threads = [threading.Thread(target=register) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    with database.admin() as admin, pytest.raises(psycopg.errors.DuplicateObject):
        admin.execute("SELECT pg_create_logical_replication_slot('tailrace_test', 'pgoutput')")


def test_row_filters_and_column_lists_of_a_publication_are_told(database: Database) -> None:
    database.sql("CREATE TABLE items (id int PRIMARY KEY, name text, note text)")
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items (id, name) WHERE (id > 5)")
    capture = PostgresCapture(PostgresConfig.from_url(database.url(), {}))
    found = {finding.code: finding for finding in capture.coverage(capture.resolve(["items"]))}
    assert found["row_filter"].severity == found["column_list"].severity == "warning"
    assert "without note" in found["column_list"].message
    assert found["column_list"].remedy


@pytest.mark.long
def test_a_member_of_rds_replication_may_replicate(own_server: Server) -> None:
    database = own_server.database()
    database.sql("CREATE TABLE items (id int PRIMARY KEY)")
    capture = PostgresCapture(PostgresConfig.from_url(database.url(), {}))
    refs = capture.resolve(["items"])
    with database.admin() as admin:
        admin.execute("ALTER ROLE tailrace NOREPLICATION; CREATE ROLE rds_replication")
        (lacking,) = [found for found in capture.coverage(refs) if found.code == "role"]
        assert lacking.remedy == 'GRANT rds_replication TO "tailrace"'
        admin.execute(str(lacking.remedy).encode())
    assert not [found for found in capture.coverage(refs) if found.code == "role"]


def test_correcting_the_options_of_a_publication_does_not_hide_what_was_not_published(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS, "INSERT INTO items VALUES (1)")
    refs = managed.resolve(["items"])
    managed.setup(refs)
    start, before = managed.register(CONSUMER), managed.generations()[refs[0]]
    with database.admin() as admin:
        admin.execute("ALTER PUBLICATION tailrace SET (publish = 'insert')")
    database.sql("DELETE FROM items")
    with pytest.raises(SetupMissing) as caught:
        next(managed.live(start, refs, consumer=CONSUMER, wait=0.1))
    assert caught.value.remedy == "tailrace setup, then tailrace snapshot --table '*'"
    (told,) = managed.setup(refs)
    assert told.startswith("corrected the options of publication tailrace")
    after = managed.generations()[refs[0]]
    assert after[0] != before[0]
    assert after[1] > start.version
    with pytest.raises(LogLost):
        next(managed.live(start, refs, consumer=CONSUMER, wait=0.1, accept={refs[0]: before[0]}))
    next(managed.live(start, refs, consumer=CONSUMER, wait=0.1, accept={refs[0]: after[0]}))


@pytest.mark.parametrize("what", ["TABLE items", "ALL TABLES"])
def test_a_publication_whose_options_changed_and_changed_back_is_another_one(
    database: Database, what: str
) -> None:
    database.sql(ITEMS, "INSERT INTO items VALUES (1)")
    with database.admin() as admin:
        admin.execute(f"CREATE PUBLICATION tailrace FOR {what} WITH (publish_via_partition_root)".encode())
        capture = PostgresCapture(PostgresConfig.from_url(database.url()))
        refs = capture.resolve(["items"])
        start, (generation, _) = capture.register(CONSUMER), capture.generations()[refs[0]]
        accept = {refs[0]: generation}
        next(capture.live(start, refs, consumer=CONSUMER, wait=0.1, accept=accept))
        # What does not touch the options leaves it as it is.
        admin.execute("COMMENT ON PUBLICATION tailrace IS 'of the shop'")
        admin.execute("VACUUM FULL FREEZE pg_publication")
        next(capture.live(start, refs, consumer=CONSUMER, wait=0.1, accept=accept))
        admin.execute("ALTER PUBLICATION tailrace SET (publish = 'insert')")
        database.sql("DELETE FROM items")
        admin.execute("ALTER PUBLICATION tailrace SET (publish = 'insert, update, delete, truncate')")
    with pytest.raises(SchemaDrift, match="anew"):
        next(capture.live(start, refs, consumer=CONSUMER, wait=0.1, accept=accept))


def test_two_setups_at_once_do_not_forget_each_others_beginnings(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    items, other = managed.resolve(["items", "other"])
    managed.setup([])
    writer = database.connect()
    writer.execute("BEGIN; INSERT INTO items VALUES (1)")
    told: list[str] = []
    slow = PostgresCapture(PostgresConfig.from_url(database.socket_url("manager"), {"timeout": 20.0}))
    thread = threading.Thread(target=lambda: told.extend(slow.setup([items])))
    thread.start()
    wait_until(lambda: database.rows("SELECT 1 FROM pg_publication_tables WHERE tablename = 'items'"))
    assert managed.setup([other]) == ["published table public.other"]
    assert set(managed.generations()) == {other}
    writer.execute("COMMIT")
    thread.join(20)
    assert told == ["published table public.items"]
    assert set(managed.generations()) == {items, other}


def test_what_another_setup_published_at_the_same_moment_is_not_claimed(
    database: Database, managed: PostgresCapture
) -> None:
    database.sql(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)")
    refs = managed.resolve(["items", "other"])
    told: list[str] = []
    threads = [threading.Thread(target=lambda: told.extend(managed.setup(refs))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    claimed = [line for line in told if not line.startswith("finished")]
    assert sorted(claimed) == [
        "created publication tailrace",
        "published table public.items",
        "published table public.other",
    ]
    assert set(managed.generations()) == set(refs)


def test_truncating_one_partition_is_in_no_log_and_the_check_says_so(database: Database) -> None:
    source = Source(
        database,
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20)",
    )
    source.sql("INSERT INTO parted VALUES (1), (11)", "TRUNCATE low", "TRUNCATE parted")
    assert [change.op for change in source.changes()] == ["c", "c", "t"]
    told = found(source.capture, "info")["partition_truncate"]
    assert told.table == "public.parted"
    assert "TRUNCATE" in told.message
    assert "DELETE" in (told.remedy or "")


@pytest.mark.parametrize("what", ["ALL TABLES", "TABLES IN SCHEMA public"])
def test_a_table_that_may_be_unlogged_for_a_while_unseen_is_warned_of(database: Database, what: str) -> None:
    if "SCHEMA" in what and database.server_version < 150000:
        pytest.skip("unavailable: PostgreSQL 15, which publishes schemas")
    database.sql(ITEMS)
    with database.admin() as admin:
        admin.execute(f"CREATE PUBLICATION tailrace FOR {what} WITH (publish_via_partition_root)".encode())
    capture = PostgresCapture(PostgresConfig.from_url(database.url()))
    warning = found(capture, "warning")["unlogged_unseen"]
    assert "SET UNLOGGED" in warning.message
    assert "FOR TABLE" in (warning.remedy or "")
    generation = capture.generations()
    # The server allows it, writes nothing of it to the log, and leaves no mark on the table.
    database.sql(
        "ALTER TABLE items SET UNLOGGED", "INSERT INTO items VALUES (1)", "ALTER TABLE items SET LOGGED"
    )
    assert capture.generations() == generation


def test_the_server_lets_nobody_unlog_a_table_that_is_published_by_name(database: Database) -> None:
    source = Source(database, ITEMS)
    assert "unlogged_unseen" not in found(source.capture, "warning")
    with pytest.raises(psycopg.Error, match="part of a publication"):
        source.sql("ALTER TABLE items SET UNLOGGED")
