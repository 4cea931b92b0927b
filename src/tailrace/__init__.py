"""Tailrace: row changes of a database as Spark streams, and tables kept in step with it.

`register(spark)` makes `spark.readStream.format("tailrace")` known to a session; `capture(…)` yields changes
as Arrow batches without Spark; `cause(error)` finds the Tailrace error behind one of Spark's. The command
`tailrace` runs whole pipelines. Importing this module imports neither Spark nor a database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import (
    ConfigError,
    DataError,
    Fenced,
    IdentityMismatch,
    LogLost,
    NeedsOperator,
    SchemaDrift,
    SetupMissing,
    StateOwned,
    StateUnreadable,
    TailraceError,
    Transient,
    UsageError,
)
from tailrace.model.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "Fenced",
    "IdentityMismatch",
    "LogLost",
    "NeedsOperator",
    "SchemaDrift",
    "Secret",
    "SetupMissing",
    "StateOwned",
    "StateUnreadable",
    "TailraceError",
    "Transient",
    "UsageError",
    "__version__",
    "capture",
    "cause",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make `format("tailrace")` known to a Spark session."""
    from tailrace.spark.source import TailraceSource

    spark.dataSource.register(TailraceSource)


def cause(error: BaseException) -> TailraceError | None:
    """The Tailrace error behind an exception of Spark, or None if there is none."""
    from tailrace.spark.crossing import cause as find_cause

    return find_cause(error)
