"""The derived mapping says of every field what it is, without a database."""

from __future__ import annotations

from pathlib import Path

from tailrace.config.index import load_index, parse_index
from tailrace.documents.mapping import derive_mapping

EXAMPLES = Path(__file__).resolve().parents[1] / "config/index/examples"


def test_every_field_of_a_document_is_mapped_by_its_path() -> None:
    mapping = derive_mapping(load_index(EXAMPLES / "everything.schema.yml")).to_json()
    assert mapping["id"] == {"type": "integer", "nullable": False}
    assert mapping["isbn"] == {"type": "keyword", "nullable": True}
    assert mapping["title"] == {"type": "text", "nullable": False, "options": {"analyzer": "english"}}
    assert mapping["condition"]["variants"] == ["new", "good", "worn"]
    assert mapping["rating"] == {
        "type": "custom",
        "nullable": True,
        "native": {"opensearch": "scaled_float"},
        "options": {"scaling_factor": 10},
    }
    assert mapping["place"] == {"type": "geo", "nullable": True}
    assert mapping["titles"] == {"type": "map", "nullable": False, "values": "text"}
    assert mapping["size"] == {"type": "object", "nullable": False}
    assert mapping["size.width"] == {"type": "float", "nullable": True}
    assert mapping["publisher"] == {"type": "object", "nullable": False}
    assert mapping["summary"] == {"type": "object", "nullable": True}
    assert mapping["loans"] == {"type": "nested", "nullable": False, "many": True}
    assert mapping["loans.reader.name"] == {"type": "keyword", "nullable": False}
    assert mapping["loanCount"] == {"type": "long", "nullable": False}
    assert mapping["daysLent"] == {"type": "long", "nullable": True}
    assert mapping["meanDays"] == {"type": "double", "nullable": True}
    assert mapping["loanIds"] == {"type": "long", "nullable": False, "many": True}
    assert mapping["source"] == {"type": "keyword", "nullable": False}
    assert mapping["nothing"] == {"type": "keyword", "nullable": True}


def test_a_default_and_a_key_are_never_null() -> None:
    schema = parse_index(
        "version: 1\ntable: a\nprimary_key: [t, n]\nfields:\n"
        "  - keyword: tenant\n    column: t\n  - long: n\n  - long: m\n    default: 0\n  - long: o\n"
        "  - has_many: b\n    table: b\n    foreign_key: [t, n]\n    primary_key: id\n"
        "    fields: [{long: id}, {long: n}]\n",
        "file",
    )
    nullable = {field.path: field.nullable for field in derive_mapping(schema).fields}
    assert nullable == {
        "tenant": False,
        "n": False,
        "m": False,
        "o": True,
        "b": False,
        "b.id": False,
        "b.n": True,
    }


def test_the_type_of_a_constant_is_that_of_its_value() -> None:
    values = ["7", "7.5", "true", "x", "[1, 2]", "[]", "[1, x]", "[[1]]", "{a: 1}"]
    fields = "".join(f"  - constant: c{at}\n    value: {value}\n" for at, value in enumerate(values))
    mapping = derive_mapping(parse_index("version: 1\ntable: a\nfields:\n" + fields, "file"))
    assert [(field.type, field.many) for field in mapping.fields] == [
        ("long", False),
        ("double", False),
        ("boolean", False),
        ("keyword", False),
        ("long", True),
        ("json", True),
        ("json", True),
        ("json", True),
        ("json", False),
    ]


def test_a_mapping_reads_well() -> None:
    schema = parse_index(
        "version: 1\ntable: a\nfields:\n  - text: t\n    options: {analyzer: english}\n  - map: m\n"
        "    values: date\n    required: true\n  - ids: i\n    table: b\n    foreign_key: c\n"
        "    element_type: uuid\n  - custom: p\n    opensearch: scaled_float\n",
        "file",
    )
    assert str(derive_mapping(schema)).splitlines() == [
        "t text nullable analyzer='english'",
        "m map of date",
        "i uuid array",
        "p custom (opensearch: scaled_float) nullable",
    ]
