"""`tailrace build`, and what runs by its lock file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tailrace.cli import root
from tests.cli.command import make_shop
from tests.cli.command import tailrace as process
from tests.config.test_indexes import CITIES
from tests.support.sparks import QUICK

SPARK = "\n[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in QUICK.items())
CONFIG = """
[source]
url = "sqlite:${DATABASE}"

[sinks.store]
type = "sqlite"
path = "documents.db"

[[feed]]
tables = ["customers"]

[[index]]
name = "cities"
schema = "schemas/cities.schema.yml"
enabled = false
"""
ENVIRON = {"DATABASE": "shop.db"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Command(Protocol):
    def __call__(self, directory: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Done: ...


@pytest.fixture
def tailrace(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, which spares its start."""

    def run(directory: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Done:
        with monkeypatch.context() as patch:
            patch.chdir(directory)
            for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
                patch.delenv(name)
            for name, value in (extra or {}).items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = root._run(arguments)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    place = tmp_path / "shop"
    (place / "schemas").mkdir(parents=True)
    (place / "tailrace.toml").write_text(CONFIG)
    (place / "schemas" / "cities.schema.yml").write_text(CITIES)
    return place


@pytest.fixture
def server(shop: Path, tmp_path: Path, tailrace: Command) -> Path:
    """A directory with a database and a lock file, and nothing else."""
    place = tmp_path / "server"
    place.mkdir()
    make_shop(place / "shop.db")
    (shop / "tailrace.toml").write_text(CONFIG + SPARK)
    assert tailrace(shop, "build").returncode == 0
    shutil.move(shop / "tailrace.lock", place / "tailrace.lock")
    shutil.rmtree(shop)
    return place


def test_a_build_writes_one_file_and_tells_when_an_input_has_changed(shop: Path, tailrace: Command) -> None:
    done = tailrace(shop, "build")
    assert (done.returncode, done.stdout) == (0, "wrote tailrace.lock: 2 files, 1 schema\n")
    before = (shop / "tailrace.lock").stat()
    assert "up to date" in tailrace(shop, "build").stdout
    assert (shop / "tailrace.lock").stat().st_ino == before.st_ino
    assert tailrace(shop, "build", "--check").returncode == 0
    with (shop / "schemas" / "cities.schema.yml").open("a") as stream:
        stream.write("# more\n")
    done = tailrace(shop.parent, "build", "--check", "-c", "shop/tailrace.toml")
    assert done.returncode == 1
    assert "changed since shop/tailrace.lock was built: schemas/cities.schema.yml" in done.stdout
    assert "remedy: tailrace build -c shop/tailrace.toml" in done.stdout
    (shop / "schemas" / "cities.schema.yml").unlink()
    done = tailrace(shop, "build", "--check")
    assert done.returncode == 0
    assert "not here to be compared: schemas/cities.schema.yml" in done.stdout
    assert sorted(path.name for path in shop.iterdir()) == ["schemas", "tailrace.lock", "tailrace.toml"]


def test_a_lock_file_is_named_after_its_configuration_and_may_be_elsewhere(
    shop: Path, tailrace: Command
) -> None:
    (shop / "tailrace.toml").rename(shop / "eu.toml")
    assert tailrace(shop, "build", "-c", "eu.toml").returncode == 0
    assert (shop / "eu.lock").exists()
    done = tailrace(shop, "-c", "eu.toml", "build", "--output", "schemas/eu.lock")
    assert f"relative paths in it start at {shop}/schemas" in done.stdout
    assert list(json.loads((shop / "schemas" / "eu.lock").read_text())["inputs"]) == [
        "../eu.toml",
        "cities.schema.yml",
    ]


def test_a_build_replaces_a_lock_file_and_no_other(shop: Path, tailrace: Command) -> None:
    for output, message in [
        ("tailrace.toml", "there is a file already that is no lock file"),
        ("none/x.lock", "there is no directory none"),
        ("schemas", "cannot be written"),
    ]:
        done = tailrace(shop, "build", "--output", output)
        assert done.returncode == 2
        assert message in done.stderr
    assert (shop / "tailrace.toml").read_text() == CONFIG
    (shop / "tailrace.lock").write_text('{"kind": "tailrace lock"')
    assert tailrace(shop, "build").returncode == 0


def test_a_secret_that_is_written_out_stops_the_build(shop: Path, tailrace: Command) -> None:
    (shop / "tailrace.toml").write_text(CONFIG.replace("sqlite:${DATABASE}", "postgresql://u:hunter2@h/d"))
    done = tailrace(shop, "build")
    assert done.returncode == 2
    assert "tailrace.toml:3 (source.url): is or holds a secret" in done.stderr
    assert "hunter2" not in done.stderr
    assert not (shop / "tailrace.lock").exists()


def test_commands_work_by_the_lock_file_alone(server: Path, tailrace: Command) -> None:
    done = tailrace(server, "check", "--locked", "tailrace.lock", extra=ENVIRON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(server / "tailrace.lock") in done.stdout
    assert tailrace(server, "setup", "--locked", "tailrace.lock", extra=ENVIRON).returncode == 0
    done = tailrace(server, "--locked", "tailrace.lock", "status", "--format", "json", extra=ENVIRON)
    assert json.loads(done.stdout)["name"] == "shop"


def test_a_remedy_names_the_lock_file(server: Path) -> None:
    environ = {**ENVIRON, "TAILRACE_SOURCE__SETUP": "manual"}
    done = process(server, "run", "--locked", "tailrace.lock", extra=environ)
    assert done.returncode == 3
    assert "tailrace setup --locked tailrace.lock" in done.stderr


def test_a_lock_file_and_a_configuration_are_not_taken_together(server: Path, tailrace: Command) -> None:
    done = tailrace(server, "run", "--locked", "tailrace.lock", "--config", "tailrace.toml", extra=ENVIRON)
    assert (done.returncode, "give one of them" in done.stderr) == (2, True)
    environ = {**ENVIRON, "TAILRACE_CONFIG": "tailrace.toml"}
    assert tailrace(server, "check", "--locked", "tailrace.lock", extra=environ).returncode == 0


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_what_is_no_lock_file_is_told(server: Path, tailrace: Command, command: str) -> None:
    (server / "x.lock").write_text("x")
    done = tailrace(server, command, "--locked", "x.lock")
    assert done.returncode == 2
    assert "x.lock: is not a lock file" in done.stderr


@pytest.mark.long
@pytest.mark.spark
def test_a_run_by_the_lock_file_sends_what_the_source_has(server: Path) -> None:
    done = process(server, "run", "--locked", "tailrace.lock", "--once", extra=ENVIRON)
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    assert [change["after"]["name"] for change in sent if change["op"] == "r"] == ["Ada", "Grace"]
    assert (server / ".tailrace").is_dir()
