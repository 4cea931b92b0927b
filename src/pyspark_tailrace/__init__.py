"""Spark looks for modules named `pyspark_*`: with this one `format("tailrace")` needs no `register`."""

from tailrace.spark.source import TailraceSource as DefaultSource

__all__ = ["DefaultSource"]
