"""A PostgreSQL and an OpenSearch for the demonstration: on free ports of the loopback interface.

`scripts/test-servers` has installed the one and fetched the other. Their files are in the demonstration's
directory.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from tailrace.demo.guard import account
from tailrace.demo.processes import Server, server
from tailrace.demo.store import SearchServer
from tailrace.model.errors import NeedsOperator

REMEDY = "make demo SINK=opensearch, which installs what is missing where it may"
# Below the ports that the system gives to outgoing connections; OpenSearch takes none above the last.
POSTGRES_PORTS, OPENSEARCH_PORTS = range(15_000, 32_000), range(3_000, 9_299)
POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_slot_wal_keep_size": "1GB",
    "shared_buffers": "32MB",
    # It lives for minutes, and its files are made anew.
    "fsync": "off",
}
OPENSEARCH_SETTINGS = {
    "network.host": "127.0.0.1",
    "discovery.type": "single-node",
    # How full the disk is says nothing here.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
JAVA_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1.} %m%n
"""


def postgres_programs() -> Path:
    """The directory of the newest PostgreSQL that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    program = found[-1] if found else shutil.which("postgres")
    if program is None:
        raise NeedsOperator("there is no PostgreSQL on this machine", remedy=REMEDY)
    return Path(program).resolve().parent


def opensearch_jars() -> Path:
    """The directory of OpenSearch's jars."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = sorted(cache.glob("tailrace/opensearch-*/jars"))
    if not found:
        raise NeedsOperator("there is no OpenSearch on this machine", remedy=REMEDY)
    return found[-1]


def java() -> str:
    """The program that OpenSearch and Spark run on."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin/java")) if home else shutil.which("java")
    if program is None:
        raise NeedsOperator("there is no Java on this machine", remedy="install Java 17")
    return program


class Postgres:
    """A server that was started: roles connect to it by a password that stands in a file."""

    def __init__(self, port: int, passwords: Path) -> None:
        self.port, self.passwords = port, passwords

    def url(self, role: str, database: str) -> str:
        """What a role connects by; there is no secret in it."""
        file = quote(str(self.passwords), safe="")
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}?passfile={file}"


@contextlib.contextmanager
def postgres(directory: Path, stopped: Callable[[], bool]) -> Iterator[Postgres]:
    """A new PostgreSQL that answers, with a database `shop` that the role `shop` owns.

    The role `tailrace` may replicate, publish that role's tables and read them.
    """
    programs, port = postgres_programs(), free_port(POSTGRES_PORTS)
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    password = secrets.token_urlsafe(24)
    passwords = directory.absolute() / "pgpass"
    _write_secret(passwords, f"127.0.0.1:{port}:*:*:{password}\n")
    with contextlib.ExitStack() as stack:
        home, passing = _home_of_postgres(directory.absolute() / "postgres", user)
        if passing:
            stack.callback(shutil.rmtree, home, ignore_errors=True)
        told = home / "password"
        _write_secret(told, password, user)
        command = [str(programs / "initdb"), "-D", str(home / "data"), "-U", "postgres", "-E", "UTF8"]
        command += ["--locale=C", "-N", "-A", "scram-sha-256", f"--pwfile={told}"]
        # In a session of its own, so that Ctrl-C does not break it off in the middle.
        made = subprocess.run(
            command,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            **account(user),
        )
        told.unlink()
        if made.returncode != 0:
            raise NeedsOperator(f"PostgreSQL's files could not be made: {made.stderr.strip()}")
        command = [str(programs / "postgres"), "-D", str(home / "data"), "-p", str(port)]
        for name, value in POSTGRES_SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        log = directory / "postgres.log"
        # At once: Spark may still be connected where the demonstration was killed.
        started = stack.enter_context(
            server(
                "PostgreSQL",
                command,
                log,
                user=user,
                ended_by=signal.SIGQUIT,
                remove=home if passing else None,
            )
        )
        found = Postgres(port, passwords)
        _furnish(found, started, password, stopped)
        yield found


def _home_of_postgres(directory: Path, user: str | None) -> tuple[Path, bool]:
    """A directory that the server's user can reach: the demonstration's, or one that is to be removed."""
    directory.mkdir(mode=0o700)
    if user is None:
        return directory, False
    shutil.chown(directory, user)
    found = subprocess.run(["test", "-w", str(directory)], cwd="/", check=False, **account(user))
    if found.returncode == 0:
        return directory, False
    directory.rmdir()
    elsewhere = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    shutil.chown(elsewhere, user)
    return elsewhere, True


def _furnish(found: Postgres, started: Server, password: str, stopped: Callable[[], bool]) -> None:
    import psycopg
    from psycopg import sql

    admin = found.url("postgres", "postgres")

    def answers() -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(admin):
            return True
        return False

    started.wait(answers, stopped)
    with psycopg.connect(admin, autocommit=True) as connection:
        for role in ("shop LOGIN", "tailrace LOGIN REPLICATION"):
            statement = sql.SQL("CREATE ROLE {} PASSWORD {}")
            connection.execute(statement.format(sql.SQL(role), sql.Literal(password)))
        connection.execute("CREATE DATABASE shop OWNER shop")
        connection.execute("GRANT CREATE ON DATABASE shop TO tailrace")
        connection.execute("GRANT shop TO tailrace")


@contextlib.contextmanager
def opensearch(directory: Path) -> Iterator[tuple[Server, SearchServer]]:
    """A new OpenSearch that is starting, which takes a while."""
    home, port = directory.absolute() / "opensearch", free_port(OPENSEARCH_PORTS)
    for name in ("config", "tmp"):
        (home / name).mkdir(parents=True)
    settings = "".join(f"{name}: {value}\n" for name, value in OPENSEARCH_SETTINGS.items())
    (home / "config/opensearch.yml").write_text(settings, encoding="utf-8")
    (home / "config/log4j2.properties").write_text(LOGGING, encoding="utf-8")
    command = [java(), *JAVA_OPTIONS, f"-Djava.io.tmpdir={home / 'tmp'}", "-cp", f"{opensearch_jars()}/*"]
    command += ["org.codelibs.opensearch.runner.OpenSearchRunner", "-clusterName", "demo"]
    # It adds the number of the node to the port.
    command += ["-numOfNode", "1", "-baseHttpPort", str(port - 1)]
    command += ["-basePath", str(home / "node"), "-confPath", str(home / "config")]
    with server("OpenSearch", command, directory / "opensearch.log") as started:
        yield started, SearchServer(port)


def free_port(among: range) -> int:
    """A port that nobody listens on now."""
    while True:
        port = random.SystemRandom().choice(among)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _write_secret(path: Path, text: str, user: str | None = None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    if user is not None:
        shutil.chown(path, user)
