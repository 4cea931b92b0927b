"""Ways to read an index schema that is right, and one that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.config.index import IndexSchema, parse_index
from tailrace.model.errors import ConfigError

HEAD = "version: 1\ntable: users\nprimary_key: id\nfields:\n"

Refuse = Callable[[str], ConfigError]


def parse(text: str) -> IndexSchema:
    return parse_index(text, "file")


@pytest.fixture
def refused() -> Refuse:
    """Read a text that must be refused, and return the error."""

    def run(text: str) -> ConfigError:
        with pytest.raises(ConfigError) as raised:
            parse(text)
        return raised.value

    return run


@pytest.fixture
def examples() -> list[Path]:
    """Files as people write them who used the language elsewhere before."""
    return sorted((Path(__file__).parent / "examples").glob("*.schema.yml"))
