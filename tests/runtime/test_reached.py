"""When positions were captured, told to another process."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.fs as pafs

from tailrace.changelog.statefile import write_state
from tailrace.runtime.reached import Reached, behind


def test_the_newest_acknowledged_sample_counts() -> None:
    now = [100.0]
    reached = Reached(clock=lambda: now[0])
    for version in (10, 20, 30):
        reached.note(version)
        now[0] += 1
    assert reached.acknowledged(9) is None
    assert reached.acknowledged(25) == (20, 101.0)
    assert reached.acknowledged(25) == (20, 101.0)
    assert reached.acknowledged(99) == (30, 102.0)


def test_samples_of_a_busy_source_are_kept_apart() -> None:
    now = [0.0]
    reached = Reached(clock=lambda: now[0])
    for version in range(1, 1000):
        reached.note(version)
        now[0] += 1 / 1024
    assert reached.acknowledged(999) == (513, 0.5)


def test_another_process_tells_the_seconds_by_what_was_saved(tmp_path: Path) -> None:
    fs, path = pafs.LocalFileSystem(), str(tmp_path / "filler.json")
    assert behind(fs, path, "filler", 50) is None
    write_state(fs, path, "filler", {"reached": [40, time.time() - 30]})
    assert 30 <= (behind(fs, path, "filler", 50) or 0) < 300
    assert behind(fs, path, "filler", 39) is None
    (tmp_path / "filler.json").write_text("{")
    assert behind(fs, path, "filler", 50) is None
