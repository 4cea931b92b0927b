"""Fixtures of the Spark tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An empty shop."""
    return Shop(tmp_path)
