"""POSIX locks: nothing this process does may drop those of its own connections."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from tailrace.capture.sqlite.capture import SqliteCapture
from tailrace.capture.sqlite.config import SqliteConfig
from tests.support.shop import Shop

# Each insert opens and closes the database: the last connection to close takes the WAL file away.
WRITER = """
import sqlite3, sys
for i in range(int(sys.argv[2])):
    connection = sqlite3.connect(sys.argv[1], timeout=30)
    with connection:
        connection.execute("INSERT INTO orders VALUES (?, 'x', 1)", (i,))
    connection.close()
"""


def test_short_lived_calls_beside_a_live_reader_never_lose_its_lock(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    capture = SqliteCapture(SqliteConfig.from_url(shop.url))
    capture.setup(capture.resolve(["orders"]))
    start = capture.register("test")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(shop.path), "300"])
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            capture.lag(start)
            SqliteConfig.from_url(shop.url)

    beside = threading.Thread(target=others)
    beside.start()
    try:
        rows = 0
        for part in capture.live(start, capture.resolve(["orders"]), consumer="test", wait=0.2):
            rows += part.rows if part is not None else 0
            if rows == 300:
                break
        assert rows == 300
    finally:
        done.set()
        beside.join()
        assert writer.wait(60) == 0
        capture.close()
