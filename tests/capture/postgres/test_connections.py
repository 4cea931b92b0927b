"""Every way to name a server and to give a password, for ordinary and replication connections alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import pq, sql

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.postgres.client import connect
from tailrace.model.errors import ConfigError, Transient
from tests.capture.postgres.streaming import Source, background
from tests.support.postgres import PASSWORD, ROLE, Database, Server
from tests.support.waiting import wait_until

KINDS = pytest.mark.parametrize("replication", [False, True], ids=["ordinary", "replication"])
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


@pytest.fixture(scope="module")
def database(postgres: Server) -> Iterator[Database]:
    """One database for all: nothing is written to it."""
    made = postgres.database()
    yield made
    made.drop()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without files, and an environment without libpq's variables."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def user_of(url: str, replication: bool) -> str:
    """Who a connection by this URL is."""
    with connect(PostgresConfig.from_url(url), replication=replication) as connection:
        if replication:
            assert connection.pgconn.exec_(b"IDENTIFY_SYSTEM").status == pq.ExecStatus.TUPLES_OK
        result = connection.pgconn.exec_(b"SELECT current_user, current_database()")
        return (result.get_value(0, 0) or b"").decode()


def refused(url: str, replication: bool = False) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        connect(PostgresConfig.from_url(url), replication=replication)
    assert "canary" not in f"{caught.value} {caught.value!r} {caught.value.remedy}"
    assert caught.value.remedy
    return caught.value


def bare(database: Database) -> str:
    """The URL without its password."""
    return f"postgresql://{ROLE}@127.0.0.1:{database.server.port}/{database.name}"


def password_file(path: Path, password: str = PASSWORD) -> Path:
    path.write_text(f"*:*:*:{ROLE}:{password.replace(chr(92), chr(92) * 2).replace(':', chr(92) + ':')}\n")
    path.chmod(0o600)
    return path


@KINDS
def test_a_socket_needs_no_network(database: Database, replication: bool) -> None:
    server = database.server
    directory = quote(str(server.directory), safe="")
    for url in (
        f"postgresql://{ROLE}@{directory}:{server.port}/{database.name}",
        f"postgresql:///{database.name}?host={server.directory}&port={server.port}&user={ROLE}",
    ):
        assert user_of(url, replication) == ROLE


@KINDS
def test_a_password_may_stand_in_each_of_libpqs_places(
    database: Database, replication: bool, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    assert user_of(database.url(), replication) == ROLE
    assert user_of(f"{bare(database)}?password={quote(PASSWORD, safe='')}", replication) == ROLE
    assert "PGPASSWORD" in (refused(bare(database), replication).remedy or "")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert user_of(bare(database), replication) == ROLE
    monkeypatch.delenv("PGPASSWORD")
    named = password_file(home / "passwords")
    assert user_of(f"{bare(database)}?passfile={named}", replication) == ROLE
    monkeypatch.setenv("PGPASSFILE", str(named))
    assert user_of(bare(database), replication) == ROLE
    monkeypatch.delenv("PGPASSFILE")
    password_file(home / ".pgpass")
    assert user_of(bare(database), replication) == ROLE


@KINDS
def test_a_password_file_that_others_may_read_is_told_of(
    database: Database, replication: bool, home: Path
) -> None:
    file = password_file(home / ".pgpass")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in (refused(bare(database), replication).remedy or "")


@KINDS
def test_variables_alone_can_name_the_server(
    database: Database, replication: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"HOST": "127.0.0.1", "PORT": str(database.server.port), "USER": ROLE, "DATABASE": database.name}
    for name, value in {**values, "PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(f"PG{name}", value)
    assert user_of("postgresql://", replication) == ROLE
    assert user_of("postgresql:///", replication) == ROLE
    # What the URL says comes first.
    monkeypatch.setenv("PGUSER", "nobody")
    assert user_of(f"postgresql://{ROLE}@", replication) == ROLE
    assert 'user "nobody"' in refused("postgresql://", replication).message


@KINDS
@pytest.mark.parametrize("place", ["PGSERVICEFILE", "home", "PGSYSCONFDIR"])
def test_a_service_file_can_name_the_server(
    database: Database, replication: bool, place: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    paths = {"PGSERVICEFILE": "mine.conf", "home": ".pg_service.conf", "PGSYSCONFDIR": "pg_service.conf"}
    lines = f"host=127.0.0.1\nport={database.server.port}\nuser={ROLE}\ndbname={database.name}\n"
    (home / paths[place]).write_text(
        f"# services\n[other]\nhost=nowhere\n[shop]\n{lines}password={PASSWORD}\n"
    )
    if place != "home":
        monkeypatch.setenv(place, str(home / paths[place]) if place == "PGSERVICEFILE" else str(home))
    assert user_of("postgresql:///?service=shop", replication) == ROLE
    monkeypatch.setenv("PGSERVICE", "shop")
    assert user_of("postgresql://", replication) == ROLE
    assert "service" in (refused("postgresql:///?service=nothing", replication).remedy or "")


@KINDS
def test_of_several_hosts_the_one_that_takes_writes_is_used(database: Database, replication: bool) -> None:
    credentials = database.url().rpartition("@")[0]
    port, name = database.server.port, database.name
    # Nobody listens on the first: port 1 belongs to a service that nothing runs.
    url = f"{credentials}@127.0.0.1:1,127.0.0.1:{port}/{name}"
    assert user_of(f"{url}?target_session_attrs=read-write", replication) == ROLE
    assert user_of(f"{url}?target_session_attrs=primary&load_balance_hosts=random", replication) == ROLE
    with pytest.raises(Transient, match="server is not in hot standby mode"):
        user_of(f"{url}?target_session_attrs=standby", replication)


def test_a_wrong_password_on_one_of_several_hosts_stops_only_when_no_other_may_come_back(
    database: Database,
) -> None:
    port = database.server.port
    wrong = bare(database).replace(f"{ROLE}@127.0.0.1:{port}", f"{ROLE}:wrong@127.0.0.1:{port},127.0.0.1:1")
    with pytest.raises(Transient):
        connect(PostgresConfig.from_url(wrong))
    assert "password" in refused(wrong.replace(":1/", f":{port}/")).message


@KINDS
@pytest.mark.parametrize("password", ["wrong", "password", "failed", "user", "a"])
def test_a_wrong_password_is_no_passing_fault_whatever_it_is(
    database: Database, replication: bool, password: str
) -> None:
    error = refused(bare(database).replace(f"{ROLE}@", f"{ROLE}:{password}@"), replication)
    assert "password" in (error.remedy or "")


@KINDS
@pytest.mark.parametrize(
    "parameters",
    [
        "sslmode=nonsense",
        "channel_binding=nonsense",
        "keepalives_idle=x",
        "sslmode=prefer&sslrootcert=system",
    ],
)
def test_a_parameter_that_cannot_be_is_no_passing_fault(
    database: Database, replication: bool, parameters: str
) -> None:
    refused(f"{database.url()}?{parameters}", replication)


def rotated(server: Server, password: str) -> None:
    with server.admin() as admin:
        statement = sql.SQL("ALTER ROLE tailrace PASSWORD {}").format(sql.Literal(password))
        admin.execute(statement)
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tailrace'")


def test_a_password_that_is_changed_in_its_file_reaches_a_running_pipeline(
    own_server: Server, home: Path
) -> None:
    database = own_server.database()
    password_file(home / ".pgpass")
    source = Source(database, ITEMS)
    capture = PostgresCapture(PostgresConfig.from_url(bare(database)))
    with background(capture, source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1, 'before')")
        wait_until(lambda: len(stream.changes) == 1, timeout=20, what="the first row")
        # Open connections live on; only a new one asks for the password.
        rotated(own_server, "canary-another")
        wait_until(lambda: not stream.alive, timeout=20, what="the end of the stream")
        assert isinstance(stream.error, Transient)
        position = stream.position
    with pytest.raises(ConfigError, match="password authentication failed"):
        capture.identity()
    password_file(home / ".pgpass", "canary-another")
    source.sql("INSERT INTO items VALUES (2, 'after')")
    again = PostgresCapture(PostgresConfig.from_url(bare(database)))
    with background(again, position, source.refs) as stream:
        wait_until(lambda: len(stream.changes) == 1, timeout=20, what="the second row")
        assert stream.changes[0].after == {"id": 2, "name": "after"}


def test_a_password_that_is_changed_under_a_fixed_one_stops_with_the_remedy(own_server: Server) -> None:
    database = own_server.database()
    source = Source(database, ITEMS)
    capture = source.open()
    with background(capture, source.start, source.refs) as stream:
        source.sql("INSERT INTO items VALUES (1, 'before')")
        wait_until(lambda: len(stream.changes) == 1, timeout=20, what="the first row")
        rotated(own_server, "canary-another")
        wait_until(lambda: not stream.alive, timeout=20, what="the end of the stream")
    opened: list[Callable[[], object]] = [source.open().identity, source.open().head]
    for call in opened:
        with pytest.raises(ConfigError) as caught:
            call()
        assert "canary" not in str(caught.value)
        assert caught.value.remedy
