"""The JSON Schema takes what the loader takes, and refuses what it refuses, as far as JSON Schema can say it.

The few words of JSON Schema that it uses are evaluated here; a word that is not known fails the test.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.config.index import index_schema, parse_index
from tailrace.config.index.fields import MODELS
from tailrace.model.errors import ConfigError
from tests.config.index.conftest import HEAD

SCHEMA = json.loads(json.dumps(index_schema()))
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_PLAIN = {"$schema", "title", "description", "default", "$defs", "properties", "additionalProperties"}


def is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value is valid by a JSON Schema."""
    return all(holds(word, rule, schema, value) for word, rule in schema.items())


def holds(word: str, rule: Any, schema: dict[str, Any], value: Any) -> bool:
    if word in ("properties", "additionalProperties"):
        known = schema.get("properties", {})
        if not isinstance(value, dict):
            return True
        if word == "additionalProperties":
            return rule is not False or set(value) <= set(known)
        return all(accepts(known[key], inner) for key, inner in value.items() if key in known)
    if word in _PLAIN:
        return True
    if word == "$ref":
        return accepts(SCHEMA["$defs"][rule.removeprefix("#/$defs/")], value)
    if word == "type":
        return any(is_of(value, kind) for kind in ([rule] if isinstance(rule, str) else rule))
    if word == "enum":
        return value in rule
    if word == "const":
        return bool(value == rule) and type(value) is type(rule)
    if word == "required":
        return not isinstance(value, dict) or set(rule) <= set(value)
    if word == "dependentRequired":
        given = set(value) if isinstance(value, dict) else set()
        return all(set(needed) <= given for key, needed in rule.items() if key in given)
    if word == "items":
        return not isinstance(value, list) or all(accepts(rule, item) for item in value)
    if word == "anyOf":
        return any(accepts(inner, value) for inner in rule)
    if word == "oneOf":
        return sum(accepts(inner, value) for inner in rule) == 1
    if word == "not":
        return not accepts(rule, value)
    if word == "pattern":
        return not isinstance(value, str) or re.search(rule, value) is not None
    measured = {"minLength": str, "maxLength": str, "minItems": list, "maxItems": list}
    if word in measured:
        size = len(value) if isinstance(value, measured[word]) else rule
        return bool(size >= rule if word.startswith("min") else size <= rule)
    if word == "minimum":
        return not is_of(value, "number") or bool(value >= rule)
    raise AssertionError(f"the test does not know {word}")


def test_the_schema_is_json_and_closed_and_describes_everything() -> None:
    assert set(MODELS) <= set(SCHEMA["$defs"])
    for name, body in [("", SCHEMA), *SCHEMA["$defs"].items()]:
        assert body["description"], name
        if "properties" in body:
            assert body["additionalProperties"] is False, name
            assert [key for key, inner in body["properties"].items() if not inner.get("description")] == []


def test_every_reference_leads_somewhere() -> None:
    references = set(re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(SCHEMA)))
    assert references <= set(SCHEMA["$defs"])
    assert set(SCHEMA["$defs"]) == references


def test_the_examples_are_valid(examples: list[Path]) -> None:
    for file in examples:
        body = yaml.safe_load(file.read_text())
        # Null counts as absent, except as a constant.
        assert accepts(SCHEMA, body), file.name


