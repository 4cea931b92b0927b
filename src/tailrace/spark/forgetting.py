"""What Spark keeps of queries that have ended, and would keep until its JVM ends.

A run begins a query anew whenever it takes up another configuration, so whatever stays of each adds up:

- a connection and a thread here, by which a thread of the JVM's called this process;
- a thread of the JVM's that looks for idle workers, of which the process that read the source had none. It
  never ends, and holds the session that was made for its query, a quarter of a megabyte;
- here, what refers to the JVM's objects and waits for the collector.

What cannot be released are three handles: of a selector that Spark opens for each such process and never
closes, and of the socket it waited at, which stays open with it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MONITOR = "org.apache.spark.api.python.PythonWorkerFactory$MonitorThread"


def forget_queries(spark: SparkSession) -> None:
    """Let go of every query that has ended. None may run any more."""
    gateway = spark.sparkContext._gateway
    if gateway is None:
        return
    if (server := gateway.get_callback_server()) is not None:
        callbacks = gateway.java_gateway_server
        callbacks.resetCallbackClient(callbacks.getCallbackClient().getAddress(), server.get_listening_port())
    # Another Spark may have made it otherwise; then it keeps it, and the run goes on all the same.
    with contextlib.suppress(Exception):
        _end_monitors(gateway)
    gc.collect()


def _end_monitors(gateway: Any) -> None:
    jvm = gateway.jvm
    handler = jvm.java.lang.Class.forName("java.lang.Thread$UncaughtExceptionHandler")
    # An interrupted thread would tell of its exception in the log, as if something were wrong.
    silent = jvm.java.beans.EventHandler.create(handler, jvm.java.lang.Object(), "hashCode")
    for monitor in _monitors(gateway):
        monitor.setUncaughtExceptionHandler(silent)
        monitor.interrupt()


def _monitors(gateway: Any) -> Iterator[Any]:
    """Those that have nothing to look for: workers that come from no daemon are never idle."""
    from py4j.java_gateway import get_field

    for thread in gateway.jvm.java.lang.Thread.getAllStackTraces().keySet():
        if thread.getClass().getName() == _MONITOR and not get_field(thread, "$outer").useDaemonEnabled():
            yield thread
