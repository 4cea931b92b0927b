"""`[[index]]`: what it means, what is filled in, and what is wrong in it or in the schemas it names."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tailrace.config import Config, StdoutSink, load_config
from tailrace.config.index import load_index
from tests.config.conftest import Load, Refuse

SOURCE = '[source]\nurl = "sqlite:shop.db"\n'
STORE = '[sinks.store]\ntype = "sqlite"\npath = "documents.db"\n'
LAKE = '[sinks.lake]\ntype = "delta"\npath = "lake"\n'
HOOK = '[sinks.hook]\ntype = "http"\nurl = "http://127.0.0.1/x"\n'
OUT = '[sinks.out]\ntype = "stdout"\n'
INDEX = '[[index]]\nname = "customers"\nschema = "customers.schema.yml"\n'
OTHER = '[[index]]\nname = "cities"\nschema = "cities.schema.yml"\n'

CUSTOMERS = """\
version: 1
table: customers
fields:
  - long: id
  - has_many: orders
    table: sales.orders
    foreign_key: customer_id
    fields:
      - decimal: total
      - object: more
        fields:
          - belongs_to: city
            table: cities
            column: city_id
            fields: [{ text: name }]
  - many_to_many: tags
    table: tags
    through: { table: customer_tags, left_key: customer_id, right_key: tag_id }
    fields: [{ text: name }]
  - count: orderCount
    table: sales.orders
    foreign_key: customer_id
  - ids: groups
    table: groups
    through: { table: members, left_key: customer_id, right_key: group_id }
    element_type: long
