"""A pipeline's events as log lines, for people without a terminal and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO


class Level(StrEnum):
    """How much is told."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(StrEnum):
    """How a line looks."""

    text = "text"
    json = "json"


_ORDER = list(Level)
_LEVELS = {
    "batch.started": Level.debug,
    "mirror.applied": Level.debug,
    "pipeline.progress": Level.debug,
    "source.lag": Level.debug,
    "index.rejected": Level.warning,
    "sink.retry": Level.warning,
    "source.notice": Level.warning,
    "source.notice.over": Level.warning,
}


class LogLines:
    """An observer that writes one line an event. Levels below the chosen one are dropped."""

    def __init__(
        self,
        stream: TextIO,
        *,
        form: LogFormat = LogFormat.text,
        level: Level = Level.info,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stream = stream
        self._form = form
        self._least = _ORDER.index(level)
        self._now = now

    def event(self, name: str, **fields: Any) -> None:
        """Tell of an event."""
        level = _LEVELS.get(name, Level.info)
        if _ORDER.index(level) < self._least:
            return
        moment = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._form is LogFormat.json:
            body = {"ts": moment, "level": level.value, "event": name, **fields}
            line = json.dumps(body, ensure_ascii=False, default=str)
        else:
            words = " ".join(f"{key}={_shown(value)}" for key, value in fields.items())
            line = f"{moment} {level.value:<7} {name} {words}".rstrip()
        # One write a line: the pipeline's threads share the stream.
        self._stream.write(line + "\n")
        self._stream.flush()


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text.isprintable() or " " in text else text
