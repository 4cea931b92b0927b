"""The commands that need no Spark, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.app import capture_for
from tailrace.spark.offsets import Cursor, Offset
from tests.cli.command import COMMAND, MIRRORS, environment, make_shop, schema_of, tailrace


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text(MIRRORS)
    return tmp_path


def test_status_answers_without_loading_spark_pandas_or_what_builds_documents(shop: Path) -> None:
    done = tailrace(shop, "status", extra={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tailrace.engine.status" in loaded
    assert not {"pyspark", "pandas", "sqlglot", "deltalake"} & loaded


def test_check_tells_findings_with_severity_and_remedy(shop: Path) -> None:
    (shop / "tailrace.toml").write_text(MIRRORS + '\n[[table]]\nname = "loose"\n')
    done = tailrace(shop, "check", "--format", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["errors"] == 1
    worst = [finding for finding in found["findings"] if finding["severity"] == "error"]
    assert "loose has no primary key" in worst[0]["message"]
    assert worst[0]["remedy"]
    assert "1 error in" in tailrace(shop, "check").stdout


def test_check_passes_where_a_run_would_set_up_by_itself_but_not_where_setup_is_manual(shop: Path) -> None:
    assert tailrace(shop, "check").returncode == 0
    (shop / "tailrace.toml").write_text(
        MIRRORS.replace("[sinks.lake]", "[sinks.lake]\n# x").replace(
            'url = "sqlite:shop.db"', 'url = "sqlite:shop.db"\nsetup = "manual"'
        )
    )
    done = tailrace(shop, "check")
    assert done.returncode == 1
    assert "tailrace setup" in done.stdout
    assert tailrace(shop, "setup").returncode == 0
    assert tailrace(shop, "check").returncode == 0


def test_check_offline_needs_no_database(shop: Path) -> None:
    (shop / "shop.db").unlink()
    assert tailrace(shop, "check", "--offline").returncode == 0
    assert tailrace(shop, "check").returncode == 1


def test_setup_twice_does_nothing_the_second_time_and_teardown_leaves_no_object(shop: Path) -> None:
    before = schema_of(shop / "shop.db")
    assert "set up table orders" in tailrace(shop, "setup").stdout
    assert schema_of(shop / "shop.db") != before
    assert "nothing to do" in tailrace(shop, "setup").stdout
    refused = tailrace(shop, "teardown")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert tailrace(shop, "teardown", "--yes").returncode == 0
    assert schema_of(shop / "shop.db") == before
    assert "nothing to do" in tailrace(shop, "teardown", "--yes").stdout


def test_teardown_of_one_table_leaves_the_others(shop: Path) -> None:
    tailrace(shop, "setup")
    done = tailrace(shop, "teardown", "--table", "orders")
    assert done.returncode == 0
    assert "orders" in done.stdout
    assert "set up table orders" in tailrace(shop, "setup").stdout


def test_teardown_of_a_consumer_removes_its_cursor_and_nothing_else(shop: Path) -> None:
    tailrace(shop, "setup")
    before = schema_of(shop / "shop.db")
    capture = capture_for(f"sqlite:{shop / 'shop.db'}")
    capture.register("old")
    unknown = tailrace(shop, "teardown", "--consumer", "odl")
    assert unknown.returncode == 2
    assert "old" in unknown.stderr
    assert "old" in tailrace(shop, "teardown", "--consumer", "old").stdout
    assert capture.consumers() == []
    capture.close()
    assert schema_of(shop / "shop.db") == before


def test_teardown_asks_a_person_and_a_no_changes_nothing(shop: Path) -> None:
    tailrace(shop, "setup")
    before = schema_of(shop / "shop.db")
    parent, child = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "teardown"], cwd=shop, env=environment(), stdin=child, stdout=child, stderr=child
        )
        os.write(parent, b"n\n")
        assert process.wait(120) == 130
    finally:
        os.close(parent)
        os.close(child)
    assert schema_of(shop / "shop.db") == before


def test_a_snapshot_request_waits_in_the_state_directory_and_is_not_doubled(shop: Path) -> None:
    first = tailrace(shop, "snapshot", "--table", "orders")
    assert first.returncode == 0
    assert "next `tailrace run`" in first.stdout
    tailrace(shop, "snapshot", "-t", "ORDERS")
    assert tailrace(shop, "snapshot", "--list").stdout.split() == ["orders"]
    assert len(list((shop / ".tailrace" / "requests").iterdir())) == 1
    status = json.loads(tailrace(shop, "status", "--format", "json").stdout)
    assert [table["requested"] for table in status["tables"]] == [False, True]
    tailrace(shop, "snapshot", "--table", "*")
    assert tailrace(shop, "snapshot", "--list").stdout.split() == ["customers", "orders"]


def test_status_works_before_anything_was_set_up_and_creates_nothing(shop: Path) -> None:
    done = tailrace(shop, "status")
    assert done.returncode == 0, done.stderr
    assert "never ran" in done.stdout
    body = json.loads(tailrace(shop, "status", "--format", "json").stdout)
    assert body["source"] is None
    assert body["problem"]
    assert not (shop / ".tailrace").exists()
    tailrace(shop, "setup")
    body = json.loads(tailrace(shop, "status", "--format", "json").stdout)
    assert body["source"].startswith("sqlite:")


def test_the_configuration_may_be_named_before_or_after_the_command_or_by_a_variable(shop: Path) -> None:
    (shop / "tailrace.toml").rename(shop / "other.toml")
    assert tailrace(shop, "check").returncode == 2
    assert tailrace(shop, "-c", "other.toml", "check").returncode == 0
    assert tailrace(shop, "check", "-c", "other.toml").returncode == 0
    assert tailrace(shop, "check", extra={"TAILRACE_CONFIG": "other.toml"}).returncode == 0


def test_a_variable_wins_over_the_file(shop: Path) -> None:
    (shop / "shop.db").rename(shop / "moved.db")
    assert tailrace(shop, "check").returncode == 1
    assert tailrace(shop, "check", extra={"TAILRACE_SOURCE__URL": "sqlite:moved.db"}).returncode == 0


def test_schema_config_prints_json(tmp_path: Path) -> None:
    done = tailrace(tmp_path, "schema", "config")
    assert done.returncode == 0
    assert "source" in json.loads(done.stdout)["properties"]


def test_version_and_help_are_answers_on_the_standard_output(tmp_path: Path) -> None:
    assert tailrace(tmp_path, "--version").stdout.startswith("tailrace ")
    shown = tailrace(tmp_path, "--help")
    assert shown.returncode == 0
    for command in ("init", "check", "setup", "teardown", "run", "snapshot", "status", "schema"):
        assert command in shown.stdout
        assert tailrace(tmp_path, command, "--help").returncode == 0


def test_colour_is_for_terminals_and_not_with_no_color(shop: Path) -> None:
    assert "\x1b[" not in tailrace(shop, "check").stdout

    def on_a_terminal(**extra: str) -> bytes:
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "check"], cwd=shop, env=environment(TERM="xterm", **extra), stdout=child, stderr=child
        )
        os.close(child)
        shown = b""
        try:
            while part := os.read(parent, 4096):
                shown += part
        except OSError:
            pass
        finally:
            os.close(parent)
            process.wait(120)
        return shown

    assert b"\x1b[32m" in on_a_terminal()
    assert b"\x1b[32m" not in on_a_terminal(NO_COLOR="1")


def test_a_traceback_is_shown_only_with_debug(shop: Path) -> None:
    (shop / "shop.db").write_bytes(b"SQLite format 3\0" + b"\1" * 4000)
    plain = tailrace(shop, "setup")
    assert plain.returncode != 0
    assert "Traceback" not in plain.stderr
    assert "Traceback" in tailrace(shop, "--debug", "setup").stderr


def test_setup_and_a_second_run_are_refused_while_the_pipeline_runs(shop: Path) -> None:
    from pyarrow.fs import LocalFileSystem

    from tailrace.changelog.owner import Ownership

    (shop / ".tailrace").mkdir()
    owner = Ownership.acquire(LocalFileSystem(), str(shop / ".tailrace" / "changelog"), "another")
    try:
        for command in (["setup"], ["teardown", "--yes"], ["run"]):
            refused = tailrace(shop, *command)
            assert refused.returncode == 3
            assert str(os.getpid()) in refused.stderr
        assert str(os.getpid()) in tailrace(shop, "status").stdout
        assert "the running pipeline" in tailrace(shop, "snapshot", "-t", "orders").stdout
    finally:
        owner.release()
    assert tailrace(shop, "setup").returncode == 0
    assert "not running" in tailrace(shop, "status").stdout


def test_an_answer_into_a_closed_pipe_is_no_error(shop: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "schema", "config"],
            cwd=shop,
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)
    assert b"Traceback" not in done.stderr
    assert b"error" not in done.stderr


def test_drift_is_found_by_check_once_a_pipeline_relied_on_the_table(shop: Path) -> None:
    tailrace(shop, "setup")
    connection = sqlite3.connect(shop / "shop.db")
    connection.execute("ALTER TABLE orders ADD COLUMN note TEXT")
    connection.close()
    assert tailrace(shop, "check").returncode == 0
    offsets = shop / ".tailrace" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    capture = capture_for(f"sqlite:{shop / 'shop.db'}")
    offset = Offset(capture.head(), {"main.orders": Cursor("p", 1, 1, "g")})
    capture.close()
    # As Spark writes it: a version, its own metadata, the source's offset.
    (offsets / "0").write_text("v1\n{}\n" + json.dumps(offset.to_json()))
    assert tailrace(shop, "check").returncode == 1
    assert tailrace(shop, "run").returncode == 3


def test_status_tells_of_a_run_that_is_not_at_work_yet_and_forgets_one_that_was_killed(shop: Path) -> None:
    code = (
        "import pathlib, sys\nfrom tailrace.cli.run import noise_into\n"
        "with noise_into(pathlib.Path('.tailrace/spark.log')):\n"
        "  print('held', flush=True)\n  sys.stdin.read()"
    )
    assert "starting" not in tailrace(shop, "status").stdout
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=shop,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        assert "starting" in tailrace(shop, "status").stdout
        assert json.loads(tailrace(shop, "status", "--format", "json").stdout)["starting"] is True
        run.kill()
        run.wait()
    assert "starting" not in tailrace(shop, "status").stdout
