"""Which documents a change touches: each row of the table in the design, on both databases.

The oracle rebuilds every document before and after, row by row: one that differs must be among the affected.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.capture.scripted import ScriptedCapture, ScriptedSource
from tailrace.documents.render import build_query
from tailrace.documents.resolve import Affected, Resolver, needed, old_parents
from tailrace.model.change import ChangeBatch, Part, marker
from tailrace.model.errors import NeedsOperator
from tailrace.model.table import TableRef
from tailrace.runtime.links import Links
from tests.documents.resolving import Make, Node, PostgresWorld, SqliteWorld, World, differing, names
from tests.support.postgres import Server, postgres

__all__ = ["postgres"]

SHOP = (
    "CREATE TABLE customers (id {int} PRIMARY KEY, name text, referrer {int})",
    "CREATE TABLE orders (id {int} PRIMARY KEY, customer {big}, total {int})",
    "CREATE TABLE items (id {int} PRIMARY KEY, of_order {big}, product {big}, note text)",
    "CREATE TABLE products (id {int} PRIMARY KEY, name text)",
    "CREATE TABLE tags (id {int} PRIMARY KEY, name text)",
    "CREATE TABLE customer_tags (customer {big}, tag {big}, PRIMARY KEY (customer, tag))",
)
TREE = Node(
    "customers",
    below=(
        Node(
            "orders",
            ("id",),
            ("customer",),
            below=(
                Node(
                    "items",
                    ("id",),
                    ("of_order",),
                    below=(Node("products", ("product",), ("id",), shape="belongs_to"),),
                ),
                Node("items", ("id",), ("of_order",), shape="count"),
            ),
        ),
        Node(
            "tags",
            ("id",),
            ("id",),
            ("customer_tags", ("customer",), ("tag",)),
            below=(
                # From the tag on to all who have it: the junction the other way.
                Node("customers", ("id",), ("id",), ("customer_tags", ("tag",), ("customer",))),
            ),
        ),
        Node("customers", ("referrer",), ("id",), shape="belongs_to"),
        Node("customers", ("id",), ("referrer",)),
        Node("orders", ("id",), ("customer",), shape="count"),
    ),
)


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a database of these tables: `{int}` is a usual whole number, `{big}` a wider one."""
    made: list[World] = []

    def build(*ddl: str, identity: str = "FULL") -> World:
        if request.param == "sqlite":
            texts = [text.format(int="INTEGER", big="INTEGER") for text in ddl]
            made.append(SqliteWorld(tmp_path / f"{len(made)}.db", *texts))
            return made[-1]
        server: Server = request.getfixturevalue("postgres")
        database = server.database()
        texts = [text.format(int="int4", big="int8") for text in ddl]
        tables = [text.split()[2] for text in texts if text.startswith("CREATE TABLE")]
        alters = [f"ALTER TABLE {table} REPLICA IDENTITY {identity}" for table in tables]
        made.append(PostgresWorld(database, *texts, *alters))
        return made[-1]

    yield build
    for one in made:
        one.close()


def fill(world: World) -> None:
    world.sql(
        "INSERT INTO customers VALUES (1, 'a', NULL), (2, 'b', 1), (3, 'c', 2), (4, 'd', NULL)",
        "INSERT INTO orders VALUES (10, 1, 5), (11, 1, 6), (20, 2, 7), (30, 3, 8)",
        "INSERT INTO products VALUES (100, 'x'), (101, 'y'), (102, 'z')",
        "INSERT INTO items VALUES (1000, 10, 100, ''), (1001, 20, 100, ''), (1002, 30, 101, '')",
        "INSERT INTO items VALUES (1003, NULL, 101, '')",
        "INSERT INTO tags VALUES (7, 'red'), (8, 'blue')",
        "INSERT INTO customer_tags VALUES (1, 7), (3, 7), (4, 8)",
    )
    world.skip()


def affected(world: World, resolver: Resolver) -> Affected:
    return resolver.resolve(world.changes(), world.capture)


