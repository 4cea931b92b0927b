"""Applications in other processes: `python -m tests.capture.sqlite.writers hammer|tick PATH SECONDS`."""

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


def tick(path: str, seconds: float) -> None:
    """A commit every 20 ms that carries the time right after the one before it was made."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.execute("INSERT INTO t (v) VALUES (?)", (str(time.monotonic_ns()),))
        time.sleep(0.02)


if __name__ == "__main__":
    {"hammer": hammer, "tick": tick}[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
