"""The servers of the demonstration's tests."""

from tests.support.opensearch import opensearch, opensearch_server, prefix
from tests.support.postgres import database, postgres

__all__ = ["database", "opensearch", "opensearch_server", "postgres", "prefix"]
