"""`tailrace snapshot` and its Python twin: conditions, pauses, stops, and tables that are added later."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import tailrace as api
from tailrace.app import capture_for
from tailrace.capture.contract import Chunk
from tailrace.changelog.filesystem import open_filesystem
from tailrace.cli.root import _run
from tailrace.model.errors import ConfigError, UsageError
from tailrace.model.table import TableRef
from tailrace.spark.driver import consumer_name
from tailrace.spark.offsets import Cursor, Offset
from tailrace.spark.plans import Plan, PlanStore
from tests.cli.command import COMMAND, MIRRORS, environment, make_shop, tailrace
from tests.support.postgres import PASSWORD, Database, database, postgres
from tests.support.sparks import QUICK
from tests.support.waiting import wait_until

__all__ = ["database", "postgres"]

SPARK = "\n[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in QUICK.items())
FEED = '\n[[feed]]\ntables = ["customers"]\nsink = "out"\n\n[sinks.out]\ntype = "stdout"\n'
ORDERS = '\n[[table]]\nname = "orders"\n'
CUSTOMERS_ONLY = MIRRORS.replace(ORDERS, "") + SPARK + FEED


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text(MIRRORS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """A command line in this process: its exit code, and all that it said."""
    code = _run(arguments)
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.usefixtures("shop")
def test_a_request_with_a_condition_waits_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "snapshot", "-t", "orders", "--where", "total > 10")[0] == 0
    assert run(capsys, "snapshot", "-t", "orders")[0] == 0
    assert run(capsys, "snapshot", "-t", "orders", "--where", "total > 10")[0] == 0
    listed = run(capsys, "snapshot", "--list")[1].splitlines()
    assert listed == ["orders", "orders where total > 10"]


def test_what_cannot_be_meant_is_refused_and_leaves_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, told in (
        (["-t", "orders", "--where", "totl > 10"], "no such column: totl"),
        (["--where", "total > 10"], "which table?"),
        (["--pause", "--stop"], "cannot be given together"),
        (["--pause", "--where", "total > 10"], "--where is for a request"),
        (["--pause", "-t", "loose"], "not one of this pipeline's"),
        ([], "which table?"),
    ):
        code, said = run(capsys, "snapshot", *arguments)
        assert code == 2
        assert told in said
    assert not (shop / ".tailrace").exists() or not any((shop / ".tailrace").iterdir())


@pytest.mark.usefixtures("shop")
def test_a_pause_is_shown_until_it_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing was paused" in run(capsys, "snapshot", "--resume")[1]
    assert "paused orders" in run(capsys, "snapshot", "--pause", "-t", "orders")[1]
    assert "orders is paused" in run(capsys, "snapshot", "-t", "orders")[1]
    found = json.loads(run(capsys, "status", "--format", "json")[1])
    assert [(one["table"], one["paused"]) for one in found["tables"]] == [
        ("main.customers", False),
        ("main.orders", True),
    ]
    assert "paused before it began, a fresh one is requested" in run(capsys, "status")[1]
    assert run(capsys, "snapshot", "--resume")[1] == "resumed orders\n"
    assert "paused" not in run(capsys, "status")[1]


def test_resuming_everything_ends_the_pauses_of_tables_that_are_not_read_at_present_too(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shop / "tailrace.toml"
    whole = file.read_text()
    assert run(capsys, "snapshot", "--pause")[0] == 0
    file.write_text(whole.replace('[[table]]\nname = "orders"\n', ""))
    assert run(capsys, "snapshot", "--resume")[0] == 0
    file.write_text(whole)
    assert "nothing was paused" in run(capsys, "snapshot", "--resume")[1]
    assert "paused" not in run(capsys, "status")[1]


def logged(shop: Path, *cursors: Cursor, times: tuple[float, ...] = ()) -> None:
    """Batches as Spark logs them, each with one more cursor of the orders."""
    capture = capture_for(f"sqlite:{shop / 'shop.db'}")
    capture.setup(capture.resolve(["customers", "orders"]))
    head, table = capture.head(), capture.describe(capture.resolve(["orders"])[0])
    capture.close()
    plan = Plan("p", table, tuple(Chunk(table.ref, index, {}, 100) for index in range(10)))
    PlanStore(*open_filesystem(str(shop / ".tailrace"))).save(plan)
    for number, cursor in enumerate(cursors):
        offset = Offset(head, {"main.orders": cursor})
        for kind, body in (("offsets", "v1\n{}\n" + json.dumps(offset.to_json())), ("commits", "v1\n{}")):
            file = shop / ".tailrace" / "checkpoint" / kind / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(body)
            if times:
                os.utime(file, (times[number], times[number]))


def generation(shop: Path) -> str:
    capture = capture_for(f"sqlite:{shop / 'shop.db'}")
    capture.setup(capture.resolve(["customers", "orders"]))
    found = capture.generations()[capture.resolve(["orders"])[0]][0]
    capture.close()
    return found


def test_status_tells_rows_rate_and_time_left_of_a_snapshot(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = generation(shop)
    logged(shop, Cursor("p", 2, 10, now), Cursor("p", 4, 10, now), times=(1000.0, 1010.0))
    (_, orders) = json.loads(run(capsys, "status", "--format", "json")[1])["tables"]
    assert (orders["snapshot"], orders["chunks_done"], orders["chunks"]) == ("running", 4, 10)
    assert (orders["rows_done"], orders["rows"]) == (400, 1000)
    assert (orders["rate"], orders["seconds_left"]) == (20.0, 30.0)
    assert "4 of 10 chunks, about 400 of 1,000 rows, 20/s, 30.0 s left" in run(capsys, "status")[1]


def test_status_tells_of_a_stopped_snapshot_what_is_missing_and_what_to_do(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(shop, Cursor("p", 3, 10, generation(shop), stopped=True, short=True))
    (_, orders) = json.loads(run(capsys, "status", "--format", "json")[1])["tables"]
    assert orders["snapshot"] == "stopped"
    assert "incomplete: its snapshot was stopped at 3 of 10 chunks" in orders["problem"]
    assert "`tailrace snapshot --table orders`" in orders["problem"]
    assert "no snapshot runs or waits" not in run(capsys, "snapshot", "--stop", "-t", "customers")[1]
    assert "no snapshot runs or waits" in run(capsys, "snapshot", "--stop", "-t", "orders")[1]


def test_the_same_is_done_from_python(shop: Path) -> None:
    pipeline = api.control("tailrace.toml")
    pipeline.snapshot("orders", where="total > 10")
    assert pipeline.pause() == ["customers", "orders"]
    assert pipeline.waiting() == ["orders where total > 10"]
    assert pipeline.resume("orders") == ["orders"]
    assert [table.paused for table in pipeline.status().tables] == [True, False]
    assert pipeline.stop() == ["customers", "orders"]
    assert pipeline.waiting() == []
    with pytest.raises(ConfigError, match="no such column"):
        pipeline.snapshot("orders", where="totl > 10")
    with pytest.raises(UsageError, match="which table"):
        pipeline.snapshot()
    query = api.control(url=f"sqlite:{shop / 'shop.db'}", tables="orders", state_dir=str(shop / "other"))
    query.snapshot("orders")
    assert query.waiting() == ["orders"]
    with pytest.raises(ConfigError, match="not one of"):
        query.pause("customers")
    with pytest.raises(UsageError, match="checkpoint"):
        query.status()
    with pytest.raises(UsageError, match="which pipeline"):
        api.control()


def test_a_query_is_named_from_python_by_the_options_that_it_has(shop: Path) -> None:
    options: dict[str, Any] = {
        "url": f"sqlite:{shop / 'shop.db'}",
        "state_dir": str(shop / "other"),
        "checkpoint": str(shop / "checkpoint"),
    }
    for tables in ("customers, orders", '["customers", "orders"]', ["customers", "orders"]):
        query = api.control(tables=tables, **options)
        assert [table.table for table in query.status().tables] == ["main.customers", "main.orders"]
    assert query.status().consumer == consumer_name(options["state_dir"])
    assert query.snapshot("orders").keys() == {"main.orders"}
    query = api.control(tables="orders", types={"orders.total": "string"}, consumer="mine", **options)
    assert query.status().consumer == "mine"
    with query._source() as capture:
        assert capture.describe(TableRef("main", "orders")).column("total").type.name == "string"
    with pytest.raises(ConfigError, match="publication"):
        api.control(tables="orders", source_options={"publication": "shop"}, **options).pause()
    with pytest.raises(ConfigError, match="empty name"):
        api.control(tables="orders,", **options)


def mirrored(directory: Path, table: str) -> list[int] | None:
    try:
        read = DeltaTable(str(directory / "lake" / table)).to_pyarrow_table()
    except Exception:
        return None
    return sorted(read.column(0).to_pylist())


@contextlib.contextmanager
def running(directory: Path, **extra: str) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline as a process, ended by SIGTERM, with its output in files."""
    # Whoever starts the tests by nohup has them ignore SIGHUP, and so would the pipeline, as it should.
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with (directory / "run.out").open("a") as out, (directory / "run.err").open("a") as err:
        process = subprocess.Popen(
            [*COMMAND, "run", "--log-format", "json"],
            cwd=directory,
            env=environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    signal.signal(signal.SIGHUP, former)
    try:
        yield process
        assert process.poll() is None, (directory / "run.err").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (directory / "run.err").read_text()
    finally:
        process.kill()
        process.wait()


def events(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "run.err").read_text().splitlines()]


