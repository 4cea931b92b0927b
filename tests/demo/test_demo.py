"""The demonstration's parts that need no Spark: the shop, its traffic, the comparison, the guard."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console
from rich.spinner import Spinner

from tailrace.demo import place, rebuild, shop, stages
from tailrace.demo.compare import compare
from tailrace.demo.database import connect
from tailrace.demo.processes import Stopped, end, server, traffic
from tailrace.demo.recent import Recent
from tailrace.demo.servers import free_port
from tailrace.demo.show import Show, judge, seconds_from
from tailrace.demo.stages import Stage
from tailrace.demo.store import INDEX, SearchServer
from tailrace.demo.traffic import ACTS, Trader
from tailrace.demo.view import Names, line, render
from tailrace.model.change import ChangeBatch, Op, schema_of
from tailrace.model.errors import ConfigError, NeedsOperator
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema
from tailrace.sinks.contract import DocumentBatch, Progress
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.support.opensearch import Client
from tests.support.postgres import Database
from tests.support.waiting import wait_until


@pytest.fixture
def shop_file(tmp_path: Path) -> Path:
    """A shop in SQLite."""
    with connect(f"sqlite:{tmp_path}/shop.db") as made:
        shop.create(made)
    return tmp_path / "shop.db"


@pytest.fixture(params=["sqlite", "postgres"])
def shop_url(request: pytest.FixtureRequest) -> str:
    """A shop in either database."""
    if request.param == "sqlite":
        return f"sqlite:{request.getfixturevalue('shop_file')}"
    database: Database = request.getfixturevalue("database")
    url = database.socket_url("app")
    with connect(url) as made:
        shop.create(made)
    return url


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """The stage without servers, its shop open and its mirrors empty."""
    with stages.sqlite(tmp_path / "demo", lambda: False) as made:
        yield made


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


def test_the_traffic_does_every_act_and_keeps_every_foreign_key(shop_url: str) -> None:
    trader = Trader(shop_url, seed=3)
    try:
        for act, _ in ACTS:
            trader.database.begin()
            act(trader)
            trader.database.commit()
        for _ in range(400):
            trader.act()
        assert trader.committed > 300
        assert trader.rolled_back > 10
        if shop_url.startswith("sqlite"):
            assert trader.database.rows("PRAGMA foreign_key_check") == []
        assert all(shop.counts(trader.database, shop.TABLES).values())
    finally:
        trader.close()


def test_the_shop_is_the_same_in_both_databases(shop_file: Path, database: Database) -> None:
    url = database.socket_url("app")
    with connect(url) as made:
        shop.create(made)
        with connect(f"sqlite:{shop_file}", reading=True) as file:
            assert shop.counts(made, shop.TABLES) == shop.counts(file, shop.TABLES)
    assert rebuild.rebuilt(url) == rebuild.rebuilt(f"sqlite:{shop_file}")


def test_equal_tables_are_found_equal(shop_file: Path, tmp_path: Path) -> None:
    for table in shop.TABLES:
        mirror(shop_file, tmp_path / "lake", table)
    assert all(found.equal for found in compare(f"sqlite:{shop_file}", tmp_path / "lake", shop.TABLES))


def test_a_missing_an_extra_and_a_different_row_are_each_counted(shop_file: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    mirror(shop_file, lake, "tags")
    connection = sqlite3.connect(shop_file)
    with connection:
        connection.execute("DELETE FROM tags WHERE id = 1")
        connection.execute("UPDATE tags SET label = 'other' WHERE id = 2")
        connection.execute("INSERT INTO tags VALUES (99, 'fresh')")
    connection.close()
    (found,) = compare(f"sqlite:{shop_file}", lake, ["tags"])
    assert (found.missing, found.extra, found.different) == (1, 1, 1)
    assert not found.equal


def test_a_row_that_is_mirrored_twice_and_a_null_that_became_text_are_found(
    shop_file: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    mirror(shop_file, lake, "tags")
    write_deltalake(str(lake / "tags"), pa.table({"id": [1], "label": [shop.TAGS[0]]}), mode="append")
    connection = sqlite3.connect(shop_file)
    with connection:
        connection.execute("UPDATE customers SET city = 'Graz'")
    mirror(shop_file, lake, "customers")
    with connection:
        connection.execute("UPDATE customers SET city = NULL WHERE id = 1")
    connection.close()
    tags, customers = compare(f"sqlite:{shop_file}", lake, ["tags", "customers"])
    assert (tags.missing, tags.extra, tags.different) == (0, 1, 0)
    assert (customers.missing, customers.extra, customers.different) == (0, 0, 1)


def test_a_mirror_that_was_never_made_lacks_every_row(shop_file: Path, tmp_path: Path) -> None:
    (found,) = compare(f"sqlite:{shop_file}", tmp_path / "lake", ["tags"])
    assert found.missing == len(shop.TAGS)


def test_traffic_is_another_process_and_ends_when_it_is_told(shop_file: Path) -> None:
    before = rows(shop_file, "orders")
    with traffic(f"sqlite:{shop_file}") as process:
        assert process.pid != os.getpid()
        wait_until(lambda: rows(shop_file, "orders") != before)
        end(process)
        assert process.returncode == 0
    assert process.poll() is not None


def test_traffic_ends_by_itself_when_its_parent_is_killed(shop_file: Path, root: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'tailrace.demo.traffic', sys.argv[1]]\n"
        "p = subprocess.Popen(command, start_new_session=True)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, f"sqlite:{shop_file}"],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        before = rows(shop_file, "orders")
        wait_until(lambda: rows(shop_file, "orders") != before)
    finally:
        parent.kill()
        parent.communicate()
    wait_until(
        lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()
    )


def test_the_directory_is_made_anew_but_never_somebody_elses(tmp_path: Path) -> None:
    ours = tmp_path / "demo"
    place.prepare(ours)
    (ours / "lake").mkdir()
    place.prepare(ours)
    assert [path.name for path in ours.iterdir()] == ["tailrace.toml"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").write_text("keep me")
    with pytest.raises(ConfigError, match="left as it is"):
        place.prepare(theirs)
    assert (theirs / "precious").exists()


def keep(directory: Path, documents: dict[str, Any]) -> None:
    """Documents in the demonstration's store, as a pipeline would have put them there."""
    with closing(SqliteSink(SqliteStoreConfig(str(directory / "documents.db")))) as store:
        store.drop(INDEX)
        store.ensure(INDEX, "one", {})
        texts = [json.dumps(one) for one in documents.values()]
        store.write(DocumentBatch(INDEX, "one", pa.array(documents), pa.array(texts), 1))


