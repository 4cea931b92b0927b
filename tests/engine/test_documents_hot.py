"""One row that touches very many documents: built and written in bounded pieces, acknowledged as one."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tailrace.sinks.contract import DocumentBatch, DocumentReport
from tailrace.sinks.sqlite import SqliteSink
from tests.cli.command import COMMAND, environment, tailrace
from tests.engine.documenting import Documents, filling
from tests.support.sparks import QUICK
from tests.support.waiting import wait_until

MEGABYTE = 1 << 20
SCHEMA = """
version: 1
table: customers
primary_key: id
fields:
  - long: id
  - text: name
  - belongs_to: home
    table: cities
    primary_key: id
    column: city
    fields: [{text: title}]
  - count: order_count
    table: orders
    foreign_key: customer
  - constant: padding
    value: PADDING
"""


def crowded(directory: Path, people: int, padding: int) -> Documents:
    """So many customers of one city, each document padded to about so many bytes."""
    made = Documents(directory)
    made.transaction(
        "INSERT INTO cities VALUES (1, 'Turin'), (2, 'Delft')",
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {people}) "
        "INSERT INTO customers SELECT i, 'customer ' || i, 1 FROM n",
    )
    # One word: the search over them is not what this is about.
    made.index("customers", SCHEMA.replace("PADDING", "x" * padding))
    return made


def strange(made: Documents) -> int:
    """How many documents are missing, extra or different, by plain SQL over both files."""
    with closing(sqlite3.connect(made.store, timeout=60)) as connection:
        connection.execute("ATTACH ? AS shop", (str(made.directory / "shop.db"),))
        (found,) = connection.execute(
            """
            WITH wanted AS (
                SELECT CAST(c.id AS TEXT) AS id, c.name, t.title,
                    (SELECT count(*) FROM shop.orders o WHERE o.customer = c.id) AS orders
                FROM shop.customers c LEFT JOIN shop.cities t ON t.id = c.city
            ), found AS (
                SELECT id, document ->> '$.name', document ->> '$.home.title', document ->> '$.order_count'
                FROM documents WHERE "index" = 'customers'
            )
            SELECT (SELECT count(*) FROM (SELECT * FROM wanted EXCEPT SELECT * FROM found))
                + (SELECT count(*) FROM (SELECT * FROM found EXCEPT SELECT * FROM wanted))
            """
        ).fetchone()
    return int(found)


MEANWHILE = (
    "UPDATE customers SET name = 'Ada' WHERE id % 1000 = 7",
    "INSERT INTO orders VALUES (1, 3, 5), (2, 4999, 5)",
    "UPDATE customers SET city = 2 WHERE id % 1000 = 8",
    "DELETE FROM customers WHERE id % 1000 = 9",
    "INSERT INTO customers VALUES (1000001, 'Grace', 1)",
)


def test_a_row_that_touches_thousands_of_documents_writes_them_in_pieces_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = 5_000
    made = crowded(tmp_path, people, 100)
    made.run()
    assert strange(made) == 0
    largest, busy = 0, threading.Event()
    original = SqliteSink.write

    def write(self: SqliteSink, batch: DocumentBatch) -> DocumentReport:
        nonlocal largest
        largest = max(largest, len(batch))
        if not busy.is_set():
            # They come while the first piece is on its way.
            busy.set()
            made.sql(*MEANWHILE)
        return original(self, batch)

    monkeypatch.setattr(SqliteSink, "write", write)
    made.sql("UPDATE cities SET title = 'Torino' WHERE id = 1")
    made.run()
    # Rows that went meanwhile have no document any more.
    assert [event["written"] + event["deleted"] for event in made.events("index.written")] == [people]
    assert largest <= 2_000, "in pieces"
    made.run()
    assert strange(made) == 0


class Peak:
    """The most memory that the processes of a tree had in common, as they were seen."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.python = self.java = 0

    def now(self) -> tuple[int, int]:
        python = java = 0
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                name, size = process.name(), process.memory_full_info().pss
                python, java = (python, java + size) if name == "java" else (python + size, java)
        return python, java

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(psutil.Error):
                python, java = self.now()
                self.python, self.java = max(self.python, python), max(self.java, java)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def begun(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "run.err").open("wb") as log:
        return subprocess.Popen(
            [*COMMAND, "run", "--log-format", "json"],
            cwd=directory,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


@contextlib.contextmanager
def running(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = begun(directory)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (directory / "run.err").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def killed(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for it and for all that it started, before any of them can tidy up."""
    root = psutil.Process(process.pid)
    tree = [root, *root.children(recursive=True)]
    for step in (psutil.Process.suspend, psutil.Process.kill):
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                step(one)
    assert process.wait(30) == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backfill", ["source", "spark"])
def test_spark_runs_that_are_killed_while_they_fill_go_on_with_it_and_end_right(
    tmp_path: Path, backfill: str
) -> None:
    people = 2_000
    made = Documents(tmp_path)
    made.transaction(*filling(people, 4_000, 6_000))
    made.index("customers", backfill=f'"{backfill}"')
    made.more = "[snapshot]\nrows_per_second = 150\n[spark]\n" + "".join(
        f'"{name}" = "{value}"\n' for name, value in QUICK.items()
    )
    made._write()
    done = 0
    for number in range(2):
        process = begun(tmp_path)
        try:
            wait_until(
                lambda: len(made.ids()) > done + 100 or process.poll() is not None,  # noqa: B023
                timeout=300,
                what="some documents",
            )
            assert process.poll() is None, (tmp_path / "run.err").read_text()[-3000:]
        finally:
            killed(process)
        assert len(made.ids()) >= done, "what was done stays done"
        done = len(made.ids())
        assert done < people, "it was not filled yet"
        made.transaction(
            f"DELETE FROM customers WHERE id % 97 = {number}",
            f"UPDATE orders SET customer = 7 WHERE id % 89 = {number}",
            f"DELETE FROM items WHERE id % 83 = {number}",
            f"UPDATE cities SET title = 'Torino {number}' WHERE id = 1",
        )
    made.more = made.more.replace("= 150", "= 100000")
    made._write()
    ended = tailrace(tmp_path, "run", "--once")
    assert ended.returncode == 0, ended.stderr
    made.check()
    assert made.status().indexes[0].state == "complete"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_a_row_that_touches_two_hundred_thousand_documents_takes_little_memory_and_one_batch(
    tmp_path: Path,
) -> None:
    people, padding = 200_000, 3_000
    made = crowded(tmp_path, people, padding)
    settings = {**QUICK, "spark.driver.memory": "512m"}
    made.more = "[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    made._write()

    with running(tmp_path) as process:

        def alive() -> bool:
            log = (tmp_path / "run.err").read_text()
            assert process.poll() is None, log[-3000:]
            return True

        def told(event: str) -> list[dict[str, Any]]:
            lines = (tmp_path / "run.err").read_text().splitlines()
            bodies = [json.loads(line) for line in lines if line.endswith("}")]
            return [body for body in bodies if body["event"] == event]

        wait_until(lambda: alive() and told("index.complete"), timeout=900, interval=0.5, what="the filling")
        assert strange(made) == 0
        with Peak(process.pid) as peak:
            rested = peak.now()
            written = len(told("index.written"))
            made.sql("UPDATE cities SET title = 'Torino' WHERE id = 1")
            with closing(sqlite3.connect(made.store)) as connection:
                (before,) = connection.execute("SELECT max(version) FROM documents").fetchone()
                wait_until(
                    lambda: connection.execute("SELECT max(version) FROM documents").fetchone()[0] > before,
                    timeout=300,
                    what="the first documents",
                )
            assert len(told("index.written")) == written, "it is on its way"
            made.sql(*MEANWHILE)
            with closing(made.source()) as connection:
                (head,) = connection.execute("SELECT seq FROM _tailrace_meta").fetchone()
            wait_until(
                lambda: alive() and any(body["position"] >= head for body in told("batch.written")),
                timeout=900,
                interval=0.5,
                what="all batches",
            )
        assert strange(made) == 0
        hot = max(body["written"] + body["deleted"] for body in told("index.written")[written:])
        assert hot == people, "one batch"
        grown = (peak.python - rested[0]) // MEGABYTE, (peak.java - rested[1]) // MEGABYTE
        total = people * padding // MEGABYTE
        sys.stdout.write(f"{total} MB of documents; Python grew by {grown[0]} MB, Java by {grown[1]} MB\n")
        # Two tasks and the driver; all documents together are 570 MB.
        assert grown[0] < total // 3, grown
        assert grown[1] < total // 3, grown
