"""`tailrace init` writes a file that can be run as it is."""

from __future__ import annotations

import sqlite3
import tomllib
from pathlib import Path

from tests.cli.command import make_shop, schema_of, tailrace


def test_the_written_file_passes_the_check_and_the_database_is_only_read(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    before = schema_of(tmp_path / "shop.db")
    done = tailrace(tmp_path, "init", "sqlite:shop.db")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 tables" in done.stdout
    body = tomllib.loads((tmp_path / "tailrace.toml").read_text())
    assert body["source"]["url"] == "sqlite:shop.db"
    assert [table["name"] for table in body["table"]] == ["customers", "orders"]
    assert "loose has no primary key" in (tmp_path / "tailrace.toml").read_text()
    assert tailrace(tmp_path, "check").returncode == 0
    assert schema_of(tmp_path / "shop.db") == before


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text("# mine")
    refused = tailrace(tmp_path, "init", "sqlite:shop.db")
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "tailrace.toml").read_text() == "# mine"
    assert tailrace(tmp_path, "init", "sqlite:shop.db", "--force").returncode == 0
    assert "[source]" in (tmp_path / "tailrace.toml").read_text()


def test_a_file_elsewhere_points_back_to_the_database(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "etc").mkdir()
    make_shop(tmp_path / "data" / "the shop.db")
    done = tailrace(tmp_path, "init", "sqlite:data/the shop.db", "--output", "etc/shop.toml")
    assert done.returncode == 0, done.stderr
    assert tailrace(tmp_path, "check", "-c", "etc/shop.toml").returncode == 0


def test_names_of_every_kind_are_written_so_that_they_are_read_back(tmp_path: Path) -> None:
    names = ['it"s', "back\\slash", "ünï cödé", "${HOME}", "a.b", "order", "line\nbreak", "\x7f", "a/b", ".."]
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("PRAGMA journal_mode=WAL")
    for name in names:
        connection.execute('CREATE TABLE "{}" (id INTEGER PRIMARY KEY)'.format(name.replace('"', '""')))
    connection.execute('CREATE TABLE "no key\n[[table]]" (a)')
    connection.close()
    assert tailrace(tmp_path, "init", "sqlite:shop.db").returncode == 0
    done = tailrace(tmp_path, "check", "--format", "json")
    assert done.returncode == 0, done.stdout
    body = tomllib.loads((tmp_path / "tailrace.toml").read_text())
    written = {table["name"].replace("$${", "${") for table in body["table"]}
    assert written == set(names)


def test_a_database_without_any_key_gets_a_feed(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE loose (a)")
    connection.close()
    assert tailrace(tmp_path, "init", "sqlite:shop.db").returncode == 0
    body = tomllib.loads((tmp_path / "tailrace.toml").read_text())
    assert body["feed"] == [{"tables": ["*"], "sink": "stdout"}]


def test_a_database_without_wal_comes_with_the_command_that_mends_it(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db", wal=False)
    done = tailrace(tmp_path, "init", "sqlite:shop.db")
    assert done.returncode == 0, done.stderr
    assert "is not in WAL mode" in done.stdout
    assert "PRAGMA journal_mode=WAL" in done.stdout


def test_a_remedy_names_the_file_that_the_command_was_pointed_at(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    tailrace(tmp_path, "init", "sqlite:shop.db", "--output", "my shop.toml")
    file = tmp_path / "my shop.toml"
    file.write_text(file.read_text().replace("[source]\n", '[source]\nsetup = "manual"\n'))
    done = tailrace(tmp_path, "check", "-c", "my shop.toml")
    assert "remedy: tailrace setup -c 'my shop.toml'" in done.stdout
