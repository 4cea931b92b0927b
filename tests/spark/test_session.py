"""The settings of our own sessions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace.spark.session import defaults


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_the_page_lists_every_setting(master: str, root: Path) -> None:
    page = (root / "docs/spark.md").read_text(encoding="utf-8")
    for name, value in defaults(master).items():
        assert re.search(rf"^{re.escape(name)} +{re.escape(value)}$", page, re.MULTILINE), name
