"""The schema and the outline describe every key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config import config_schema, keys
from tailrace.model.units import parse_duration, parse_size, show_duration, show_size


def _properties(node: Any) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(node, dict):
        for name, body in node.get("properties", {}).items():
            found.append((name, body))
        for inner in node.values():
            found += _properties(inner)
    return found


def test_every_property_of_the_schema_has_a_description() -> None:
    properties = _properties(config_schema())
    assert {"source", "url", "max_batch_bytes", "as", "env"} <= {name for name, _ in properties}
    assert [name for name, body in properties if not body.get("description")] == []


def test_the_schema_is_json_and_closed() -> None:
    schema = json.loads(json.dumps(config_schema()))
    assert schema["additionalProperties"] is False
    assert all(body["additionalProperties"] is False for body in schema["$defs"].values())


def test_a_string_may_be_a_reference_in_the_schema() -> None:
    schema = config_schema()
    assert {"$ref": "#/$defs/Reference"} in schema["$defs"]["Source"]["properties"]["url"]["anyOf"]
    headers = schema["$defs"]["HttpSink"]["properties"]["headers"]
    assert {"$ref": "#/$defs/Reference"} in headers["additionalProperties"]["anyOf"]


def test_every_key_is_outlined_with_type_and_description() -> None:
    outlined = {(key.section, key.name) for key in keys()}
    assert ("[source]", "url") in outlined
    assert ('[sinks.<name>] type = "http"', "headers") in outlined
    assert ("[[table]]", "as") in outlined
    assert [key for key in keys() if not key.description or not key.type or "typing" in key.type] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h", 3600), ("7d", 604800), ("1.5 h", 5400)],
)
def test_durations_are_read_with_their_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 64 * 1024**2), ("1 KiB", 1024), ("1.5g", 1536 * 1024**2), (7, 7), ("10", 10), ("3B", 3)],
)
def test_sizes_are_read_with_their_units(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "5", "s", "-1s", "1 week", 5, True, None, "1e3s", "١s x"])
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(value)


@pytest.mark.parametrize("value", ["", "MB", "0", 0, -1, True, 1.5, None, "5 bits"])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        parse_size(value)


@given(st.integers(1, 2**60))
def test_a_size_is_shown_so_that_it_reads_back(size: int) -> None:
    assert parse_size(show_size(size)) == size or size > 2**53


@given(st.integers(0, 10**9))
def test_a_duration_is_shown_so_that_it_reads_back(milliseconds: int) -> None:
    assert parse_duration(show_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)