@pytest.mark.parametrize(
    "field",
    [
        "{keyword: a}",
        "{keyword: a, required: true, column: b, default: x, transforms: [trim, {truncate: 3}]}",
        "{long: a, default: 3}",
        "{enum: a, variants: [x, y]}",
        "{geo: a}",
        "{geo: a, lat: x, lon: y}",
        "{geo: a, column: x}",
        "{map: a, values: text}",
        "{custom: a, opensearch: scaled_float, options: {scaling_factor: 10}}",
        "{object: a, fields: [{text: b}]}",
        "{constant: a}",
        "{constant: a, value: [1, {b: null}]}",
        "{expression: a, sql: b || c, type: text}",
        "{belongs_to: a, table: b, fields: []}",
        "{belongs_to: a, table: b, column: [x, y], primary_key: [k, l], fields: []}",
        "{has_one: a, table: b, foreign_key: c, order_by: [{column: d}], required: true, fields: []}",
        "{has_many: a, table: b, foreign_key: c, limit: 3, filters: [{raw: x}], fields: []}",
        "{many_to_many: a, table: b, through: {table: c, left_key: d, right_key: e}, fields: []}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: is_null}]}",
        "{avg: a, table: b, foreign_key: c, column: d}",
        "{sum: a, table: b, foreign_key: c, column: d, value_type: decimal}",
        "{ids: a, table: b, through: {table: c, left_key: d, right_key: e}, element_type: long}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: in, value: [1, x]}]}",
    ],
)
def test_what_the_loader_takes_is_valid(field: str) -> None:
    text = f"{HEAD}  - {field}\n"
    parse_index(text, "file")
    assert accepts(SCHEMA, yaml.safe_load(text))


@pytest.mark.parametrize(
    "field",
    [
        "a",
        "{}",
        "{column: a}",
        "{keyword: a, text: b}",
        "{keyword: a.b}",
        "{keyword: a, limit: 3}",
        "{keyword: a, required: 1}",
        "{long: a, default: x}",
        "{long: a, transforms: [trim]}",
        "{text: a, transforms: [upper]}",
        "{text: a, transforms: [{truncate: 0}]}",
        "{text: a, variants: [x]}",
        "{geo: a, lat: x}",
        "{geo: a, lat: x, lon: y, column: z}",
        "{map: a}",
        "{map: a, values: boolean}",
        "{custom: a}",
        "{object: a}",
        "{object: a, fields: [{nothing: b}]}",
        "{expression: a, sql: b}",
        "{belongs_to: a, table: b, order_by: [{column: c}], fields: []}",
        "{has_one: a, table: b, foreign_key: c, limit: 3, fields: []}",
        "{has_many: a, table: b, fields: []}",
        "{has_many: a, table: b, foreign_key: c}",
        "{has_many: a, table: b, foreign_key: c, limit: 0, fields: []}",
        "{has_many: a, table: b, foreign_key: c, required: true, fields: []}",
        "{many_to_many: a, table: b, through: {table: c, left_key: d}, fields: []}",
        "{count: a, table: b}",
        "{count: a, table: b, foreign_key: c, through: {table: c, left_key: d, right_key: e}}",
        "{count: a, table: b, foreign_key: c, column: d}",
        "{sum: a, table: b, foreign_key: c, column: d}",
        "{sum: a, table: b, foreign_key: c, column: d, value_type: number}",
        "{ids: a, table: b, foreign_key: c}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: eq}]}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: is_null, value: 1}]}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: between, value: [1]}]}",
        "{count: a, table: b, foreign_key: c, filters: [{column: d, op: like, value: 1}]}",
        "{count: a, table: b, foreign_key: c, filters: [{raw: x, op: is_null}]}",
    ],
)
def test_what_the_loader_refuses_is_not_valid(field: str) -> None:
    text = f"{HEAD}  - {field}\n"
    with pytest.raises(ConfigError):
        parse_index(text, "file")
    assert not accepts(SCHEMA, yaml.safe_load(text))


@pytest.mark.parametrize(
    "head",
    [
        "version: 2\ntable: a\n",
        "table: a\n",
        "version: 1\n",
        "version: 1\ntable: a\ndoc_id: b\n",
        "version: 1\ntable: a\nsoft_delete: {}\n",
        "version: 1\ntable: a\nsoft_delete: {column: a, field: b}\n",
        "version: 1\ntable: a\nprimary_key: []\n",
        "version: 1\ntable: a\nfilters: {column: a, op: is_null}\n",
    ],
)
def test_a_head_that_the_loader_refuses_is_not_valid(head: str) -> None:
    text = f"{head}fields: []\n"
    with pytest.raises(ConfigError):
        parse_index(text, "file")
    assert not accepts(SCHEMA, yaml.safe_load(text))


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(app, ["schema", "index"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == SCHEMA
