"""The whole demonstration, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import processes_naming
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
def test_the_demonstration_ends_by_itself_with_every_mirror_equal_and_nothing_left_running(
    tmp_path: Path, root: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "DEMO_SECONDS": "4"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every mirror equals its table" in done.stdout
    assert "NOT EQUAL" not in done.stdout
    assert done.stderr == ""
    assert "tailrace status -c demo/tailrace.toml" in done.stdout
    wait_until(lambda: not processes_naming(tmp_path), what="the end of every process")
