"""Applications in other processes, as `python -m tests.capture.sqlite.writers` starts them.

hammer PATH SECONDS
tick PATH COMMITS
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time


def hammer(path: str, seconds: float) -> None:
    """Commit as fast as it goes with no busy timeout; tell how many writes there were and how many failed.

    After a failure it tries again a millisecond later.
    """
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    connection.execute("PRAGMA synchronous=OFF")
    done = failed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            connection.execute("INSERT INTO t (v) VALUES ('x')")
        except sqlite3.OperationalError:
            failed += 1
            time.sleep(0.001)
        else:
            done += 1
    sys.stdout.write(json.dumps([done, failed]))


def tick(path: str, commits: float) -> None:
    """So many commits, one every 20 ms, that carry the time right before they were made."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    for _ in range(int(commits)):
        connection.execute("INSERT INTO t (v) VALUES (?)", (str(time.monotonic_ns()),))
        time.sleep(0.02)


if __name__ == "__main__":
    {"hammer": hammer, "tick": tick}[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
