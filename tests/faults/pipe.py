"""One run of the pipeline under test: a process tree that is started, killed, stopped and waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
MARK = "TAILRACE_RIG"


class Pipe:
    """One run of the pipeline: a process tree that can be killed as a whole."""

    def __init__(self, directory: Path, settings: dict[str, Any], variables: dict[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = directory
        path = directory / f"settings-{self._mark[:8]}.json"
        path.write_text(json.dumps(settings))
        self.log = directory / f"child-{self._mark[:8]}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.child", str(path)],
                cwd=ROOT,
                env=environment(variables | {MARK: self._mark}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def tree(self) -> list[psutil.Process]:
        """Every process of this run: Spark puts the JVM and its workers into sessions of their own."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found

    def kill(self) -> None:
        """SIGKILL for everything. A pipeline that had ended by itself fails the test."""
        assert self.process.poll() is None, f"nothing to kill: it ended\n{self.tail()}"
        tree = self.tree
        assert self.process.pid in {process.pid for process in tree}
        self.signal(signal.SIGSTOP, tree)
        self.signal(signal.SIGKILL, tree)
        assert self.process.wait(timeout=30) == -signal.SIGKILL
        self.clear()

    def signal(self, number: signal.Signals, tree: Iterable[psutil.Process] | None = None) -> None:
        """A signal for everything."""
        for process in self.tree if tree is None else tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def clear(self) -> None:
        """Nothing of it is left."""

        def gone() -> bool:
            left = [process for process in self.tree if process.status() != psutil.STATUS_ZOMBIE]
            self.signal(signal.SIGKILL, left)
            return not left

        with contextlib.suppress(psutil.NoSuchProcess):
            wait_until(gone, timeout=30, what="the end of the process tree")

    def died(self, timeout: float = 60.0) -> None:
        """It killed itself at a point it was armed for."""
        assert self.process.wait(timeout=timeout * PATIENCE) == -signal.SIGKILL, self.tail()
        self.clear()

    def terminate(self, timeout: float = 60.0) -> dict[str, Any]:
        """SIGTERM, as an operator's stop; how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(timeout)

    def ended(self, timeout: float = 60.0) -> dict[str, Any]:
        """Wait for its end; how it ended."""
        try:
            code = self.process.wait(timeout=timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout:g} s\n{self.tail()}") from None
        path = self._directory / f"outcome-{self.process.pid}.json"
        assert path.exists(), f"it ended with {code} and left no outcome\n{self.tail()}"
        outcome: dict[str, Any] = json.loads(path.read_text())
        assert code == outcome["exit"]
        return outcome

    def tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]


def gone(pid: int) -> bool:
    """Whether a process has ended; who started it may not have noticed."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def environment(variables: dict[str, str]) -> dict[str, str]:
    """For processes of the rig: they import the product and these tests."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "default", **variables}
