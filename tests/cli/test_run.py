"""`tailrace run` for real: three runs of one pipeline, each a process, each stopped in another way."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from tests.cli.command import COMMAND, MIRRORS, environment, make_shop, processes_naming, tailrace
from tests.support.sparks import QUICK
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SPARK = "\n[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in QUICK.items())
CONFIG = MIRRORS + SPARK + '\n[[feed]]\ntables = ["orders"]\nsink = "out"\n\n[sinks.out]\ntype = "stdout"\n'


def source(directory: Path, table: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(directory / "shop.db", timeout=10)
    try:
        return sorted((row[0], row[1]) for row in connection.execute(f'SELECT * FROM "{table}"'))
    finally:
        connection.close()


def mirrored(directory: Path, table: str) -> list[tuple[Any, ...]]:
    read = DeltaTable(str(directory / "lake" / table)).to_pyarrow_table()
    return sorted(zip(read.column(0).to_pylist(), read.column(1).to_pylist(), strict=True))


def status(directory: Path) -> dict[str, Any]:
    return dict(json.loads(tailrace(directory, "status", "--format", "json").stdout))


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Changes all the time, until left."""
    done = threading.Event()

    def write() -> None:
        connection = sqlite3.connect(directory / "shop.db", timeout=10)
        number = 1000
        while not done.wait(0.02):
            number += 1
            with connection:
                connection.execute("INSERT INTO orders VALUES (?, 1, 5)", (number,))
                connection.execute("UPDATE customers SET name = ? WHERE id = 1", (f"Ada {number}",))
                connection.execute("DELETE FROM orders WHERE id = ?", (number - 3,))
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Terminal:
    """The command on a terminal of its own: what it shows, and a hand on Ctrl-C."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.shown = b""
        self.began = time.monotonic()
        self.first: float | None = None
        pid, self._descriptor = pty.fork()
        if pid == 0:
            os.chdir(directory)
            out = os.open("run.out", os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(out, 1)
            command = [*COMMAND, *arguments]
            os.execvpe(command[0], command, environment(TERM="xterm", COLUMNS="100"))  # noqa: S606
        self.pid = pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._descriptor, 65536)
            except OSError:
                return
            if not part:
                return
            self.first = self.first or time.monotonic()
            self.shown += part

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown.decode(errors="replace"))

    def interrupt(self) -> None:
        """Ctrl-C, which a terminal sends to every process in its foreground."""
        os.write(self._descriptor, b"\x03")

    def wait(self, timeout: float) -> int:
        code: list[int] = []

        def ended() -> bool:
            pid, state = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code.append(os.waitstatus_to_exitcode(state))
            return bool(pid)

        wait_until(ended, timeout=timeout, what="the end of the command")
        return code[0]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._descriptor)


@pytest.mark.timeout(800)
def test_a_pipeline_is_run_once_then_live_on_a_terminal_then_stopped_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text(CONFIG)

    # Once: data on the standard output, nothing else there; our words and not Spark's on the standard error.
    done = tailrace(tmp_path, "run", "--once", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    changes = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(change["op"] for change in changes) == ["r", "r", "s"]
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[0] == "spark.starting"
    assert events[-1] == "pipeline.stopped"
    for table in ("customers", "orders"):
        assert mirrored(tmp_path, table) == source(tmp_path, table)
    found = status(tmp_path)
    assert found["running"] is None
    assert found["acknowledged"] == found["position"] == found["head"]
    assert [table["snapshot"] for table in found["tables"]] == ["complete", "complete"]

    # On a terminal, with traffic: a live view, a snapshot asked for meanwhile, Ctrl-C inside a batch.
    with writing(tmp_path):
        terminal = Terminal(tmp_path, "run")
        try:
            wait_until(lambda: "Starting Spark" in terminal.text)
            wait_until(lambda: "rows written" in terminal.text, timeout=240, what="the live view")
            running = status(tmp_path)
            assert f"run by process {terminal.pid}" in str(running["running"])
            assert "the running pipeline" in tailrace(tmp_path, "snapshot", "-t", "customers").stdout
            # Every look is a process, and takes from the pipeline what it waits for.
            wait_until(
                lambda: not tailrace(tmp_path, "snapshot", "--list").stdout.count("customers"), interval=1.0
            )
            second = tailrace(tmp_path, "run")
            assert second.returncode == 3
            assert str(terminal.pid) in second.stderr
            terminal.interrupt()
            assert terminal.wait(60) == 0
        finally:
            terminal.close()
    assert "stopped: " in terminal.text
    assert "Traceback" not in terminal.text
    assert "WARN" not in terminal.text
    told = [json.loads(line) for line in (tmp_path / "run.out").read_text().splitlines()]
    assert any(change["op"] == "d" for change in told)

    # Again: only what came after the stop; SIGTERM ends it with 0.
    # Into files: a pipe that nobody reads is full some day, and then the command stands still.
    with (tmp_path / "again.out").open("w") as out, (tmp_path / "again.err").open("w") as err:
        process = subprocess.Popen(
            [*COMMAND, "run", "--log-level", "debug"], cwd=tmp_path, env=environment(), stdout=out, stderr=err
        )
    try:
        wait_until(
            lambda: mirrored(tmp_path, "orders") == source(tmp_path, "orders"), timeout=240, interval=0.2
        )
        wait_until(lambda: status(tmp_path)["lag"]["changes"] == 0, interval=1.0)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    errors = (tmp_path / "again.err").read_text()
    assert process.returncode == 0, errors
    assert "WARN" not in errors
    seen = {(change["position"], change["seq"]) for change in told}
    again = [json.loads(line) for line in (tmp_path / "again.out").read_text().splitlines()]
    assert not seen & {(change["position"], change["seq"]) for change in again}
    for table in ("customers", "orders"):
        assert mirrored(tmp_path, table) == source(tmp_path, table)


@pytest.mark.timeout(200)
def test_a_start_that_is_interrupted_leaves_no_process_behind(tmp_path: Path) -> None:
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text('name = "ended-early"\n' + MIRRORS + SPARK)

    def machines() -> list[psutil.Process]:
        found = []
        for process in processes_naming(tmp_path):
            # One may end while it is looked at.
            with contextlib.suppress(psutil.NoSuchProcess):
                if "java" in process.name():
                    found.append(process)
        return found

    terminal = Terminal(tmp_path, "run")
    try:
        wait_until(machines, what="a JVM")
        terminal.interrupt()
        assert terminal.wait(60) == 0
    finally:
        terminal.close()
    wait_until(lambda: not machines())
