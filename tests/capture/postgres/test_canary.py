"""A password is in no log, error, plan, state file or page, whichever way it was given and whatever fails."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import pickle
import signal
import socket
import subprocess
import traceback
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import pytest
from deltalake import DeltaTable
from psycopg import sql

from tailrace.app import capture_for
from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.errors import TailraceError
from tests.cli.command import COMMAND, environment, tailrace
from tests.support.postgres import Database, Server
from tests.support.sparks import Query
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANARY = "p@ssw0rd-canary/7f:3#9%?"
# What stays the same however a URL or a password file escapes it.
_CORE = b"ssw0rd-canary"
PUBLISH = (
    "CREATE PUBLICATION tailrace FOR TABLE orders"
    " WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)"
)
CONFIG = """
[source]
url = "{url}"
[sinks.lake]
type = "delta"
path = "lake"
[sinks.out]
type = "stdout"
[[table]]
name = "{table}"
[[feed]]
tables = ["{table}"]
sink = "out"
[spark]
"spark.ui.enabled" = true
"spark.ui.port" = {port}
"spark.eventLog.enabled" = true
"spark.eventLog.dir" = "{events}"
"""


def needles() -> list[bytes]:
    """The canary plain, and its base64 at each of the three places it can have in a longer text."""
    found = [_CORE, _CORE.hex().encode(), _CORE.decode().encode("utf-16-le")]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + _CORE)
        # The letters at both ends depend on what stands beside it.
        found.append(encoded[4 if shift else 0 : len(encoded) - 4])
    return found


def assert_absent(text: bytes | str, where: object) -> None:
    raw = text.encode() if isinstance(text, str) else text
    for needle in needles():
        at = raw.find(needle)
        assert at < 0, f"the password is in {where}: …{raw[max(0, at - 200) : at]!r} <here>"


def assert_absent_below(directory: Path) -> int:
    """Every file of a directory, by name and content; how many there are."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        assert_absent(str(path), "a name")
        assert_absent(path.read_bytes(), path)
    return len(files)


def test_the_search_finds_what_it_is_for() -> None:
    for shift in range(6):
        text = "x" * shift + CANARY + "tail"
        for hidden in (
            text,
            quote(text, safe=""),
            base64.b64encode(text.encode()).decode(),
            text.encode().hex(),
        ):
            with pytest.raises(AssertionError, match="the password is in"):
                assert_absent(hidden, "here")


@pytest.fixture
def guarded(own_server: Server) -> Database:
    """A database whose role has the canary as its password, with one published table."""
    database = own_server.database()
    with own_server.admin() as admin:
        admin.execute(sql.SQL("ALTER ROLE tailrace PASSWORD {}").format(sql.Literal(CANARY)))
    database.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, city text)", "CREATE TABLE secret (id int PRIMARY KEY)"
    )
    database.sql("INSERT INTO orders SELECT i, 'Oslo' FROM generate_series(1, 20) i", PUBLISH)
    database.sql("REVOKE SELECT ON secret FROM tailrace")
    return database


def bare(database: Database) -> str:
    return f"postgresql://tailrace@127.0.0.1:{database.server.port}/{database.name}"


def password_file(path: Path) -> Path:
    path.write_text(f"*:*:*:tailrace:{CANARY.replace(':', chr(92) + ':')}\n")
    path.chmod(0o600)
    return path


class Ways:
    """URLs and variables by which the password can be given."""

    def __init__(self, database: Database, directory: Path) -> None:
        escaped, url = quote(CANARY, safe=""), bare(database)
        self.reference = url.replace("tailrace@", "tailrace:${SHOP_PASSWORD}@")
        services = directory / "services"
        services.write_text(f"[shop]\npassword={CANARY}\n")
        self.all: dict[str, tuple[str, dict[str, str]]] = {
            "reference": (self.reference, {"SHOP_PASSWORD": escaped}),
            "reference in a parameter": (f"{url}?password=${{SHOP_PASSWORD}}", {"SHOP_PASSWORD": escaped}),
            "whole reference": (
                "${SHOP_URL}",
                {"SHOP_URL": url.replace("tailrace@", f"tailrace:{escaped}@")},
            ),
            "whole reference with a parameter": ("${SHOP_URL}", {"SHOP_URL": f"{url}?password={escaped}"}),
            "variable": (url, {"PGPASSWORD": CANARY}),
            "file": (url, {"PGPASSFILE": str(password_file(directory / "passwords"))}),
            "service": (f"{url}?service=shop", {"PGSERVICEFILE": str(services)}),
        }


