"""A rig whose documents are in a real OpenSearch instead of the store's file."""

from __future__ import annotations

from typing import Any

from tailrace.app.refilling import Refills
from tailrace.model.table import TableRef
from tests.faults.documents import Search
from tests.faults.rig import Rig
from tests.faults.test_documents import documents
from tests.support.opensearch import Client

# Waits that a test can wait for.
QUICK: dict[str, Any] = {"replicas": 0, "backoff": 0.05, "max_backoff": 0.2, "max_elapsed": 5.0}


def search(client: Client, url: str, prefix: str, **settings: Any) -> Search:
    """A cluster that the pipeline reaches by `url`, and the test by its own client."""
    return Search(client, prefix, {"url": url, **QUICK, **settings})


def refills(r: Rig) -> Refills:
    """Who asks for a filling of the rig's index."""
    roots = {documents(r).index: TableRef(r.ledger.schema, "ledger")}
    return Refills(lambda: roots, str(r.state), str(r.checkpoint))