def test_the_exit_code_tells_whether_everything_is_equal(stage: Stage, tmp_path: Path) -> None:
    directory, console = tmp_path / "demo", Console(file=io.StringIO(), width=120)
    for table in shop.TABLES:
        mirror(directory / "shop.db", directory / "lake", table)
    wanted = rebuild.rebuilt(stage.shop)
    with connect(stage.shop, reading=True) as source:
        show = Show(stage, source, None)
        keep(directory, wanted)
        assert judge(stage, console, show) == 0
        wrong: tuple[dict[str, Any], ...] = (
            {id_: one for id_, one in wanted.items() if id_ != "7"},
            {**wanted, "1000": wanted["7"]},
            {**wanted, "7": {**wanted["7"], "city": "Nowhere"}},
        )
        for documents in wrong:
            keep(directory, documents)
            assert judge(stage, console, show) == 1
        keep(directory, wanted)
        mirror(directory / "shop.db", directory / "lake", "items", slice(1, None))
        assert judge(stage, console, show) == 1
    assert "NOT EQUAL" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_picture_shows_rows_on_both_sides_as_a_line_and_on_a_terminal(
    stage: Stage, tmp_path: Path
) -> None:
    with connect(stage.shop, reading=True) as source:
        show = Show(stage, source, 20.0)
        assert show.picture().tables[0].mirror is None
        assert not show.over()
        mirror(tmp_path / "demo" / "shop.db", tmp_path / "demo" / "lake", "customers")
        picture = show.picture()
    assert show.first_rows is not None
    assert "customers=200/200" in line(picture)
    console = Console(file=io.StringIO(), width=120)
    console.print(render(picture, Spinner("dots")))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "20 s left" in shown
    assert "rows in Delta" in shown


def test_without_mirrors_the_first_documents_begin_the_time_and_no_mirror_is_shown(
    stage: Stage, tmp_path: Path
) -> None:
    alone = dataclasses.replace(stage, lake=None, names=Names("PostgreSQL", "OpenSearch"), afterwards="")
    with connect(stage.shop, reading=True) as source:
        show = Show(alone, source, 20.0)
        assert not show.picture().arrived
        keep(tmp_path / "demo", rebuild.rebuilt(stage.shop))
        assert not show.over()
        picture = show.picture()
        console = Console(file=io.StringIO(), width=120)
        assert judge(alone, console, show) == 0
    assert show.first_rows is not None
    assert "customers=200 " in line(picture)
    console.print(render(picture, Spinner("dots")))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "rows in PostgreSQL" in shown
    assert "in OpenSearch" in shown
    assert "Delta" not in shown


