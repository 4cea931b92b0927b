"""A pipeline whose processes are weighed all the time it runs.

It is the real command, `tailrace run`, and what is weighed are its processes by their role: the driver (the
command itself), Spark's JVM, the capture beside it, and Spark's Python workers together. A process alone in
its role counts with its high-water mark, which the kernel keeps, so no peak is too short to be seen. Workers
come, go and share memory: they are looked at again and again, and of what they share each counts its part.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from bench.usage import Watch
from tests.cli.command import COMMAND, ROOT, environment
from tests.life.resources import MEGA, ROLES, memory_of, processes_of, size_of
from tests.support.waiting import PATIENCE, wait_until

ALONE = [sys.executable, "-m", "tests.bounds.alone"]
# Looking takes time too, and takes it from whom is looked at: a twentieth of it at most.
EVERY, SHARE = 0.2, 20
# The JVM keeps what it once had, so what it may have is set. More than this it would have to be given.
HEAP_MB = 512
JVM_MB = 1100.0


@dataclass
class Usage:
    """The most that was used at any moment: memory by role, and what lay in the changelog, in MB."""

    peaks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    changelog: float = 0.0
    seconds: float = 0.0
    _marks: dict[int, Watch] = field(default_factory=dict)

    def look(self, pid: int, state: Path) -> None:
        """Weigh now. The first look at a process forgets the peaks it had before."""
        for role, processes in processes_of(pid).items():
            if role == "workers":
                highest = sum(map(memory_of, processes))
            else:
                highest = max(map(self._highest, processes), default=0.0)
            self.peaks[role] = max(self.peaks[role], highest / MEGA)
        self.changelog = max(self.changelog, size_of(state / "changelog") / MEGA)

    def _highest(self, process: psutil.Process) -> float:
        first = process.pid not in self._marks
        mark = self._marks.setdefault(process.pid, Watch(process.pid))
        mark.look([process], first=first)
        return float(mark.peak)

    def __str__(self) -> str:
        told = ", ".join(f"{role} {peak:.0f}" for role, peak in self.peaks.items())
        return f"{told} MB; changelog {self.changelog:.0f} MB at most; {self.seconds:.0f} s"


class Running:
    """A pipeline that runs."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, log: Path) -> None:
        self._process, self._state, self._log = process, state, log
        self._usage = Usage()
        self._over = threading.Event()
        self._scale = threading.Thread(target=self._weigh, daemon=True)
        self._scale.start()
        self._known = 0

    def _weigh(self) -> None:
        pause = EVERY
        while not self._over.wait(pause):
            looked = time.process_time()
            self._usage.look(self._process.pid, self._state)
            pause = max(EVERY, SHARE * (time.process_time() - looked))

    @property
    def rows(self) -> int:
        """How many changes it says that it has written."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return sum(line["rows"] for line in lines if line.get("event") == "batch.written")

    def ended(self, timeout: float) -> None:
        """Wait until it has ended well by itself."""
        code = self._process.wait(timeout * PATIENCE)
        assert code == 0, f"exit code {code}\n{self._log.read_text()[-3000:]}"

    def phase(
        self, what: str, rows: int, act: Callable[[], None] = lambda: None, *, timeout: float = 600.0
    ) -> Usage:
        """What is used from now on while something is done, until so many changes more are written."""
        self._usage, begun = (usage := Usage()), time.monotonic()
        self._known += rows
        act()

        def written() -> bool:
            if self._process.poll() is not None:
                pytest.fail(f"{what}: the run ended\n{self._log.read_text()[-3000:]}", pytrace=False)
            return self.rows >= self._known

        wait_until(written, timeout=timeout, interval=0.5, what=what)
        usage.seconds = time.monotonic() - begun
        return told(what, usage)

    def stop(self) -> None:
        """End it between two batches, and the weighing."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(60 * PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._over.set()
            self._scale.join()

    @property
    def usage(self) -> Usage:
        """What is used since the phase began."""
        return self._usage


def told(what: str, usage: Usage) -> Usage:
    """Print the figures: they are what the tests are for."""
    print(f"{what}: {usage}", flush=True)  # noqa: T201
    return usage


class Home:
    """A pipeline's directory."""

    def __init__(self, directory: Path, url: str, *, alone: bool = False) -> None:
        """With `alone` it runs in one process, with a stand-in for Spark."""
        self.directory, self._url = directory, url
        self._command = ALONE if alone else [*COMMAND, "run", "--log-format", "json"]
        self.state = directory / ".tailrace"
        self.lake = directory / "lake"
        self.log = directory / "run.log"

    def configure(self, tables: str, *, heap: int = HEAP_MB, name: str = "bounds") -> None:
        """Write the file; `tables` are the mirrors and whatever else it is to have."""
        text = f"""
name = "{name}"

[source]
url = {json.dumps(self._url)}

[spark]
"spark.driver.memory" = "{heap}m"

[sinks.lake]
type = "delta"
path = "lake"
{tables}
"""
        (self.directory / "tailrace.toml").write_text(text)

    @contextlib.contextmanager
    def running(self, *options: str) -> Iterator[Running]:
        """The pipeline, for as long as the block runs."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [*self._command, *options],
                cwd=self.directory,
                env=environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        running = Running(process, self.state, self.log)
        try:
            yield running
        finally:
            running.stop()

    def run(self, what: str, *, timeout: float = 240.0) -> Usage:
        """Run until everything is written; what that took."""
        begun = time.monotonic()
        with self.running("--once") as running:
            running.ended(timeout)
        running.usage.seconds = time.monotonic() - begun
        return told(what, running.usage)


def bounded(
    small: Usage, large: Usage, *, ceilings: Mapping[str, float], ratio: float = 1.3, slack: float = 30.0
) -> None:
    """Nothing is above its ceiling, in MB, and the larger input takes no more than the smaller one.

    What has no ceiling must not be there. The JVM is not compared: it takes what it is given, whatever it has
    to do.
    """
    wrong = [
        f"{role} took {peak:.0f} MB, its ceiling is {ceilings.get(role, 0.0):.0f} MB"
        for role, peak in large.peaks.items()
        if peak > ceilings.get(role, 0.0)
    ]
    wrong += [f"nobody saw the {role}" for role in ceilings if min(small.peaks[role], large.peaks[role]) <= 0]
    for role in ("driver", "capture", "workers"):
        before, after = small.peaks[role], large.peaks[role]
        if after > max(before * ratio, before + slack):
            wrong.append(f"{role} grows with the input: from {before:.0f} to {after:.0f} MB")
    if wrong:
        pytest.fail("; ".join(wrong), pytrace=False)
