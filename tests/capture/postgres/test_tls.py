"""TLS on a real server with a real chain of certificates, for ordinary and replication connections alike."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg import pq

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.capture.postgres.client import connect
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef
from tests.support.certificates import EXPIRED, Authority, Certificate
from tests.support.postgres import PASSWORD, Database, Server, binaries
from tests.support.waiting import wait_until

HOST = "db.tailrace.test"
KINDS = pytest.mark.parametrize("replication", [False, True], ids=["ordinary", "replication"])
_HBA = """\
local all all trust
hostssl all carded 127.0.0.1/32 cert
hostnossl all open 127.0.0.1/32 scram-sha-256
hostssl all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("PG", "SSL_CERT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


class Secured:
    """A server with TLS, the authority of its certificate, and a database."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.authority = Authority(directory / "ours")
        self.stranger = Authority(directory / "theirs", "stranger")
        self.database = server.database()
        with server.admin() as admin:
            admin.execute("CREATE ROLE carded LOGIN REPLICATION")
            admin.execute(f"CREATE ROLE open LOGIN REPLICATION PASSWORD '{PASSWORD}'")
            admin.execute(f"GRANT CONNECT ON DATABASE {self.database.name} TO carded, open")
        (server.data / "pg_hba.conf").write_text(_HBA)
        self._install(self.authority.server())
        self._copy(self.authority.root, "clients.pem")
        certificates = {"ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}
        server.restart(ssl="on", ssl_ca_file="clients.pem", **certificates)

    def _copy(self, source: Path, name: str) -> None:
        made = self.server.data / f"{name}.new"
        shutil.copyfile(source, made)
        made.chmod(0o600)
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(made, account.pw_uid, account.pw_gid)
        made.rename(self.server.data / name)

    def _install(self, certificate: Certificate) -> None:
        self._copy(certificate.chain, "server.pem")
        self._copy(certificate.key, "server.key")

    def show(self, certificate: Certificate) -> None:
        """Let the server have this certificate from now on."""
        self._install(certificate)
        log = self.server.directory / "server.log"
        before = log.stat().st_size
        with self.server.admin() as admin:
            admin.execute("SELECT pg_reload_conf()")
        wait_until(lambda: b"SIGHUP" in log.read_bytes()[before:], what="the new certificate")

    def url(self, user: str = "tailrace", host: str = HOST, **parameters: object) -> str:
        more = {"hostaddr": "127.0.0.1", **parameters}
        secret = f":{quote(PASSWORD, safe='')}" if user != "carded" else ""
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in more.items())
        return f"postgresql://{user}{secret}@{host}:{self.server.port}/{self.database.name}?{query}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = binaries()
    if found is None:
        pytest.skip("unavailable: a PostgreSQL server")
    server = Server(found)
    try:
        yield Secured(server, tmp_path_factory.mktemp("certificates"))
    finally:
        server.remove()


def encrypted(url: str, replication: bool) -> bool:
    """Whether a connection by this URL, which must work, is encrypted."""
    with connect(PostgresConfig.from_url(url), replication=replication) as connection:
        command = b"IDENTIFY_SYSTEM" if replication else b"SELECT 1"
        assert connection.pgconn.exec_(command).status == pq.ExecStatus.TUPLES_OK
        return bool(connection.pgconn.ssl_in_use)


def refused(url: str, replication: bool, words: str) -> str:
    """The remedy of a connection that must be refused, in these words and without the password."""
    with pytest.raises(ConfigError) as caught:
        connect(PostgresConfig.from_url(url), replication=replication)
    told = f"{caught.value} {caught.value!r} {caught.value.remedy}"
    assert words in told
    assert PASSWORD not in told
    assert "canary" not in told
    assert caught.value.remedy
    return caught.value.remedy


@KINDS
def test_a_chain_to_a_trusted_root_is_verified_and_the_name_with_it(
    secured: Secured, replication: bool
) -> None:
    assert encrypted(secured.url(sslrootcert=secured.authority.root), replication)


@KINDS
def test_the_systems_authorities_are_used_where_none_is_named(
    secured: Secured, replication: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "sslrootcert" in refused(secured.url(), replication, "certificate verify failed")
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority.root))
    assert encrypted(secured.url(), replication)


@KINDS
def test_the_users_own_root_file_is_used(secured: Secured, replication: bool, tmp_path: Path) -> None:
    (tmp_path / ".postgresql").mkdir()
    shutil.copyfile(secured.stranger.root, tmp_path / ".postgresql" / "root.crt")
    refused(secured.url(), replication, "certificate verify failed")
    shutil.copyfile(secured.authority.root, tmp_path / ".postgresql" / "root.crt")
    assert encrypted(secured.url(), replication)


@KINDS
def test_a_server_of_another_name_is_refused(secured: Secured, replication: bool) -> None:
    url = secured.url(host="other.tailrace.test", sslrootcert=secured.authority.root)
    assert "name" in refused(url, replication, "does not match host name")
    # The authority alone, where the user says so.
    assert encrypted(f"{url}&sslmode=verify-ca", replication)


@KINDS
def test_an_unknown_authority_is_refused(secured: Secured, replication: bool) -> None:
    remedy = refused(secured.url(sslrootcert=secured.stranger.root), replication, "certificate verify failed")
    assert "sslrootcert" in remedy
    refused(secured.url(sslrootcert="/nowhere/root.pem"), replication, "root certificate file")


@KINDS
def test_an_expired_certificate_is_refused(secured: Secured, replication: bool) -> None:
    secured.show(secured.authority.server(end=EXPIRED))
    try:
        refused(secured.url(sslrootcert=secured.authority.root), replication, "certificate")
        assert encrypted(secured.url(sslmode="require"), replication)
    finally:
        secured.show(secured.authority.server())
    assert encrypted(secured.url(sslrootcert=secured.authority.root), replication)


@KINDS
def test_an_address_must_be_in_the_certificate_too(secured: Secured, replication: bool) -> None:
    url = secured.url(host="127.0.0.1", sslmode="verify-full", sslrootcert=secured.authority.root)
    refused(url, replication, "does not match host name")
    secured.show(secured.authority.server("DNS:db.tailrace.test, IP:127.0.0.1"))
    try:
        assert encrypted(url, replication)
    finally:
        secured.show(secured.authority.server())


@KINDS
def test_a_server_without_tls_is_refused_and_never_spoken_to_in_the_clear(
    database: Database, replication: bool
) -> None:
    url = database.url("?hostaddr=127.0.0.1", host=HOST)
    assert "sslmode=disable" in refused(url, replication, "does not support SSL")
    refused(f"{url}&sslmode=require", replication, "does not support SSL")
    assert not encrypted(f"{url}&sslmode=disable", replication)
    # `prefer` may end unencrypted, and is the user's word.
    assert not encrypted(f"{url}&sslmode=prefer", replication)


@KINDS
def test_the_user_may_say_less(secured: Secured, replication: bool) -> None:
    assert encrypted(secured.url(sslmode="require"), replication)
    assert not encrypted(secured.url(user="open", sslmode="disable"), replication)
    refused(secured.url(sslmode="disable"), replication, "no encryption")


@KINDS
def test_a_client_certificate_stands_for_a_password(secured: Secured, replication: bool) -> None:
    trusted: dict[str, Any] = {"sslrootcert": secured.authority.root}
    mine = secured.authority.client("carded")
    by_certificate = secured.url(user="carded", sslcert=mine.chain, sslkey=mine.key, **trusted)
    assert encrypted(by_certificate, replication)
    refused(secured.url(user="carded", sslcertmode="disable", **trusted), replication, "client certificate")
    another = secured.authority.client("somebody")
    refused(
        secured.url(user="carded", sslcert=another.chain, sslkey=another.key, **trusted),
        replication,
        "certificate authentication failed",
    )
    strange = secured.stranger.client("carded")
    with pytest.raises(ConfigError):
        connect(
            PostgresConfig.from_url(
                secured.url(user="carded", sslcert=strange.chain, sslkey=strange.key, **trusted)
            ),
            replication=replication,
        )


@KINDS
def test_a_key_that_others_may_read_is_refused(secured: Secured, replication: bool, tmp_path: Path) -> None:
    mine = secured.authority.client("carded")
    shown = tmp_path / "shown.key"
    shutil.copyfile(mine.key, shown)
    shown.chmod(0o644)
    url = secured.url(user="carded", sslcert=mine.chain, sslkey=shown, sslrootcert=secured.authority.root)
    assert "chmod" in refused(url, replication, "group or world access")


@KINDS
def test_scram_is_bound_to_the_channel(secured: Secured, database: Database, replication: bool) -> None:
    trusted: dict[str, Any] = {"sslrootcert": secured.authority.root, "channel_binding": "require"}
    assert encrypted(secured.url(**trusted), replication)
    assert encrypted(secured.url(require_auth="scram-sha-256", **trusted), replication)
    # Without TLS there is no channel to bind to, and no password is sent.
    remedy = refused(database.url("?channel_binding=require"), replication, "channel binding")
    assert "channel_binding" in remedy


def test_a_snapshot_is_the_same_in_the_clear_and_by_tls(secured: Secured) -> None:
    # By a connection of its own: the server was restarted since the usual ones were made.
    with secured.server.admin(secured.database.name) as admin:
        admin.execute("CREATE TABLE same (id int PRIMARY KEY, a text, b timestamptz, c numeric(8,2))")
        admin.execute(
            "INSERT INTO same SELECT i, repeat(chr(9 + i % 4) || '\\' || i, i % 9), now(), i / 7.0"
            " FROM generate_series(1, 5000) i"
        )
        admin.execute("GRANT USAGE ON SCHEMA public TO open; GRANT SELECT ON same TO open, tailrace")
    ref = TableRef("public", "same")

    def rows(url: str) -> list[dict[str, Any]]:
        config = PostgresConfig.from_url(url, {"batch_bytes": 50_000})
        with closing(PostgresCapture(config)) as capture:
            table = capture.describe(ref)
            found = capture.snapshot(table, Chunk(ref, 0), position=1, seq=0)
            return [row for batch in found for row in batch.data["after"].to_pylist()]

    encrypted = rows(secured.url(sslrootcert=secured.authority.root))
    assert len(encrypted) == 5000
    assert encrypted == rows(secured.url("open", sslmode="disable"))
