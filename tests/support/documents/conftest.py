"""The databases that the oracle is tried on: one of each kind for all tests, emptied for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.postgres import Server, postgres

__all__ = ["postgres"]


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[Any]:
    made = postgres.database()
    yield made.app
    made.drop()


@pytest.fixture
def server(shared: Any) -> Any:
    """An empty schema of a real server."""
    shared.execute("DROP SCHEMA public CASCADE")
    shared.execute("CREATE SCHEMA public")
    return shared


@pytest.fixture
def lite() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=None)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def connection(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("lite" if request.param == "sqlite" else "server")
