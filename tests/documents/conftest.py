from __future__ import annotations

from tests.support.opensearch import opensearch, opensearch_server, prefix
from tests.support.postgres import database, own_server, postgres

__all__ = ["database", "opensearch", "opensearch_server", "own_server", "postgres", "prefix"]
