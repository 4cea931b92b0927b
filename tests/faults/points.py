"""Points at which a pipeline under test can be met: announced in files, armed before the act.

The test writes `armed-<point>` into a directory that every process of the pipeline knows from its environment
(Spark's workers inherit it). The first process that reaches the point with the facts asked for claims the
file by renaming it to `struck-<point>`, writes down who it is, and then kills itself, or waits there until
the test says `go-<point>`. A rename has one winner, so a point strikes once.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Literal

from tests.support.waiting import wait_until

VARIABLE = "TAILRACE_FAULTS"
GIVE_UP = 300.0
Action = Literal["kill", "block", "note"]


class Points:
    """The test's side: arm, wait, let go."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def arm(
        self, point: str, action: Action = "block", *, least: dict[str, int] | None = None, **facts: Any
    ) -> None:
        """The next process at `point` with these facts (and numbers of at least `least`) is struck."""
        for stale in ("struck", "go"):
            (self._directory / f"{stale}-{point}").unlink(missing_ok=True)
        body = {"action": action, "facts": facts, "least": least or {}}
        temporary = self._directory / f"new-{point}"
        temporary.write_text(json.dumps(body))
        temporary.rename(self._directory / f"armed-{point}")

    def met(self, point: str) -> bool:
        """Whether somebody was struck there and said who."""
        try:
            return "pid" in json.loads((self._directory / f"struck-{point}").read_text())
        except (FileNotFoundError, ValueError):
            return False

    def facts(self, point: str) -> dict[str, Any]:
        """Who was struck, and with which facts."""
        found: dict[str, Any] = json.loads((self._directory / f"struck-{point}").read_text())
        return found

    def go(self, point: str) -> None:
        """Let whoever waits at the point go on."""
        (self._directory / f"go-{point}").touch()

    def happened(self, bug: str) -> bool:
        """Whether a bug that is to happen once did."""
        return (self._directory / f"once-{bug}").exists()

    def disarm(self, point: str) -> None:
        """Nobody is to be struck there any more."""
        (self._directory / f"armed-{point}").unlink(missing_ok=True)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """What the pipeline noted under a name, in order."""
        try:
            lines = (self._directory / f"notes-{name}").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def tell(self, name: str, text: str) -> None:
        """Leave a word that the pipeline looks for."""
        temporary = self._directory / f"new-{name}"
        temporary.write_text(text)
        temporary.rename(self._directory / f"told-{name}")


def once(name: str) -> bool:
    """True for one caller among all processes: for a bug that is to happen one single time."""
    if VARIABLE not in os.environ:
        return False
    try:
        Path(os.environ[VARIABLE], f"once-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def note(name: str, **facts: Any) -> None:
    """The pipeline's side: write down what is about to happen, and when."""
    if VARIABLE in os.environ:
        line = json.dumps({"at": time.time(), "pid": os.getpid(), **facts})
        with Path(os.environ[VARIABLE], f"notes-{name}").open("a") as file:
            file.write(line + "\n")


def told(name: str) -> str | None:
    """The pipeline's side: the word that the test left, if it did."""
    if VARIABLE not in os.environ:
        return None
    try:
        return Path(os.environ[VARIABLE], f"told-{name}").read_text()
    except FileNotFoundError:
        return None


def reach(point: str, **facts: Any) -> None:
    """The pipeline's side: be at a point."""
    if VARIABLE not in os.environ:
        return
    directory = Path(os.environ[VARIABLE])
    armed, struck = directory / f"armed-{point}", directory / f"struck-{point}"
    try:
        body = json.loads(armed.read_text())
    except FileNotFoundError:
        return
    if any(facts.get(name) != value for name, value in body["facts"].items()):
        return
    if any(facts.get(name, -1) < value for name, value in body["least"].items()):
        return
    try:
        armed.rename(struck)
    except FileNotFoundError:
        return
    text = json.dumps({"pid": os.getpid(), **facts})
    temporary = directory / f"struck-{point}.new"
    temporary.write_text(text)
    temporary.rename(struck)
    if body["action"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if body["action"] == "block":
        go = directory / f"go-{point}"
        wait_until(go.exists, timeout=GIVE_UP, interval=0.005, what=f"letting go of {point}")
