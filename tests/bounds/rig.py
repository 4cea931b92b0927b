"""A pipeline whose processes are weighed all the time it runs.

Each run is the real command, `tailrace run --once`, and what is weighed are its processes by their role:
the driver (the command itself), Spark's JVM, the capture beside it, and Spark's Python workers together. Of
memory that several processes share each counts its part.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, ROOT, environment
from tests.life.resources import MEGA, ROLES, memory_of, processes_of, size_of
from tests.support.waiting import PATIENCE

ALONE = [sys.executable, "-m", "tests.bounds.alone"]
# Looking takes time too, and takes it from whom is looked at: a twentieth of it at most.
EVERY, SHARE = 0.2, 20
# The JVM keeps what it once had, so what it may have is set. More than this it would have to be given.
HEAP_MB = 512
JVM_MB = 1100


@dataclass
class Usage:
    """The most that was used at any moment of a run: memory by role, and what lay in the changelog, in MB."""

    peaks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    changelog: float = 0.0
    kept: float = 0.0
    seconds: float = 0.0

    def look(self, pid: int, state: Path) -> None:
        """Weigh now."""
        for role, processes in processes_of(pid).items():
            self.peaks[role] = max(self.peaks[role], sum(map(memory_of, processes)) / MEGA)
        self.changelog = max(self.changelog, size_of(state / "changelog") / MEGA)

    def __str__(self) -> str:
        told = ", ".join(f"{role} {peak:.0f}" for role, peak in self.peaks.items())
        return f"{told} MB; changelog {self.changelog:.0f} MB at most; {self.seconds:.0f} s"


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

    def run(self, what: str, *, timeout: float = 240.0, extra: Mapping[str, str] | None = None) -> Usage:
        """Run until everything is written; what that took."""
        return self.follow(what, "--once", timeout=timeout, extra=extra)

    def follow(
        self,
        what: str,
        *options: str,
        timeout: float = 240.0,
        extra: Mapping[str, str] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Usage:
        """Run, with something done beside it, until the run ends by itself or `meanwhile` has ended."""
        usage, begun = Usage(), time.monotonic()
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [*self._command, *options],
                cwd=self.directory,
                env=environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", **(extra or {})),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        over = threading.Event()

        def weigh() -> None:
            pause = EVERY
            while not over.wait(pause):
                looked = time.process_time()
                usage.look(process.pid, self.state)
                pause = max(EVERY, SHARE * (time.process_time() - looked))

        scale = threading.Thread(target=weigh, daemon=True)
        scale.start()
        try:
            meanwhile()
            if "--once" not in options:
                process.terminate()
            code = process.wait(timeout * PATIENCE)
        finally:
            over.set()
            scale.join()
            if process.poll() is None:
                process.kill()
                process.wait()
        usage.kept = size_of(self.state / "changelog") / MEGA
        usage.seconds = time.monotonic() - begun
        print(f"{what}: {usage}", flush=True)  # noqa: T201 - the figures are what the test is for
        assert code == 0, f"{what}: exit code {code}\n{self.log.read_text()[-3000:]}"
        return usage


def bounded(
    small: Usage, large: Usage, *, ceilings: Mapping[str, float], ratio: float = 1.3, slack: float = 30.0
) -> None:
    """Nothing is above its ceiling, in MB, and the larger input takes no more than the smaller one.

    The JVM is not compared: it takes what it is given, whatever it has to do.
    """
    wrong = [
        f"{role} took {peak:.0f} MB, its ceiling is {ceilings[role]:.0f} MB"
        for role, peak in large.peaks.items()
        if peak > ceilings[role]
    ]
    for role in ("driver", "capture", "workers"):
        before, after = small.peaks[role], large.peaks[role]
        if after > max(before * ratio, before + slack):
            wrong.append(f"{role} grows with the input: from {before:.0f} to {after:.0f} MB")
    if wrong:
        pytest.fail("; ".join(wrong), pytrace=False)
