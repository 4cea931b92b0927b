"""Processes of the demonstration's: started beside it, and gone with it, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.model.errors import NeedsOperator, Transient

START_SECONDS = 180.0

Process = subprocess.Popen[bytes]


class Stopped(Exception):
    """The person does not want to wait any longer."""


@contextlib.contextmanager
def traffic(shop: str) -> Iterator[Process]:
    """Another process that trades in the shop; it is gone at the end."""
    # A session of its own: Ctrl-C is for this process, which then ends the traffic in its order.
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.demo.traffic", shop],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


@dataclass(frozen=True)
class Server:
    """A server that is starting or has started."""

    name: str
    process: Process
    log: Path

    def wait(self, answers: Callable[[], bool], stopped: Callable[[], bool]) -> None:
        """Wait until it answers. Stopped where that is not wanted any more."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if stopped():
                raise Stopped
            if answers():
                return
            if self.process.poll() is not None:
                raise NeedsOperator(f"{self.name} ended while it started", remedy=f"see {self.log}")
            if time.monotonic() > deadline:
                raise Transient(f"{self.name} does not answer", remedy=f"see {self.log}")
            time.sleep(0.1)


@contextlib.contextmanager
def server(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    user: str | None = None,
    ended_by: signal.Signals = signal.SIGTERM,
    remove: Path | None = None,
) -> Iterator[Server]:
    """A server under guard; it is gone at the end, and with it a directory that is to be removed."""
    guard = [sys.executable, "-m", "tailrace.demo.guard", "--parent", str(os.getpid())]
    guard += ["--end", ended_by.name]
    for option, value in (("--user", user), ("--remove", remove)):
        guard += [] if value is None else [option, str(value)]
    # Where it is does not matter: its paths are absolute, and ours may not be another user's to be in.
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )
    try:
        yield Server(name, process, log)
    finally:
        end(process)


def end(process: Process) -> None:
    """Stop a process and wait for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