def ids(found: Affected) -> set[str]:
    assert not found.everything
    assert len(found.ids) == len(set(found.ids.to_pylist()))
    return set(names(found.ids.to_pylist()))


CASES: tuple[tuple[str, set[str]], ...] = (
    ("INSERT INTO customers VALUES (9, 'n', NULL)", {"9"}),
    ("UPDATE customers SET name = 'n' WHERE id = 4", {"4"}),
    ("UPDATE orders SET customer = 2 WHERE id = 10", {"1", "2"}),
    ("DELETE FROM orders WHERE id = 30", {"3"}),
    ("UPDATE orders SET customer = NULL WHERE id = 30", {"3"}),
    ("UPDATE items SET of_order = 30 WHERE id = 1000", {"1", "3"}),
    ("DELETE FROM items WHERE id = 1001", {"2"}),
    ("UPDATE items SET of_order = 10 WHERE id = 1003", {"1"}),
    ("UPDATE items SET note = 'n' WHERE id = 1003", set()),
    ("UPDATE products SET name = 'n' WHERE id = 100", {"1", "2"}),
    ("UPDATE products SET id = 102000 WHERE id = 101", {"3"}),
    ("DELETE FROM products WHERE id = 102", set()),
    ("UPDATE tags SET name = 'n' WHERE id = 8", {"4"}),
    ("DELETE FROM customer_tags WHERE customer = 4", {"4"}),
    ("INSERT INTO customer_tags VALUES (2, 8)", {"2", "4"}),
    ("UPDATE customer_tags SET customer = 2 WHERE customer = 4", {"2", "4"}),
)


def test_a_change_touches_the_documents_above_its_old_and_new_values(make: Make) -> None:
    world = make(*SHOP)
    resolver = Resolver(world.plan(TREE), world.capture.dialect)
    for statement, expected in CASES:
        world.sql(*(f"DELETE FROM {text.split()[2]}" for text in SHOP))
        fill(world)
        before = world.documents(TREE)
        world.sql(statement)
        found = ids(affected(world, resolver))
        assert (statement, found) == (statement, expected)
        assert differing(before, world.documents(TREE)) <= found


def test_a_self_join_touches_both_sides(make: Make) -> None:
    world = make(*SHOP)
    fill(world)
    resolver = Resolver(world.plan(TREE), world.capture.dialect)
    world.sql("UPDATE customers SET name = 'n' WHERE id = 2")
    # Itself, whom it was referred by, and whom it referred.
    assert ids(affected(world, resolver)) == {"1", "2", "3"}
    # Itself, its old and its new one, and whoever shares a tag with it.
    world.sql("UPDATE customers SET referrer = 4 WHERE id = 3")
    assert ids(affected(world, resolver)) == {"1", "2", "3", "4"}


def test_changes_of_one_batch_touch_a_document_once_whatever_the_order(make: Make) -> None:
    world = make(*SHOP)
    fill(world)
    before = world.documents(TREE)
    world.sql(
        "DELETE FROM items WHERE of_order = 10",
        "UPDATE orders SET customer = 3 WHERE id = 10",
        "DELETE FROM orders WHERE id = 10",
        "INSERT INTO orders VALUES (10, 2, 1)",
        "UPDATE customers SET id = 40 WHERE id = 4",
        "DELETE FROM customers WHERE id = 1",
    )
    found = ids(affected(world, Resolver(world.plan(TREE), world.capture.dialect)))
    assert differing(before, world.documents(TREE)) <= found
    assert {"1", "2", "3", "4", "40"} == found


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_whatever_happens_no_document_that_differs_is_missed(make: Make, seed: int) -> None:
    world = make(*SHOP)
    fill(world)
    dice = random.Random(seed)
    resolver = Resolver(world.plan(TREE), world.capture.dialect)
    for _ in range(4):
        before = world.documents(TREE)
        for _ in range(dice.randint(1, 3)):
            world.sql(*(statement(dice) for _ in range(dice.randint(1, 8))))
        found = affected(world, resolver)
        missed = differing(before, world.documents(TREE)) - ids(found)
        assert not missed


