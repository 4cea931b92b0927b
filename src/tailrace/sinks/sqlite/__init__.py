"""Documents in one SQLite file, with full-text search: the embedded document store."""

from tailrace.sinks.sqlite.config import SqliteStoreConfig
from tailrace.sinks.sqlite.search import Hit
from tailrace.sinks.sqlite.sink import SqliteSink

__all__ = ["Hit", "SqliteSink", "SqliteStoreConfig"]
