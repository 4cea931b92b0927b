"""A schema and a catalog make a plan; whatever the catalog does not have is named with its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.config.index import load_index, parse_index
from tailrace.config.index.names import readings, split
from tailrace.documents import plan
from tailrace.documents.compile import compile_index
from tailrace.model.errors import ConfigError
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema

EXAMPLES = Path(__file__).resolve().parents[1] / "config/index/examples"


def table(ref: str, columns: str, key: str = "id", **types: str) -> TableSchema:
    """`shop.orders` with columns of type `long`, unless told otherwise."""
    schema, _, bare = ref.rpartition(".")
    found = tuple(
        Column(each, ColumnType(types.get(each, "long")), types.get(each, "bigint"))
        for each in columns.split()
    )
    return TableSchema(TableRef(schema or "public", bare), found, tuple(key.split()))


class Catalog:
    """Tables by name; `public` is the default schema."""

    def __init__(self, *tables: TableSchema) -> None:
        self.tables = {each.ref: each for each in tables}

    def __call__(self, schema: str | None, name: str) -> TableSchema:
        return self.tables[TableRef(schema or "public", name)]


SHOP = (
    table("customers", "id name email active deleted_at city_id parent_id", name="string", active="boolean"),
    table("orders", "id customer_id total placed_at status"),
    table("order_items", "id order_id product_id quantity"),
    table("products", "id name", name="string"),
    table("tags", "id label"),
    table("customer_tags", "customer_id tag_id removed_at", "customer_id tag_id"),
    table("geo.cities", "id name"),
    table("tenants", "tenant number name", "tenant number"),
    table("visits", "id tenant number seen_at"),
    table("log", "message customer_id", ""),
)
HEAD = "version: 1\ntable: customers\nprimary_key: id\nfields:\n"


def compiled(text: str, *tables: TableSchema) -> plan.IndexPlan:
    return compile_index("shop", parse_index(text, "file"), Catalog(*(tables or SHOP)))


def refused(text: str, *tables: TableSchema) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        compiled(text, *tables)
    return raised.value


def test_a_tree_of_joins_becomes_a_tree_of_places() -> None:
    built = compiled(
        HEAD + "  - long: id\n"
        "  - object: more\n    fields:\n"
        "      - has_many: orders\n        table: orders\n        foreign_key: customer_id\n"
        "        order_by: [{column: placed_at, direction: desc}]\n        limit: 5\n"
        "        filters: [{column: status, op: in, value: [1, 2]}, {raw: total > 0}]\n        fields:\n"
        "          - has_many: items\n            table: order_items\n            foreign_key: order_id\n"
        "            fields:\n"
        "              - belongs_to: product\n                table: products\n"
        "                column: product_id\n                required: true\n"
        "                fields: [{keyword: name}]\n"
        "          - count: lines\n            table: order_items\n            foreign_key: order_id\n"
        "  - many_to_many: tags\n    table: tags\n    fields: [{long: label}]\n"
        "    through:\n      table: customer_tags\n      left_key: customer_id\n      right_key: tag_id\n"
        "      filters: [{column: removed_at, op: is_null}]\n"
    )
    places = {place[-1].path: place[-1] for place in built.chains()}
    assert {path: place.number for path, place in places.items()} == {
        (): 0,
        ("more", "orders"): 1,
        ("more", "orders", "items"): 2,
        ("more", "orders", "items", "product"): 3,
        ("more", "orders", "lines"): 4,
        ("tags",): 5,
    }
    orders = places["more", "orders"]
    assert orders.link == plan.Link("has_many", ("id",), ("customer_id",))
    assert orders.order == (plan.Order("placed_at", descending=True),)
    assert orders.limit == 5
    assert orders.filters == (plan.Comparison("status", "in", (1, 2)), plan.Raw("total > 0"))
    product = places["more", "orders", "items", "product"]
    assert product.link == plan.Link("belongs_to", ("product_id",), ("id",))
    assert product.members == (plan.Member("name", plan.Scalar("name", "keyword")),)
    (items,) = [member.value for member in orders.members if member.name == "items"]
    assert isinstance(items, plan.Related)
    (inner,) = items.place.members
    assert isinstance(inner.value, plan.Related)
    assert inner.value.required
    tags = places["tags",]
    assert tags.link is not None
    assert tags.link.through == plan.Through(
        SHOP[5], ("customer_id",), ("tag_id",), (plan.Comparison("removed_at", "is_null"),)
    )
    assert (tags.link.parent, tags.link.own) == (("id",), ("id",))


def test_every_kind_of_value_is_compiled() -> None:
    built = compiled(
        HEAD + "  - keyword: mail\n    column: email\n    required: true\n    default: none\n"
        "    transforms: [trim, {truncate: 3}]\n"
        "  - geo: at\n    lat: city_id\n    lon: parent_id\n  - geo: name\n"
        "  - map: email\n    values: text\n  - custom: active\n    opensearch: x\n"
        "  - constant: c\n    value: [1]\n  - expression: e\n    sql: id + 1\n    type: long\n"
        "  - sum: spent\n    table: orders\n    foreign_key: customer_id\n    column: total\n"
        "    value_type: decimal\n"
        "  - avg: mean\n    table: orders\n    foreign_key: customer_id\n    column: total\n"
        "  - ids: tags\n    table: tags\n    element_type: long\n    distinct: true\n"
        "    through: {table: customer_tags, left_key: customer_id, right_key: tag_id}\n"
        "  - count: lines\n    table: log\n    foreign_key: customer_id\n"
    )
    values = {member.name: member.value for member in built.root.members}
    assert values["mail"] == plan.Scalar(
        "email", "keyword", (plan.Transform("trim"), plan.Transform("truncate", 3)), "none", True, True
    )
    assert values["at"] == plan.Geo("city_id", "parent_id")
    assert values["name"] == plan.Geo(column="name")
    assert values["email"] == plan.Scalar("email", "map")
    assert values["active"] == plan.Scalar("active", "custom")
    assert values["c"] == plan.Constant([1])
    assert values["e"] == plan.Expression("id + 1", "long")
    spent, mean, tags, lines = (values[name] for name in ("spent", "mean", "tags", "lines"))
    assert isinstance(spent, plan.Aggregate)
    assert (spent.function, spent.column, spent.kind) == ("sum", "total", "decimal")
    assert isinstance(mean, plan.Aggregate)
    assert (mean.function, mean.kind) == ("avg", "double")
    assert isinstance(tags, plan.Aggregate)
    assert (tags.function, tags.kind, tags.distinct, tags.place.key) == ("ids", "long", True, ("id",))
    assert tags.place.link is not None
    assert tags.place.link.shape == "many_to_many"
    assert isinstance(lines, plan.Aggregate)
    assert (lines.function, lines.kind, lines.place.key) == ("count", "long", ())


def test_a_table_may_be_root_and_join_target_and_be_in_another_schema() -> None:
    built = compiled(
        HEAD + "  - belongs_to: parent_id\n    table: customers\n    fields: [{keyword: name}]\n"
        "  - belongs_to: city\n    table: geo.cities\n    column: city_id\n    fields: [{keyword: name}]\n"
    )
    parent, city = built.root.below()
    assert parent.table is built.root.table
    assert parent.link == plan.Link("belongs_to", ("parent_id",), ("id",))
    assert city.table.ref == TableRef("geo", "cities")


def test_the_schema_of_the_index_is_that_of_its_joins_too() -> None:
    tables = (table("shop.a", "id"), table("shop.b", "id a_id"), table("other.c", "id a_id"))
    built = compiled(
        "version: 1\nschema: shop\ntable: a\nfields:\n"
        "  - has_many: b\n    table: b\n    foreign_key: a_id\n    fields: []\n"
        "  - has_many: c\n    table: other.c\n    foreign_key: a_id\n    fields: []\n",
        *tables,
    )
    assert [place.table.ref for place in built.root.below()] == [
        TableRef("shop", "b"),
        TableRef("other", "c"),
    ]


def test_joins_nest_48_levels_deep_and_more_are_refused() -> None:
    def nested(levels: int) -> str:
        text = "version: 1\ntable: customers\nfields:\n"
        for level in range(levels):
            indent = "  " * (2 * level + 1)
            text += f"{indent}- belongs_to: parent_id\n{indent}  table: customers\n{indent}  fields:\n"
        return text + "  " * (2 * levels + 1) + "- text: name\n"

    assert sum(1 for _ in compiled(nested(48)).chains()) == 49
    assert "is nested more than 100 levels deep" in refused(nested(49)).message


def test_composite_keys_are_paired_in_their_order() -> None:
    built = compiled(
        "version: 1\ntable: tenants\nprimary_key: [tenant, number]\nfields:\n"
        "  - has_many: visits\n    table: visits\n    foreign_key: [tenant, number]\n    fields:\n"
        "      - belongs_to: of\n        table: tenants\n        column: [tenant, number]\n"
        "        primary_key: [tenant, number]\n        fields: [{keyword: name}]\n"
    )
    (visits,) = built.root.below()
    (of,) = visits.below()
    assert built.root.key == ("tenant", "number")
    assert visits.link == plan.Link("has_many", ("tenant", "number"), ("tenant", "number"))
    assert of.link == plan.Link("belongs_to", ("tenant", "number"), ("tenant", "number"))


def test_names_are_found_as_written_and_then_as_databases_fold_them() -> None:
    tables = (table("users", "id fullname Odd odd"), table("Users2", "id"), table("a.b", "id"))
    built = compiled("version: 1\ntable: Users\nfields:\n  - text: fullName\n  - text: Odd\n", *tables)
    columns = [member.value.column for member in built.root.members if isinstance(member.value, plan.Scalar)]
    assert built.root.table.ref.name == "users"
    assert columns == ["fullname", "Odd"]
    assert compiled("version: 1\ntable: Users2\nfields: []\n", *tables).root.table.ref.name == "Users2"
    odd = TableSchema(TableRef("public", "odd.name"), tables[0].columns, ("id",))
    assert compiled("version: 1\ntable: odd.name\nfields: []\n", odd).root.table is odd
    assert compiled("version: 1\ntable: '\"odd.name\"'\nfields: []\n", odd).root.table is odd
    assert compiled("version: 1\nschema: public\ntable: odd.name\nfields: []\n", odd).root.table is odd


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ('"a.b".c', ["a.b", "c"]),
        ('a."b""c"', ["a", 'b"c']),
        ("a.b.c", ["a", "b", "c"]),
        ("a.", ["a."]),
        (".a", [".a"]),
        ('"a', ['"a']),
        ('"a"b', ['"a"b']),
        ('""', ['""']),
    ],
)
def test_a_dotted_name_is_split_outside_its_quotes(name: str, parts: list[str]) -> None:
    assert split(name) == parts


def test_a_name_has_few_readings() -> None:
    assert list(readings("orders", "shop")) == [("shop", "orders")]
    assert list(readings("Crm.Users", "shop")) == [
        ("Crm", "Users"),
        ("crm", "users"),
        ("shop", "Crm.Users"),
        ("shop", "crm.users"),
    ]


def test_a_soft_delete_goes_by_column_or_by_field() -> None:
    when = "\n  when: [{column: active, op: eq, value: false}]"
    by_column = compiled(HEAD + f"  []\nsoft_delete:\n  column: deleted_at{when}\n")
    by_field = compiled(
        HEAD + "  - object: o\n    fields:\n      - timestamp: gone\n        column: deleted_at\n"
        f"soft_delete:\n  field: gone{when}\n"
    )
    expected = plan.SoftDelete("deleted_at", (plan.Comparison("active", "eq", False),))
    assert by_column.soft_delete == by_field.soft_delete == expected


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("version: 1\ntable: custmers\nfields: []\n", "file:2 (table)", "there is no table `custmers`"),
        (
            "version: 1\ntable: customers\nprimary_key: email\nfields: []\n",
            "file:3 (primary_key)",
            "the primary key of public.customers is `id`, not `email`",
        ),
        (
            "version: 1\ntable: tenants\nprimary_key: tenant\nfields: []\n",
            "file:3 (primary_key)",
            "the primary key of public.tenants is `tenant`, `number`, not `tenant`",
        ),
        (
            "version: 1\ntable: tenants\nprimary_key: [number, tenant]\nfields: []\n",
            "file:3 (primary_key)",
            "the primary key of public.tenants is `tenant`, `number`, not `number`, `tenant`",
        ),
        (
            "version: 1\ntable: customers\nprimary_key: idd\nfields: []\n",
            "file:3 (primary_key)",
            "public.customers has no column `idd`; did you mean `id`?",
        ),
        ("version: 1\ntable: log\nfields: []\n", "file:2 (table)", "public.log has no primary key"),
        (
            HEAD + "  - text: emial\n",
            "file:5 (field emial, text)",
            "no column `emial`; did you mean `email`?",
        ),
        (
            HEAD + "  - text: a\n    column: emial\n",
            "file:6 (field a, column)",
            "public.customers has no column `emial`; did you mean `email`?",
        ),
        (HEAD + "  - geo: a\n    lat: city_id\n    lon: lng\n", "file:7 (field a, lon)", "no column `lng`"),
        (HEAD + "  []\nfilters: [{column: x, op: is_null}]\n", "file:6 (filters[0].column)", "no column `x`"),
        (
            HEAD + "  []\nsoft_delete: {column: deletd_at}\n",
            "file:6 (soft_delete.column)",
            "mean `deleted_at`?",
        ),
        (
            HEAD + "  []\nsoft_delete: {column: active, when: [{column: x, op: is_null}]}\n",
            "file:6 (soft_delete.when[0].column)",
            "no column `x`",
        ),
        (
            HEAD + "  - has_many: o\n    table: oders\n    foreign_key: customer_id\n    fields: []\n",
            "file:6 (field o, table)",
            "there is no table `oders`",
        ),
        (
            HEAD + "  - has_many: o\n    table: orders\n    foreign_key: customer\n    fields: []\n",
            "file:7 (field o, foreign_key)",
            "public.orders has no column `customer`; did you mean `customer_id`?",
        ),
        (
            HEAD
            + "  - has_many: o\n    table: orders\n    foreign_key: customer_id\n    primary_key: status\n"
            "    fields: []\n",
            "file:8 (field o, primary_key)",
            "the primary key of public.orders is `id`, not `status`",
        ),
        (
            HEAD + "  - has_many: o\n    table: orders\n    foreign_key: customer_id\n    fields: []\n"
            "    order_by:\n      - column: id\n      - column: placed\n",
            "file:11 (field o, order_by[1].column)",
            "no column `placed`",
        ),
        (
            HEAD + "  - belongs_to: city\n    table: geo.cities\n    fields: []\n",
            "file:5 (field city, belongs_to)",
            "public.customers has no column `city`; did you mean `city_id`?",
        ),
        (
            HEAD + "  - belongs_to: city_id\n    table: tenants\n    fields: []\n",
            "file:5 (field city_id, belongs_to)",
            "is `city_id`, but the key of public.tenants is `tenant`, `number`",
        ),
        (
            "version: 1\ntable: tenants\nfields:\n  - has_many: v\n    table: visits\n"
            "    foreign_key: tenant\n    fields: []\n",
            "file:6 (field v, foreign_key)",
            "is `tenant`, but the key of public.tenants is `tenant`, `number`",
        ),
        (
            HEAD + "  - many_to_many: t\n    table: tags\n    fields: []\n"
            "    through: {table: customer_tag, left_key: customer_id, right_key: tag_id}\n",
            "file:8 (field t, through.table)",
            "there is no table `customer_tag`",
        ),
        (
            HEAD + "  - count: t\n    table: tags\n    through:\n      table: customer_tags\n"
            "      left_key: customr_id\n      right_key: tag_id\n",
            "file:9 (field t, through.left_key)",
            "no column `customr_id`; did you mean `customer_id`?",
        ),
        (
            HEAD + "  - count: t\n    table: tags\n    through:\n      table: customer_tags\n"
            "      left_key: customer_id\n      right_key: tag_id\n"
            "      filters: [{column: x, op: is_null}]\n",
            "file:11 (field t, through.filters[0].column)",
            "public.customer_tags has no column `x`",
        ),
        (
            HEAD + "  - max: t\n    table: orders\n    foreign_key: customer_id\n    column: totl\n"
            "    value_type: long\n",
            "file:8 (field t, column)",
            "no column `totl`; did you mean `total`?",
        ),
        (
            HEAD + "  - ids: t\n    table: log\n    foreign_key: customer_id\n    element_type: long\n",
            "file:6 (field t, table)",
            "public.log has no primary key",
        ),
    ],
)
def test_what_the_source_does_not_have_is_told_with_its_line_and_field(
    text: str, place: str, message: str
) -> None:
    error = refused(text)
    assert error.place == place
    assert message in error.message
    assert "\n" not in error.message


def test_everything_that_is_missing_is_told_at_once() -> None:
    error = refused(
        HEAD
        + "  - text: nme\n  - has_many: o\n    table: orders\n    foreign_key: customer_id\n    fields:\n"
        "      - text: totl\n      - count: c\n        table: nothing\n        foreign_key: x\n"
    )
    assert [line.partition(": ")[0] for line in error.message.splitlines()][1:] == [
        "file:10 (field o.totl, text)",
        "file:12 (field o.c, table)",
    ]
    assert error.place == "file:5 (field nme, text)"


def test_what_a_catalog_says_of_a_table_is_passed_on() -> None:
    def catalog(schema: str | None, name: str) -> TableSchema:
        raise ConfigError(f"{name} is a view", remedy="capture its tables")

    with pytest.raises(ConfigError) as raised:
        compile_index("a", parse_index("version: 1\ntable: v\nfields: []\n", "file"), catalog)
    assert (raised.value.message, raised.value.remedy) == ("v is a view", "capture its tables")
    assert raised.value.place == "file:2 (table)"


BASE = (
    HEAD + "  - text: name\n  - has_many: o\n    table: orders\n    foreign_key: customer_id\n"
    "    fields: [{long: total}]\n"
)


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("text: name", "keyword: name"),
        BASE.replace("text: name", "text: nom\n    column: name"),
        BASE.replace("text: name", "text: name\n    default: x"),
        BASE.replace("text: name", "text: name\n    transforms: [trim]"),
        BASE.replace("text: name", "text: name\n    options: {analyzer: english}"),
        BASE.replace("has_many: o", "has_many: o\n    limit: 3"),
        BASE.replace("has_many: o", "has_many: o\n    order_by: [{column: total}]"),
        BASE.replace("has_many: o", "has_many: o\n    filters: [{column: status, op: eq, value: 1}]"),
        BASE.replace("has_many: o", "has_many: o\n    filters: [{column: status, op: eq, value: '1'}]"),
        BASE.replace("has_many: o", "has_many: o\n    filters: [{raw: status = 1}]"),
        BASE + "soft_delete: {column: active}\n",
        BASE + "filters: [{column: active, op: eq, value: true}]\n",
        BASE + "  - constant: c\n    value: 1\n",
        BASE + "  - constant: c\n    value: true\n",
    ],
)
def test_the_hash_changes_with_whatever_changes_documents(other: str) -> None:
    assert compiled(other).schema_hash != compiled(BASE).schema_hash


def test_hashes_of_all_variations_differ() -> None:
    texts = [
        BASE + f"  - constant: c\n    value: {value}\n"
        for value in ("1", "true", "'1'", "1.0", "null", "[1]")
    ]
    assert len({compiled(text).schema_hash for text in texts}) == len(texts)


def test_the_hash_stays_whether_the_key_is_declared_or_not() -> None:
    shown = BASE + "  - long: id\n"
    assert compiled(shown.replace("primary_key: id\n", "")).schema_hash == compiled(shown).schema_hash


def test_the_hash_stays_where_documents_stay() -> None:
    first = compiled(BASE)
    assert compiled("# a comment\n" + BASE.replace("primary_key: id\n", "")).schema_hash == first.schema_hash
    assert compile_index("other", parse_index(BASE, "x"), Catalog(*SHOP)).schema_hash == first.schema_hash
    required = BASE.replace("text: name", "text: name\n    required: true")
    assert compiled(required).schema_hash == first.schema_hash
    customers, *others = SHOP
    more = TableSchema(
        customers.ref,
        (*customers.columns, Column("added", ColumnType("string"))),
        customers.key,
        generation="2",
    )
    assert compiled(BASE, more, *others).schema_hash == first.schema_hash


def test_the_hash_changes_with_the_type_of_a_column_that_is_read() -> None:
    first = compiled(BASE)
    customers, orders, *others = SHOP
    retyped = table("orders", "id customer_id total placed_at status", total="string")
    assert compiled(BASE, customers, retyped, *others).schema_hash != first.schema_hash
    unread = table("orders", "id customer_id total placed_at status", placed_at="string")
    assert compiled(BASE, customers, unread, *others).schema_hash == first.schema_hash
    longer = table("customers", "id name email active deleted_at city_id parent_id", name="string")
    text = BASE + "soft_delete: {column: active}\n"
    assert compiled(text, longer, orders, *others).schema_hash != compiled(text).schema_hash


def test_the_hash_is_the_same_in_every_process() -> None:
    script = "from tests.documents.test_compile import BASE, compiled\nprint(compiled(BASE).schema_hash)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == compiled(BASE).schema_hash
    assert len(compiled(BASE).schema_hash) == 32


def test_the_examples_compile_against_a_catalog_that_has_everything() -> None:
    names = {
        "books": "id signature isbn title blurb condition binding record_id lendable volume times_lent"
        " thickness score price published_on acquired_at cover notes rating_raw latitude longitude"
        " origin_point titles width height_cm publisher_id withdrawn shelf catalogued acquired_on",
        "publishers": "id name",
        "summaries": "book_id body written_at",
        "loans": "id book_id days lent_at status reader_id",
        "readers": "id name",
        "subjects": "id label",
        "book_subjects": "book_id subject_id removed_at",
    }
    keys = {"summaries": "book_id", "book_subjects": "book_id subject_id"}
    tables = [table(f"library.{name}", columns, keys.get(name, "id")) for name, columns in names.items()]
    built = compile_index("books", load_index(EXAMPLES / "everything.schema.yml"), Catalog(*tables))
    assert sum(1 for _ in built.chains()) == 14
    assert [chain[-1].number for chain in sorted(built.chains(), key=lambda c: c[-1].number)] == list(
        range(14)
    )