def statement(dice: random.Random) -> str:
    """Anything that the application may do; keys collide often."""
    customer, order = dice.randint(1, 6), dice.randint(10, 16)
    item, product, tag = dice.randint(1000, 1006), dice.randint(100, 103), dice.randint(7, 9)
    other = dice.choice([f"{dice.randint(1, 6)}", "NULL"])
    return dice.choice(
        [
            f"INSERT INTO customers VALUES ({customer}, 'n{dice.random()}', {other}) ON CONFLICT DO NOTHING",
            f"INSERT INTO orders VALUES ({order}, {customer}, 1) ON CONFLICT DO NOTHING",
            f"INSERT INTO items VALUES ({item}, {order}, {product}, 'n') ON CONFLICT DO NOTHING",
            f"INSERT INTO products VALUES ({product}, 'n') ON CONFLICT DO NOTHING",
            f"INSERT INTO tags VALUES ({tag}, 'n') ON CONFLICT DO NOTHING",
            f"INSERT INTO customer_tags VALUES ({customer}, {tag}) ON CONFLICT DO NOTHING",
            f"UPDATE customers SET referrer = {other} WHERE id = {customer}",
            f"UPDATE customers SET name = 'n{dice.random()}' WHERE id = {customer}",
            f"UPDATE orders SET customer = {other} WHERE id = {order}",
            f"UPDATE items SET of_order = {order}, product = {product} WHERE id = {item}",
            f"UPDATE products SET name = 'n{dice.random()}' WHERE id = {product}",
            f"UPDATE tags SET name = 'n{dice.random()}' WHERE id = {tag}",
            f"UPDATE orders SET id = {order + 100} WHERE id = {order} AND NOT EXISTS"
            f" (SELECT 1 FROM orders WHERE id = {order + 100})",
            f"DELETE FROM {dice.choice(['orders', 'items', 'products', 'tags', 'customers'])}"
            f" WHERE id IN ({customer}, {order}, {item}, {product}, {tag})",
            f"DELETE FROM customer_tags WHERE customer = {customer}",
        ]
    )


def test_a_wide_value_is_looked_up_in_a_narrow_column(make: Make) -> None:
    world = make(
        "CREATE TABLE a (id {int} PRIMARY KEY, x {int})", "CREATE TABLE b (id {int} PRIMARY KEY, a {big})"
    )
    node = Node("a", below=(Node("b", ("x",), ("a",)),))
    world.sql("INSERT INTO a VALUES (1, 5)", "INSERT INTO b VALUES (1, 5)")
    world.skip()
    world.sql("UPDATE b SET a = 9223372036854775807")
    assert ids(affected(world, Resolver(world.plan(node), world.capture.dialect))) == {"1"}
    direct = Node("a", below=(Node("b", ("id",), ("a",)),))
    world.sql("UPDATE b SET a = 1")
    assert "1" in ids(affected(world, Resolver(world.plan(direct), world.capture.dialect)))


def test_composite_keys_and_any_name_and_text_are_found(make: Make) -> None:
    world = make(
        'CREATE TABLE aa ("key one" varchar(20), "%s" date, name text, PRIMARY KEY ("key one", "%s"))',
        'CREATE TABLE bb (id {int} PRIMARY KEY, "a;one" text, "a""2" date)',
    )
    node = Node("aa", below=(Node("bb", ("key one", "%s"), ("a;one", 'a"2')),))
    texts = ["it''s", 'say "x"', "back\\slash", "{a,b}", "", "NULL", "100%", "é😀"]
    for at, text in enumerate(texts):
        world.sql(
            f"INSERT INTO aa VALUES ('{text}', '2026-01-0{at + 1}', 'n')",
            f"INSERT INTO bb VALUES ({at}, '{text}', '2026-01-0{at + 1}')",
        )
    world.skip()
    before = world.documents(node)
    world.sql("DELETE FROM bb")
    resolver = Resolver(world.plan(node), world.capture.dialect)
    found = ids(affected(world, resolver))
    assert differing(before, world.documents(node)) == found == set(before)


