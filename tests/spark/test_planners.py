"""The workers beside the driver that answer for schemas and plans."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = "import gc; from tailrace.spark.planners import settle; settle(); print(gc.get_freeze_count())"


@pytest.mark.parametrize(
    ("argument", "spared"),
    [
        ("pyspark.sql.worker.plan_data_source_read", True),
        ("pyspark.sql.worker.create_data_source", True),
        ("pyspark.worker", False),
    ],
)
def test_only_workers_for_plans_are_spared_the_garbage_of_what_they_imported(
    argument: str, spared: bool
) -> None:
    command = [sys.executable, "-c", LOOK, argument]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (int(run.stdout) > 1_000) is spared
