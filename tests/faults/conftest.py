"""The rig as a fixture, once for each database that a test runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.databases import Ledger, Postgres, Sqlite
from tests.faults.disks import mounted
from tests.faults.marks import kinds
from tests.faults.rig import Rig
from tests.support.httpproxy import HttpProxy, http_proxy_to
from tests.support.opensearch import Shared, opensearch, opensearch_server, own_opensearch, prefix
from tests.support.postgres import Server, other_server, own_server, postgres
from tests.support.receiver import Receiver

__all__ = [
    "opensearch",
    "opensearch_server",
    "other_server",
    "own_opensearch",
    "own_server",
    "postgres",
    "prefix",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        found = kinds(metafunc.definition.iter_markers())
        metafunc.parametrize(
            "kind",
            [pytest.param(kind, marks=[pytest.mark.long] if slow else []) for kind, slow in found.items()],
        )


@pytest.fixture
def rig(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Rig]]:
    """Makes rigs that end with the test. On PostgreSQL each has a database of its own in `server`, which is
    the session's server unless the test brings its own."""
    with ExitStack() as stack:
        made: list[Rig] = []

        def ledger(directory: Path, server: Server | None) -> Ledger:
            directory.mkdir(parents=True)
            if kind == "sqlite":
                return Sqlite(directory / "shop.db")
            chosen = server or request.getfixturevalue("postgres")
            database = chosen.database()
            if server is None:
                stack.callback(database.drop)
            return Postgres(database, directory)

        def make(*arguments: Any, server: Server | None = None, **settings: Any) -> Rig:
            place = tmp_path / f"rig{len(made)}"
            source = ledger(place, server)
            one = stack.enter_context(Rig(place, source, *arguments, **settings))
            made.append(one)
            return one

        yield make


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    with mounted(tmp_path / "disk", "2m") as place:
        yield place


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Somebody to whom the feed `http` posts."""
    with Receiver() as running:
        yield running


@pytest.fixture
def cluster(opensearch_server: Shared) -> Iterator[HttpProxy]:
    """A proxy in front of the run's OpenSearch, for one test."""
    with http_proxy_to(opensearch_server.url) as made:
        yield made
