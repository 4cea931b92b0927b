"""Two programs that tests start and kill: one writes into a SQLite file, one consumes it by a runtime.

python -m tests.runtime.processes write  DATABASE SEED SECONDS
python -m tests.runtime.processes consume DATABASE STATE OUTPUT ORDER
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.runtime.api import capture_stream


def write(database: str, seed: str, seconds: str) -> None:
    """Insert, update, delete and move rows, each transaction of one to three of them."""
    chance = random.Random(int(seed))
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    end = time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < end:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(chance.randint(1, 3)):
            number += 1
            key = chance.randrange(3000)
            kind = chance.random()
            if kind < 0.3:
                connection.execute("DELETE FROM items WHERE id = ?", (key,))
            elif kind < 0.4:
                connection.execute(
                    "UPDATE OR IGNORE items SET id = ? WHERE id = ?", (chance.randrange(3000), key)
                )
            else:
                connection.execute(
                    "INSERT INTO items VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
                    (key, number),
                )
        connection.execute("COMMIT")
        time.sleep(0.002)
    connection.close()


def consume(database: str, state: str, output: str, order: str) -> None:
    """Append every delivery to a file as JSON, durably, and acknowledge it. SIGTERM ends it cleanly."""
    capture = SqliteCapture(SqliteConfig(Path(database), slice_rows=50))
    stream = capture_stream(
        capture,
        ["items"],
        state_dir=state,
        consumer="test",
        order=order,  # type: ignore[arg-type]
        max_rows=100,
        rows_per_chunk=100,
        poll=0.2,
    )
    signal.signal(signal.SIGTERM, lambda *_: stream.finish())
    with Path(output).open("a") as file, stream:
        for delivery in stream:
            for batch in delivery.batches:
                for change in batch.data.to_pylist():
                    images = [change["before"], change["after"]]
                    file.write(json.dumps([change["op"], change["position"], change["seq"], *images]) + "\n")
            file.flush()
            os.fsync(file.fileno())
            stream.acknowledge(delivery.token)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        consume(*sys.argv[2:])
