"""Which tables there are, what a name means, what the catalog says of a table, what the role may not read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.capture.postgres import catalog, names, privileges
from tailrace.capture.postgres.client import Connection, session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import ConfigError, SchemaDrift
from tailrace.model.table import TableRef, TableSchema
from tests.support.postgres import Database

ODD = ("order", "it's", "two words", "Upper", "a.b", "naïve", '"; DROP TABLE x; --', 'q"q', "100%", "%s")


@pytest.fixture
def reader(database: Database) -> Iterator[Connection]:
    """A session of the least privileged role."""
    with session(PostgresConfig.from_url(database.url())) as connection:
        yield connection


def public(name: str) -> TableRef:
    return TableRef("public", name)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns(schema: TableSchema) -> list[tuple[str, str]]:
    return [(column.name, column.type.name) for column in schema.columns]


def test_only_tables_whose_changes_the_log_has_are_listed(database: Database, reader: Connection) -> None:
    database.sql(
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE part11 PARTITION OF part1 FOR VALUES FROM (0) TO (5)",
        "CREATE VIEW looking AS SELECT 1 AS one",
        "CREATE MATERIALIZED VIEW made AS SELECT 1 AS one",
        "CREATE UNLOGGED TABLE unlogged (id int)",
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.plain (id int)",
    )
    assert names.tables(reader) == [public("parted"), public("plain"), TableRef("sales", "plain")]
    assert names.roots(reader) == {public("part1"): public("parted"), public("part11"): public("parted")}


def test_names_mean_what_is_written_then_what_the_server_folds_them_to(
    database: Database, reader: Connection
) -> None:
    database.sql('CREATE TABLE orders (id int); CREATE TABLE "Items" (id int); CREATE TABLE items (id int)')
    for name, meant in (
        ("orders", "orders"),
        ("ORDERS", "orders"),
        ("public.Orders", "orders"),
        ('"orders"', "orders"),
        ("Items", "Items"),
        ("items", "items"),
        ("ITEMS", "items"),
        ('public."Items"', "Items"),
    ):
        assert names.resolve(reader, [name]) == [public(meant)], name
    assert names.resolve(reader, ["orders", "*", "public.*"]) == [
        public("orders"),
        public("Items"),
        public("items"),
    ]
    with pytest.raises(ConfigError):
        names.resolve(reader, ['"ORDERS"'])


@pytest.mark.parametrize("name", ODD)
def test_a_name_of_any_characters_is_found_and_described(
    name: str, database: Database, reader: Connection
) -> None:
    database.app.execute(f"CREATE SCHEMA {quoted(name)}")
    where = f"{quoted(name)}.{quoted(name)}"
    database.app.execute(f"CREATE TABLE {where} ({quoted(name)} int PRIMARY KEY, b text)")
    ref = TableRef(name, name)
    spelled = [str(ref), where, quoted(name)]
    assert [names.resolve(reader, [text]) for text in spelled] == [[ref]] * 3
    if "." not in name and '"' not in name:
        assert names.resolve(reader, [name]) == [ref]
    described = catalog.describe(reader, ref)
    assert described.key == (name,)
    assert columns(described) == [(name, "integer"), ("b", "string")]


def test_one_name_in_two_schemas_is_decided_by_the_search_path_or_refused(
    database: Database, reader: Connection
) -> None:
    database.sql("CREATE SCHEMA a; CREATE SCHEMA b; GRANT USAGE ON SCHEMA a, b TO tailrace")
    database.sql(
        "CREATE TABLE a.orders (id int); CREATE TABLE b.orders (id int); CREATE TABLE b.lone (id int)"
    )
    with pytest.raises(ConfigError, match=r"a\.orders, b\.orders") as caught:
        names.resolve(reader, ["orders"])
    assert caught.value.remedy == "write a.orders or b.orders"
    assert names.resolve(reader, ["b.orders", "lone"]) == [TableRef("b", "orders"), TableRef("b", "lone")]
    reader.execute("SET search_path = b, a")
    assert names.resolve(reader, ["orders"]) == [TableRef("b", "orders")]
    reader.execute("RESET search_path")
    database.sql("CREATE TABLE orders (id int)")
    assert names.resolve(reader, ["orders"]) == [public("orders")]


def test_a_name_that_cannot_be_captured_says_why_and_what_to_name(
    database: Database, reader: Connection
) -> None:
    database.sql(
        "CREATE TABLE orders (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE VIEW looking AS SELECT 1 AS one",
        "CREATE UNLOGGED TABLE scratch (id int)",
    )
    for name, message, remedy in (
        ("orders_1", "is a partition of public.orders", "name public.orders instead"),
        ("looking", "is a view and cannot be captured", "leave it out"),
        ("public.scratch", "is an unlogged table and cannot be captured", "SET LOGGED"),
        ("pg_catalog.pg_class", "is a table of the system", "leave it out"),
        ("ordres", "there is no table ordres", "did you mean public.orders?"),
        ("public.odrers", "there is no table public.odrers", "did you mean public.orders?"),
        ("sales.*", "there is no table", "name a table"),
        ('"unfinished', "there is no table", "name a table"),
        ("", "there is no table", "name a table"),
    ):
        with pytest.raises(ConfigError) as caught:
            names.resolve(reader, [name])
        assert message in caught.value.message
        assert remedy in str(caught.value.remedy)


def test_a_table_is_described_with_its_key_in_key_order_and_without_generated_columns(
    database: Database, reader: Connection
) -> None:
    database.sql(
        "CREATE DOMAIN price AS numeric(12, 2) CHECK (value >= 0)",
        "CREATE DOMAIN list_price AS price NOT NULL",
        "CREATE TABLE t (b text NOT NULL, gone int, a int NOT NULL, p list_price, note varchar(10),"
        " total numeric GENERATED ALWAYS AS (a * 2) STORED, at timestamptz,"
        " PRIMARY KEY (a, b) INCLUDE (note))",
        "ALTER TABLE t DROP COLUMN gone",
    )
    schema = catalog.describe(reader, public("t"), generation="g1")
    assert schema.key == ("a", "b")
    assert schema.generation == "g1"
    assert columns(schema) == [
        ("b", "string"),
        ("a", "integer"),
        ("p", "decimal(12,2)"),
        ("note", "string"),
        ("at", "timestamp"),
    ]
    assert [c.native for c in schema.columns] == [
        "text",
        "integer",
        "list_price",
        "character varying(10)",
        "timestamp with time zone",
    ]
    assert [c.nullable for c in schema.columns] == [False, False, True, True, True]
    with_types = catalog.describe(reader, public("t"), {"t.p": "string", "public.t.at": "timestamp_ntz"})
    assert dict(columns(with_types))["p"] == "string"
    assert dict(columns(with_types))["at"] == "timestamp_ntz"
    database.sql("DROP TABLE t")
    with pytest.raises(SchemaDrift, match=r"public\.t is gone"):
        catalog.describe(reader, public("t"))


def test_a_key_with_a_generated_column_is_no_key_of_the_images(
    database: Database, reader: Connection
) -> None:
    database.sql("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED, PRIMARY KEY (b))")
    schema = catalog.describe(reader, public("t"))
    assert (schema.key, columns(schema)) == ((), [("a", "integer")])


def test_an_identity_without_the_primary_key_is_told_by_table_or_partition(
    database: Database, reader: Connection
) -> None:
    make = "CREATE TABLE {} (id int PRIMARY KEY, a int NOT NULL, UNIQUE (a, id), UNIQUE (a) INCLUDE (id))"
    for name in ("standard", "full_", "wider", "other"):
        database.app.execute(make.format(name))
    database.sql(
        "ALTER TABLE full_ REPLICA IDENTITY FULL",
        "ALTER TABLE wider REPLICA IDENTITY USING INDEX wider_a_id_key",
        "ALTER TABLE other REPLICA IDENTITY USING INDEX other_a_id_key1",
        "CREATE TABLE root (id int PRIMARY KEY, a int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF root DEFAULT",
        "CREATE UNIQUE INDEX by_a ON part (a)",
        "ALTER TABLE part REPLICA IDENTITY USING INDEX by_a",
    )

    def without_key(name: str) -> list[TableRef]:
        return catalog.without_key(reader, catalog.existing(reader, public(name)))

    assert not without_key("standard") + without_key("full_") + without_key("wider")
    assert without_key("other") == [public("other")]
    assert without_key("root") == without_key("part") == [public("part")]


def test_the_estimate_knows_tables_never_analysed_and_partitions(
    database: Database, reader: Connection
) -> None:
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int) PARTITION BY HASH (id)",
        "CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 20000) i",
    )
    found = catalog.existing(reader, public("t"))
    assert 5_000 < catalog.row_estimate(reader, found) < 60_000
    database.sql("ANALYZE t")
    assert catalog.row_estimate(reader, found) == 20_000


def test_a_missing_privilege_is_told_with_its_grant_and_the_grant_mends_it(
    database: Database, reader: Connection
) -> None:
    database.sql(
        'CREATE SCHEMA "S"',
        'CREATE TABLE "S"."T" (a int, b int)',
        'REVOKE ALL ON "S"."T" FROM tailrace',
        "CREATE TABLE open (a int)",
        "CREATE TABLE secured (a int)",
        "ALTER TABLE secured ENABLE ROW LEVEL SECURITY",
    )
    refs = [TableRef("S", "T"), public("open"), public("secured"), public("absent")]
    found = privileges.missing(reader, refs)
    assert [gap.sql for gap in found] == [
        'GRANT USAGE ON SCHEMA "S" TO "tailrace"',
        'GRANT SELECT ON "S"."T" TO "tailrace"',
        'ALTER ROLE "tailrace" BYPASSRLS',
    ]
    database.sql(found[0].sql, 'GRANT SELECT (a, b) ON "S"."T" TO tailrace')
    database.sql("ALTER TABLE secured DISABLE ROW LEVEL SECURITY")
    assert privileges.missing(reader, refs) == []