def everything_of(error: BaseException) -> str:
    """All that anybody may print of an error."""
    text = io.StringIO()
    traceback.print_exception(error, file=text)
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        chain += [repr(seen), str(seen), repr(vars(seen)), repr(seen.args)]
        seen = seen.__context__ or seen.__cause__
    with contextlib.suppress(Exception):
        chain.append(repr(pickle.dumps(error)))
    return text.getvalue() + "".join(chain)


@pytest.fixture
def debug_log() -> Iterator[io.StringIO]:
    """Everything that anybody logs, at the lowest level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def test_a_capture_shows_its_password_to_nobody(
    guarded: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    debug_log: io.StringIO,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ways = Ways(guarded, tmp_path)
    server = guarded.server
    for name, (url, variables) in ways.all.items():
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            capture = capture_for(url)
            assert isinstance(capture, PostgresCapture)
            refs = capture.resolve(["orders"])
            capture.register("canary")
            shown = [repr(capture), repr(vars(capture)), str(capture._config), repr(capture.coverage(refs))]
            shown += [
                repr(pickle.dumps(capture._config)),
                f"{capture._config.dsn}",
                repr(capture.consumers()),
            ]
            (chunk,) = capture.plan(refs[0], rows_per_chunk=1000)
            shown += [repr(chunk), repr(pickle.dumps(chunk))]
            for part in capture.live(capture.head(), refs, consumer="canary", wait=0.1):
                shown.append(repr(part))
                break
            with pytest.raises(TailraceError) as refused:
                list(
                    capture.snapshot(
                        capture.describe(capture.resolve(["secret"])[0]), chunk, position=1, seq=0
                    )
                )
            shown.append(everything_of(refused.value))
            for text in shown:
                assert_absent(text, name)
    wrong = PostgresConfig.from_url(bare(guarded).replace("tailrace@", f"nobody:{quote(CANARY, safe='')}@"))
    with pytest.raises(TailraceError) as refused:
        PostgresCapture(wrong).identity()
    assert_absent(everything_of(refused.value), "a wrong password")
    server.stop()
    with pytest.raises(TailraceError) as refused:
        PostgresCapture(wrong).identity()
    assert_absent(everything_of(refused.value), "a server that is gone")
    written = capfd.readouterr()
    for text in (debug_log.getvalue(), written.out, written.err):
        assert_absent(text, "a log")


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://u:{escaped}@127.0.0.1:1/d", ["run", "--once"]),
        ("postgresql://u:{plain}@127.0.0.1:1/d", ["check"]),
        ("postgresql://u@127.0.0.1:1/d?password={escaped}", ["check"]),
        ("postgresql://u:{escaped}@127.0.0.1:1/d?nonsense=1", ["check"]),
        ("nosuch://u:{escaped}@h/d", ["check"]),
    ],
)
def test_commands_show_no_password_that_was_written_out(tmp_path: Path, url: str, command: list[str]) -> None:
    written = url.format(plain=CANARY, escaped=quote(CANARY, safe=""))
    file = tmp_path / "tailrace.toml"
    file.write_text(CONFIG.format(url=written, table="orders", events="file:///nowhere", port=0))
    for arguments in (["--debug", *command], ["init", "--force", written]):
        done = tailrace(tmp_path, *arguments)
        assert done.returncode != 0
        assert_absent(done.stdout + done.stderr, arguments[0])
    file.unlink()
    assert_absent_below(tmp_path)


def pages(port: int) -> Iterator[tuple[str, bytes]]:
    """What Spark's page shows, and what its programs' interface says."""
    root = f"http://127.0.0.1:{port}"

    def get(path: str) -> bytes:
        with urllib.request.urlopen(root + path, timeout=20) as answer:  # noqa: S310 - our own page
            return bytes(answer.read())

    applications = json.loads(get("/api/v1/applications"))
    base = f"/api/v1/applications/{applications[0]['id']}"
    for path in ("/environment/", "/jobs/", "/stages/", "/SQL/", "/StreamingQuery/", "/executors/"):
        yield path, get(path)
    for path in (
        "/environment",
        "/sql?details=true&planDescription=true",
        "/jobs",
        "/stages",
        "/allexecutors",
    ):
        yield path, get(base + path)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_pipeline_with_a_secret_leaves_it_nowhere(guarded: Database, tmp_path: Path) -> None:
    ways = Ways(guarded, tmp_path.parent)
    _, variables = ways.all["reference"]
    (tmp_path / "events").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    events = (tmp_path / "events").as_uri()
    (tmp_path / "tailrace.toml").write_text(
        CONFIG.format(url=ways.reference, table="orders", events=events, port=port)
    )
    out, err = (tmp_path / "run.out").open("wb"), (tmp_path / "run.err").open("wb")
    process = subprocess.Popen(
        [*COMMAND, "run", "--log-level", "debug"],
        cwd=tmp_path,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
    )
    try:
        handle = psutil.Process(process.pid)

        def mirrored() -> int:
            if process.poll() is not None:
                pytest.fail((tmp_path / "run.err").read_text())
            with contextlib.suppress(Exception):
                return int(DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table().num_rows)
            return 0

        wait_until(lambda: mirrored() == 20, timeout=300, what="the snapshot")
        guarded.sql("INSERT INTO orders VALUES (21, 'Bergen')")
        wait_until(lambda: mirrored() == 21, timeout=120, what="a change")
        for child in [handle, *handle.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                assert_absent(" ".join(child.cmdline()), f"the command line of {child.name()}")
        shown = dict(pages(port))
        assert b"spark.eventLog.dir" in shown["/environment"]
        for path, page in shown.items():
            assert_absent(page, path)
        running = tailrace(tmp_path, "status", "--format", "json", extra=variables)
        assert_absent(running.stdout + running.stderr, "status")
        # A server that goes away and comes back, then a password that is no longer the right one.
        guarded.server.restart()
        with guarded.admin() as admin:
            admin.execute("INSERT INTO orders VALUES (22, 'Paris')")
        wait_until(lambda: mirrored() == 22, timeout=120, what="a change after a restart")
        with guarded.admin() as admin:
            admin.execute("ALTER ROLE tailrace PASSWORD 'another'")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tailrace'")
        assert process.wait(300) != 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        out.close()
        err.close()
    told = (tmp_path / "run.err").read_text()
    assert "password authentication failed" in told
    assert "remedy" in told
    for command in (["check"], ["--debug", "check"], ["status"], ["run", "--once", "--log-format", "json"]):
        done = tailrace(tmp_path, *command, extra=variables)
        assert_absent(done.stdout + done.stderr, command)
    guarded.server.stop()
    for command in (["check"], ["--debug", "check"], ["status"]):
        done = tailrace(tmp_path, *command, extra={**variables, "PGCONNECT_TIMEOUT": "2"})
        assert_absent(done.stdout + done.stderr, command)
    assert assert_absent_below(tmp_path) > 20
    assert list((tmp_path / "events").rglob("*"))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_plans_progress_and_what_travels_to_executors_have_no_password(
    spark: SparkSession, guarded: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Workers have the environment their JVM was started with, so the file is named in the URL.
    url = f"{bare(guarded)}?passfile={password_file(tmp_path.parent / 'canary-passwords')}"
    query = Query(spark, tmp_path, url)
    frame = query.load()
    frame.explain(True)
    batch: Any = spark.read.format("tailrace").option("url", url).option("tables", "orders").load()
    batch.explain(True)
    assert batch.count() == 20
    running = query.start()

    def read() -> bool:
        return [row["op"] for row in query.rows].count("r") == 20

    wait_until(read, timeout=200, what="the snapshot")
    running.explain(True)
    shown = [json.dumps(p, default=str) for p in running.recentProgress] + [str(running.status)]
    query.stop()
    for options in ({"url": f"{url}&password={CANARY}"}, {"url": bare(guarded).replace("@", f":{CANARY}@")}):
        with pytest.raises(Exception, match="password") as refused:
            query.load(**options)
        shown.append(everything_of(refused.value))
    written = capfd.readouterr()
    for text in (*shown, written.out, written.err):
        assert_absent(text, "a plan")
    assert assert_absent_below(tmp_path) > 5
