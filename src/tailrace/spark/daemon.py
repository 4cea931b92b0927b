"""The process that Spark forks its Python workers from, with everything they need imported once.

A worker lives from task to task, and ends when it had nothing to do for a minute. A child of Spark's own
daemon begins by importing what the source needs, which takes longer than most tasks do. The setting
`spark.python.daemon.module` names this module instead; sessions of others may do without it. The workers that
Spark asks for schemas and plans come from its own daemon all the same.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys

from pyspark import daemon

_WANTED = (
    "tailrace.spark.source",
    "tailrace.spark.batch",
    "tailrace.app.backends",
    "tailrace.capture.sqlite",
)
# Drivers are extras: one that is not installed is not needed either.
_DRIVERS = ("tailrace.capture.postgres",)


def _prepare() -> None:
    # Arrow would begin a thread. What that held at a fork, the child would wait for without an end.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in (*sys.argv[1:2], *_WANTED):
        importlib.import_module(name)
    for name in _DRIVERS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import pyarrow as pa

    # The first array makes Arrow look for pandas, which takes its time.
    pa.array([1])
    import numpy as np

    # Else all workers would draw the same numbers.
    os.register_at_fork(after_in_child=np.random.seed)
    # A worker collects garbage after every task: it need not look at all that was imported, a tenth of the
    # time of reading a million rows, nor write to pages that it shares with the others.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _prepare()
    daemon.manager()
