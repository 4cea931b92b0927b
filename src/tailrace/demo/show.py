"""The demonstration's course: start everything, show it, let it catch up, compare.

The pipeline runs on a thread of its own; the main thread draws, and takes the signals. Traffic and servers
are other processes, which are ended whatever happens.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tailrace import app
from tailrace.app.parts import captured_tables
from tailrace.cli.run import ABORTED, end_children, noise_into
from tailrace.cli.screen import WIDE
from tailrace.cli.watch import Watch
from tailrace.config import Config
from tailrace.demo import compare, rebuild, shop
from tailrace.demo.database import Database, connect
from tailrace.demo.processes import Stopped, end, traffic
from tailrace.demo.recent import Recent
from tailrace.demo.stages import Asked, Stage
from tailrace.demo.store import INDEX
from tailrace.demo.view import DocumentsPicture, Picture, TablePicture, line, render, result
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.progress import committed
from tailrace.engine.spec import Feed
from tailrace.model.errors import ConfigError, Transient

CATCH_UP_SECONDS = 120.0


class Runner(threading.Thread):
    """Spark and the pipeline."""

    def __init__(self, stage: Stage, watch: Watch, recent: Recent) -> None:
        super().__init__(name="demo-pipeline", daemon=True)
        self._config = stage.config
        self._ready = stage.ready
        self._watch = watch
        self._recent = recent
        self._pipeline: Pipeline | None = None
        self._asked = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Start Spark, run the pipeline until it is stopped, stop Spark."""
        try:
            spec = app.pipeline_spec(self._config)
            with app.opened(self._config) as capture:
                tables = frozenset(captured_tables(self._config, capture))
            feed = Feed(tables, self._recent, snapshot=False)
            spec = dataclasses.replace(spec, feeds=(feed,))
            with noise_into(app.spark_log_of(self._config)), app.spark_session(self._config) as spark:
                self._watch.state("Waiting for what it needs")
                self._ready(self._asked.is_set)
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

    def __init__(self, stage: Stage, source: Database, seconds: float | None) -> None:
        self.stage = stage
        self.seconds = seconds
        self.watch = Watch()
        self.recent = Recent()
        self.began = time.monotonic()
        self.first_rows: float | None = None
        self.state: str | None = None
        self._source = source

    def picture(self) -> Picture:
        """This moment. The source, the mirrors and the store are looked at anew."""
        look, now, stage = self.watch.look(), time.monotonic(), self.stage
        counts, tables = self.recent.counts(), []
        source = shop.counts(self._source, stage.tables)
        for name in stage.tables:
            mirror = None if stage.lake is None else _mirror_rows(stage.lake / name)
            tables.append(TablePicture(name, source[name], mirror, counts.get(name, 0)))
        documents = DocumentsPicture(INDEX, source[INDEX], stage.store.count(), look.documents)
        shown = documents.kept if stage.lake is None else any(table.mirror for table in tables)
        if self.first_rows is None and shown:
            self.first_rows = now
        return Picture(
            names=stage.names,
            state=self.state or look.state,
            elapsed=now - self.began,
            left=self._left(now),
            lag_changes=look.lag_changes,
            lag_bytes=look.lag_bytes,
            lag_seconds=look.lag_seconds,
            rate=look.rate,
            tables=tables,
            documents=documents,
            recent=self.recent.texts(),
        )

    def over(self) -> bool:
        """Whether the time is up: it counts from the first rows or documents that arrived."""
        left = self._left(time.monotonic())
        return left is not None and self.first_rows is not None and left <= 0

    def _left(self, now: float) -> float | None:
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - (now - self.first_rows if self.first_rows is not None else 0))


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
        elif time.monotonic() - self._last >= (1 if picture.arrived else 5):
            self._last = time.monotonic()
            self.console.print(Text(line(picture)), soft_wrap=True)


def perform(
    directory: Path, seconds: float | None, stage: Callable[[Path, Asked], AbstractContextManager[Stage]]
) -> int:
    """The whole demonstration; the exit code."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    asked = _signals(console)
    try:
        with stage(directory, asked.is_set) as made, connect(made.shop, reading=True) as source:
            console.print(Text(made.told), soft_wrap=True)
            show = Show(made, source, seconds)
            _play(made, show, console, asked)
            return judge(made, console, show)
    except Stopped:
        console.print(Text("Stopped before anything was written."))
        end_children()
        return 0


def _play(stage: Stage, show: Show, console: Console, asked: threading.Event) -> None:
    """Run the pipeline until its time is up, and until it has caught up. Stopped where it had no time."""
    runner = Runner(stage, show.watch, show.recent)
    try:
        with traffic(stage.shop) as trading, Display(console) as display:
            runner.start()
            _until(lambda: asked.is_set() or show.over() or not runner.is_alive(), show, display)
            show.state = "Traffic stopped; catching up"
            end(trading)
            if asked.is_set() and show.first_rows is None:
                # Spark may be starting, which nothing else ends.
                end_children()
                raise Stopped
            if runner.is_alive():
                _catch_up(stage.config, runner, show, display)
            show.state = "Stopping the pipeline"
            runner.stop()
            _until(lambda: not runner.is_alive(), show, display)
    finally:
        runner.stop()
        runner.join(30)
    if runner.error is not None:
        raise runner.error


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


def _until(condition: Callable[[], bool], show: Show, display: Display) -> None:
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


def judge(stage: Stage, console: Console, show: Show) -> int:
    """Compare, tell, and give the exit code: 0 only if mirrors and documents are what the source says."""
    differences = [rebuild.compare(stage.shop, stage.store)]
    if stage.lake is not None:
        differences[:0] = compare.compare(stage.shop, stage.lake, stage.tables)
    console.print()
    console.print(result(differences, stage.names))
    changes = sum(show.recent.counts().values())
    equal = all(found.equal for found in differences)
    first = (show.first_rows or show.began) - show.began
    right = "every document equals its rebuild."
    if stage.lake is not None:
        right = "every mirror equals its table, every document its rebuild."
    console.print(
        Text(
            f"{changes:,} changes captured, {show.watch.look().documents:,} documents written; the first"
            f" after {first:.1f} s; " + (right if equal else "something is NOT equal to the source."),
            style="bold green" if equal else "bold red",
        )
    )
    console.print(Text(stage.afterwards), soft_wrap=True)
    return 0 if equal else 1


def seconds_from(environ: Mapping[str, str]) -> float | None:
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
