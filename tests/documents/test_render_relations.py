"""Rows of other tables in a document, on every engine: which, in which order, and what nothing looks like."""

from __future__ import annotations

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
    Raw,
    SoftDelete,
    Through,
)
from tailrace.documents.render import Range, build_query
from tests.documents.rendering import (
    Build,
    Source,
    SqliteSource,
    aggregate,
    place,
    read,
    related,
    root,
    scalars,
)

if TYPE_CHECKING:
    pass


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
