"""Bad input: one clear message, exit code 2, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import MIRRORS, make_shop, schema_of, tailrace

LEFT_BY_SQLITE = {"shop.db-wal", "shop.db-shm"}


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")} - LEFT_BY_SQLITE


def refused(directory: Path, *arguments: str, humble: bool = False) -> str:
    """Run the command, expect a refusal that leaves everything as it was, and give its message."""
    before = files(directory)
    shop = directory / "shop.db"
    objects = schema_of(shop) if shop.exists() and shop.stat().st_size else []
    done = tailrace(directory, *arguments, humble=humble)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error: ") == 1
    assert files(directory) == before
    if objects:
        assert schema_of(shop) == objects
    return done.stderr


def write(directory: Path, text: str = MIRRORS) -> None:
    (directory / "tailrace.toml").write_text(text)


@pytest.mark.parametrize("command", ["run", "setup"])
def test_an_unknown_table_is_refused_with_the_nearest_one(tmp_path: Path, command: str) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS.replace('"orders"', '"ordres"'))
    message = refused(tmp_path, command)
    assert "there is no table ordres" in message
    assert "orders?" in message


@pytest.mark.parametrize("command", ["run", "setup", "teardown", "status"])
def test_a_missing_database_file_is_named(tmp_path: Path, command: str) -> None:
    write(tmp_path)
    message = refused(tmp_path, command, *(["--yes"] if command == "teardown" else []))
    assert str(tmp_path / "shop.db") in message


@pytest.mark.parametrize("command", ["run", "setup"])
def test_a_database_that_is_not_in_wal_mode_is_refused_with_the_pragma(tmp_path: Path, command: str) -> None:
    make_shop(tmp_path / "shop.db", wal=False)
    write(tmp_path)
    message = refused(tmp_path, command)
    assert "WAL" in message
    assert "PRAGMA journal_mode=WAL" in message


def test_a_mirror_of_a_table_without_a_primary_key_is_refused_with_the_way_out(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + '\n[[table]]\nname = "loose"\n')
    message = refused(tmp_path, "run")
    assert "loose has no primary key" in message
    assert "[[feed]]" in message


def test_a_mirror_that_could_be_no_directory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + '\nas = "../orders"\n')
    message = refused(tmp_path, "run")
    assert "../orders" in message
    assert "as = " in message


@pytest.mark.parametrize("command", ["run", "setup"])
def test_a_read_only_database_is_refused(tmp_path: Path, command: str) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path)
    for path in (tmp_path / "shop.db", tmp_path / "shop.db-wal", tmp_path / "shop.db-shm"):
        if path.exists():
            path.chmod(0o444)
    message = refused(tmp_path, command, humble=True)
    assert "shop.db" in message
    assert "read-only" in message


def test_a_state_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "occupied").write_text("a file")
    write(tmp_path, MIRRORS + '\n[state]\ndirectory = "occupied/state"\n')
    assert "occupied is not a directory" in refused(tmp_path, "run")


def test_a_sink_whose_directory_is_a_file_is_refused_before_spark_starts(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "lake").write_text("a file")
    write(tmp_path)
    assert "lake is not a directory" in refused(tmp_path, "run")


def test_a_master_that_spark_does_not_know_is_refused_before_spark_starts(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + '\n[spark]\nmaster = "local[two]"\n')
    assert "local[two]" in refused(tmp_path, "run")


def test_a_wrong_option_is_refused_and_points_to_the_help(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path)
    message = refused(tmp_path, "run", "--onec")
    assert "--onec" in message
    assert "tailrace run --help" in message


def test_a_wrong_value_of_an_option_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path)
    assert "--log-format" in refused(tmp_path, "run", "--log-format", "xml")


def test_text_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, "[source]\nurl = \n")
    assert "tailrace.toml:2" in refused(tmp_path, "run")


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + "\n[batch]\nmax_row = 5\n")
    message = refused(tmp_path, "run")
    assert "max_rows" in message


def test_a_missing_configuration_is_refused_by_every_command(tmp_path: Path) -> None:
    for command in ("check", "setup", "run", "status", "snapshot"):
        assert "tailrace.toml" in refused(tmp_path, command)


def test_a_database_that_this_version_cannot_capture_is_named(tmp_path: Path) -> None:
    message = refused(tmp_path, "init", "mysql://shop:hunter2@db/shop")
    assert "MySQL" in message
    assert "sqlite:" in message
    assert "hunter2" not in message


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database at all")
    assert "is not a SQLite database" in refused(tmp_path, "init", "sqlite:notes.txt")


def test_a_snapshot_of_an_unknown_table_leaves_no_request(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path)
    assert "there is no table stuff" in refused(tmp_path, "snapshot", "--table", "stuff")
    assert "not one of this pipeline's" in refused(tmp_path, "snapshot", "--table", "loose")


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_type_for_a_column_that_is_not_there_is_refused_with_the_nearest(
    tmp_path: Path, command: str
) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + '\n[source.types]\n"orders.totl" = "string"\n')
    done = tailrace(tmp_path, command)
    assert done.returncode == (1 if command == "check" else 2)
    assert "types: orders.totl is no column of the table orders" in done.stdout + done.stderr
    assert "did you mean orders.total?" in done.stdout + done.stderr


def test_a_directory_on_a_file_system_that_takes_none_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    write(tmp_path, MIRRORS + '\n[state]\ndirectory = "/proc/tailrace-state"\n')
    assert "/proc cannot be written" in refused(tmp_path, "run")
