"""What happened in a life, action by action, in a file that replays it.

The first line says what kind of life it is; every further one is an action with all of its arguments, written
before it is done; the last one, where something was wrong, says what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

VERSION = 1


@dataclass(frozen=True)
class Action:
    """Something that is done to the product or its surroundings, with everything needed to do it again."""

    do: str
    with_: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.with_[name]

    def line(self) -> dict[str, Any]:
        return {"do": self.do, **self.with_}

    def __str__(self) -> str:
        text = json.dumps(self.with_, ensure_ascii=False)
        return f"{self.do} {text if len(text) < 200 else text[:200] + '…'}"


def action(do: str, **with_: Any) -> Action:
    """An action. Its arguments are what JSON can say, so that a trace says the same."""
    return Action(do, with_)


@dataclass(frozen=True)
class Trace:
    """A life as it was written down."""

    header: dict[str, Any]
    actions: list[Action]
    failure: dict[str, str] | None = None


class Recorder:
    """Writes a trace, line by line, each of them there before the action begins."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: TextIO = path.open("w")
        self._say({"life": VERSION, **header})

    def note(self, one: Action) -> None:
        self._say(one.line())

    def failed(self, oracle: str, message: str) -> None:
        self._say({"failed": oracle, "message": message})

    def close(self) -> None:
        self._file.close()

    def _say(self, body: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(body, ensure_ascii=False) + "\n")
        self._file.flush()


def read(path: Path) -> Trace:
    """The trace of a file; its last line may be torn, for whoever wrote it may have been killed."""
    lines = path.read_text().splitlines()
    bodies = []
    for number, line in enumerate(lines):
        try:
            bodies.append(json.loads(line))
        except ValueError:
            if number + 1 < len(lines):
                raise ValueError(f"{path}:{number + 1}: no line of a trace") from None
    if not bodies or bodies[0].get("life") != VERSION:
        raise ValueError(f"{path} is no trace of version {VERSION}")
    header, *rest = bodies
    failures = [body for body in rest if "failed" in body]
    actions = [Action(body.pop("do"), body) for body in rest if "do" in body]
    del header["life"]
    return Trace(header, actions, failures[-1] if failures else None)


def write(path: Path, header: Mapping[str, Any], actions: Iterable[Action]) -> None:
    """A trace of these actions."""
    recorder = Recorder(path, header)
    for one in actions:
        recorder.note(one)
    recorder.close()
