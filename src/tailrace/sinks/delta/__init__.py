"""Mirrors of tables in Delta Lake, written without Spark."""

from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink

__all__ = ["DeltaConfig", "DeltaSink"]
