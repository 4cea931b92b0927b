"""The process that workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys

LOOK = """
import gc, os
from tailrace.spark import daemon
daemon._prepare()
kept = gc.get_freeze_count()
import tailrace.spark.source, tailrace.spark.batch, tailrace.app.backends
print(kept, gc.get_freeze_count(), len(gc.get_objects()), len(os.listdir("/proc/self/task")))
"""


def _look() -> list[int]:
    # As Spark starts it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment, check=True, capture_output=True, text=True
    )
    return [int(word) for word in run.stdout.split()]


def test_workers_begin_with_everything_imported_and_nothing_for_the_garbage_collector_to_look_at() -> None:
    kept, still, left, _ = _look()
    assert kept == still > 50_000
    assert left < 1_000


def test_it_has_one_thread_for_what_another_held_no_worker_would_ever_get() -> None:
    assert _look()[-1] == 1
