"""The process that reads the source ends with its query, whatever it was doing when it was told to."""

from __future__ import annotations

import signal
import subprocess
import sys

# A stop that waits for ever: a signal that comes in the middle of taking a lock leaves it taken.
STUCK = """
import signal, threading
from tailrace.spark import source
source.LEAVE_SECONDS = 0.3
signal.signal(signal.SIGTERM, source._leave)
taken = threading.Lock()
taken.acquire()
print("ready", flush=True)
try:
    threading.Event().wait()
finally:
    taken.acquire()
"""


def test_a_process_that_cannot_end_by_itself_is_ended_and_says_where_it_stood() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "most recent call first" in told
