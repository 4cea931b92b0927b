"""The demonstration's course: start everything, show it, let it catch up, compare.

The pipeline runs on a thread of its own; the main thread draws, and takes the signals. Traffic is another
process, which is ended whatever happens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tailrace import app
from tailrace.cli.run import ABORTED, end_children, noise_into
from tailrace.cli.screen import WIDE
from tailrace.cli.watch import Watch
from tailrace.config import Config, load_config
from tailrace.demo import compare, place, rebuild, shop
from tailrace.demo.recent import Recent
from tailrace.demo.view import DocumentsPicture, Picture, TablePicture, line, render, result
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.progress import committed
from tailrace.engine.spec import Feed
from tailrace.model.errors import ConfigError, Transient

CATCH_UP_SECONDS = 120.0


class Runner(threading.Thread):
    """Spark and the pipeline."""

    def __init__(self, config: Config, watch: Watch, recent: Recent) -> None:
        super().__init__(name="demo-pipeline", daemon=True)
        self._config = config
        self._watch = watch
        self._recent = recent
        self._pipeline: Pipeline | None = None
        self._asked = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Start Spark, run the pipeline until it is stopped, stop Spark."""
        try:
            spec = app.pipeline_spec(self._config)
            feed = Feed(frozenset(mirror.table for mirror in spec.mirrors), self._recent, snapshot=False)
            spec = dataclasses.replace(spec, feeds=(feed,))
            with noise_into(app.spark_log_of(self._config)), app.spark_session(self._config) as spark:
                self._pipeline = Pipeline(
                    spec, spark, release=app.release(self._config), observer=self._watch
                )
                if not self._asked.is_set():
                    self._pipeline.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End after the batch in hand."""
        self._asked.set()
        if self._pipeline is not None:
            self._pipeline.request_stop()


class Show:
    """Collects what is shown."""

    def __init__(self, directory: Path, config: Config, seconds: float | None) -> None:
        self.directory = directory
        self.config = config
        self.seconds = seconds
        self.watch = Watch()
        self.recent = Recent()
        self.began = time.monotonic()
        self.first_rows: float | None = None
        self.state: str | None = None

    def picture(self) -> Picture:
        """This moment. The source and the mirrors are looked at anew."""
        look, now = self.watch.look(), time.monotonic()
        counts, tables = self.recent.counts(), []
        source = _source_rows(self.directory / "shop.db")
        for name in shop.TABLES:
            mirror = _mirror_rows(self.directory / "lake" / name)
            tables.append(TablePicture(name, source[name], mirror, counts.get(name, 0)))
        kept = rebuild.count(self.directory / "documents.db")
        documents = DocumentsPicture(rebuild.INDEX, source[rebuild.INDEX], kept, look.documents)
        if self.first_rows is None and any(table.mirror for table in tables):
            self.first_rows = now
        return Picture(
            state=self.state or look.state,
            elapsed=now - self.began,
            left=self._left(now),
            lag_changes=look.lag_changes,
            lag_seconds=look.lag_seconds,
            rate=look.rate,
            tables=tables,
            documents=documents,
            recent=self.recent.texts(),
        )

    def over(self) -> bool:
        """Whether the time is up: it counts from the first mirrored rows."""
        left = self._left(time.monotonic())
        return left is not None and self.first_rows is not None and left <= 0

    def _left(self, now: float) -> float | None:
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - (now - self.first_rows if self.first_rows is not None else 0))


def _source_rows(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    try:
        return {
            name: int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0])
            for name in shop.TABLES
        }
    finally:
        connection.close()


def _mirror_rows(path: Path) -> int | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not (path / "_delta_log").is_dir():
        return None
    try:
        return int(DeltaTable(str(path)).count())
    except DeltaError:
        # The table is being created at this very moment.
        return None


@contextlib.contextmanager
def traffic(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that trades in the shop; it is gone at the end."""
    # A session of its own: Ctrl-C is for this process, which then ends the traffic in its order.
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.demo.traffic", str(path)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and wait for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Display:
    """Draws pictures: over and over in place on a terminal, elsewhere a line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._last = 0.0
        if console.is_terminal:
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, picture: Picture) -> None:
        """Show a picture."""
        if self._live is not None:
            self._live.update(render(picture, self._spinner), refresh=True)
        elif time.monotonic() - self._last >= (1 if any(table.mirror for table in picture.tables) else 5):
            self._last = time.monotonic()
            self.console.print(Text(line(picture)), soft_wrap=True)


def perform(directory: Path, seconds: float | None) -> int:
    """The whole demonstration; the exit code."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    config = load_config(place.prepare(directory), environ={})
    console.print(
        Text(
            f"A shop in {directory}/shop.db, traffic from another process, mirrors in {directory}/lake,"
            f" documents in {directory}/documents.db."
        )
    )
    asked = _signals(console)
    show = Show(directory, config, seconds)
    runner = Runner(config, show.watch, show.recent)
    try:
        with traffic(directory / "shop.db") as trading, Display(console) as display:
            runner.start()
            _until(lambda: asked.is_set() or show.over() or not runner.is_alive(), show, display)
            show.state = "Traffic stopped; catching up"
            end(trading)
            if asked.is_set() and show.first_rows is None:
                console.print(Text("Stopped before the first rows were mirrored."))
                end_children()
                return 0
            if runner.is_alive():
                _catch_up(config, runner, show, display)
            show.state = "Stopping the pipeline"
            runner.stop()
            _until(lambda: not runner.is_alive(), show, display)
    finally:
        runner.stop()
        runner.join(30)
    if runner.error is not None:
        raise runner.error
    return judge(directory, console, show)


