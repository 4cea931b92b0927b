"""Sinks that keep everything in memory: for tests, Tailrace's own and its users'."""

from tailrace.sinks.memory.documents import MemoryDocumentSink
from tailrace.sinks.memory.sink import MemoryFeedSink, MemoryTableSink

__all__ = ["MemoryDocumentSink", "MemoryFeedSink", "MemoryTableSink"]