def told(directory: Path, name: str) -> bool:
    return any(event["event"] == name for event in events(directory))


def markers(directory: Path) -> int:
    """How many snapshots of the customers their feed has seen begin."""
    lines = (directory / "run.out").read_text().splitlines()
    return sum(json.loads(line)["op"] == "s" for line in lines)


def sqlite_shop(directory: Path, _request: pytest.FixtureRequest) -> tuple[str, Callable[[str], None]]:
    make_shop(directory / "shop.db")

    def write(statement: str) -> None:
        with contextlib.closing(sqlite3.connect(directory / "shop.db", timeout=10)) as connection, connection:
            connection.execute(statement)

    return "sqlite:shop.db", write


def postgres_shop(_directory: Path, request: pytest.FixtureRequest) -> tuple[str, Callable[[str], None]]:
    source: Database = request.getfixturevalue("database")
    source.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, total int)",
        "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace')",
        "INSERT INTO orders VALUES (10, 1, 9), (11, 2, 20)",
    )
    source.publish("customers", "orders")
    return f"postgresql://tailrace@127.0.0.1:{source.server.port}/{source.name}", source.sql


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [sqlite_shop, pytest.param(postgres_shop, marks=pytest.mark.long)])
def test_a_running_pipeline_obeys_and_takes_up_a_new_table_without_reading_the_others_again(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, pytest.FixtureRequest], tuple[str, Callable[[str], None]]],
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url, write = make(tmp_path, request)
    text = CUSTOMERS_ONLY.replace("sqlite:shop.db", url)
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    control = api.control(file)
    control.pause("customers")
    with running(tmp_path) as process:
        wait_until(lambda: told(tmp_path, "pipeline.started"), timeout=240, what="the query")
        control.resume()
        wait_until(lambda: mirrored(tmp_path, "customers") == [1, 2], timeout=120, what="the mirror")

        file.write_text(text + ORDERS)
        asked = tailrace(tmp_path, "snapshot", "-t", "orders")
        assert "the running pipeline takes it up" in asked.stdout, asked.stderr
        wait_until(lambda: mirrored(tmp_path, "orders") == [10, 11], timeout=120, what="the new mirror")

        # A file that cannot work is told, and the pipeline goes on; so is a condition that is none.
        file.write_text(text + ORDERS.replace("orders", "odders"))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: told(tmp_path, "pipeline.renewal_refused"), timeout=120, what="the refusal")
        file.write_text(text + ORDERS)
        with pytest.raises(ConfigError, match="totl"):
            api.control(file).snapshot("orders", where="totl > 10")

        write("INSERT INTO customers VALUES (3, 'Edsger')")
        write("INSERT INTO orders VALUES (12, 3, 30)")
        api.control(file).snapshot("orders", where="total > 10")
        wait_until(lambda: mirrored(tmp_path, "customers") == [1, 2, 3], timeout=60)
        wait_until(lambda: not api.control(file).waiting(), timeout=60, what="the condition")
    assert mirrored(tmp_path, "orders") == [10, 11, 12]
    assert markers(tmp_path) == 1


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_table_that_is_added_between_two_runs_is_read_and_the_others_are_not(
    tmp_path: Path, database: Database
) -> None:
    database.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id int PRIMARY KEY, total int)",
        "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace')",
        "INSERT INTO orders VALUES (10, 1), (11, 2)",
    )
    database.publish("customers", "orders")
    url = f"postgresql://tailrace@127.0.0.1:{database.server.port}/{database.name}"
    text = CUSTOMERS_ONLY.replace("sqlite:shop.db", url)
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    password = {"PGPASSWORD": PASSWORD}
    done = tailrace(tmp_path, "run", "--once", extra=password)
    assert done.returncode == 0, done.stderr
    assert mirrored(tmp_path, "customers") == [1, 2]
    assert [json.loads(line)["op"] for line in done.stdout.splitlines()].count("s") == 1

    # Only what is in the log may come of the customers: a snapshot would read these rows.
    database.sql("INSERT INTO customers VALUES (3, 'Edsger')")
    file.write_text(text + ORDERS)
    again = tailrace(tmp_path, "run", "--once", extra=password)
    assert again.returncode == 0, again.stderr
    assert mirrored(tmp_path, "orders") == [10, 11]
    assert mirrored(tmp_path, "customers") == [1, 2, 3]
    assert [json.loads(line)["op"] for line in again.stdout.splitlines()] == ["c"]
