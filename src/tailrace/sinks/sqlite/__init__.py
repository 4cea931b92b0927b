"""Documents in one SQLite file, with full-text search: the embedded document store."""

from tailrace.sinks.sqlite.config import SqliteStoreConfig
from tailrace.sinks.sqlite.sink import SqliteSink

__all__ = ["SqliteSink", "SqliteStoreConfig"]
