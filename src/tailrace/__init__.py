"""Tailrace: row changes of a database as Spark streams, and tables kept in step with it.

`register(spark)` makes `spark.readStream.format("tailrace")` known to a session; `capture(…)` yields changes
as Arrow batches without Spark; `moment(…)` gives tables at one point in time; `cause(error)` finds the
Tailrace error behind one of Spark's. The command `tailrace` runs whole pipelines. Importing this module
imports neither Spark nor a database driver.
"""

from __future__ import annotations

import inspect
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
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tailrace.app.control import Control
    from tailrace.runtime.api import CaptureStream
    from tailrace.runtime.observer import Observer
    from tailrace.spark.moment import Moment

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
    "control",
    "moment",
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


def moment(
    spark: SparkSession,
    url: str,
    *,
    types: Mapping[str, str] | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> AbstractContextManager[Moment]:
    """One point in time of a database: several tables, each by several tasks, as they were when it began.

    >>> with tailrace.moment(spark, "postgresql://db/shop") as moment:
    ...     orders = moment.table("orders", partitions=4)
    ...     items = moment.table("items")
    ...     orders.join(items, "order_id").write.parquet("report")

    This process holds it by a connection, and it ends with the block: Spark reads a DataFrame when an action
    runs, so run that inside. For PostgreSQL; other sources are refused (ConfigError).

    url: the database; `${NAME}` in it is taken from the environment, of this process and of Spark's.
    types: column types that override the derived ones: `{"orders.price": "string"}`.
    source_options: settings of the kind of source, as its page lists them.
    """
    from tailrace.spark.moment import moment as held

    return held(spark, url, types=types, source_options=source_options)


def cause(error: BaseException) -> TailraceError | None:
    """The Tailrace error behind an exception of Spark, or None if there is none."""
    from tailrace.spark.crossing import cause as find_cause

    return find_cause(error)


def control(
    config: str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    tables: str | Sequence[str] = "*",
    state_dir: str | None = None,
    checkpoint: str | None = None,
    types: Mapping[str, str] | None = None,
    source_options: Mapping[str, Any] | None = None,
    consumer: str | None = None,
) -> Control:
    """Ask for snapshots and steer them, while a pipeline or a query runs or before its next run.

    A pipeline's indexes can be filled again too.

    >>> shop = tailrace.control("tailrace.toml")
    >>> shop.snapshot("orders", where="price > 10")
    >>> shop.pause()
    >>> shop.resume("orders")
    >>> shop.stop("orders")
    >>> shop.reindex("customers")

    config: the configuration file of a pipeline. A query of your own has none; it is named by the rest:
    url, tables, state_dir: the options `url`, `tables` and `stateDir` of its `format("tailrace")`.
    checkpoint: its `checkpointLocation`, for `status()`.
    types, source_options, consumer: its options `types`, `sourceOptions` and `consumer`, where it has them.
    """
    from tailrace.app import control_of_query, writable

    if config is not None:
        from pathlib import Path

        from tailrace.config import load_config

        return writable(load_config(Path(config)))
    if url is None or state_dir is None:
        raise UsageError(
            "which pipeline?", remedy='tailrace.control("tailrace.toml"), or url=… and state_dir=… of a query'
        )
    return control_of_query(
        url, tables, state_dir, checkpoint, types=types, source_options=source_options, consumer=consumer
    )


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

    url: the database, as in `sqlite:shop.db`; `${NAME}` in it is taken from the environment.
    tables: a table or several, by name; `*` means all of them.
    state_dir: the directory of what must be remembered. Keep it.
    mode: `snapshot_then_changes`: existing rows, then changes; `changes`: what happens from now on;
        `snapshot`: existing rows, then the stream ends.
    order: `interleaved`: a snapshot's rows and changes take turns; `first`: all rows before any change.
    consumer: the name of this reader's cursor at the source; readers of their own have names of their own.
    setup: `auto`: a table that was never set up for capture is set up now; `manual`: it is refused.
    max_rows: a delivery holds about so many changes; a larger transaction comes in parts.
    types: column types that override the derived ones: `{"orders.price": "string"}`.
    observer: is told of progress and errors by `observer.event(name, **fields)`.
    """
    from tailrace.app import capture_for, check_types
    from tailrace.runtime.api import capture_stream

    names = [tables] if isinstance(tables, str) else list(tables)
    if not names:
        raise ConfigError("there are no tables to capture", remedy='name some, or ["*"] for all of them')
    source = capture_for(url, types=types)
    refs = source.resolve(names)
    check_types(source, types or {})
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

    def _called(signature: inspect.Signature) -> str:
        """The call as one reads it; the text below it says what types there are."""
        parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        return f"tailrace.capture{inspect.Signature(parameters)}"

    _package = sys.modules["tailrace.capture"]
    _package.__class__ = _CapturePackage
    _package.__signature__ = inspect.signature(_capture)
    # `help` shows a module's text and asks for no signature, so the text has it.
    _package.__doc__ = f"{_called(_package.__signature__)}\n\n{inspect.getdoc(_capture)}"
