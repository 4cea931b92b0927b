"""The real command, as a process, and the small databases it is pointed at."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tailrace.cli"]


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without what would change the command's behaviour."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "NO_COLOR"))
    }
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **extra}


def tailrace(
    directory: Path, *arguments: str, extra: Mapping[str, str] | None = None, humble: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `tailrace` in a directory and wait for it; `humble` takes root's right to write everything away."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=directory,
        env=environment(**(extra or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=obey_permissions if humble else None,
    )


def obey_permissions() -> None:
    """In a child process: permissions of files hold even for root, from the next program on."""
    if os.geteuid() == 0:
        drop_from_bounding_set, override, search = 24, 1, 2
        libc = ctypes.CDLL(None)
        for capability in (override, search):
            libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


def make_shop(path: Path, *, wal: bool = True) -> None:
    """A database with two keyed tables and one without a key."""
    connection = sqlite3.connect(path)
    try:
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(
            """
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);
            CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, total DECIMAL(10,2));
            CREATE TABLE loose (a TEXT, b TEXT);
            INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace');
            INSERT INTO orders VALUES (10, 1, 9.5), (11, 2, 20);
            """
        )
    finally:
        connection.close()


def schema_of(path: Path) -> list[tuple[str, str]]:
    """Every object of a database, by type and name."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return sorted(connection.execute("SELECT type, name FROM sqlite_schema"))
    finally:
        connection.close()


def processes_naming(path: Path) -> list[psutil.Process]:
    """The running processes whose command line has this path in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if str(path) in " ".join(process.cmdline()):
                found.append(process)
    return found


MIRRORS = """
[source]
url = "sqlite:shop.db"

[sinks.lake]
type = "delta"
path = "lake"

[[table]]
name = "customers"

[[table]]
name = "orders"
"""
