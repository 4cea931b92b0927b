"""The reference of the language names every kind, key, operator and transform, and shows what is read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from tailrace.config.index import index_schema, parse_index
from tailrace.config.index.fields import MODELS
from tailrace.config.index.outline import sections
from tailrace.config.index.parts import Operator, TransformName
from tests.config.index.conftest import HEAD
from tests.docs.blocks import code_blocks


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs/index-language.md").read_text(encoding="utf-8")


def rows(page: str, title: str) -> str:
    """The first cells of the tables under a heading written by hand."""
    part = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(line.split(" | ")[0] for line in part.splitlines() if line.startswith("| "))


def test_every_kind_is_documented(page: str) -> None:
    assert re.findall(r"`(\w+)`", rows(page, "Kinds")) != []
    assert set(re.findall(r"`(\w+)`", rows(page, "Kinds"))) == set(MODELS)


def test_every_operator_is_documented(page: str) -> None:
    assert set(re.findall(r"`(\w+)`", rows(page, "Filters"))) == {"op", *get_args(Operator)}


def test_every_transform_is_documented(page: str) -> None:
    assert set(re.findall(r"`(\w+)`", rows(page, "Transforms"))) == set(get_args(TransformName))


def test_every_key_of_every_kind_is_documented(page: str) -> None:
    outlined = {
        (kind, key.name)
        for section in sections()
        for key in section.keys
        for kind in (key.kinds or section.kinds or ("",))
    }
    definitions = index_schema()["$defs"]
    assert {
        (kind, name) for kind in MODELS for name in definitions[kind]["properties"] if name != kind
    } <= outlined
    for section in sections():
        for key in section.keys:
            assert f"| `{key.name}` |" in page
            assert key.description in page


def test_every_schema_shown_is_read(page: str) -> None:
    blocks = code_blocks(page, "yaml")
    assert len(blocks) >= 4
    for block in blocks:
        whole = block.body if block.body.startswith("version:") else HEAD + textwrap.indent(block.body, "  ")
        parse_index(whole, f"docs/index-language.md:{block.line}")


def test_every_kind_is_shown_or_one_that_takes_the_same(page: str) -> None:
    shown = "".join(block.body for block in code_blocks(page, "yaml"))
    families = {model.__name__: model.kinds for model in MODELS.values()}
    assert [
        name for name, kinds in families.items() if not any(f"- {kind}: " in shown for kind in kinds)
    ] == []
