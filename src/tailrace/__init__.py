"""Tailrace: row changes of a database as Spark streams, and tables kept in step with it.

`register(spark)` makes `spark.readStream.format("tailrace")` known to a session; `capture(…)` yields changes
as Arrow batches without Spark; `cause(error)` finds the Tailrace error behind one of Spark's. The command
`tailrace` runs whole pipelines. Importing this module imports neither Spark nor a database driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import tailrace.capture  # noqa: F401 - made callable below
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

    from tailrace.runtime.api import CaptureStream
    from tailrace.runtime.observer import Observer

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
    """Make `format("tailrace")` known to a Spark session.

    On a local master the source runs in this interpreter, which has Tailrace, unless PYSPARK_PYTHON says
    otherwise; Spark itself would take whichever `python3` comes first in the PATH.
    """
    from tailrace.spark.source import TailraceSource

    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    spark.dataSource.register(TailraceSource)


def cause(error: BaseException) -> TailraceError | None:
    """The Tailrace error behind an exception of Spark, or None if there is none."""
    from tailrace.spark.crossing import cause as find_cause

    return find_cause(error)


def _capture(
    url: str,
    tables: str | Sequence[str],
    state_dir: str,
    *,
    mode: Literal["snapshot_then_changes", "changes", "snapshot"] = "snapshot_then_changes",
    order: Literal["interleaved", "first"] = "interleaved",
    consumer: str = "default",
    setup: Literal["auto", "manual"] = "auto",
    max_rows: int = 10_000,
    types: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> CaptureStream:
    """Changes of a database as Arrow batches, without Spark.

    >>> with tailrace.capture("sqlite:shop.db", ["orders"], "state") as stream:
    ...     for delivery in stream:
    ...         store(delivery.batches)
    ...         stream.acknowledge(delivery.token)

    What is acknowledged is remembered under `state_dir`, by the consumer's name, and does not come again.
    With `setup="auto"` a table that was never set up for capture is set up now.
    """
    from tailrace.app import capture_for
    from tailrace.runtime.api import capture_stream

    source = capture_for(url, types=types)
    refs = source.resolve([tables] if isinstance(tables, str) else tables)
    stream = capture_stream(
        source,
        refs,
        state_dir=state_dir,
        consumer=consumer,
        mode=mode,
        order=order,
        max_rows=max_rows,
        observer=observer,
    )
    if setup == "auto":
        new = {finding.table for finding in source.coverage(refs) if finding.code == "not_set_up"}
        if new:
            source.setup([ref for ref in refs if str(ref) in new])
    return stream


if TYPE_CHECKING:
    capture = _capture
else:

    class _CapturePackage(ModuleType):
        """The package `tailrace.capture` is the function `tailrace.capture` too."""

        def __call__(self, *args: Any, **kwargs: Any) -> CaptureStream:
            return _capture(*args, **kwargs)

    sys.modules["tailrace.capture"].__class__ = _CapturePackage
    sys.modules["tailrace.capture"].__doc__ = _capture.__doc__
