"""A run's parts: the pipeline's specification, the Spark session, the last acknowledgement."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tailrace.app.backends import opened
from tailrace.app.belonging import claim
from tailrace.app.indexing import document_needs, indexes_of
from tailrace.app.judging import going_on, judge, refuse
from tailrace.app.parts import captured_tables, checkpoint_of, feeds_of, mirrors_of, spark_log_of
from tailrace.model.errors import NeedsOperator, TailraceError, Transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.capture.contract import Capture
    from tailrace.config import Config
    from tailrace.engine.spec import PipelineSpec
    from tailrace.spark.offsets import Offset

RELEASE_SECONDS = 10.0


def pipeline_spec(config: Config, *, on_data_loss: str | None = None) -> PipelineSpec:
    """What the engine is to run. ConfigError names the first thing that cannot work; nothing is created.

    `on_data_loss` overrides what the configuration says of it.
    """
    from tailrace.engine.deadletters import DIRECTORY
    from tailrace.engine.spec import PipelineSpec

    with opened(config) as capture:
        refs = captured_tables(config, capture)
        mirrors, feeds = mirrors_of(config, capture, refs), feeds_of(config, capture, refs)
        indexes = indexes_of(config, capture)
        refuse(going_on(judge(config, capture, refs), config, capture, refs))
        needs = document_needs(capture, indexes, refs, mirrors, feeds) if indexes else None
    state = config.state.directory
    snapshot = bool(mirrors or indexes) or any(feed.snapshot for feed in feeds)
    options = {
        "view": "packed",
        "url": _source_url(config),
        "tables": json.dumps([str(ref) for ref in refs]),
        "stateDir": str(state),
        "consumer": config.consumer,
        # The owner of the state is a process of Spark's; a person knows the one that was started.
        "owner": f"{config.name}, run by process {os.getpid()}",
        "setup": config.source.setup,
        "startingOffsets": "earliest" if snapshot else "latest",
        "maxRowsPerTrigger": str(config.batch.max_rows),
        "maxBytesPerTrigger": str(config.batch.max_bytes),
        "ack": config.state.ack,
        "retention": str(int(config.state.retention)),
        "maxChangelogBytes": str(config.state.max_size),
        **config.snapshot.options(),
    }
    if needs is not None:
        options["documents"] = needs.to_json()
    if (on_data_loss or config.source.on_data_loss) == "snapshot":
        options["failOnDataLoss"] = "false"
    if config.source.options:
        options["sourceOptions"] = json.dumps(config.source.options)
    if config.source.types:
        options["types"] = json.dumps(config.source.types)
    return PipelineSpec(
        name=config.name,
        options=options,
        checkpoint=checkpoint_of(config),
        mirrors=mirrors,
        feeds=feeds,
        indexes=indexes,
        on_error=config.on_error,
        dead_letters=str(state / DIRECTORY),
        spark_log=str(spark_log_of(config)),
    )


def _source_url(config: Config) -> str:
    """A reference travels as it is written, so that no secret does; a relative path travels absolute."""
    reference = config.reference("source", "url")
    if reference is not None:
        from tailrace.config.references import expand

        if expand(reference, os.environ) == config.source.url:
            return reference
    return config.source.url


def open_spark(config: Config) -> SparkSession:
    """A Spark session for this configuration. Spark's own output goes to the state directory."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise NeedsOperator(
            "Java was not found, and Spark needs it", remedy="install Java 17 or set JAVA_HOME"
        )
    from tailrace.spark.session import open_session
    from tailrace.spark.source import TailraceSource

    log = spark_log_of(config)
    config.state.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened(config) as capture:
        claim(config, captured_tables(config, capture))
    try:
        spark = open_session(config.name, master=config.spark.master, settings=config.spark.settings, log=log)
    except Exception as error:
        raise TailraceError(f"Spark did not start: {_reason(error)}", remedy=f"Spark's log: {log}") from error
    spark.dataSource.register(TailraceSource)
    return spark


@contextlib.contextmanager
def spark_session(config: Config) -> Iterator[SparkSession]:
    """A session that is stopped at the end. What fails inside and is not ours is told with Spark's log."""
    spark = open_spark(config)
    try:
        yield spark
    except TailraceError:
        raise
    except Exception as error:
        log = spark_log_of(config)
        # Without its JVM every call fails in its own way; one of them says so best.
        what = "its process ended" if isinstance(error, OSError | EOFError) else _reason(error)
        raise TailraceError(f"Spark failed: {what}", remedy=f"Spark's log: {log}") from error
    finally:
        with contextlib.suppress(Exception):
            spark.stop()


def _reason(error: Exception) -> str:
    """The telling line of an error that came through the bridge to Java, which puts it behind a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
    return told.rpartition("Exception: ")[2][:300]


def release(config: Config) -> Callable[[Offset], None]:
    """Acknowledges an offset at the source at the end of a run, until the source knows it."""

    def known(capture: Capture) -> int:
        return max(
            (one.acknowledged for one in capture.consumers() if one.name == config.consumer), default=0
        )

    def acknowledge(offset: Offset) -> None:
        deadline = time.monotonic() + RELEASE_SECONDS
        with opened(config) as capture:
            while time.monotonic() < deadline:
                # A reader that has just ended lets go of the source a moment later; the next run tells it
                # what this one could not.
                with contextlib.suppress(Transient):
                    position = capture.moved(offset.position)
                    recorded = capture.acknowledge(position, consumer=config.consumer)
                    if recorded >= position or known(capture) >= position.version:
                        return
                time.sleep(0.05)

    return acknowledge
