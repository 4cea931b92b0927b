"""Settings and URLs: what libpq is told, and what nobody is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.errors import ConfigError, TailraceError
from tests.support.postgres import PASSWORD, Database


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("PG", "SSL_CERT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def told(url: str, **options: object) -> dict[str, object]:
    return dict(conninfo_to_dict(PostgresConfig.from_url(url, options).dsn.reveal()))


@pytest.mark.parametrize(
    "host", ["db.example.com", "10.0.0.1", "localhost,db.example.com", "db.example.com?hostaddr=127.0.0.1&"]
)
def test_a_server_elsewhere_is_verified(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(f"postgresql://user@{host}".replace("&", "&dbname=shop"))
    assert found["sslmode"] == "verify-full"
    # The driver brings an OpenSSL that does not know where the system has its authorities.
    assert Path(str(found["sslrootcert"])).is_file() or not Path("/etc/ssl").exists()
    monkeypatch.setenv("SSL_CERT_FILE", "/mine.pem")
    assert told(f"postgresql://user@{host}".replace("&", "&dbname=shop"))["sslrootcert"] == "system"


def test_the_authorities_of_the_system_are_never_believed_without_a_name() -> None:
    assert told("postgresql://u@127.0.0.1/shop?sslrootcert=system")["sslmode"] == "verify-full"
    weaker = told("postgresql://u@db/shop?sslrootcert=system&sslmode=require")
    assert (weaker["sslmode"], weaker["sslrootcert"]) == ("require", "system")


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "[::1]", "%2Ftmp"])
def test_a_server_on_this_machine_is_taken_at_its_word(host: str) -> None:
    assert "sslmode" not in told(f"postgres://user@{host}/shop")


def test_what_someone_said_about_tls_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert told("postgresql://u@db/shop?sslmode=require")["sslmode"] == "require"
    found = told("postgresql://u@db/shop?sslrootcert=/ca.pem")
    assert (found["sslmode"], found["sslrootcert"]) == ("verify-full", "/ca.pem")
    services = tmp_path / "services"
    services.write_text("[shop]\nhost=db.example.com\nsslmode=require\n[other]\nhost=db.example.com\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    assert "sslmode" not in told("postgresql:///shop?service=shop")
    assert told("postgresql:///shop?service=other")["sslmode"] == "verify-full"
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert "sslmode" not in told("postgresql://u@db/shop")


def test_the_session_is_canonical_whatever_the_url_asks() -> None:
    options = str(
        told("postgresql://u@/shop?options=-c%20DateStyle%3DGerman%20-c%20work_mem%3D64MB")["options"]
    )
    assert options.index("DateStyle=German") < options.index("DateStyle=ISO")
    assert "work_mem=64MB" in options


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@db/x",
        "postgresql://u:hunter2@db/x?nonsense=1",
        "postgresql://u:hunter2@[db/x",
        "postgresql://u:x@hunter2@db/x",
        "postgresql://u:x/hunter2@db/x",
        "postgresql://u:1/hunter2@db/x",
        "postgresql://u:hunter2%zz@db/x",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PostgresConfig.from_url(url)
    assert "hunter2" not in f"{caught.value!r} {caught.value} {caught.value.remedy}"


@pytest.mark.parametrize("password", ["hunter2", "hunter2?x", "hunter2#x", "hunter2:x", "hunter2?x=1"])
def test_a_password_with_any_character_libpq_takes_is_in_no_name(password: str) -> None:
    config = PostgresConfig.from_url(f"postgresql://u:{password}@db/x")
    assert conninfo_to_dict(config.dsn.reveal())["password"] == password
    assert "hunter2" not in f"{config!r} {config.name}"


def test_options_are_checked() -> None:
    url = "postgresql:///shop"
    for options in ({"tiemout": 1}, {"timeout": "x"}, {"timeout": 0}, {"slot": "A-B"}, {"publication": ""}):
        with pytest.raises(ConfigError):
            PostgresConfig.from_url(url, options)
    with pytest.raises(ConfigError, match="unknown type"):
        PostgresConfig.from_url(url, {"types": {"a.b": "nonsense"}})
    with pytest.raises(ConfigError, match="replication"):
        PostgresConfig.from_url("postgresql:///shop?replication=database")


def test_a_password_file_and_a_service_file_are_read(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:*:*:tailrace:{PASSWORD.replace(':', chr(92) + ':')}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    services = tmp_path / "services"
    services.write_text(f"[here]\nhost=127.0.0.1\nport={database.server.port}\nuser=tailrace\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    capture = PostgresCapture(PostgresConfig.from_url(f"postgresql:///{database.name}?service=here"))
    assert capture.identity().startswith("postgres:")


def test_wrong_names_are_told_with_a_remedy(database: Database) -> None:
    wrong = [
        database.url().replace(database.name, "nowhere"),
        database.url().replace("tailrace:", "nobody:"),
        database.url("?sslmode=verify-full"),
    ]
    for url in wrong:
        with pytest.raises(TailraceError) as caught:
            PostgresCapture(PostgresConfig.from_url(url)).identity()
        assert isinstance(caught.value, ConfigError)
        assert caught.value.remedy
        assert "canary" not in str(caught.value)


def test_a_missing_driver_is_named_with_its_extra(root: Path) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from tailrace.app import capture_for\n"
        "capture_for('sqlite:nowhere.db') if len(sys.argv) > 1 else capture_for('postgresql://u@h/d')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'tailrace[postgres]'" in done.stderr