"""
CITIES = "version: 1\ntable: cities\nfields: [{ text: name }]\n"


@pytest.fixture(autouse=True)
def schemas(file: Path) -> None:
    (file.parent / "customers.schema.yml").write_text(CUSTOMERS)
    (file.parent / "cities.schema.yml").write_text(CITIES)


def test_a_source_a_store_and_an_index_are_a_whole_file(load: Load, file: Path) -> None:
    config = load(SOURCE + STORE + INDEX)
    (index,) = config.indexes
    assert (index.name, index.enabled, index.on_error, index.sinks) == ("customers", True, "stop", ("store",))
    assert index.schema_path == file.parent / "customers.schema.yml"
    assert index.schema_ == load_index(file.parent / "customers.schema.yml")
    assert config.prefix == ""


def test_every_key_of_an_index_arrives(load: Load, file: Path) -> None:
    text = 'prefix = "shop_"\non_error = "skip"\n' + SOURCE + STORE + OUT + INDEX
    text += 'enabled = false\non_error = "stop"\nsinks = ["out"]\n' + OTHER
    first, second = load(text).indexes
    assert (first.enabled, first.on_error, first.sinks) == (False, "stop", ("out",))
    assert (second.enabled, second.on_error, second.sinks) == (True, "skip", ("store", "out"))
    assert load(text).prefix == "shop_"


def test_the_tables_of_an_index_are_captured_wherever_its_schema_names_them(load: Load) -> None:
    config = load(SOURCE + INDEX)
    assert config.captured == (
        "customers",
        "sales.orders",
        "cities",
        "tags",
        "customer_tags",
        "groups",
        "members",
    )


def test_tables_of_mirrors_feeds_and_indexes_are_captured_once(load: Load) -> None:
    config = load(SOURCE + '[[feed]]\ntables = ["cities", "a"]\n' + OTHER)
    assert config.captured == ("cities", "a")


def test_the_schema_of_the_file_stands_before_its_tables(load: Load, file: Path) -> None:
    (file.parent / "cities.schema.yml").write_text(
        "version: 1\ntable: a.b\nschema: sales\nfields:\n"
        "  - count: n\n    table: orders\n    foreign_key: x\n"
        '  - count: m\n    table: other."Odd.one"\n    foreign_key: x\n'
    )
    assert load(SOURCE + OTHER).captured == ('sales."a.b"', "sales.orders", 'other."Odd.one"')


def test_a_star_in_a_schema_is_a_name_and_not_every_table(load: Load, file: Path) -> None:
    (file.parent / "cities.schema.yml").write_text(CITIES.replace("table: cities", 'table: "*"'))
    assert load(SOURCE + OTHER).captured == ('"*"',)


def test_an_index_that_is_not_enabled_is_read_and_captures_nothing(
    load: Load, refuse: Refuse, file: Path
) -> None:
    config = load(SOURCE + INDEX + "enabled = false\n" + OTHER)
    assert config.captured == ("cities",)
    assert config.indexes[0].schema_.table == "customers"
    restricted = SOURCE + 'tables = ["cities"]\n' + INDEX + "enabled = false\n" + OTHER
    assert load(restricted).captured == ("cities",)
    error = refuse(SOURCE + INDEX + "enabled = 1\n" + OTHER)
    assert (error.place, error.message) == ("file:6 (index[0].enabled)", "must be true or false")


def test_documents_go_to_every_sink_that_takes_them(load: Load) -> None:
    config = load(SOURCE + LAKE + HOOK + STORE + OUT + STORE.replace("store", "second") + INDEX)
    assert config.indexes[0].sinks == ("store", "out", "second")


@pytest.mark.parametrize("sinks", ["", LAKE, HOOK])
def test_without_a_sink_for_documents_they_go_to_the_standard_output(load: Load, sinks: str) -> None:
    config = load(SOURCE + sinks + INDEX)
    assert config.indexes[0].sinks == ("stdout",)
    assert isinstance(config.sinks["stdout"], StdoutSink)


def test_the_sink_that_a_feed_is_given_by_default_gets_no_documents(load: Load) -> None:
    config = load(SOURCE + STORE + "[[feed]]\n" + INDEX)
    assert (config.feeds[0].sink, config.indexes[0].sinks) == ("stdout", ("store",))


def test_variables_reach_an_index(load: Load) -> None:
    variables = {
        "TAILRACE_INDEX__0__ENABLED": "false",
        "TAILRACE_INDEX__1__SINKS": "out,store",
        "TAILRACE_INDEX__1__SCHEMA": "customers.schema.yml",
        "TAILRACE_PREFIX": "test-",
    }
    config = load(SOURCE + STORE + OUT + INDEX + OTHER, variables)
    assert config.prefix == "test-"
    assert [index.enabled for index in config.indexes] == [False, True]
    assert config.indexes[1].sinks == ("out", "store")
    assert config.indexes[1].schema_.table == "customers"


def test_a_schema_may_be_named_by_a_reference(load: Load, refuse: Refuse) -> None:
    text = SOURCE + INDEX.replace("customers.schema", "${WHICH}.schema")
    assert load(text, {"WHICH": "cities"}).indexes[0].schema_.table == "cities"
    error = refuse(text)
    assert (error.place, error.message) == (
        "file:5 (index[0].schema)",
        "the environment variable `WHICH` is not set",
    )


def test_two_indexes_may_share_a_schema(load: Load, file: Path, refuse: Refuse) -> None:
    text = SOURCE + INDEX + OTHER.replace("cities.schema", "customers.schema")
    first, second = load(text).indexes
    assert first.schema_ == second.schema_
    (file.parent / "customers.schema.yml").write_text("version: 2\n")
    assert str(refuse(text)).count("must be `1`") == 1


@pytest.mark.parametrize(
    ("text", "place", "message", "remedy"),
    [
        (INDEX + INDEX, "file:7 (index[1].name)", "the name `customers` is taken", "another name"),
        (
            INDEX + 'sinks = ["stor"]\n' + STORE,
            "file:6 (index[0].sinks[0])",
            "no sink `stor`",
            "[sinks.stor]",
        ),
        (INDEX + 'sinks = [\n"lake"]\n' + LAKE, "file:7 (index[0].sinks[0])", "holds tables", "another sink"),
        (INDEX + 'sinks = ["hook"]\n' + HOOK, "file:6 (index[0].sinks[0])", "takes changes", "another sink"),
        (INDEX + "sinks = []\n", "file:6 (index[0].sinks)", "names no sink", "leave `sinks` out"),
        (
            INDEX + 'sinks = ["store", "store"]\n' + STORE,
            "file:6 (index[0].sinks[1])",
            "the sink `store` is named twice",
            "leave one",
        ),
        (
            INDEX + "enabled = false\n",
            "file:6 (index[0].enabled)",
            "there is nothing to do: no index is enabled",
            "enable",
        ),
        (
            INDEX.replace("customers.schema", "custmers.schema"),
            "file:5 (index[0].schema)",
            "there is no file ",
            "correct the path",
        ),
    ],
)
def test_what_cannot_be_meant_comes_with_a_remedy(
    refuse: Refuse, text: str, place: str, message: str, remedy: str
) -> None:
    error = refuse(SOURCE + text)
    assert error.place == place
    assert message in error.message
    assert remedy in (error.remedy or "")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('[[index]]\nname = "a"\n', "file:3 (index[0].schema)", "the key `schema` is missing"),
        ('[[index]]\nschema = "cities.schema.yml"\n', "file:3 (index[0].name)", "the key `name` is missing"),
        (INDEX.replace('"customers"', '"a b"'), "file:4 (index[0].name)", "must be a name of letters"),
        (INDEX + 'on_error = "halt"\n', "file:6 (index[0].on_error)", "must be `stop` or `skip`"),
        (INDEX + 'shema = "x"\n', "file:6 (index[0].shema)", "did you mean `schema`?"),
        (INDEX + 'sinks = "store"\n', "file:6 (index[0].sinks)", "must be an array"),
        (INDEX.replace("[[index]]", "[index]"), "file:3 (index)", "must be an array of tables"),
        ("[[indexes]]\n", "file:3 (indexes)", "unknown key `indexes`; did you mean `index`?"),
        (
            INDEX.replace("customers.sch", "s3://x/y.sch"),
            "file:5 (index[0].schema)",
            "a path of this machine",
        ),
        ("index = 3\n[[feed]]\n", "file:3 (source.index)", "unknown key `index`"),
    ],
)
def test_a_wrong_key_of_an_index_is_named(refuse: Refuse, text: str, place: str, message: str) -> None:
    error = refuse(SOURCE + text)
    assert error.place == place
    assert message in error.message
    assert "\n" not in error.message


def test_a_prefix_must_fit_the_names_of_sinks(refuse: Refuse) -> None:
    error = refuse('prefix = "a/"\n' + SOURCE + INDEX)
    assert error.place == "file:1 (prefix)"


def test_a_store_is_told_apart_from_sinks_of_changes_and_tables(refuse: Refuse) -> None:
    error = refuse(SOURCE + STORE + '[[feed]]\nsink = "store"\n')
    assert "`[[index]]`" in (error.remedy or "")
    error = refuse(SOURCE + STORE + '[[table]]\nname = "a"\nsink = "store"\n')
    assert "`[[index]]`" in (error.remedy or "")


def test_a_table_of_an_index_that_is_not_captured_is_told_with_index_and_field(
    refuse: Refuse, file: Path
) -> None:
    tables = (
        'tables = ["Customers", "sales.orders", "city", "tags", "customer_tags", "groups", "shop.members"]\n'
    )
    error = refuse(SOURCE + tables + INDEX)
    assert error.place == f"{file.parent}/customers.schema.yml:13 (field orders.more.city, table)"
    assert error.message == (
        "index `customers` needs `cities`, which is not among `source.tables`; did you mean `city`?"
    )
    assert error.remedy == "add it to `source.tables`, or leave `source.tables` out"


@pytest.mark.parametrize(
    "tables", ['["*"]', '["sales.*", "cities", "customers", "tags", "customer_tags", "main.*"]']
)
def test_tables_may_be_captured_by_a_star(load: Load, tables: str) -> None:
    assert load(SOURCE + f"tables = {tables}\n" + INDEX).indexes


def test_a_table_of_another_schema_is_not_the_one_that_is_captured(refuse: Refuse, file: Path) -> None:
    (file.parent / "cities.schema.yml").write_text(CITIES.replace("table: cities", "table: sales.cities"))
    error = refuse(SOURCE + 'tables = ["public.cities"]\n' + OTHER)
    assert "needs `sales.cities`" in error.message


def test_problems_of_the_file_and_of_every_schema_are_told_at_once(refuse: Refuse, file: Path) -> None:
    (file.parent / "customers.schema.yml").write_text(
        CUSTOMERS.replace("foreign_key: customer_id", "x: 1", 1)
    )
    (file.parent / "cities.schema.yml").write_text("version: 1\n- a\n")
    error = refuse(SOURCE + INDEX + OTHER + "enbled = true\n")
    told = str(error).replace(f"{file.parent}/", "").splitlines()
    assert told[0].startswith("file:9 (index[1].enbled): unknown key `enbled`")
    assert told[1].startswith("customers.schema.yml:5 (field orders")
    assert told[2].startswith("customers.schema.yml:7 (field orders, x)")
    assert told[3].startswith("cities.schema.yml:2: is not YAML")
    assert len(told) == 4


def test_a_schema_is_found_beside_the_file_wherever_the_command_runs(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SOURCE + INDEX)
    monkeypatch.chdir(tmp_path)
    config = load_config("shop/tailrace.toml", environ={})
    assert config.indexes[0].schema_path == file.parent / "customers.schema.yml"
    assert config.indexes[0].schema_.places.place(("table",)) == "shop/customers.schema.yml:2 (table)"


def test_a_configuration_with_indexes_can_be_sent_and_compared(load: Load) -> None:
    config = load(SOURCE + INDEX)
    sent: Config = pickle.loads(pickle.dumps(config))  # noqa: S301
    assert sent == config
    # Where it stands in the file is no part of what it says.
    assert load("# A comment.\n" + SOURCE + INDEX) == config
    assert sent.indexes[0].schema_ == config.indexes[0].schema_
    assert config.shown()["index"][0]["schema"].endswith("customers.schema.yml")
