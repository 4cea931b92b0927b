"""Documents in OpenSearch or Elasticsearch: indexes that are owned, versioned and swapped without a gap."""

from tailrace.sinks.opensearch.config import Credential, OpenSearchConfig
from tailrace.sinks.opensearch.sink import OpenSearchSink

__all__ = ["Credential", "OpenSearchConfig", "OpenSearchSink"]
