"""A real PostgreSQL server for the tests: one a session, a fresh database a test.

The server runs as an ordinary user, for it refuses to run as root. Tables belong to the role `app`; captures
connect as `tailrace`, which may log in, replicate, and read, and nothing else. `Server` can be restarted,
killed and frozen; a test that does so takes `own_server`, a server for itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.support.installed import Installation, installation
from tests.support.waiting import wait_until

ROLE, PASSWORD = "tailrace", "canary-p@ss:w/ord"
SETTINGS = {
    "fsync": "off",
    "wal_level": "logical",
    "max_wal_senders": "30",
    "max_replication_slots": "30",
    "max_connections": "80",
    "shared_buffers": "32MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_permissions": "0777",
    "max_prepared_transactions": "5",
}


binaries = installation


def _free_port() -> int:
    """A free port below those that the system gives to outgoing connections.

    One of these could take it while the server is down, even one to this very port. The dice are those of the
    system: `random` falls alike in every process of a test run.
    """
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@functools.cache
def _template(installed: Installation) -> Path:
    """The files of a new server, made once: a copy of them is there sooner."""
    directory = installed.directory()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    data = directory / "data"
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "--wal-segsize=4"]
    command = installed.command("initdb", "-D", installed.inside(data), *options)
    subprocess.run(command, check=True, capture_output=True, user=installed.user, cwd="/")
    return data


class Server:
    """One server, its files, and what can happen to it."""

    def __init__(self, installed: Installation, template: Path | None = None) -> None:
        self.installed = installed
        # What its processes find in their environment beside ours, from the next start on.
        self.environment: dict[str, str] = {}
        self.directory = installed.directory()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases: list[Database] = []
        files = str(template or _template(installed))
        subprocess.run(["cp", "-a", files, str(self.data)], check=True, user=installed.user, cwd="/")
        hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(hba)
        self.start()
        with self.admin() as connection:
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute(
                sql.SQL("CREATE ROLE tailrace LOGIN REPLICATION PASSWORD {}").format(sql.Literal(PASSWORD))
            )

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        inside = self.installed.inside
        command = self.installed.command("postgres", "-D", inside(self.data), "-p", str(self.port))
        command += ["-k", inside(self.directory)]
        for name, value in {**SETTINGS, **settings}.items():
            command += ["-c", f"{name}={value}"]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                user=self.installed.user,
                cwd="/",
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        wait_until(self.answers, what="the server's start")

    @property
    def pid(self) -> int | None:
        """Its first process; None while it is not running."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    def answers(self) -> bool:
        """Whether it takes connections."""
        with contextlib.suppress(psycopg.OperationalError), self.admin():
            return True
        return False

    def stop(self) -> None:
        """Stop it at once, closing every connection."""
        self._end(signal.SIGINT)

    def restart(self, **settings: str) -> None:
        self.stop()
        self.start(**settings)

    def kill(self) -> None:
        """Kill every process of it, as a crash would."""
        processes = self._processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        if self._process is not None:
            self._process.wait(10)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def _processes(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        postmaster = psutil.Process(self._process.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(30)

    def remove(self) -> None:
        """Stop it and remove its files."""
        self.thaw()
        for database in self._databases:
            database.close()
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def admin(self, database: str = "postgres", user: str = "postgres") -> psycopg.Connection[Any]:
        """A connection over the socket, as the superuser or another role."""
        return psycopg.connect(
            host=str(self.directory), port=self.port, user=user, dbname=database, autocommit=True
        )

    def database(self, options: str = "") -> Database:
        self._databases.append(Database(self, options))
        return self._databases[-1]


class Database:
    """A database of its own: `app` owns what is in it, `tailrace` may read it."""

    def __init__(self, server: Server, options: str = "") -> None:
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:12]}"
        with server.admin() as connection:
            connection.execute(f"CREATE DATABASE {self.name} OWNER app {options}")
        self._connections: list[psycopg.Connection[Any]] = []
        with self.admin() as connection:
            connection.execute("ALTER SCHEMA public OWNER TO app")
            # What everybody has by default is taken away: the role has the rights of docs/postgres.md alone.
            connection.execute(f"REVOKE ALL ON DATABASE {self.name} FROM PUBLIC")
            connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            connection.execute(f"GRANT CONNECT ON DATABASE {self.name} TO tailrace")
            connection.execute("GRANT USAGE ON SCHEMA public TO tailrace")
        self.app = self.connect()
        self.app.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO tailrace")

    def admin(self) -> psycopg.Connection[Any]:
        return self.server.admin(self.name)

    def connect(self, user: str = "app") -> psycopg.Connection[Any]:
        """Another connection, closed with the database."""
        self._connections.append(self.server.admin(self.name, user))
        return self._connections[-1]

    def url(self, parameters: str = "", *, port: int | None = None, host: str = "127.0.0.1") -> str:
        """What a capture connects by: TCP, a password, the least privileged role."""
        secret = PASSWORD.replace("@", "%40").replace(":", "%3A").replace("/", "%2F")
        return f"postgresql://{ROLE}:{secret}@{host}:{port or self.server.port}/{self.name}{parameters}"

    def socket_url(self, user: str = ROLE) -> str:
        """The same without a password, over the socket: what a Spark option may hold."""
        directory = str(self.server.directory).replace("/", "%2F")
        return f"postgresql://{user}@{directory}:{self.server.port}/{self.name}"

    def superuser_url(self) -> str:
        """The same database with every right, for tests of what an owner does."""
        return self.socket_url("postgres")

    def publish(self, *tables: str) -> None:
        """What the owner of the tables does for a role that may not."""
        names = ", ".join(tables)
        options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
        self.app.execute(f"CREATE PUBLICATION tailrace FOR TABLE {names} WITH ({options})".encode())

    def sql(self, *statements: str) -> None:
        """Statements of the application, each a transaction."""
        for statement in statements:
            self.app.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.app.execute(query).fetchall()

    @property
    def server_version(self) -> int:
        return self.app.info.server_version

    def slots(self) -> list[str]:
        with self.admin() as connection:
            found = connection.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = %s ORDER BY 1", (self.name,)
            ).fetchall()
        return [name for (name,) in found]

    def close(self) -> None:
        """Close the application's connections."""
        for connection in self._connections:
            connection.close()

    def drop(self) -> None:
        """Remove it with its slots, whoever still reads them."""
        self.close()
        with self.server.admin() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                " WHERE database = %s AND active",
                (self.name,),
            )
            wait_until(lambda: self._drop_slots(connection), timeout=10, what="dropping the slots")
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def _drop_slots(self, connection: psycopg.Connection[Any]) -> bool:
        names = connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = %s", (self.name,)
        ).fetchall()
        for (name,) in names:
            with contextlib.suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        return not names


def _server() -> Server:
    found = installation()
    if found is None:
        pytest.skip("unavailable: a PostgreSQL server")
    return Server(found)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's server: leave it running."""
    server = _server()
    yield server
    server.remove()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test, which may break it."""
    server = _server()
    yield server
    server.remove()


@pytest.fixture
def other_server() -> Iterator[Server]:
    """A server with a system identifier of its own: all the others are copies of one."""
    found = installation()
    if found is None:
        pytest.skip("unavailable: a PostgreSQL server")
    server = Server(found, _template.__wrapped__(found))
    yield server
    server.remove()


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    """A fresh database."""
    made = postgres.database()
    yield made
    made.drop()
