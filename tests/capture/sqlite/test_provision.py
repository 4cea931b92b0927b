"""Setup and teardown leave exactly what they promise, and refuse with a remedy what cannot be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.capture.sqlite import SqliteCapture, SqliteConfig
from tailrace.model.errors import ConfigError, Transient
from tailrace.model.position import Position
from tests.capture.sqlite.support import CONSUMER, Source

Make = Callable[..., Source]
T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE)"


def schema(s: Source) -> list[tuple[str, ...]]:
    return s.app.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_teardown_leaves_no_object_behind(source: Make) -> None:
    s = source(T, "CREATE TABLE k (x)", "CREATE TABLE _tailraceish (x)", "CREATE VIEW v AS SELECT 1")
    before = schema(s)
    s.install()
    s.run("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE k ADD COLUMN y")
    s.capture.setup(s.tables)
    assert schema(s) != before
    assert s.capture.teardown() == ["removed everything of Tailrace from 0.db"]
    after = [row for row in schema(s) if row[1] != "k"]
    assert after == [row for row in before if row[1] != "k"]
    assert s.capture.teardown() == []
    assert s.capture.teardown(s.tables) == []


def test_setup_is_idempotent_and_names_what_it_did(source: Make) -> None:
    s = source(T)
    assert s.capture.setup([s.ref("t")]) == ["created Tailrace's tables in 0.db", "set up table t"]
    assert s.capture.setup([s.ref("t"), s.ref("T")]) == []
    assert s.capture.describe(s.ref("t")).generation == s.capture.generations()[s.ref("t")][0]


def test_setup_that_fails_leaves_nothing(source: Make) -> None:
    s = source(T, "CREATE TABLE bad (rowid, _rowid_, oid)")
    before = schema(s)
    with pytest.raises(ConfigError, match="hides its rowid"):
        s.capture.setup([s.ref("t"), s.ref("bad")])
    assert schema(s) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v", "a view"),
        ("f", "a virtual table"),
        ("f_data", "an internal table"),
        ("sqlite_schema", "an internal table"),
        ("_tailrace_meta", "an internal table"),
    ],
)
def test_what_is_no_table_cannot_be_captured(source: Make, name: str, words: str) -> None:
    s = source(T, "CREATE VIEW v AS SELECT 1", "CREATE VIRTUAL TABLE f USING fts5(x)")
    for call in (lambda: s.capture.resolve([name]), lambda: s.capture.setup([s.ref(name)])):
        with pytest.raises(ConfigError, match=words):
            call()
    assert [f.code for f in s.capture.coverage([s.ref(name)])] == ["not_capturable"]
    assert s.capture.tables() == [s.ref("t")]


def test_an_unknown_name_brings_the_nearest_one(source: Make) -> None:
    s = source("CREATE TABLE Orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(ConfigError) as raised:
        s.capture.resolve(["oders"])
    assert raised.value.remedy == "did you mean Orders?"
    assert s.capture.resolve(["orders", "MAIN.ORDERS", "*"]) == [s.ref("Orders")]


def test_a_database_that_is_not_in_wal_mode_is_refused_and_left_alone(source: Make) -> None:
    s = source(T)
    s.run("PRAGMA journal_mode=DELETE")
    with pytest.raises(ConfigError) as raised:
        s.capture.setup([s.ref("t")])
    assert raised.value.remedy == f"sqlite3 {s.path} 'PRAGMA journal_mode=WAL'"
    assert "not_wal" in [f.code for f in s.capture.coverage([s.ref("t")])]
    with pytest.raises(ConfigError, match="WAL"):
        next(s.capture.live(Position("sqlite:x", 0), [s.ref("t")], consumer=CONSUMER))
    assert s.app.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_coverage_says_what_is_missing(source: Make) -> None:
    s = source(T, "CREATE TABLE k (x)")
    found = {(f.table, f.code, f.severity) for f in s.capture.coverage(s.capture.tables())}
    assert found == {
        ("main.t", "not_set_up", "error"),
        ("main.k", "not_set_up", "error"),
        ("main.k", "no_key", "warning"),
    }
    s.capture.setup(s.capture.tables())
    assert [f.code for f in s.capture.coverage([s.ref("t")])] == ["no_consumer"]
    s.capture.register(CONSUMER)
    assert s.capture.coverage([s.ref("t")]) == []


def test_a_lock_that_cannot_be_had_is_a_passing_fault_that_names_the_file(source: Make) -> None:
    s = source(T, busy_timeout=0.05)
    s.run("BEGIN IMMEDIATE")
    calls: list[Callable[[], object]] = [lambda: s.capture.setup([s.ref("t")]), s.capture.teardown]
    for call in calls:
        with pytest.raises(Transient, match=r"0\.db is locked"):
            call()
    s.run("COMMIT")


def test_a_read_only_file_is_named() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "r.db"
        app = sqlite3.connect(path)
        app.execute("PRAGMA journal_mode=WAL")
        app.execute(T)
        app.close()
        path.chmod(0o444)
        Path(directory).chmod(0o555)
        code = (
            "import sys\n"
            "from tailrace.capture.sqlite import SqliteCapture, SqliteConfig\n"
            "from tailrace.model.errors import ConfigError\n"
            "from tailrace.model.table import TableRef\n"
            "import os\n"
            "if os.getuid() == 0:\n    os.setuid(65534)\n"
            f"c = SqliteCapture(SqliteConfig.from_url('sqlite:{path}'))\n"
            "try:\n    c.setup([TableRef('main', 't')])\n"
            "except ConfigError as error:\n    print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        Path(directory).chmod(0o755)
    assert str(path) in done.stdout, done.stderr
    assert "remedy: give this user" in done.stdout


URLS = {
    "sqlite:": "must name a file",
    "sqlite::memory:": "must name a file",
    "postgres://x/y": "not a sqlite URL",
    "sqlite://host/x.db": "has no host",
    "sqlite:x.db?mode=rw": "no query",
    "sqlite:/no/such/file.db": "no file",
    "relative.db": "not a sqlite URL",
    "sqlite:not-\udcff-text.db": "not valid UTF-8",
}


@pytest.mark.parametrize("url", URLS)
def test_urls_that_name_no_database_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=URLS[url]):
        SqliteConfig.from_url(url)


def test_urls_in_every_form_find_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "with space#?.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    monkeypatch.chdir(tmp_path)
    encoded = str(path).replace(" ", "%20").replace("#", "%23").replace("?", "%3F")
    relative = "with%20space%23%3F.db"
    for url in (f"sqlite:{encoded}", f"sqlite://{encoded}", f"sqlite:{relative}", f"SQLite:{relative}"):
        config = SqliteConfig.from_url(url, {"timer": "0.5", "slice_rows": 10, "types": {"t.x": "long"}})
        assert (config.path, config.timer, config.slice_rows) == (path, 0.5, 10)
        assert SqliteCapture(config).tables()[0].name == "t"


def test_what_is_no_database_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database at all, only text that is long enough")
    (tmp_path / "empty").touch()
    for name, words in (("text", "not a SQLite database"), ("empty", "is empty"), (".", "is a directory")):
        with pytest.raises(ConfigError, match=words):
            SqliteConfig.from_url(f"sqlite:{tmp_path / name}")
    with pytest.raises(ConfigError):
        SqliteCapture(SqliteConfig(tmp_path / "missing")).tables()
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "options", [{"tiemr": 1}, {"timer": "x"}, {"timer": 0}, {"slice_rows": 1}, {"types": {"t.x": "int8"}}]
)
def test_options_that_make_no_sense_are_refused(source: Make, options: dict[str, object]) -> None:
    s = source(T)
    with pytest.raises(ConfigError):
        SqliteConfig.from_url(f"sqlite:{s.path}", options)
