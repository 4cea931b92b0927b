"""Fixtures of the Spark tests."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An empty shop."""
    return Shop(tmp_path)


@pytest.fixture
def connect_port() -> Iterator[None]:
    """The port that Spark's Connect server has by default, for one test of all processes at a time."""
    with (Path(tempfile.gettempdir()) / "tailrace-tests-connect.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