def _signals(console: Console) -> threading.Event:
    """Set by the first Ctrl-C or SIGTERM; the second leaves at once, with every process that was started."""
    asked = threading.Event()

    def handle(*_: object) -> None:
        if asked.is_set():
            if console.is_terminal:
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
            end_children()
            os._exit(ABORTED)
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return asked


def _until(condition: Any, show: Show, display: Display) -> None:
    while not condition():
        display.draw(show.picture())
        time.sleep(0.2)


def _catch_up(config: Config, runner: Runner, show: Show, display: Display) -> None:
    """Wait until everything that the source has now is committed."""
    with app.opened(config) as capture:
        head = capture.head()
    deadline = time.monotonic() + CATCH_UP_SECONDS

    def caught_up() -> bool:
        if not runner.is_alive():
            return True
        if time.monotonic() > deadline:
            raise Transient(f"the pipeline did not catch up within {CATCH_UP_SECONDS:.0f} s")
        last = committed(app.checkpoint_of(config))
        return (
            last is not None
            and last[1].position >= head
            and all(c.complete for c in last[1].snapshots.values())
        )

    _until(caught_up, show, display)


def judge(directory: Path, console: Console, show: Show) -> int:
    """Compare, tell, and give the exit code: 0 only if mirrors and documents are what the source says."""
    differences = compare.compare(directory / "shop.db", directory / "lake", shop.TABLES)
    differences.append(rebuild.compare(directory / "shop.db", directory / "documents.db"))
    console.print()
    console.print(result(differences))
    changes = sum(show.recent.counts().values())
    equal = all(found.equal for found in differences)
    first = (show.first_rows or show.began) - show.began
    console.print(
        Text(
            f"{changes:,} changes mirrored, {show.watch.look().documents:,} documents written; first rows"
            f" after {first:.1f} s; "
            + (
                "every mirror equals its table, every document its rebuild."
                if equal
                else "something is NOT equal to the source."
            ),
            style="bold green" if equal else "bold red",
        )
    )
    console.print(Text(_look_around(directory)), soft_wrap=True)
    return 0 if equal else 1


def _look_around(directory: Path) -> str:
    programs = Path(sys.executable).parent
    if programs.is_relative_to(Path.cwd()):
        programs = programs.relative_to(Path.cwd())
    lake, config = f"{directory}/lake/orders", shlex.quote(f"{directory}/tailrace.toml")
    # Not `to_pyarrow_table`: its threads may still run when the interpreter ends, and then abort it.
    return (
        f"\nLook around:\n  {programs}/tailrace status -c {config}\n"
        f"  {programs}/tailrace search -c {config} customers kettle\n"
        f"  {programs}/python\n"
        "  >>> from deltalake import DeltaTable, QueryBuilder\n"
        f'  >>> orders = QueryBuilder().register("orders", DeltaTable("{lake}"))\n'
        '  >>> orders.execute("select * from orders limit 5").read_all()'
    )


def seconds_from(environ: dict[str, str] | os._Environ[str]) -> float | None:
    """How long to run, from DEMO_SECONDS; None: until Ctrl-C."""
    text = environ.get("DEMO_SECONDS", "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ConfigError("DEMO_SECONDS is not a number of seconds", remedy="DEMO_SECONDS=20 make demo")
    return value