def test_keys_come_with_their_types_and_texts(make: Make) -> None:
    world = make(
        "CREATE TABLE aa (d date, b {int}, PRIMARY KEY (d, b))",
        "CREATE TABLE bb (id {int} PRIMARY KEY, d date)",
    )
    plan = world.plan(Node("aa", below=(Node("bb", ("d",), ("d",)),)))
    world.sql("INSERT INTO aa VALUES ('2026-01-02', 3)")
    world.skip()
    world.sql("INSERT INTO bb VALUES (1, '2026-01-02')", "INSERT INTO aa VALUES ('2026-01-03', 4)")
    found = affected(world, Resolver(plan, world.capture.dialect))
    assert found.keys.column_names == ["d", "d:text", "b", "b:text"]
    kinds = {column.name: column.type.arrow for column in plan.root.table.columns}
    assert [field.type for field in found.keys.schema] == [kinds["d"], pa.string(), kinds["b"], pa.string()]
    assert set(found.ids.to_pylist()) == {'["2026-01-02","3"]', '["2026-01-03","4"]'}


def test_truncate_and_a_snapshot_that_begins_touch_everything(make: Make) -> None:
    world = make(*SHOP)
    fill(world)
    plan = world.plan(TREE)
    resolver = Resolver(plan, world.capture.dialect)
    begins = marker(world.capture.describe(TableRef(world.schema, "tags")), 1 << 40, 0, 0)
    assert resolver.resolve([begins], world.capture).everything
    if world.capture.capabilities.truncate:
        world.sql("TRUNCATE products")
        found = affected(world, resolver)
        assert found.everything
        assert len(found) == 0