def test_documents_of_a_server_are_read_by_its_alias_page_after_page(
    opensearch: Client, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(opensearch.url.rpartition(":")[2])
    found = SearchServer(port, f"{prefix}shown")
    # It asks with little patience, and the server has other tests to answer too.
    wait_until(found.answers, what="an answer")
    assert found.count() is None
    assert found.documents() == {}
    wanted = {str(number): {"number": number} for number in range(7)}
    opensearch.create(f"{prefix}one", {"aliases": {f"{prefix}shown": {}}})
    opensearch.put(f"{prefix}one", wanted)
    monkeypatch.setattr("tailrace.demo.store.PAGE", 3)
    assert found.count() == 7
    assert found.documents() == wanted
    assert not SearchServer(free_port(range(15_000, 32_000))).answers()


def serving(directory: Path) -> list[str]:
    """A command that says in a file which process it is, and stays."""
    code = (
        f"import os, time; open({str(directory / 'pid')!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(60)"
    )
    return [sys.executable, "-c", code]


def pid_of(directory: Path) -> int:
    path = directory / "pid"
    wait_until(lambda: path.exists() and path.read_text().endswith(" "), what="the start of the server")
    return int(path.read_text())


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_server_is_gone_at_the_end_even_after_an_error(tmp_path: Path) -> None:
    pids = []

    def fail() -> None:
        with server("Something", serving(tmp_path), tmp_path / "log"):
            pids.append(pid_of(tmp_path))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gone(*pids)


def test_a_server_ends_when_the_demonstration_is_killed_and_its_passing_files_with_it(
    tmp_path: Path, root: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    code = (
        "import json, sys, time\nfrom pathlib import Path\nfrom tailrace.demo.processes import server\n"
        "log, files = Path(sys.argv[2]), Path(sys.argv[3])\n"
        "with server('Something', json.loads(sys.argv[1]), log, remove=files):\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(serving(tmp_path)), str(tmp_path / "log"), str(files)],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )
    try:
        pid = pid_of(tmp_path)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: gone(pid) and not files.exists(), what="the end of the server")


def test_a_server_that_ends_while_it_starts_is_told_of_with_its_log(tmp_path: Path) -> None:
    with server("Something", ["false"], tmp_path / "log") as started:
        with pytest.raises(NeedsOperator, match="Something ended while it started") as caught:
            started.wait(lambda: False, lambda: False)
        assert str(tmp_path / "log") in str(caught.value.remedy)


def test_nobody_waits_for_a_server_after_the_end_was_asked_for(tmp_path: Path) -> None:
    with (
        server("Something", serving(tmp_path), tmp_path / "log") as started,
        pytest.raises(Stopped),
    ):
        started.wait(lambda: False, lambda: True)


def test_an_update_is_told_by_what_changed_and_by_the_new_values_where_the_log_has_no_old_ones() -> None:
    ref = TableRef("public", "orders")
    table = TableSchema(
        ref, tuple(Column(name, ColumnType("string")) for name in ("id", "status", "note")), key=("id",)
    )
    new = {"id": "1", "status": "paid", "note": "gift"}
    images: list[tuple[Any, Any, list[str] | None]] = [
        ({**new, "status": "new"}, new, None),
        (None, new, None),
        ({"id": "2", "status": None, "note": None}, new, ["status", "note"]),
        ({"id": "1", "status": None, "note": "gift"}, new, ["status"]),
    ]
    optional = [pa.field("before_absent", pa.list_(pa.string()))]
    now = datetime.datetime.now(datetime.UTC)
    data = [
        {
            "op": Op.UPDATE.value,
            "position": 1,
            "seq": at,
            "ts": now,
            "before": old,
            "after": row,
            "before_absent": absent,
        }
        for at, (old, row, absent) in enumerate(images)
    ]
    recent = Recent()
    batch = ChangeBatch(table, pa.RecordBatch.from_pylist(data, schema_of(table, optional)))
    recent.write([batch], Progress("here", 0, 1))
    assert [text for _, _, text in recent.texts()] == [
        "1  status: new → paid",
        "1  status: paid, note: gift",
        "2 → 1  status: paid, note: gift",
        "1  status: paid",
    ]


def test_the_sink_comes_from_the_environment_and_an_unknown_one_is_refused() -> None:
    assert stages.chosen({}) is stages.sqlite
    assert stages.chosen({"SINK": ""}) is stages.sqlite
    assert stages.chosen({"SINK": "opensearch"}) is stages.opensearch
    with pytest.raises(ConfigError, match="SINK=elastic") as caught:
        stages.chosen({"SINK": "elastic"})
    assert "make demo SINK=opensearch" in str(caught.value.remedy)


def test_the_length_comes_from_the_environment_and_nonsense_is_refused() -> None:
    assert seconds_from({}) is None
    assert seconds_from({"DEMO_SECONDS": " 2.5 "}) == 2.5
    for text in ("soon", "-1", "0", "nan", "inf"):
        with pytest.raises(ConfigError):
            seconds_from({"DEMO_SECONDS": text})
