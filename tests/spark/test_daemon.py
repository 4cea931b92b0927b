"""The process that workers are forked from."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import gc
from tailrace.spark import daemon
daemon._prepare()
kept = gc.get_freeze_count()
import tailrace.spark.source, tailrace.spark.batch, tailrace.app.backends
print(kept, gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_workers_begin_with_everything_imported_and_nothing_for_the_garbage_collector_to_look_at() -> None:
    run = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    kept, still, left = map(int, run.stdout.split())
    assert kept == still > 50_000
    assert left < 1_000
