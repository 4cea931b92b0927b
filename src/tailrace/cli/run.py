"""`tailrace run`: start Spark, run the pipeline, leave between two batches.

A signal asks the pipeline to stop after its batch; before there is a pipeline it ends the start. The second
Ctrl-C leaves at once: the batch in hand comes again at the next start, and sinks skip what they have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.lines import Level, LogFormat, LogLines
from tailrace.cli.live import LiveView
from tailrace.cli.memory import use_few_arenas
from tailrace.cli.options import ConfigPath, LockPath, load
from tailrace.cli.screen import Screen, counted
from tailrace.cli.watch import Watch

if TYPE_CHECKING:
    from tailrace.app import Renewal
    from tailrace.config import Config
    from tailrace.engine.pipeline import Pipeline, RunResult
    from tailrace.runtime.observer import Observer

ABORTED = 130
PATIENCE = 5.0
RENEWAL_PATIENCE = 60.0


class DataLoss(StrEnum):
    """What a run does where the log has a gap."""

    stop = "stop"
    snapshot = "snapshot"


def command(
    context: typer.Context,
    config: ConfigPath = None,
    locked: LockPath = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Write everything the source has now, then exit.")
    ] = False,
    on_data_loss: Annotated[
        DataLoss | None,
        typer.Option(
            help="When the source no longer has the changes that come next: stop, or take a fresh snapshot"
            " and go on. Default: as configured."
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How log lines look; with `json` there is no live view.")
    ] = LogFormat.text,
    log_level: Annotated[Level, typer.Option(help="The least important lines to show.")] = Level.info,
) -> None:
    """Run the pipeline: keep every mirror, feed and index in step with the source, until stopped.

    Data goes to the standard output (a stdout feed), everything else to the standard error: a live view on a
    terminal, log lines otherwise. SIGTERM and Ctrl-C finish the batch in hand and exit with 0; a restart then
    repeats nothing. A second Ctrl-C leaves at once (130). Spark's own log is in the state directory.

    A table that is added to the file meanwhile is taken up between two batches: on SIGHUP, or when `tailrace
    snapshot --table` asks for it. The others go on where they are. On a terminal SIGHUP stops the run.

    Examples: `tailrace run`, `tailrace run --once --log-format json`, `tailrace run --locked tailrace.lock`
    """
    use_few_arenas()
    from tailrace import app

    loaded = load(context, config, locked)
    loss = on_data_loss.value if on_data_loss else None
    spec = app.pipeline_spec(loaded, on_data_loss=loss)
    # A predecessor may be on its last batch; whoever stays is named before Spark is started in vain.
    app.refuse_while_running(loaded, patience=PATIENCE)
    screen = Screen()
    watch = Watch()
    lines = LogLines(screen.stream, form=log_format, level=log_level)
    with contextlib.closing(screen), Stopper(watch, screen) as stopper:
        if screen.watched and log_format is LogFormat.text and not _mixes(loaded):
            with LiveView(watch, screen.console, loaded.name):
                result = _run(app.Renewal(loaded, spec, watch, on_data_loss=loss), once, watch, stopper)
        else:
            lines.event("spark.starting", log=str(app.spark_log_of(loaded)))
            both = _Both(watch, lines)
            result = _run(app.Renewal(loaded, spec, both, on_data_loss=loss), once, both, stopper)
        if result is not None and screen.watched:
            done = "caught up" if once and not stopper.asked else "stopped"
            screen.stream.write(
                f"{done}: {counted(result.rows, 'change')} in {counted(result.batches, 'batch', 'batches')}\n"
            )


def _mixes(config: Config) -> bool:
    """Whether data and a live view would meet on one terminal."""
    used = {feed.sink for feed in config.feeds}
    used.update(*(index.sinks for index in config.indexes if index.enabled))
    return any(config.sinks[name].type == "stdout" for name in used) and sys.stdout.isatty()


def _run(renewal: Renewal, once: bool, observer: Observer, stopper: Stopper) -> RunResult | None:
    from tailrace import app
    from tailrace.engine.pipeline import Pipeline
    from tailrace.spark.forgetting import forget_queries

    def made() -> Pipeline:
        release = app.release(renewal.config)
        renew = None if once else renewal.due
        return Pipeline(renewal.spec, spark, release=release, observer=observer, renew=renew)

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(noise_into(app.spark_log_of(renewal.config)))
            spark = stack.enter_context(app.spark_session(renewal.config))
            stopper.attach(pipeline := made(), renewal)
        except (StartEnded, KeyboardInterrupt):
            # The second is how the handler that Spark's start installs says the same.
            end_children()
            return None
        batches = rows = 0
        while True:
            spec = renewal.spec
            result = pipeline.run(once=once)
            batches, rows = batches + result.batches, rows + result.rows
            if stopper.asked or renewal.spec is spec:
                return dataclasses.replace(result, batches=batches, rows=rows)
            # The former query's reader lets go of the state a moment after its end.
            app.refuse_while_running(renewal.config, patience=RENEWAL_PATIENCE)
            renewal.settle()
            forget_queries(spark)
            stopper.attach(pipeline := made(), renewal)


class StartEnded(BaseException):
    """A stop was asked for before there was a pipeline. Not an Exception: nobody on the way may take it."""


class Stopper:
    """The signals of a run."""

    def __init__(self, watch: Watch, screen: Screen) -> None:
        self.asked = False
        self._watch = watch
        self._screen = screen
        self._pipeline: Pipeline | None = None

    def __enter__(self) -> Stopper:
        self._install()
        return self

    def __exit__(self, *_: object) -> None:
        # What is left to do is quick, and must not end in the middle with a traceback.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def attach(self, pipeline: Pipeline, renewal: Renewal) -> None:
        """From now on a signal stops this pipeline. Spark's start has put a handler of its own there."""
        self._pipeline = pipeline
        self._install()
        if self._screen.watched:
            # Its terminal is gone.
            signal.signal(signal.SIGHUP, self._handle)
        elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda *_: renewal.ask())
        if self.asked:
            # Between two queries of one run.
            pipeline.request_stop()

    def _install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            # The view's lock may be held by the code that was interrupted, so the cursor is shown by hand.
            if self._screen.watched:
                os.write(self._screen.stream.fileno(), b"\x1b[?25h\n")
            os._exit(ABORTED)
        first, self.asked = not self.asked, True
        if self._pipeline is not None:
            self._watch.stopping = True
            self._pipeline.request_stop()
        elif first:
            raise StartEnded


def end_children() -> None:
    """End a JVM that was interrupted while it started: it would wait for this process for ever."""
    import psutil

    def living() -> list[psutil.Process]:
        # The dead are left to whoever started them, and waits for them.
        children = psutil.Process().children(recursive=True)
        return [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    with contextlib.suppress(psutil.NoSuchProcess):
        while children := living():
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            time.sleep(0.02)


class _Both:
    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def event(self, name: str, **fields: Any) -> None:
        for observer in self._observers:
            observer.event(name, **fields)


@contextlib.contextmanager
def noise_into(path: Path) -> Iterator[None]:
    """What pyspark prints and logs in this process goes to Spark's log; the screen has its own way out."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The bridge to Java logs lost connections at the root; without a handler they would be shown.
    logging.getLogger().addHandler(logging.FileHandler(path, delay=True))
    sys.stderr.flush()
    saved, log = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # Until Spark's source owns the state, this is how `tailrace status` knows of a run. A descriptor of its
    # own, which no child inherits: the lock ends with this process, however it ends.
    held = os.open(path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    os.dup2(log, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        for descriptor in (saved, log, held):
            os.close(descriptor)
