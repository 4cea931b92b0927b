"""A contestant is a process of its own, so that its CPU seconds and memory are its own.

It takes commands as lines of JSON on standard input and answers each with one line on a pipe of its own: what
JVMs and libraries print goes to a log file and cannot disturb the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from bench.results import RESULTS

Answer = dict[str, Any]
PATIENCE = 900


class Failed(Exception):
    """A contestant ended, or answered with an error."""


class Contestant:
    """The parent's side."""

    def __init__(self, name: str, module: str, home: Path) -> None:
        self.name = name
        self._log = home / f"{name}.log"
        place = home / name
        place.mkdir()
        root = str(Path(__file__).parent.parent)
        reading, writing = os.pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(writing), str(place)],
                # Some write files into the directory they are started in.
                cwd=place,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
                },
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
            )
        os.close(writing)
        self._answers = os.fdopen(reading, "r")

    @property
    def pid(self) -> int:
        """The process at the root of it."""
        return self._process.pid

    def ask(self, verb: str, **arguments: Any) -> Answer:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} ended:\n{self._tail()}") from None
        # One answer a command, so nothing waits in the buffer.
        if not select.select([self._answers], [], [], PATIENCE)[0]:
            kept = stacks(self.pid, self.name)
            self._process.kill()
            told = f"{self.name} gave no answer within {PATIENCE} seconds; what it did stands in {kept}"
            raise Failed(f"{told}\n{self._tail()}")
        line = self._answers.readline()
        if not line:
            raise Failed(f"{self.name} ended:\n{self._tail()}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it and everything below it."""
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self.pid).children(recursive=True)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(below, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._answers.close()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def stacks(pid: int, name: str) -> Path:
    """Where all threads of a process and of those below it are, as a file that is kept."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        found = [top, *top.children(recursive=True)]
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"stacks-{name}.txt"
    spy = str(Path(sys.executable).with_name("py-spy"))
    with file.open("w", encoding="utf-8") as told:
        for process in found:
            with contextlib.suppress(psutil.Error, OSError, subprocess.TimeoutExpired):
                kind, times = process.name(), process.cpu_times()
                told.write(
                    f"\n== {process.pid} below {process.ppid()}: {kind}, {process.status()}, {times}\n"
                )
                told.flush()
                looks = {"java": ["jcmd", str(process.pid), "Thread.print"]}
                look = looks.get(kind, [spy, "dump", "--pid", str(process.pid)])
                subprocess.run(look, stdout=told, stderr=told, timeout=30, check=False)
    return file


def serve(verbs: Mapping[str, Callable[..., Answer | None]]) -> None:
    """The child's side: answer commands until standard input ends."""
    descriptor = int(sys.argv[1])
    verbs = {"finish": lambda **_: None, **verbs}
    os.set_inheritable(descriptor, False)
    with os.fdopen(descriptor, "w") as answers:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = verbs[command.pop("verb")](**command) or {}
            except Exception as error:
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
