"""Rows of other tables in a document, on every engine: which, in which order, and what nothing looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace.documents.plan import (
    Aggregate,
    Comparison,
    Group,
    IndexPlan,
    Member,
    Order,
    Place,
    Raw,
    Scalar,
    SoftDelete,
    Through,
)
from tailrace.documents.render import Keys, Range, build_query
from tailrace.model.errors import ConfigError, UsageError
from tests.documents.rendering import (
    Documents,
    PostgresSource,
    Source,
    SparkEngine,
    SqliteSource,
    place,
    read,
    related,
    root,
    scalars,
)
from tests.support.postgres import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[..., Documents]


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[PostgresSource]:
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()


@pytest.fixture(params=["postgres", "sqlite"])
def source(request: pytest.FixtureRequest) -> Source:
    """An empty source."""
    if request.param == "sqlite":
        return SqliteSource()
    made: PostgresSource = request.getfixturevalue("shared")
    made.sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return made


@pytest.fixture(params=["source", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def build(request: pytest.FixtureRequest, source: Source) -> Build:
    """The documents of a plan: by the source itself, and by Spark over its tables."""
    if request.param == "source":
        return source.documents
    spark: SparkSession = request.getfixturevalue("spark")
    return SparkEngine(spark, source).documents


def shop(source: Source) -> dict[str, Any]:
    """Customers with orders, orders with items, items with products; tags; and who recommended whom."""
    source.sql(
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text, friend int, gone boolean)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10,2), at text, state text)",
        "CREATE TABLE items (order_id int, line int, product text, n int, PRIMARY KEY (order_id, line))",
        "CREATE TABLE products (sku text PRIMARY KEY, name text, weight float8)",
        "CREATE TABLE tags (id int PRIMARY KEY, label text)",
        "CREATE TABLE tagged (customer int, tag bigint, since int)",
    )
    source.insert(
        "customers", (1, "Ann", 2, False), (2, "Bob", 1, None), (3, "Cid", 99, True), (4, None, None, False)
    )
    source.insert(
        "orders",
        (10, 1, Decimal("5.50") if source.dialect == "postgres" else 5.5, "b", "paid"),
        (11, 1, Decimal("0.10") if source.dialect == "postgres" else 0.1, None, "open"),
        (12, 1, Decimal("0.20") if source.dialect == "postgres" else 0.2, "a", None),
        (13, 2, None, "a", "paid"),
        (14, None, 7, "a", "paid"),
        (15, 77, 7, "a", "paid"),
    )
    source.insert("items", (10, 1, "s1", 2), (10, 2, "s2", 3), (12, 1, "s1", None), (13, 1, "sx", 1))
    source.insert("products", ("s1", "Saw", 0.1), ("s2", "Sieve", 0.2))
    source.insert("tags", (1, "new"), (2, "big"), (3, "old"))
    source.insert("tagged", (1, 2, 5), (1, 1, 1), (2, 2, 9), (1, 9, 0), (2, 2, 10))
    names = ("customers", "orders", "items", "products", "tags", "tagged")
    return {name: source.table(name) for name in names}


def aggregate(name: str, function: Any, where: Place, column: str | None = None, kind: Any = None) -> Member:
    return Member(name, Aggregate(where, function, column, kind))


def whole(tables: dict[str, Any]) -> IndexPlan:
    """An index with every relation, three levels deep."""
    customers, orders, items = tables["customers"], tables["orders"], tables["items"]
    products, tags = tables["products"], tables["tags"]
    through = Through(tables["tagged"], ("customer",), ("tag",))
    of_customer: Any = {"parent": "id", "own": "customer"}
    of_order: Any = {"parent": "id", "own": "order_id"}
    counted = place("x", "has_many", orders, **of_customer)
    listed = place("x", "has_many", items, **of_order)
    return root(
        customers,
        *scalars(customers, id="long", name="text"),
        related(
            "orders",
            "has_many",
            orders,
            *scalars(orders, id="long", total="decimal"),
            related(
                "items",
                "has_many",
                items,
                *scalars(items, n="integer"),
                related(
                    "product",
                    "belongs_to",
                    products,
                    *scalars(products, name="keyword"),
                    parent="product",
                    own="sku",
                ),
                **of_order,
            ),
            aggregate("lines", "count", listed),
            aggregate("n", "sum", listed, "n", "long"),
            aggregate("keys", "ids", listed, None, "integer"),
            **of_customer,
        ),
        related(
            "friend", "belongs_to", customers, *scalars(customers, name="text"), parent="friend", own="id"
        ),
        related("friends", "has_many", customers, *scalars(customers, id="long"), parent="id", own="friend"),
        related(
            "last", "has_one", orders, *scalars(orders, id="long"), **of_customer, order=(Order("at", True),)
        ),
        related(
            "first_two",
            "has_many",
            orders,
            *scalars(orders, id="long"),
            **of_customer,
            order=(Order("at"),),
            limit=2,
        ),
        related(
            "tags",
            "many_to_many",
            tags,
            *scalars(tags, label="keyword"),
            parent="id",
            own="id",
            through=through,
            order=(Order("label"),),
        ),
        Member(
            "figures",
            Group(
                (
                    aggregate("count", "count", counted),
                    aggregate("sum", "sum", counted, "total", "decimal"),
                    aggregate("avg", "avg", counted, "total"),
                    aggregate("min", "min", counted, "at", "keyword"),
                    aggregate("max", "max", counted, "total", "decimal"),
                    aggregate("ids", "ids", counted, None, "long"),
                )
            ),
        ),
    )


NOTHING: dict[str, Any] = {"count": 0, "sum": None, "avg": None, "min": None, "max": None, "ids": []}
ANN = {
    "id": 1,
    "name": "Ann",
    "orders": [
        {
            "id": 10,
            "total": Decimal("5.5"),
            "items": [{"n": 2, "product": {"name": "Saw"}}, {"n": 3, "product": {"name": "Sieve"}}],
            "lines": 2,
            "n": 5,
            "keys": [[10, 1], [10, 2]],
        },
        {"id": 11, "total": Decimal("0.1"), "items": [], "lines": 0, "n": None, "keys": []},
        {
            "id": 12,
            "total": Decimal("0.2"),
            "items": [{"n": None, "product": {"name": "Saw"}}],
            "lines": 1,
            "n": None,
            "keys": [[12, 1]],
        },
    ],
    "friend": {"name": "Bob"},
    "friends": [{"id": 2}],
    "last": {"id": 10},
    "first_two": [{"id": 12}, {"id": 10}],
    "tags": [{"label": "big"}, {"label": "new"}],
    "figures": {
        "count": 3,
        "sum": Decimal("5.8"),
        "avg": Decimal("1.9333333333333333"),
        "min": "a",
        "max": Decimal("5.5"),
        "ids": [10, 11, 12],
    },
}
BOB = {
    "id": 2,
    "name": "Bob",
    "orders": [
        {"id": 13, "total": None, "items": [{"n": 1, "product": None}], "lines": 1, "n": 1, "keys": [[13, 1]]}
    ],
    "friend": {"name": "Ann"},
    "friends": [{"id": 1}],
    "last": {"id": 13},
    "first_two": [{"id": 13}],
    "tags": [{"label": "big"}, {"label": "big"}],
    "figures": {"count": 1, "sum": None, "avg": None, "min": "a", "max": None, "ids": [13]},
}
CID = {
    "id": 3,
    "name": "Cid",
    "orders": [],
    "friend": None,
    "friends": [],
    "last": None,
    "first_two": [],
    "tags": [],
    "figures": NOTHING,
}
DOT = {**CID, "id": 4, "name": None}


def test_folds_every_relation_into_the_document(source: Source, build: Build) -> None:
    found = build(whole(shop(source)))
    assert found == {"1": ANN, "2": BOB, "3": CID, "4": DOT}
    assert list(found["1"]) == list(ANN)


def test_builds_only_the_keys_that_are_asked_for_and_none_that_is_not_there(
    source: Source, build: Build
) -> None:
    plan = whole(shop(source))
    keys = pa.table({"id": pa.array([2, 1, 2, 2**62], pa.int64())})
    assert build(plan, keys) == {"1": ANN, "2": BOB}
    assert build(plan, keys.slice(0, 0)) == {}


def test_leaves_out_what_filters_and_soft_deletes_say_and_keeps_what_they_cannot_tell(
    source: Source, build: Build
) -> None:
    tables = shop(source)
    customers, orders = tables["customers"], tables["orders"]
    link: Any = {"parent": "id", "own": "customer"}

    def orders_where(*filters: Any) -> Member:
        name = f"o{len(members)}"
        member = related(name, "has_many", orders, *scalars(orders, id="long"), **link, filters=filters)
        members.append(member)
        return member

    members: list[Member] = []
    orders_where(Comparison("state", "neq", "paid"))
    orders_where(Comparison("state", "not_in", ["open", "it's"]))
    orders_where(Comparison("state", "in", ["open", None, "100%"]))
    orders_where(Comparison("state", "is_null"))
    orders_where(Comparison("total", "between", [0.15, "6"]))
    orders_where(Comparison("total", "gt", 0.1), Comparison("state", "eq", "paid"))
    orders_where(Comparison("state", "like", "p_i%"))
    orders_where(Comparison("state", "like", "P%"))
    orders_where(Comparison("state", "ilike", "P\\%%"))
    orders_where(Comparison("state", "ilike", "PA%D"))
    orders_where(Raw("state LIKE '%pe%' OR total > 5 -- or so"))
    orders_where(Comparison("state", "in", []))
    orders_where(Comparison("state", "not_in", []))
    orders_where(Comparison("at", "lt", "b"))
    shown = [[11], [10], [11], [12], [10, 12], [10], [10], [], [], [10], [10, 11], [], [10, 11, 12], [12]]
    found = build(root(customers, *members, soft_delete=SoftDelete("gone")))
    assert set(found) == {"1", "2", "4"}
    assert [[one["id"] for one in found["1"][f"o{at}"]] for at in range(len(members))] == shown
    twice = (Comparison("name", "is_not_null"), Comparison("id", "lte", 3))
    assert set(build(root(customers, filters=twice))) == {"1", "2", "3"}
    when = SoftDelete("name", (Comparison("friend", "lt", 50), Raw("id <> 1")))
    assert set(build(root(customers, soft_delete=when))) == {"1", "3", "4"}


def test_a_word_of_sqlite_may_say_that_a_row_is_deleted() -> None:
    source = SqliteSource()
    source.sql("CREATE TABLE a (id integer PRIMARY KEY, gone boolean)")
    source.insert("a", (1, "true"), (2, 1), (3, "no"), (4, 0), (5, None))
    assert set(source.documents(root(source.table("a"), soft_delete=SoftDelete("gone")))) == {"3", "4", "5"}


def test_counts_a_row_once_for_each_junction_row_unless_it_shall_be_distinct(
    source: Source, build: Build
) -> None:
    tables = shop(source)
    through = Through(tables["tagged"], ("customer",), ("tag",), (Comparison("since", "gt", 4),))
    where = place("x", "many_to_many", tables["tags"], parent="id", own="id", through=through)
    plan = root(
        tables["customers"],
        aggregate("all", "count", where),
        Member("once", Aggregate(where, "count", distinct=True)),
        Member("sum", Aggregate(where, "sum", "id", "long", distinct=True)),
        aggregate("ids", "ids", where, None, "long"),
    )
    found = build(plan)
    assert found["1"] == {"all": 1, "once": 1, "sum": 2, "ids": [2]}
    assert found["2"] == {"all": 2, "once": 1, "sum": 2, "ids": [2, 2]}
    assert found["3"] == {"all": 0, "once": 0, "sum": None, "ids": []}


@pytest.mark.parametrize("descending", [False, True])
def test_totals_are_of_all_rows_whatever_the_document_shows_of_them(
    source: Source, build: Build, descending: bool
) -> None:
    tables = shop(source)
    orders, tags = tables["orders"], tables["tags"]
    ids = scalars(orders, id="long")
    link: Any = {"parent": "id", "own": "customer"}
    paid = (Comparison("state", "eq", "paid"),)
    through = Through(tables["tagged"], ("customer",), ("tag",))
    far: Any = {"parent": "id", "own": "id", "through": through}
    bare, tagged = place("x", "has_many", orders, **link), place("x", "has_many", tags, **far)
    order = (Order("at", descending),)
    limited = related("shown", "has_many", orders, *ids, **link, order=order, limit=1)
    filtered = related("shown", "has_many", orders, *ids, **link, filters=paid)
    alone = related("shown", "has_many", orders, *ids, **link, order=order)
    totals = (
        aggregate("count", "count", bare),
        aggregate("sum", "sum", bare, "total", "decimal"),
        aggregate("ids", "ids", bare, None, "long"),
        aggregate("paid", "count", place("x", "has_many", orders, **link, filters=paid)),
    )
    once = Member("once", Aggregate(tagged, "count", distinct=True))
    ordered = [10, 12, 11] if descending else [12, 10, 11]
    for shown, expected in ((limited, ordered[:1]), (filtered, [10]), (alone, ordered)):
        labels = related("tags", "many_to_many", tags, *scalars(tags, id="long"), **far)
        plan = root(tables["customers"], shown, *totals, labels, aggregate("tagged", "count", tagged), once)
        found = build(plan)
        assert [one["id"] for one in found["1"]["shown"]] == expected
        assert [found["1"][name] for name in ("count", "sum", "ids", "paid")] == [
            3,
            Decimal("5.8"),
            [10, 11, 12],
            1,
        ]
        assert [found["2"][name] for name in ("tags", "tagged", "once")] == [[{"id": 2}, {"id": 2}], 2, 1]
        assert [found["3"][name] for name in ("shown", "count", "sum", "ids", "once")] == [[], 0, None, [], 0]


def test_meets_keys_of_other_widths_types_and_several_columns(source: Source, build: Build) -> None:
    fixed = "char(4)" if source.dialect == "postgres" else "text"
    source.sql(
        "CREATE TABLE a (x bigint, y varchar(9), PRIMARY KEY (x, y))",
        f"CREATE TABLE b (id smallint PRIMARY KEY, x int, y {fixed}, up numeric(20,0))",
    )
    source.insert("a", (1, "one"), (1, "two"), (2, "a\"b,['"))
    source.insert("b", (1, 1, "one", 1), (2, 1, "one", 1), (3, 1, None, 2), (4, 1, "two", None))
    a, b = source.table("a"), source.table("b")
    up = related("up", "belongs_to", b, *scalars(b, id="long"), parent="up", own="id")
    plan = root(
        a,
        related(
            "b", "has_many", b, *scalars(b, id="long", y="keyword"), up, parent=("x", "y"), own=("x", "y")
        ),
    )
    expected = {
        '["1","one"]': {
            "b": [{"id": 1, "y": "one", "up": {"id": 1}}, {"id": 2, "y": "one", "up": {"id": 1}}]
        },
        '["1","two"]': {"b": [{"id": 4, "y": "two", "up": None}]},
        '["2","a\\"b,[\'"]': {"b": []},
    }
    assert build(plan) == expected
    keys = pa.table({"x": pa.array([1, 2, 2], pa.int64()), "y": ["one", "a\"b,['", "one"]})
    assert build(plan, keys) == {name: body for name, body in expected.items() if "two" not in name}


def test_orders_and_compares_text_by_its_bytes_and_puts_null_last(source: Source, build: Build) -> None:
    source.sql(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY, a int, t text, f float8, n int)",
    )
    source.insert("a", (1,))
    texts = ["b", "B", None, "ä", "a", "𝄞", "\ufffd", "", "a"]
    source.insert("b", *((at, 1, text, 0.1 * at, at % 3) for at, text in enumerate(texts)))
    a, b = source.table("a"), source.table("b")
    link: Any = {"parent": "id", "own": "a"}
    mine = scalars(b, id="long")
    where = place("x", "has_many", b, **link)
    plan = root(
        a,
        related("up", "has_many", b, *mine, **link, order=(Order("t"),)),
        related("down", "has_many", b, *mine, **link, order=(Order("t", True), Order("id", True)), limit=3),
        related("two", "has_many", b, *mine, **link, order=(Order("n", True), Order("t"))),
        aggregate("least", "min", where, "t", "text"),
        aggregate("most", "max", where, "t", "text"),
        aggregate("sum", "sum", where, "f", "double"),
    )
    found = build(plan)["1"]
    assert [one["id"] for one in found["up"]] == [7, 1, 4, 8, 0, 3, 6, 5, 2]
    assert [one["id"] for one in found["down"]] == [5, 6, 3]
    assert [one["id"] for one in found["two"]] == [8, 5, 2, 7, 1, 4, 0, 3, 6]
    assert (found["least"], found["most"]) == ("", "𝄞")
    total = 0.0
    for at in range(len(texts)):
        total += 0.1 * at
    assert float(found["sum"]) == total


def test_adds_whole_numbers_and_decimals_exactly_however_large(source: Source, build: Build) -> None:
    source.sql(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY, a int, n bigint, d decimal(12,2), flag boolean, day date)",
    )
    source.insert("a", (1,), (2,))
    large = 2**63 - 1
    source.insert(
        "b",
        *((at, 1, large, 0.1, at > 5, f"2024-01-{at + 1:02}") for at in range(10)),
        (10, 2, -large, -0.05, False, "2024-02-01"),
        (11, 2, -3, -0.02, True, None),
    )
    a, b = source.table("a"), source.table("b")
    where = place("x", "has_many", b, parent="id", own="a")
    plan = root(
        a,
        aggregate("n", "sum", where, "n", "long"),
        aggregate("d", "sum", where, "d", "decimal"),
        aggregate("avg", "avg", where, "d"),
        aggregate("min", "min", where, "day", "date"),
        aggregate("any", "max", where, "flag", "boolean"),
    )
    assert build(plan) == {
        "1": {"n": 10 * large, "d": 1, "avg": Decimal("0.1"), "min": "2024-01-01", "any": True},
        "2": {
            "n": -large - 3,
            "d": Decimal("-0.07"),
            "avg": Decimal("-0.035"),
            "min": "2024-02-01",
            "any": True,
        },
    }


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


def test_builds_a_range_of_keys(source: Source) -> None:
    plan = whole(shop(source))
    query = build_query(plan, source.dialect, Range(low=True, high=True))
    assert read(source.run(query, query.bind_range((2,), (4,)))) == {"2": BOB, "3": CID}
    query = build_query(plan, source.dialect, Range(low=True, high=False))
    assert set(read(source.run(query, query.bind_range((3,))))) == {"3", "4"}
    query = build_query(plan, source.dialect, Range(low=False, high=True))
    assert set(read(source.run(query, query.bind_range(high=(2,))))) == {"1"}
    items = source.table("items")
    query = build_query(root(items), source.dialect, Range())
    ids = set(read(source.run(query, query.bind_range((10, 2), (13, 1)))))
    assert ids == {'["10","2"]', '["12","1"]'}


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
