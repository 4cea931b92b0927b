"""An index schema that is right is read as it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tailrace.config.index import fields as written
from tailrace.config.index import index_from, load_index, parts
from tailrace.documents import plan
from tailrace.model.errors import ConfigError
from tests.config.index.conftest import HEAD, parse


def one(text: str) -> Any:
    """The only field of a schema that is right but for it."""
    (field,) = parse(HEAD + text).fields_
    return field


def test_files_of_version_1_are_taken_as_they_are(examples: list[Path]) -> None:
    assert len(examples) == 2
    for file in examples:
        assert load_index(file).version == 1


def test_every_kind_and_key_of_version_1_is_in_the_examples(examples: list[Path]) -> None:
    (everything,) = [load_index(file) for file in examples if file.name.startswith("everything")]
    used = {field.kind for _, field in everything.walk()}
    assert used == set(written.MODELS) - {"expression"}


def test_a_schema_survives_as_json(examples: list[Path]) -> None:
    for file in examples:
        schema = load_index(file)
        body = json.loads(json.dumps(schema.written()))
        again = index_from(body, "lock")
        assert again == schema
        assert again.written() == schema.written()


def test_what_a_schema_says_is_in_the_models(examples: list[Path]) -> None:
    schema = load_index(next(file for file in examples if file.name.startswith("everything")))
    assert (schema.table, schema.schema_, schema.primary_key) == ("books", "library", ("id",))
    assert schema.soft_delete is not None
    assert schema.soft_delete.column == "withdrawn"
    assert schema.filters[2] == parts.RawFilter(raw="pages > 0 AND language <> 'xx'")
    by_name = {field.name: field for field in schema.fields_}
    loans = by_name["loans"]
    assert isinstance(loans, written.HasMany)
    assert loans.foreign_key == ("book_id",)
    assert loans.limit == 100
    assert [(order.column, order.direction) for order in loans.order_by] == [
        ("lent_at", "desc"),
        ("id", "asc"),
    ]
    assert loans.filters[0] == parts.Comparison(column="status", op="not_in", value=["cancelled", "lost"])
    subjects = by_name["subjects"]
    assert isinstance(subjects, written.ManyToMany)
    assert subjects.through.right_key == ("subject_id",)
    assert subjects.through.filters == (parts.Comparison(column="removed_at", op="is_null"),)
    assert by_name["lendable"].default is False  # type: ignore[union-attr]
    assert by_name["condition"].variants == ("new", "good", "worn")  # type: ignore[union-attr]
    assert by_name["meanDays"].value_type == "double"  # type: ignore[union-attr]


def test_the_extensions_are_taken() -> None:
    schema = parse(
        "version: 1\ntable: shop.customers\nprimary_key: [tenant, id]\nfields:\n"
        "  - keyword: phone\n    transforms: [trim, uppercase, { truncate: 3 }, hash]\n"
        "  - expression: full\n    sql: first || ' ' || last\n    type: text\n"
        "  - belongs_to: city\n    table: geo.cities\n    column: [tenant, city_id]\n"
        "    primary_key: [tenant, id]\n    fields: []\n"
        "  - has_many: orders\n    table: orders\n    foreign_key: [tenant, customer_id]\n    fields: []\n"
    )
    phone, full, city, orders = schema.fields_
    assert isinstance(phone, written.Scalar)
    assert phone.transforms[2:] == (parts.Transform("truncate", 3), parts.Transform("hash"))
    assert isinstance(full, written.Expression)
    assert full.sql == "first || ' ' || last"
    assert isinstance(city, written.BelongsTo)
    assert city.column == ("tenant", "city_id")
    assert isinstance(orders, written.HasMany)
    assert (orders.foreign_key, orders.primary_key) == (("tenant", "customer_id"), None)


def test_the_language_and_the_plan_speak_of_the_same_kinds() -> None:
    assert set(get_args(written.ValueKind)) | {"map", "custom"} == set(get_args(plan.Kind))
    aggregates = {kind for kind, model in written.MODELS.items() if issubclass(model, written.Aggregate)}
    assert aggregates == set(get_args(plan.Function))
    joins = {kind for kind, model in written.MODELS.items() if issubclass(model, written.Join)}
    assert joins == set(get_args(plan.Shape))


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y", "n", "true", "False"])
def test_a_name_that_yaml_would_read_as_a_boolean_stays_a_name(word: str) -> None:
    field = one(f"  - keyword: {word}\n    column: {word}\n")
    assert (field.name, field.column) == (word, word)
    assert parse(f"version: 1\ntable: {word}\nfields: []\n").table == word


@pytest.mark.parametrize(
    "word", ["1.10", "010", "0o17", "0x1F", "12:30:45", "2024-12-31", "1_000", "1e3", ".5", "007", "+1"]
)
def test_a_word_that_yaml_would_read_as_a_number_or_a_date_stays_a_word(word: str) -> None:
    field = one(f"  - enum: state\n    column: {word}\n    variants: [{word}]\n    default: {word}\n")
    assert (field.column, field.variants, field.default) == (word, (word,), word)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("7", 7),
        ("-7", -7),
        ("010", "010"),
        ("1.5", 1.5),
        ("2e3", 2000.0),
        ("12:30", "12:30"),
        ("2024-12-31", "2024-12-31"),
        ("0x1F", "0x1F"),
        ("'7'", "7"),
        ('"true"', "true"),
        ("12345678901234567890123", 12345678901234567890123),
    ],
)
def test_a_compared_value_is_what_yaml_1_2_reads(text: str, value: Any) -> None:
    schema = parse(f"version: 1\ntable: a\nfilters:\n  - {{column: a, op: eq, value: {text}}}\nfields: []\n")
    (condition,) = schema.filters
    assert isinstance(condition, parts.Comparison)
    assert condition.value == value
    assert type(condition.value) is type(value)


def test_a_constant_is_any_json() -> None:
    field = one("  - constant: c\n    value: {a: [1, 2.5, no, null, true], b: '1'}\n")
    assert field.value == {"a": [1, 2.5, "no", None, True], "b": "1"}
    assert one("  - constant: c\n").value is None


def test_a_key_without_a_value_counts_as_absent() -> None:
    field = one("  - keyword: a\n    column:\n    default: ~\n    transforms:\n    required: null\n")
    assert field == one("  - keyword: a\n")


def test_where_a_schema_was_read_makes_no_difference_and_a_value_does() -> None:
    assert parse(HEAD + "  - keyword: a\n") == parse("\n\n" + HEAD + "  - keyword: a\n")
    assert parse(HEAD + "  - constant: a\n    value: 1\n") != parse(
        HEAD + "  - constant: a\n    value: true\n"
    )


def test_a_schema_cannot_be_changed() -> None:
    schema = parse(HEAD + "  - keyword: a\n")
    with pytest.raises(ValueError, match="frozen"):
        schema.table = "b"


def test_a_file_with_a_byte_order_mark_and_windows_lines_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.schema.yml"
    file.write_bytes(b"\xef\xbb\xbf" + (HEAD + "  - keyword: a\n").replace("\n", "\r\n").encode())
    assert load_index(file).fields_[0].name == "a"


def test_json_is_yaml_too() -> None:
    schema = parse('{"version": 1, "table": "a", "fields": [{"keyword": "b", "required": true}]}')
    assert schema.fields_[0].name == "b"


def test_a_lock_that_was_tampered_with_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError) as raised:
        index_from({"version": 1, "table": "a", "fields": [{"keyword": "b", "limit": 3}]}, "tailrace.lock")
    assert raised.value.place == "tailrace.lock (field b, limit)"
