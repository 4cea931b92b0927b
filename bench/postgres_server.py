"""A PostgreSQL server for the benchmark: on a free port, its files in a temporary directory."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

ROLE = "bench"
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "max_wal_senders": "20",
    "max_replication_slots": "100",
    # The writing is not measured; what is measured must not meet its aftermath.
    "fsync": "off",
    "autovacuum": "off",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "256MB",
    # A contestant that only counts reports nothing while it does.
    "wal_sender_timeout": "10min",
}


class Server:
    """A running server."""

    def __init__(self, directory: Path, port: int, pid: int) -> None:
        self._directory, self.port, self.pid = directory, port, pid

    def connect(self, database: str = "postgres", user: str = ROLE) -> psycopg.Connection[Any]:
        """A connection in autocommit mode."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=user, dbname=database, autocommit=True, connect_timeout=10
        )


def binaries() -> Path:
    """Where the newest server installed here is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise SystemExit("this benchmark needs a PostgreSQL server (Debian: the package postgresql)")
    return Path(on_path).parent


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """A server for as long as the block runs."""
    programs = binaries()
    directory = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        account = pwd.getpwnam(user)
        os.chown(directory, account.pw_uid, account.pw_gid)
    process: subprocess.Popen[bytes] | None = None
    try:
        initdb = [str(programs / "initdb"), "-D", str(directory / "data"), "-U", "postgres", "-A", "trust"]
        initdb += ["-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(initdb, check=True, capture_output=True, user=user, cwd="/")
        port = _free_port()
        command = [str(programs / "postgres"), "-D", str(directory / "data"), "-p", str(port)]
        command += ["-k", str(directory)]
        for name, value in {**SETTINGS, **settings}.items():
            command += ["-c", f"{name}={value}"]
        with (directory / "server.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, user=user, cwd="/", start_new_session=True
            )
        server = Server(directory, port, process.pid)
        _wait(server, process, directory / "server.log")
        with server.connect(user="postgres") as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN SUPERUSER REPLICATION")
        yield server
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.connect(user="postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"PostgreSQL did not start:\n{log.read_text()}") from None
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