def test_changes_up_to_a_position_and_of_other_tables_touch_nothing(make: Make) -> None:
    world = make(*SHOP, "CREATE TABLE other (id {int} PRIMARY KEY)")
    fill(world)
    resolver = Resolver(world.plan(TREE), world.capture.dialect)
    world.sql("INSERT INTO other VALUES (1)", "UPDATE customers SET name = 'm' WHERE id = 1")
    batches = world.changes()
    assert TableRef(world.schema, "other") not in resolver.tables
    assert len(resolver.resolve(batches, world.capture, since=world.position.version)) == 0
    assert "1" in ids(resolver.resolve(batches, world.capture))


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_an_old_value_that_the_log_does_not_carry_is_refused_by_relation(make: Make) -> None:
    world = make(*SHOP, identity="DEFAULT")
    fill(world)
    resolver = Resolver(world.plan(TREE), world.capture.dialect)
    world.sql("UPDATE products SET name = 'n' WHERE id = 100")
    assert ids(affected(world, resolver)) == {"1", "2"}
    for change in ("UPDATE orders SET total = 1 WHERE id = 10", "DELETE FROM orders WHERE id = 11"):
        world.sql(change)
        with pytest.raises(NeedsOperator, match="orders") as refused:
            affected(world, resolver)
        assert refused.value.remedy == 'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL'


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_an_identity_by_an_index_that_has_the_parent_carries_it(make: Make) -> None:
    world = make(
        "CREATE TABLE a (id {int} PRIMARY KEY)",
        "CREATE TABLE b (id {int} PRIMARY KEY, a {big} NOT NULL, n {int})",
    )
    node = Node("a", below=(Node("b", ("id",), ("a",)),))
    world.sql(
        "CREATE UNIQUE INDEX b_identity ON b (id, a)",
        "ALTER TABLE b REPLICA IDENTITY USING INDEX b_identity",
        "INSERT INTO a VALUES (1), (2)",
        "INSERT INTO b VALUES (1, 1, 1), (2, 1, 1)",
    )
    world.skip()
    plan = world.plan(node)
    assert {found.way for found in old_parents(plan, world.capture)} == {"before image"}
    resolver = Resolver(plan, world.capture.dialect)
    world.sql("UPDATE b SET n = 2 WHERE id = 1")
    assert ids(affected(world, resolver)) == {"1"}
    world.sql("UPDATE b SET a = 2 WHERE id = 1")
    assert ids(affected(world, resolver)) == {"1", "2"}
    world.sql("DELETE FROM b WHERE id = 2")
    assert ids(affected(world, resolver)) == {"1"}
    # Without it the same change says less, and is not taken for more.
    world.sql("ALTER TABLE b REPLICA IDENTITY DEFAULT")
    world.skip()
    world.sql("UPDATE b SET a = 1 WHERE id = 1")
    with pytest.raises(NeedsOperator):
        affected(world, resolver)


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_check_says_where_old_parents_come_from_and_what_is_cheaper(make: Make) -> None:
    world = make(*SHOP, identity="DEFAULT")
    plan = world.plan(TREE)
    every = old_parents(plan, world.capture)
    paths = {one.path for one in every if one.table.name == "orders"}
    assert paths == {("orders0",), ("orders4",)}
    found = {(one.table.name, one.columns): one for one in reversed(every)}
    assert found["customers", ("id",)].way == "before image"
    assert found["customer_tags", ("customer",)].way == "before image"
    orders = found["orders", ("customer",)]
    assert orders.way == "link state"
    assert orders.remedy == 'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL'
    assert "orders0" in orders.finding.message
    assert needed([plan], world.capture) == {
        TableRef("public", "orders"): ("customer",),
        TableRef("public", "items"): ("of_order",),
        TableRef("public", "customers"): ("referrer",),
    }
    world.sql('ALTER TABLE "public"."orders" REPLICA IDENTITY FULL')
    ways = {one.table.name: one.way for one in old_parents(plan, world.capture)}
    assert ways["orders"] == "before image"


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_a_table_without_a_key_needs_another_identity(make: Make) -> None:
    world = make("CREATE TABLE a (id {int} PRIMARY KEY)", "CREATE TABLE b (a {int} NOT NULL)")
    world.sql("ALTER TABLE b REPLICA IDENTITY DEFAULT")
    plan = world.plan(Node("a", below=(Node("b", ("id",), ("a",)),)))
    (found,) = [one for one in old_parents(plan, world.capture) if one.table.name == "b"]
    assert (found.way, found.finding.severity) == ("nothing", "error")
    world.sql(str(found.remedy))
    assert {one.way for one in old_parents(plan, world.capture)} == {"before image"}


