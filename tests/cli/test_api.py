"""The names of the package `tailrace`, as an embedder uses them."""

from __future__ import annotations

import inspect
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tests.cli.command import environment, make_shop


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_documented() -> None:
    for name in tailrace.__all__:
        value = getattr(tailrace, name)
        assert name == "__version__" or value.__doc__
    assert len(set(tailrace.__all__)) == len(tailrace.__all__)


def test_the_version_is_the_packages(root: Path) -> None:
    assert f'version = "{tailrace.__version__}"' in (root / "pyproject.toml").read_text()


def test_importing_it_imports_neither_spark_nor_arrow_nor_the_command_line() -> None:
    code = "import json, sys, tailrace; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(python(code)))
    assert not {"pyspark", "pyarrow", "pydantic", "typer", "sqlite3", "deltalake"} & loaded


def test_workers_open_a_source_without_loading_sinks_or_the_configuration(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    code = (
        "import json, sys\nfrom tailrace.app import capture_for\n"
        f"capture_for('sqlite:{tmp_path}/shop.db').close()\nprint(json.dumps(sorted(sys.modules)))"
    )
    assert not {"pyspark", "pydantic", "deltalake", "urllib3", "rich"} & set(json.loads(python(code)))


def test_changes_are_pulled_and_acknowledged_and_do_not_come_again(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    url, state = f"sqlite:{tmp_path / 'shop.db'}", str(tmp_path / "state")

    def pull(rows: int) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        with tailrace.capture(url, "orders", state) as stream:
            for delivery in stream:
                for batch in delivery.batches:
                    for row in batch.data.to_pylist():
                        if row["op"] != "s":
                            seen.append((row["op"], (row["after"] or row["before"])["id"]))
                stream.acknowledge(delivery.token)
                if len(seen) >= rows:
                    stream.finish()
        return seen

    assert sorted(pull(2)) == [("r", 10), ("r", 11)]
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("INSERT INTO orders VALUES (12, 1, 3)")
        connection.execute("DELETE FROM orders WHERE id = 10")
    connection.close()
    assert pull(2) == [("c", 12), ("d", 10)]


def test_a_snapshot_alone_ends_by_itself(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    rows = 0
    with tailrace.capture(
        f"sqlite:{tmp_path / 'shop.db'}", ["*"], str(tmp_path / "state"), mode="snapshot"
    ) as stream:
        for delivery in stream:
            rows += sum(batch.data["op"].to_pylist().count("r") for batch in delivery.batches)
            stream.acknowledge(delivery.token)
    assert rows == 4


def test_an_unknown_table_is_refused_before_anything_is_set_up(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    with pytest.raises(tailrace.ConfigError, match="there is no table order"):
        tailrace.capture(f"sqlite:{tmp_path / 'shop.db'}", "order", str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


def test_a_url_may_refer_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_shop(tmp_path / "shop.db")
    monkeypatch.setenv("SHOP", str(tmp_path / "shop.db"))
    from tailrace.app import capture_for

    capture = capture_for("sqlite:${SHOP}")
    assert [ref.name for ref in capture.tables()] == ["customers", "loose", "orders"]
    capture.close()
    with pytest.raises(tailrace.ConfigError, match="NOWHERE"):
        capture_for("sqlite:${NOWHERE}")


def test_help_shows_how_capture_is_called_and_says_what_each_parameter_means() -> None:
    shown = python("import tailrace; help(tailrace.capture)")
    assert "tailrace.capture(url, tables, state_dir, *, mode='snapshot_then_changes'" in shown
    for name in inspect.signature(tailrace.capture).parameters:
        assert f"\n    {name}: " in shown


def test_a_capture_of_no_tables_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    with pytest.raises(tailrace.ConfigError, match="no tables"):
        tailrace.capture(f"sqlite:{tmp_path / 'shop.db'}", [], str(tmp_path / "state"))


def test_a_type_for_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    url = f"sqlite:{tmp_path / 'shop.db'}"
    with pytest.raises(tailrace.ConfigError, match="no column of this source"):
        tailrace.capture(url, ["orders"], str(tmp_path / "state"), types={"ordres.total": "string"})
