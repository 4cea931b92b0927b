"""Who watches a runtime or a filler: one method, called with a name and fields.

Every error is told under its name before it is raised; progress is told the same way. An observer must be
quick and must not raise: it is called on the thread that does the work. Metrics and the dashboard are
observers. Fields hold names, counts and places, never a row's values.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Protocol

from tailrace.model.errors import TailraceError


class Observer(Protocol):
    """What a watcher offers."""

    def event(self, name: str, **fields: Any) -> None:
        """Something happened."""


class Silence:
    """The observer that is there when none is given."""

    def event(self, name: str, **fields: Any) -> None:
        """Nothing."""


class Recorder:
    """Keeps everything it is told, for tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, **fields: Any) -> None:
        """Remember it."""
        with self._lock:
            self.events.append((name, fields))

    def names(self) -> list[str]:
        """The names of all events, in order."""
        with self._lock:
            return [name for name, _ in self.events]

    def count(self, name: str) -> int:
        """How often an event of that name was told."""
        return Counter(self.names())[name]

    def fields(self, name: str) -> dict[str, Any]:
        """The fields of the last event of that name."""
        with self._lock:
            return next(fields for told, fields in reversed(self.events) if told == name)


def told(observer: Observer, name: str, error: BaseException) -> None:
    """Tell of an error under its name; the text only where it is ours, and so free of values."""
    message = error.message if isinstance(error, TailraceError) else type(error).__name__
    observer.event(name, error=type(error).__name__, message=message)
