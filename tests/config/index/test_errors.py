"""What a wrong index schema is told: every problem, with its line, its field and the rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config.index import load_index
from tailrace.model.errors import ConfigError
from tests.config.index.conftest import HEAD, Refuse, parse

JOIN = "  - has_many: orders\n    table: orders\n    foreign_key: user_id\n"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("version: 2\ntable: a\nfields: []\n", "file:1 (version)", "must be `1`"),
        ("version: true\ntable: a\nfields: []\n", "file:1 (version)", "must be `1`"),
        ("version: 1.0\ntable: a\nfields: []\n", "file:1 (version)", "must be `1`"),
        ("version: '1'\ntable: a\nfields: []\n", "file:1 (version)", "must be `1`"),
        ("version: 1\nfields: []\n", "file:1 (table)", "the key `table` is missing"),
        ("version: 1\ntable: a\n", "file:1 (fields)", "the key `fields` is missing"),
        ("version: 1\ntable: a\nfields: x\n", "file:3 (fields)", "must be a list"),
        (HEAD + "  []\ndoc_id: uuid\n", "file:6 (doc_id)", "the document's id is always its primary key"),
        (
            "version: 1\ntable: a\nprimary_keys: id\nfields: []\n",
            "file:3 (primary_keys)",
            "unknown key `primary_keys`; did you mean `primary_key`?",
        ),
        (
            "version: 1\ntable: a\nprimary_key: [a, a]\nfields: []\n",
            "file:3 (primary_key)",
            "names a column twice",
        ),
        (
            "version: 1\ntable: a\nprimary_key: []\nfields: []\n",
            "file:3 (primary_key)",
            "at least one column",
        ),
        ("version: 1\ntable: '  '\nfields: []\n", "file:2 (table)", "must be the name of something"),
        ("version: 1\ntable: {a: b}\nfields: []\n", "file:2 (table)", "must be a text"),
        # fields
        (HEAD + "  - email\n", "file:5 (fields[0])", "must be a field: its kind and its name"),
        (HEAD + "  - kyeword: a\n", "file:5 (fields[0])", "says no kind; did you mean `keyword`?"),
        (HEAD + "  - column: a\n", "file:5 (fields[0])", "says no kind"),
        (
            HEAD + "  - keyword: a\n    text: b\n",
            "file:5 (field a)",
            "a field has one kind, and this one has `keyword` and `text`",
        ),
        (HEAD + "  - keyword:\n", "file:5 (fields[0], keyword)", "`keyword` needs the field's name"),
        (HEAD + "  - keyword: [a]\n", "file:5 (fields[0], keyword)", "`keyword` needs the field's name"),
        (HEAD + "  - keyword: a.b\n", "file:5 (field a.b, keyword)", "must be a name of letters, digits"),
        (HEAD + "  - keyword: 2x\n", "file:5 (field 2x, keyword)", "must be a name of letters, digits"),
        (
            HEAD + "  - keyword: a\n    requird: true\n",
            "file:6 (field a, requird)",
            "unknown key `requird`; did you mean `required`?",
        ),
        (
            HEAD + "  - keyword: a\n    required: 'yes'\n",
            "file:6 (field a, required)",
            "must be `true` or `false`",
        ),
        (
            HEAD + "  - keyword: a\n    required: no\n",
            "file:6 (field a, required)",
            "must be `true` or `false`",
        ),
        (HEAD + "  - keyword: a\n    name: b\n", "file:6 (field a, name)", "unknown key `name`"),
        (
            HEAD + "  - keyword: a\n    limit: 3\n",
            "file:6 (field a, limit)",
            "`keyword` takes no `limit`; it takes `column`, `required`, `default`, `transforms`, `options`",
        ),
        (HEAD + "  - keyword: a\n  - text: a\n", "file:6 (field a, text)", "there is a field `a` already"),
        (HEAD + "  - long: a\n    default: x\n", "file:6 (field a, default)", "must be a whole number"),
        (HEAD + "  - short: a\n    default: 40000\n", "file:6 (field a, default)", "must be a whole number"),
        (HEAD + "  - boolean: a\n    default: 1\n", "file:6 (field a, default)", "must be `true` or `false`"),
        (HEAD + "  - decimal: a\n    default: x\n", "file:6 (field a, default)", "must be a number"),
        (HEAD + "  - date: a\n    default: now\n", "file:6 (field a, default)", "must be a date like"),
        (HEAD + "  - timestamp: a\n    default: now\n", "file:6 (field a, default)", "must be a time like"),
        (HEAD + "  - uuid: a\n    default: x\n", "file:6 (field a, default)", "must be a UUID"),
        (HEAD + "  - text: a\n    default: [x]\n", "file:6 (field a, default)", "must be a single value"),
        (
            HEAD + "  - long: a\n    transforms: [trim]\n",
            "file:6 (field a, transforms)",
            "`long` takes no transforms",
        ),
        (
            HEAD + "  - text: a\n    transforms: [trim, upper]\n",
            "file:6 (field a, transforms[1])",
            "must be `lowercase`, `trim`, `uppercase`, `hash` or `{ truncate: 100 }`",
        ),
        (
            HEAD + "  - text: a\n    transforms: [truncate]\n",
            "file:6 (field a, transforms[0])",
            "`truncate` needs a length",
        ),
        (
            HEAD + "  - text: a\n    transforms: [{truncate: 0}]\n",
            "file:6 (field a, transforms[0])",
            "`truncate` needs a length",
        ),
        (
            HEAD + "  - enum: a\n    variants: [x, y, x]\n",
            "file:6 (field a, variants[2])",
            "the variant `x` stands there twice",
        ),
        (HEAD + "  - text: a\n    options: x\n", "file:6 (field a, options)", "must be a mapping"),
        (
            HEAD + "  - geo: a\n    lat: x\n",
            "file:5 (field a)",
            "a point is `lat` and `lon`, or one `column`",
        ),
        (HEAD + "  - map: a\n", "file:5 (field a, values)", "the key `values` is missing"),
        (
            HEAD + "  - map: a\n    values: boolean\n",
            "file:6 (field a, values)",
            "must be `text`, `identifier`",
        ),
        (HEAD + "  - custom: a\n", "file:5 (field a, opensearch)", "the key `opensearch` is missing"),
        (HEAD + "  - expression: a\n    type: text\n", "file:5 (field a, sql)", "the key `sql` is missing"),
        (HEAD + "  - expression: a\n    type: text\n    sql: ''\n", "file:7 (field a, sql)", "must be SQL"),
        (HEAD + "  - object: a\n", "file:5 (field a, fields)", "the key `fields` is missing"),
        # joins
        (HEAD + JOIN, "file:5 (field orders, fields)", "the key `fields` is missing"),
        (
            HEAD + JOIN + "    fields: []\n    limit: 0\n",
            "file:9 (field orders, limit)",
            "greater than or equal",
        ),
        (HEAD + JOIN + "    fields: []\n    limit: 1.5\n", "file:9 (field orders, limit)", "must be a whole"),
        (
            HEAD + JOIN + "    fields: []\n    required: true\n",
            "file:9 (field orders, required)",
            "`has_many` takes no `required`",
        ),
        (
            HEAD + "  - belongs_to: a\n    table: b\n    order_by: [{column: x}]\n    fields: []\n",
            "file:7 (field a, order_by)",
            "`belongs_to` takes no `order_by`",
        ),
        (
            HEAD
            + "  - belongs_to: a\n    table: b\n    column: [x, y]\n    primary_key: id\n    fields: []\n",
            "file:7 (field a, column)",
            "has 2 columns, and the related table's key has one column",
        ),
        (
            HEAD + "  - has_many: a\n    table: b\n    foreign_key: [x, y]\n    fields: []\n",
            "file:7 (field a, foreign_key)",
            "has 2 columns, and the key of the row it points at has one column",
        ),
        (
            HEAD + JOIN + "    order_by: [{column: a, direction: up}]\n    fields: []\n",
            "file:8 (field orders, order_by[0].direction)",
            "must be `asc` or `desc`",
        ),
        (
            HEAD + JOIN + "    order_by: [{colum: a, column: b}]\n    fields: []\n",
            "file:8 (field orders, order_by[0].colum)",
            "unknown key `colum`; did you mean `column`?",
        ),
        (
            HEAD + JOIN + "    order_by: a\n    fields: []\n",
            "file:8 (field orders, order_by)",
            "must be a list",
        ),
        (
            HEAD + "  - many_to_many: a\n    table: b\n    through: c\n    fields: []\n",
            "file:7 (field a, through)",
            "must be a mapping of keys and values",
        ),
        (
            HEAD + "  - many_to_many: a\n    table: b\n    fields: []\n    through:\n      table: c\n"
            "      left_key: [x, y]\n      right_key: z\n",
            "file:10 (field a, through.left_key)",
            "has 2 columns, and the key of this row has one column",
        ),
        (
            HEAD + JOIN + "    fields:\n      - object: o\n        fields:\n          - keyword: a\n"
            "            requierd: true\n",
            "file:12 (field orders.o.a, requierd)",
            "unknown key `requierd`; did you mean `required`?",
        ),
        # aggregates
        (HEAD + "  - count: a\n    table: b\n", "file:5 (field a)", "needs `foreign_key` or `through`"),
        (
            HEAD + "  - count: a\n    table: b\n    foreign_key: c\n    column: d\n",
            "file:8 (field a, column)",
            "`count` takes no `column`",
        ),
        (
            HEAD + "  - sum: a\n    table: b\n    foreign_key: c\n    column: d\n",
            "file:5 (field a, value_type)",
            "the key `value_type` is missing",
        ),
        (
            HEAD + "  - sum: a\n    table: b\n    foreign_key: c\n    column: d\n    value_type: number\n",
            "file:9 (field a, value_type)",
            "must be `text`, `identifier`",
        ),
        (
            HEAD + "  - ids: a\n    table: b\n    foreign_key: c\n",
            "file:5 (field a, element_type)",
            "the key `element_type` is missing",
        ),
        (
            HEAD + "  - count: a\n    table: b\n    foreign_key: c\n    distinct: true\n",
            "file:8 (field a, distinct)",
            "is for `through` only",
        ),
        # filters
        (
            HEAD + "  []\nfilters: [{column: a, op: equal, value: 1}]\n",
            "file:6 (filters[0].op)",
            "must be `is_null`, `is_not_null`, `eq`",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: eq}]\n",
            "file:6 (filters[0].value)",
            "`eq` needs a `value`",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: eq, value: null}]\n",
            "file:6 (filters[0].value)",
            "NULL is found with `is_null`",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: is_null, value: 1}]\n",
            "file:6 (filters[0].value)",
            "`is_null` takes no `value`",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: in, value: x}]\n",
            "file:6 (filters[0].value)",
            "`in` needs a list",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: in, value: []}]\n",
            "file:6 (filters[0].value)",
            "`in` needs at least one value",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: not_in, value: [1, null]}]\n",
            "file:6 (filters[0].value)",
            "without null",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: between, value: [1, 2, 3]}]\n",
            "file:6 (filters[0].value)",
            "`between` needs two values, the lower and the upper, not 3",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: gt, value: [1]}]\n",
            "file:6 (filters[0].value)",
            "`gt` needs a single value",
        ),
        (
            HEAD + "  []\nfilters: [{column: a, op: like, value: 7}]\n",
            "file:6 (filters[0].value)",
            "needs a text",
        ),
        (HEAD + "  []\nfilters: [{raw: ''}]\n", "file:6 (filters[0].raw)", "must be SQL"),
        (
            HEAD + "  []\nfilters: [{raw: a, colunm: b}]\n",
            "file:6 (filters[0].colunm)",
            "unknown key `colunm`",
        ),
        (HEAD + "  []\nfilters: [a > 1]\n", "file:6 (filters[0])", "must be a mapping of keys and values"),
        (HEAD + "  []\nfilters: a > 1\n", "file:6 (filters)", "must be a list"),
        # soft delete
        (HEAD + "  []\nsoft_delete: deleted\n", "file:6 (soft_delete)", "must be a mapping"),
        (HEAD + "  []\nsoft_delete: {}\n", "file:6 (soft_delete)", "needs `column` or `field`, one of them"),
        (
            HEAD + "  - keyword: state\nsoft_delete: {field: stat}\n",
            "file:6 (soft_delete.field)",
            "the document has no field `stat` that shows a column; did you mean `state`?",
        ),
        (
            HEAD + "  []\nsoft_delete: {column: a, wehn: []}\n",
            "file:6 (soft_delete.wehn)",
            "unknown key `wehn`; did you mean `when`?",
        ),
        # yaml
        (HEAD + "  - keyword: a\n    keyword: b\n", "file:6 (field a, keyword)", "twice, first in line 5"),
        ("version: 1\ntable: a\ntable: b\nfields: []\n", "file:3 (table)", "twice, first in line 2"),
        (
            "version: 1\ntable: &t a\nfields: []\n",
            "file:2 (table)",
            "`&t` names a part of the file",
        ),
        (
            "version: 1\ntable: *t\nfields: []\n",
            "file:2 (table)",
            "`*t` repeats another part of the file",
        ),
        ("version: 1\ntable: !!str a\nfields: []\n", "file:2 (table)", "has a tag; the language has none"),
        ("version: 1\ntable: a\nfields: []\nlimit: 1e999\n", "file:4 (limit)", "is too large for a number"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_field(
    refused: Refuse, text: str, place: str, message: str
) -> None:
    error = refused(text)
    assert error.place == place
    assert message in error.message
    assert "\n" not in error.message


def test_every_problem_is_told_at_once_in_the_order_of_the_file(refused: Refuse) -> None:
    error = refused(
        "version: 1\ntabel: users\nfields:\n  - keywrd: a\n  - count: n\n    table: t\n"
        "  - has_many: orders\n    table: o\n    foreign_key: x\n    fields:\n"
        "      - sum: total\n        table: *x\n      - text: b\n        default: [1]\n"
    )
    assert [line.partition(": ")[0] for line in str(error).splitlines()] == [
        "file:1 (table)",
        "file:2 (tabel)",
        "file:4 (fields[0])",
        "file:5 (field n)",
        "file:11 (field orders.total, column)",
        "file:11 (field orders.total, value_type)",
        "file:11 (field orders.total)",
        "file:12 (field orders.total, table)",
        "file:14 (field orders.b, default)",
    ]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "file", "is empty"),
        ("# nothing\n", "file", "is empty"),
        ("---\n", "file", "is empty"),
        ("- a\n", "file:1", "is no index schema"),
        ("users\n", "file:1", "is no index schema"),
        ("version: 1\ntable: a\n---\nversion: 1\n", "file:3", "holds a second document"),
        ("version: 1\n\ttable: a\n", "file:2", "is not YAML"),
        ("version: 1\nfields: [\n", "file:3", "is not YAML"),
        ("version: 1\n  table: a\n", "file:2", "is not YAML"),
        ("a: b: c\n", "file:1", "is not YAML"),
        ("table: 'a\n", "file:2", "is not YAML"),
        ("version: 1\n? [a]\n: b\n", "file:2", "has a key that is no text"),
        ("version: 1\ntable: a\x07\n", "file:2", "it holds the character U+0007"),
        ("fields: " + "[" * 5000, "file:1", "is nested more than 100 levels deep"),
        ("fields:\n" + "".join("  " * i + "- a:\n" for i in range(1, 200)), "file:51", "is nested more than"),
    ],
)
def test_what_is_no_schema_at_all_is_told_where(refused: Refuse, text: str, place: str, message: str) -> None:
    error = refused(text)
    assert error.place == place
    assert message in error.message


def test_a_tab_comes_with_its_remedy(refused: Refuse) -> None:
    assert refused("version: 1\nfields:\n\t- a\n").remedy == "indent with spaces"


def test_a_file_that_is_not_utf8_is_told_where(tmp_path: Path) -> None:
    file = tmp_path / "a.schema.yml"
    file.write_bytes(HEAD.encode() + b"  - keyword: \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text") as raised:
        load_index(file)
    assert raised.value.place == f"{file}:5"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "a.schema.yml"
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 1024 KB"):
        load_index(file)


@pytest.mark.parametrize("name", ["missing.schema.yml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_index(tmp_path / name)
    assert raised.value.place == str(tmp_path / name)


@settings(deadline=None)
@given(st.text(alphabet="a:-[]{}&*!|>'\"# \n\t,?%@`~0.x", max_size=60))
def test_whatever_a_file_holds_it_is_read_or_refused_with_its_place(text: str) -> None:
    for whole in (text, HEAD + "  - keyword: " + text, HEAD + "  " + text):
        try:
            parse(whole)
        except ConfigError as error:
            assert str(error.place).startswith("file")  # noqa: PT017 (either outcome is right)
