"""The tests run with the rights of docs/postgres.md and no other; each that is missing names its GRANT."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.errors import ConfigError, NeedsOperator, SetupMissing, TailraceError
from tailrace.model.table import TableRef
from tests.capture.postgres.streaming import CONSUMER, Source
from tests.support.postgres import Database

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"
_ATTRIBUTES = """
SELECT rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls
FROM pg_roles WHERE rolname = 'tailrace'
"""
_OWNED = """
SELECT count(*) FROM pg_shdepend WHERE refobjid = 'tailrace'::regrole AND deptype = 'o'
"""
_RIGHTS = """
SELECT 'database', p FROM unnest(ARRAY['CONNECT', 'CREATE', 'TEMPORARY']) p
WHERE has_database_privilege('tailrace', current_database(), p)
UNION ALL SELECT 'schema', p FROM unnest(ARRAY['USAGE', 'CREATE']) p
WHERE has_schema_privilege('tailrace', 'public', p)
UNION ALL SELECT 'table', p
FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
WHERE has_table_privilege('tailrace', 'items', p)
"""


@pytest.fixture
def source(database: Database) -> Source:
    return Source(database, ITEMS, "INSERT INTO items VALUES (1, 'x')")


def test_the_role_of_the_tests_has_the_documented_rights_and_no_other(
    source: Source, database: Database
) -> None:
    with database.admin() as admin:
        (attributes,) = admin.execute(_ATTRIBUTES).fetchall()
        assert attributes == (False, True, False, False, True, True, False)
        assert admin.execute(
            "SELECT count(*) FROM pg_auth_members WHERE member = 'tailrace'::regrole"
        ).fetchone() == (0,)
        assert admin.execute(_OWNED).fetchone() == (0,)
        rights = sorted(admin.execute(_RIGHTS).fetchall())
        assert rights == [("database", "CONNECT"), ("schema", "USAGE"), ("table", "SELECT")]
    # And it is this role that captures are, whatever they ask.
    with psycopg.connect(database.url(), autocommit=True) as connection:
        assert connection.execute("SELECT session_user, current_user").fetchone() == ("tailrace", "tailrace")
        for forbidden in (
            "INSERT INTO items VALUES (2, 'y')",
            "CREATE TABLE public.mine (id int)",
            "CREATE SCHEMA mine",
            "CREATE TEMPORARY TABLE mine (id int)",
            "ALTER PUBLICATION tailrace ADD TABLE items",
            "DROP PUBLICATION tailrace",
            "SET ROLE app",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())


def run(database: Database, *statements: str) -> None:
    with database.admin() as admin:
        for statement in statements:
            admin.execute(statement.encode())


def everything(source: Source, table: TableRef) -> None:
    """All that a pipeline does with a table."""
    capture = source.open()
    assert [f for f in capture.coverage([table]) if f.severity == "error"] == []
    capture.register(CONSUMER)
    schema = capture.describe(table)
    for chunk in capture.plan(table, rows_per_chunk=10):
        list(capture.snapshot(schema, chunk, position=1, seq=0))
    source.changes()


def refusals(source: Source, table: TableRef) -> Iterator[str]:
    """The remedies of every way by which someone meets a missing right: check, plan, snapshot."""
    capture = source.open()
    for finding in capture.coverage([table]):
        if finding.severity == "error":
            yield finding.remedy or ""
    schema = capture.describe(table)
    # The key's columns are enough for a plan.
    try:
        capture.plan(table, rows_per_chunk=10)
    except NeedsOperator as error:
        yield error.remedy or ""
    whole = Chunk(table, 0, {"from": None, "below": None}, 1)
    with pytest.raises(NeedsOperator) as refused:
        list(capture.snapshot(schema, whole, position=1, seq=0))
    yield refused.value.remedy or ""


@pytest.mark.parametrize(
    ("revoke", "grant"),
    [
        ("REVOKE USAGE ON SCHEMA public FROM tailrace", 'GRANT USAGE ON SCHEMA "public" TO "tailrace"'),
        ("REVOKE SELECT ON items FROM tailrace", 'GRANT SELECT ON "public"."items" TO "tailrace"'),
        (
            "REVOKE SELECT ON items FROM tailrace; GRANT SELECT (id) ON items TO tailrace",
            'GRANT SELECT ON "public"."items" TO "tailrace"',
        ),
        (
            "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
            'ALTER ROLE "tailrace" BYPASSRLS',
        ),
    ],
    ids=["usage", "select", "columns", "row security"],
)
def test_a_missing_right_to_read_names_the_grant_that_mends_it(
    source: Source, database: Database, revoke: str, grant: str
) -> None:
    table = source.ref("items")
    run(database, revoke)
    try:
        assert set(refusals(source, table)) == {grant}
        run(database, grant)
        everything(source, table)
    finally:
        run(database, 'ALTER ROLE "tailrace" NOBYPASSRLS')


def test_columns_alone_are_enough_for_a_table(source: Source, database: Database) -> None:
    run(database, "REVOKE SELECT ON items FROM tailrace; GRANT SELECT (id, name) ON items TO tailrace")
    everything(source, source.ref("items"))


def test_a_missing_right_to_connect_names_the_grant(source: Source, database: Database) -> None:
    run(database, f"REVOKE CONNECT ON DATABASE {database.name} FROM tailrace")
    for call in (source.open().identity, source.open().head):
        with pytest.raises(ConfigError) as refused:
            call()
        assert refused.value.remedy == f'GRANT CONNECT ON DATABASE "{database.name}" TO "tailrace"'
    run(database, refused.value.remedy or "")
    everything(source, source.ref("items"))


def test_a_missing_right_to_replicate_names_the_statement(source: Source, database: Database) -> None:
    alter = 'ALTER ROLE "tailrace" REPLICATION'
    run(database, "ALTER ROLE tailrace NOREPLICATION")
    try:
        capture = source.open()
        (finding,) = [f for f in capture.coverage(source.refs) if f.severity == "error"]
        assert finding.remedy == alter
        with pytest.raises(SetupMissing) as refused:
            capture.register("newcomer")
        assert refused.value.remedy == alter
        with pytest.raises(TailraceError) as stopped:
            source.parts(capture=source.open(), until=source.start.at(source.start.version + 1))
        assert stopped.value.remedy == alter
    finally:
        run(database, alter)
    everything(source, source.ref("items"))


def test_a_publication_of_someone_else_is_told_with_the_statement_for_its_owner(
    source: Source, database: Database
) -> None:
    database.sql("CREATE TABLE later (id int PRIMARY KEY)")
    capture = source.open()
    refs = capture.resolve(["items", "later"])
    with pytest.raises(SetupMissing) as refused:
        capture.setup(refs)
    add = 'ALTER PUBLICATION "tailrace" ADD TABLE "public"."later";'
    assert refused.value.remedy == add
    told = [f.remedy for f in capture.coverage(refs) if f.severity == "error"]
    assert told == [add]
    kept = database.slots()
    with pytest.raises(SetupMissing) as refused:
        capture.teardown()
    slots = "".join(f"SELECT pg_drop_replication_slot('{name}'); " for name in kept)
    assert refused.value.remedy == slots + 'DROP PUBLICATION "tailrace";'
    assert database.slots() == kept != []
    run(database, add)
    assert capture.setup(refs) == []


NAMES = [
    'x"; DROP TABLE y; --',
    "with.dots.in",
    "back\\slash\\'quote'",
    "percent %s %% %(x)s {} $1",
    "Ünïcödé 漢字 🦀",
    "x" * 63,
    "SELECT",
    " leading and trailing ",
    "tab\tand\nnewline",
]


def sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", NAMES, ids=[f"name{number}" for number in range(len(NAMES))])
def test_any_name_goes_through_setup_stream_snapshot_and_teardown(database: Database, name: str) -> None:
    quoted = sql_name(name)
    for statement in (
        "CREATE TABLE y (id int)",
        f"CREATE SCHEMA {quoted}",
        f"CREATE TABLE {quoted}.{quoted} ({quoted} int PRIMARY KEY, {sql_name(name[:40] + '2')} text)",
        f"INSERT INTO {quoted}.{quoted} SELECT i, 'x' FROM generate_series(1, 30) i",
        f"GRANT USAGE ON SCHEMA {quoted} TO tailrace",
    ):
        database.app.execute(statement.encode())
    owner = PostgresCapture(
        PostgresConfig.from_url(database.socket_url("app"), {"publication": name, "timeout": 5.0})
    )
    table = TableRef(name, name)
    assert owner.resolve([f"{quoted}.{quoted}"]) == [table]
    assert [f.code for f in owner.coverage([table]) if f.severity == "error"] == ["role", "not_set_up"]
    owner.setup([table])
    reader = PostgresCapture(PostgresConfig.from_url(database.url(), {"publication": name}))
    assert [f for f in reader.coverage([table]) if f.severity == "error"] == []
    consumer = name if len(name) < 12 else "c" + name[:8]
    start = reader.register(consumer)
    assert [c.name for c in reader.consumers()] == [consumer]
    schema = reader.describe(table)
    rows = [
        image[name]
        for chunk in reader.plan(table, rows_per_chunk=10)
        for batch in reader.snapshot(schema, chunk, position=1, seq=0)
        for image in batch.data.column("after").to_pylist()
    ]
    assert sorted(rows) == list(range(1, 31))
    database.app.execute(f"UPDATE {quoted}.{quoted} SET {quoted} = 100 WHERE {quoted} = 1".encode())
    for part in reader.live(start, [table], consumer=consumer, wait=0.2):
        if part is not None and part.rows:
            (change,) = part.batches[0].data.to_pylist()
            assert (change["before"][name], change["after"][name]) == (1, 100)
            reader.acknowledge(part.position, consumer=consumer)
            break
    reader.close()
    again = PostgresCapture(PostgresConfig.from_url(database.url(), {"publication": name}))
    again.forget(consumer)
    assert owner.teardown([table]) == [f"stopped publishing table {table}"]
    assert owner.teardown() == [f"dropped publication {name}"]
    assert database.rows("SELECT count(*) FROM y") == [(0,)]
    assert database.slots() == []


def test_a_missing_grant_on_an_awkward_name_is_quoted(database: Database) -> None:
    name = NAMES[0]
    database.app.execute(f"CREATE TABLE {sql_name(name)} (id int PRIMARY KEY)".encode())
    source = Source(database)
    run(database, f"REVOKE SELECT ON {sql_name(name)} FROM tailrace")
    table = TableRef("public", name)
    grant = f'GRANT SELECT ON "public".{sql_name(name)} TO "tailrace"'
    assert set(refusals(source, table)) == {grant}
    run(database, grant)
    everything(source, table)