def test_a_scripted_source_can_be_asked_too() -> None:
    source = ScriptedSource()
    a = source.table("a")
    b = source.table("b", id="long", a="string", n="string")
    source.insert(a, {"id": 1, "name": "x"}, {"id": 2, "name": "y"})
    capture = ScriptedCapture(source)

    class Scripted(World):
        schema = "main"

    world = Scripted()
    world.capture = capture
    plan = world.plan(Node("a", below=(Node("b", ("name",), ("a",)),)))
    start = source.head
    source.insert(b, {"id": 5, "a": "y", "n": "n"})
    parts = capture._transaction(start + 1, {a, b})
    batches: list[ChangeBatch] = [batch for part in parts for batch in part.batches]
    assert Resolver(plan, capture.dialect).resolve(batches, capture).ids.to_pylist() == ["2"]


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_columns_of_other_types_are_compared_as_documents_compare_them(make: Make) -> None:
    world = make(
        "CREATE TABLE a (id uuid PRIMARY KEY, code {int})",
        "CREATE TABLE b (id {int} PRIMARY KEY, a text, code text)",
        "CREATE TABLE c (id {int} PRIMARY KEY, b varchar(9))",
    )
    node = Node("a", below=(Node("b", ("id",), ("a",), below=(Node("c", ("id",), ("b",)),)),))
    by_code = Node("a", below=(Node("b", ("code",), ("code",)),))
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    world.sql(
        f"INSERT INTO a VALUES ('{key}', 7)",
        f"INSERT INTO b VALUES (1, '{key}', '7')",
        "INSERT INTO c VALUES (1, '1')",
    )
    world.skip()
    for statement in ("UPDATE c SET b = 'none'", "UPDATE b SET id = 2", "UPDATE b SET a = 'no uuid'"):
        world.sql(statement)
        assert ids(affected(world, Resolver(world.plan(node), "postgres"))) == {key}
    world.sql("DELETE FROM b")
    assert ids(affected(world, Resolver(world.plan(by_code), "postgres"))) == {key}


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_a_new_parent_is_found_though_the_log_leaves_out_a_part_of_its_key(
    make: Make, tmp_path: Path
) -> None:
    world = make(
        "CREATE TABLE a (code text, n {int}, PRIMARY KEY (code, n))",
        "CREATE TABLE b (id {int} PRIMARY KEY, code text, n {int})",
        identity="DEFAULT",
    )
    plan = world.plan(Node("a", below=(Node("b", ("code", "n"), ("code", "n")),)))
    world.sql(
        # So long that it stands apart from its row.
        "ALTER TABLE b ALTER code SET STORAGE EXTERNAL",
        "INSERT INTO a SELECT repeat('x', 2300), n FROM generate_series(1, 2) n",
        "INSERT INTO b VALUES (1, repeat('x', 2300), 1)",
    )
    world.skip()
    links = Links(tmp_path / "links.db", needed([plan], world.capture))
    links.begin(world.capture, world.position)
    world.sql("UPDATE b SET n = 2")
    batches = links.complete(Part(tuple(world.changes()), world.position)).batches
    links.close()
    assert "after_absent" in batches[0].data.schema.names
    found = Resolver(plan, "postgres").resolve(batches, world.capture)
    assert sorted(found.keys.column("n").to_pylist()) == [1, 2]


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_rows_of_before_their_columns_were_retyped_are_still_understood(make: Make) -> None:
    world = make(
        "CREATE TABLE a (id text PRIMARY KEY, x {int})",
        "CREATE TABLE b (id {int} PRIMARY KEY, x text)",
        "CREATE TABLE c (id {int} PRIMARY KEY, a text)",
    )
    world.sql(
        "INSERT INTO a VALUES ('7', 5)", "INSERT INTO b VALUES (1, '5')", "INSERT INTO c VALUES (1, '7')"
    )
    world.skip()
    world.sql(
        "DELETE FROM b",
        "INSERT INTO b VALUES (2, 'no number')",
        "DELETE FROM c",
        "INSERT INTO a VALUES ('no number', 1)",
        "DELETE FROM a WHERE id <> '7'",
    )
    older = world.changes()
    world.sql(
        "DELETE FROM b",
        "ALTER TABLE b ALTER x TYPE int USING x::int",
        "ALTER TABLE a ALTER id TYPE int USING id::int",
        "ALTER TABLE c ALTER a TYPE int USING a::int",
    )
    node = Node("a", below=(Node("b", ("x",), ("x",)), Node("c", ("id",), ("a",))))
    found = Resolver(world.plan(node), "postgres").resolve(older, world.capture)
    assert ids(found) == {"7"}
    assert found.keys.column("id").to_pylist() == [7]


@pytest.mark.parametrize("make", ["postgres"], indirect=True)
def test_rows_of_tables_that_inherit_are_not_their_parents(make: Make) -> None:
    world = make(
        "CREATE TABLE a (id {int} PRIMARY KEY, x {int})", "CREATE TABLE b (id {int} PRIMARY KEY, x {int})"
    )
    world.sql(
        "CREATE TABLE heir () INHERITS (a)", "INSERT INTO a VALUES (1, 5)", "INSERT INTO heir VALUES (2, 5)"
    )
    world.skip()
    plan = world.plan(Node("a", below=(Node("b", ("x",), ("x",)),)))
    world.sql("INSERT INTO b VALUES (9, 5)")
    assert ids(affected(world, Resolver(plan, "postgres"))) == {"1"}
    query = build_query(plan, "postgres")
    assert [row[0] for row in world.rows(query.sql.replace("%%", "%"))] == ["1"]
