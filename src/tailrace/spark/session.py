"""A Spark session with the settings that suit short micro-batches, and its noise in a file.

The JVM inherits the log file as its standard error, so neither Spark's start-up chatter nor a worker's
warnings reach the user's terminal. `defaults` is what we set for our own sessions; docs/spark.md lists them
for sessions of others.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECRET = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def defaults(master: str) -> dict[str, str]:
    """The settings for a session on this master."""
    settings = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        # Both avoid forked processes for every checkpoint file; they are right for local disks only.
        manager = (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        )
        settings["spark.sql.streaming.checkpointFileManagerClass"] = manager
        settings["spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.RawLocalFileSystem"
        # Elsewhere Tailrace may come to the workers with the job, and not be there before.
        settings["spark.python.daemon.module"] = "tailrace.spark.daemon"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
    return settings


def open_session(
    name: str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """Start Spark (or join the session that runs). With `log` all of Spark's own output goes to that file."""
    merged = {**defaults(master), **(settings or {})}
    # The workers must run this interpreter: a PATH without the virtual environment has another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        config = log.with_suffix(".log4j2.properties")
        config.write_text(_LOG4J)
        java = f"-Dlog4j2.configurationFile={config.resolve().as_uri()}"
        merged["spark.driver.extraJavaOptions"] = (
            f"{merged.get('spark.driver.extraJavaOptions', '')} {java}".strip()
        )
        _hush()
        with _stderr_into(log):
            return _start(name, master, merged)
    return _start(name, master, merged)


def _hush() -> None:
    """Py4J logs every exception that a batch function raises, which its caller reports anyway."""
    logger = logging.getLogger("py4j")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _start(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None:
        conf = SparkConf().setAppName(name).setMaster(master).setAll(list(settings.items()))
        # What the JVM is started with stands in the list of processes, for everybody to read.
        shown = SparkConf().setAll([(key, value) for key, value in conf.getAll() if not _SECRET.search(key)])
        # A session of its own for the JVM and its workers: a terminal's Ctrl-C goes to every process of the
        # foreground, and would end the workers in the middle of the batch that is to be finished.
        SparkContext(conf=conf, gateway=launch_gateway(shown, {"start_new_session": True}))
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Processes started inside inherit the file as standard error, and keep it."""
    sys.stderr.flush()
    saved = os.dup(2)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)
