"""The demonstration's parts that need no Spark: the shop, its traffic, the comparison."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console
from rich.spinner import Spinner

from tailrace.config import load_config
from tailrace.demo import place, rebuild, shop
from tailrace.demo.compare import compare
from tailrace.demo.show import Show, end, judge, seconds_from, traffic
from tailrace.demo.traffic import ACTS, Trader
from tailrace.demo.view import line, render
from tailrace.model.errors import ConfigError
from tailrace.sinks.contract import DocumentBatch
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.support.waiting import wait_until


@pytest.fixture
def database(tmp_path: Path) -> Path:
    shop.create(tmp_path / "shop.db")
    return tmp_path / "shop.db"


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f'SELECT * FROM "{table}"').fetchall()
    finally:
        connection.close()


def mirror(path: Path, lake: Path, table: str, keep: slice = slice(None)) -> None:
    """A copy of a table in Delta, made by hand."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    body = [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"').fetchall()][keep]
    connection.close()
    write_deltalake(str(lake / table), pa.Table.from_pylist(body), mode="overwrite")


def test_the_traffic_does_every_act_and_keeps_every_foreign_key(database: Path) -> None:
    trader = Trader(database, seed=3)
    try:
        for act, _ in ACTS:
            trader.connection.execute("BEGIN IMMEDIATE")
            act(trader)
            trader.connection.execute("COMMIT")
        for _ in range(400):
            trader.act()
        assert trader.committed > 300
        assert trader.rolled_back > 10
        assert trader.connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        trader.close()
    assert all(rows(database, table) for table in shop.TABLES)


def test_equal_tables_are_found_equal(database: Path, tmp_path: Path) -> None:
    for table in shop.TABLES:
        mirror(database, tmp_path / "lake", table)
    assert all(found.equal for found in compare(database, tmp_path / "lake", shop.TABLES))


def test_a_missing_an_extra_and_a_different_row_are_each_counted(database: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    mirror(database, lake, "tags")
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("DELETE FROM tags WHERE id = 1")
        connection.execute("UPDATE tags SET label = 'other' WHERE id = 2")
        connection.execute("INSERT INTO tags VALUES (99, 'fresh')")
    connection.close()
    (found,) = compare(database, lake, ["tags"])
    assert (found.missing, found.extra, found.different) == (1, 1, 1)
    assert not found.equal


def test_a_row_that_is_mirrored_twice_and_a_null_that_became_text_are_found(
    database: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    mirror(database, lake, "tags")
    write_deltalake(str(lake / "tags"), pa.table({"id": [1], "label": [shop.TAGS[0]]}), mode="append")
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("UPDATE customers SET city = 'Graz'")
    mirror(database, lake, "customers")
    with connection:
        connection.execute("UPDATE customers SET city = NULL WHERE id = 1")
    connection.close()
    tags, customers = compare(database, lake, ["tags", "customers"])
    assert (tags.missing, tags.extra, tags.different) == (0, 1, 0)
    assert (customers.missing, customers.extra, customers.different) == (0, 0, 1)


def test_a_mirror_that_was_never_made_lacks_every_row(database: Path, tmp_path: Path) -> None:
    (found,) = compare(database, tmp_path / "lake", ["tags"])
    assert found.missing == len(shop.TAGS)


def test_traffic_is_another_process_and_ends_when_it_is_told(database: Path) -> None:
    before = rows(database, "orders")
    with traffic(database) as process:
        assert process.pid != os.getpid()
        wait_until(lambda: rows(database, "orders") != before)
        end(process)
        assert process.returncode == 0
    assert process.poll() is not None


def test_traffic_ends_by_itself_when_its_parent_is_killed(database: Path, root: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'tailrace.demo.traffic', sys.argv[1]]\n"
        "p = subprocess.Popen(command, start_new_session=True)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdout=subprocess.PIPE, env=environment, text=True
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        before = rows(database, "orders")
        wait_until(lambda: rows(database, "orders") != before)
    finally:
        parent.kill()
        parent.communicate()
    wait_until(
        lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()
    )


def test_the_directory_is_made_anew_but_never_somebody_elses(tmp_path: Path) -> None:
    ours = tmp_path / "demo"
    config = place.prepare(ours)
    (ours / "lake").mkdir()
    assert place.prepare(ours) == config
    assert not (ours / "lake").exists()
    assert load_config(config, environ={}).name == "demo"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").write_text("keep me")
    with pytest.raises(ConfigError, match="left as it is"):
        place.prepare(theirs)
    assert (theirs / "precious").exists()
    shutil.rmtree(ours)


def keep(directory: Path, documents: dict[str, Any]) -> None:
    """Documents in the demonstration's store, as a pipeline would have put them there."""
    with closing(SqliteSink(SqliteStoreConfig(str(directory / "documents.db")))) as store:
        store.drop(rebuild.INDEX)
        store.ensure(rebuild.INDEX, "one", {})
        texts = [json.dumps(one) for one in documents.values()]
        store.write(DocumentBatch(rebuild.INDEX, "one", pa.array(documents), pa.array(texts), 1))


def test_the_exit_code_tells_whether_everything_is_equal(tmp_path: Path) -> None:
    config = load_config(place.prepare(tmp_path / "demo"), environ={})
    console = Console(file=io.StringIO(), width=120)
    show = Show(tmp_path / "demo", config, None)
    for table in shop.TABLES:
        mirror(tmp_path / "demo" / "shop.db", tmp_path / "demo" / "lake", table)
    wanted = rebuild.rebuilt(tmp_path / "demo" / "shop.db")
    keep(tmp_path / "demo", wanted)
    assert judge(tmp_path / "demo", console, show) == 0
    wrong: tuple[dict[str, Any], ...] = (
        {id_: one for id_, one in wanted.items() if id_ != "7"},
        {**wanted, "1000": wanted["7"]},
        {**wanted, "7": {**wanted["7"], "city": "Nowhere"}},
    )
    for documents in wrong:
        keep(tmp_path / "demo", documents)
        assert judge(tmp_path / "demo", console, show) == 1
    keep(tmp_path / "demo", wanted)
    mirror(tmp_path / "demo" / "shop.db", tmp_path / "demo" / "lake", "items", slice(1, None))
    assert judge(tmp_path / "demo", console, show) == 1
    assert "NOT EQUAL" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_picture_shows_rows_on_both_sides_as_a_line_and_on_a_terminal(tmp_path: Path) -> None:
    config = load_config(place.prepare(tmp_path / "demo"), environ={})
    show = Show(tmp_path / "demo", config, 20.0)
    assert show.picture().tables[0].mirror is None
    assert not show.over()
    mirror(tmp_path / "demo" / "shop.db", tmp_path / "demo" / "lake", "customers")
    picture = show.picture()
    assert show.first_rows is not None
    assert "customers=200/200" in line(picture)
    console = Console(file=io.StringIO(), width=120)
    console.print(render(picture, Spinner("dots")))
    assert "20 s left" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_length_comes_from_the_environment_and_nonsense_is_refused() -> None:
    assert seconds_from({}) is None
    assert seconds_from({"DEMO_SECONDS": " 2.5 "}) == 2.5
    for text in ("soon", "-1", "0", "nan", "inf"):
        with pytest.raises(ConfigError):
            seconds_from({"DEMO_SECONDS": text})
