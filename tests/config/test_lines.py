"""The line of every key, whatever way TOML lets one write it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.lines import Path, find_lines

TEXT = '''# a comment with [brackets] and key = "value"
name = "shop"   # another
a.b . "c d".'e.f' = 1

[source]
url = "sqlite:x.db"
types = { "orders.price" = "string", nested = { deep = [1, 2] } }
tables = [
  "one",  # with ] and , inside
  "two",
  { x = 1 },
]

[ sinks . "my lake" ]
text = """
[not.a.header]
key = "no key"
escaped \\""" still inside
"""
literal = \'\'\'
[[nor.this]]
\'\'\'
after = 1

[[table]]
name = "orders"
[[table]]
name = 'items'
[table.inner]
x = 1979-05-27T07:32:00Z
[[table.list]]
y = 1
[[table.list]]
y = ["]", '}', "\\"", """]""", \'\'\'}\'\'\']
z = 3
"quoted \\u00e9\\t\\"key\\"" = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("a",), 3),
        (("a", "b", "c d", "e.f"), 3),
        (("source",), 5),
        (("source", "url"), 6),
        (("source", "types", "orders.price"), 7),
        (("source", "types", "nested", "deep", 1), 7),
        (("source", "tables"), 8),
        (("source", "tables", 0), 9),
        (("source", "tables", 1), 10),
        (("source", "tables", 2, "x"), 11),
        (("sinks", "my lake"), 14),
        (("sinks", "my lake", "text"), 15),
        (("sinks", "my lake", "literal"), 20),
        (("sinks", "my lake", "after"), 23),
        (("table",), 25),
        (("table", 0, "name"), 26),
        (("table", 1), 27),
        (("table", 1, "name"), 28),
        (("table", 1, "inner", "x"), 30),
        (("table", 1, "list", 0, "y"), 32),
        (("table", 1, "list", 1, "y", 4), 34),
        (("table", 1, "list", 1, "z"), 35),
        (("table", 1, "list", 1, 'quoted é\t"key"'), 36),
    ],
)
def test_every_way_to_write_a_key_is_found_on_its_line(path: Path, line: int) -> None:
    assert find_lines(TEXT).found[path] == line


def test_nothing_is_found_that_the_text_does_not_say() -> None:
    assert set(find_lines(TEXT).found) == set(_paths(tomllib.loads(TEXT)))


def test_an_unknown_path_has_the_line_of_what_is_around_it() -> None:
    lines = find_lines(TEXT)
    assert lines.line(("source", "missing")) == 5
    assert lines.line(("table", 1, "sink")) == 27
    assert lines.line(("elsewhere",)) == 1
    assert lines.line(()) == 1


def test_windows_line_ends_count_as_one_line() -> None:
    assert find_lines('a = 1\r\n[b]\r\nc = """x\r\ny"""\r\nd = 2\r\n').found[("b", "d")] == 5


def _paths(node: Any, path: Path = ()) -> list[Path]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(node, dict):
        inner = list(node.items())
    elif isinstance(node, list):
        inner = list(enumerate(node))
    found: list[Path] = [path] if path else []
    for key, value in inner:
        found += _paths(value, (*path, key))
    return found


@given(st.text(alphabet="ab.=[]{},#\"'\\\n\t 1\r\u00e9", max_size=60) | st.text(max_size=60))
def test_any_text_is_scanned_without_failing(text: str) -> None:
    lines = find_lines(text)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.found.values())


_KEYS = st.text(alphabet="ab.\"'# =[]\\é\n", max_size=6)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)} = {_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(_written(inner) for inner in value) + "\n]"
    return _quoted(value) if isinstance(value, str) else str(value)


_VALUES = st.recursive(
    st.integers() | st.text(alphabet="ab\"'#=[]{},\\\n", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_KEYS, st.dictionaries(_KEYS, _VALUES, max_size=3), max_size=4))
def test_in_any_document_exactly_its_keys_are_found(document: dict[str, dict[str, Any]]) -> None:
    text = ""
    for section, pairs in document.items():
        text += f"[{_quoted(section)}]\n"
        text += "".join(f"{_quoted(key)} = {_written(value)}\n" for key, value in pairs.items())
    assert tomllib.loads(text) == document
    assert set(find_lines(text).found) == set(_paths(document))
