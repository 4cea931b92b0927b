"""The servers that the tests of the OpenSearch sink talk to, and a proxy between them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tailrace.sinks.opensearch import OpenSearchSink, client
from tests.documents.rendering import PostgresSource
from tests.sinks.opensearch.shelves import Shelves
from tests.sinks.opensearch.sinks import Make, config_of
from tests.support.httpproxy import HttpProxy, http_proxy_to
from tests.support.opensearch import Client, Shared, opensearch, opensearch_server, own_opensearch, prefix
from tests.support.postgres import Server, database, postgres

__all__ = ["database", "opensearch", "opensearch_server", "own_opensearch", "postgres", "prefix"]


@pytest.fixture
def proxy(opensearch_server: Shared) -> Iterator[HttpProxy]:
    """A proxy in front of the run's server, for one test."""
    with http_proxy_to(opensearch_server.url) as made:
        yield made
    # The process remembers it, and another proxy may get the same port.
    client._NOT_BEFORE.pop(made.url, None)


@pytest.fixture
def make(opensearch: Client) -> Iterator[Make]:
    """Makes sinks of the run's server, or of whatever has another address."""
    made: list[OpenSearchSink] = []

    def one(url: str = opensearch.url, **settings: Any) -> OpenSearchSink:
        made.append(OpenSearchSink(config_of(url, **settings)))
        return made[-1]

    yield one
    for sink in made:
        sink.close()


@pytest.fixture
def through(make: Make, proxy: HttpProxy) -> Iterator[Make]:
    """Makes sinks that speak through the proxy."""
    yield partial(make, proxy.url)
    proxy.clear()


@pytest.fixture
def index(prefix: str) -> str:
    return f"{prefix}customers"


@pytest.fixture
def shelves(opensearch: Client, prefix: str) -> Shelves:
    return Shelves(opensearch, prefix)


@pytest.fixture(scope="module")
def source(postgres: Server) -> Iterator[PostgresSource]:
    database = postgres.database()
    yield PostgresSource(database)
    database.drop()
