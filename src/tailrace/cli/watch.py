"""What a person wants to know about a running pipeline, collected from its events."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RATE_WINDOW = 10.0


@dataclass
class TableCount:
    """What moved for one table since the run began."""

    changes: int = 0
    written: int = 0
    deleted: int = 0


@dataclass
class IndexCount:
    """What moved for one index since the run began, and whether it is being filled."""

    written: int = 0
    deleted: int = 0
    rejected: int = 0
    filling: bool = False


@dataclass(frozen=True)
class SnapshotLook:
    """How far a table's snapshot is; rows are estimates."""

    table: str
    state: str
    chunks_done: int
    chunks: int
    rows_done: int
    rows: int
    rate: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class Look:
    """The numbers at one moment."""

    state: str
    tables: dict[str, TableCount]
    batches: int
    changes: int
    rate: float
    lag_changes: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    chunks_done: int
    chunks: int
    last_batch_ago: float | None
    last_batch_seconds: float | None
    uptime: float
    trouble: str | None = None
    snapshots: tuple[SnapshotLook, ...] = ()
    indexes: dict[str, IndexCount] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """How many documents were written or deleted."""
        return sum(count.written + count.deleted for count in self.indexes.values())


@dataclass
class Watch:
    """An observer that adds up. Called on the pipeline's threads, looked at from the view's."""

    clock: Callable[[], float] = time.monotonic
    # Set by a signal handler, which must not wait for the lock.
    stopping: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._state = "Starting Spark"
        self._tables: dict[str, TableCount] = {}
        self._indexes: dict[str, IndexCount] = {}
        self._recent: deque[tuple[float, int]] = deque()
        self._began = self.clock()
        self._batches = self._changes = 0
        self._lag: dict[str, Any] = {}
        self._left = self._total = 0
        self._snapshots: tuple[SnapshotLook, ...] = ()
        self._last: tuple[float, float] | None = None
        self._retry: tuple[str, float] | None = None
        self._notices: dict[tuple[str, str | None], str] = {}

    def state(self, text: str) -> None:
        """Say what is going on now."""
        with self._lock:
            self._state = text

    def event(self, name: str, **fields: Any) -> None:
        """What the pipeline tells; an event that is not known here is no news."""
        with self._lock:
            match name:
                case "pipeline.started":
                    self._state = "Starting the query"
                case "pipeline.progress":
                    self._progress(fields.get("source"))
                case "batch.started":
                    self._state = "Writing"
                case "batch.written":
                    self._written(fields)
                case "mirror.applied":
                    count = self._count(_name(str(fields["table"])))
                    count.written += int(fields["written"])
                    count.deleted += int(fields["deleted"])
                case "index.filling":
                    self._index(fields).filling = True
                case "index.complete" | "index.kept":
                    self._index(fields).filling = False
                case "index.written":
                    index = self._index(fields)
                    index.written += int(fields["written"])
                    index.deleted += int(fields["deleted"])
                    index.rejected += int(fields["rejected"])
                case "sink.retry":
                    self._state = "Waiting for a sink"
                    self._retry = str(fields["message"]), self.clock() + float(fields["seconds"])
                case "source.notice" | "source.notice.over" | "snapshot.requested":
                    self._notice(name, fields)
                case "pipeline.stopped":
                    self._state = "Stopped"

    def look(self) -> Look:
        """The numbers now."""
        with self._lock:
            now = self.clock()
            while self._recent and self._recent[0][0] < now - RATE_WINDOW:
                self._recent.popleft()
            span = min(RATE_WINDOW, max(now - self._began, 1.0))
            return Look(
                state="Finishing the batch" if self.stopping and self._state != "Stopped" else self._state,
                tables={name: TableCount(**vars(count)) for name, count in self._tables.items()},
                batches=self._batches,
                changes=self._changes,
                rate=sum(rows for _, rows in self._recent) / span,
                lag_changes=self._lag.get("changes"),
                lag_bytes=self._lag.get("bytes"),
                lag_seconds=self._lag.get("seconds"),
                chunks_done=self._total - self._left,
                chunks=self._total,
                last_batch_ago=now - self._last[0] if self._last else None,
                last_batch_seconds=self._last[1] if self._last else None,
                uptime=now - self._began,
                trouble=self._trouble(now),
                snapshots=self._snapshots,
                indexes={name: IndexCount(**vars(count)) for name, count in self._indexes.items()},
            )

    def _notice(self, name: str, fields: dict[str, Any]) -> None:
        message = str(fields.get("message"))
        if name == "snapshot.requested":
            self._notices[name, _name(str(fields["table"]))] = f"read anew: {message}"
        elif name == "source.notice":
            self._notices[fields["code"], fields["table"]] = message
        else:
            self._notices.pop((fields["code"], fields["table"]), None)

    def _trouble(self, now: float) -> str | None:
        if self._retry is None:
            return "; ".join(self._notices.values()) or None
        message, again = self._retry
        when = f"next try in {again - now:.0f} s" if again > now else "trying again"
        return f"the sink does not answer: {message}; {when}"

    def _count(self, table: str) -> TableCount:
        return self._tables.setdefault(table, TableCount())

    def _index(self, fields: dict[str, Any]) -> IndexCount:
        return self._indexes.setdefault(str(fields["index"]), IndexCount())

    def _written(self, fields: dict[str, Any]) -> None:
        now = self.clock()
        self._retry = None
        self._batches += 1
        self._changes += int(fields["rows"])
        self._recent.append((now, int(fields["rows"])))
        for table, rows in fields["tables"].items():
            self._count(table).changes += rows
        for table in fields.get("anew", ()):
            self._notices.pop(("snapshot.requested", _name(table)), None)
        self._last = (now, float(fields["seconds"]))
        self._state = "Running"

    def _progress(self, source: Any) -> None:
        body = _object(source)
        if body is None:
            return
        if isinstance(body.get("lag"), dict):
            self._lag = body["lag"]
        if isinstance(body.get("snapshots"), list):
            self._snapshots = tuple(_snapshot(one) for one in body["snapshots"] if one["state"] != "stopped")
        left = body.get("chunks_left")
        if isinstance(left, int):
            self._left = left
            # A snapshot that begins later adds to what there is to do.
            self._total = max(self._total, left) if left else self._total
        if self._state == "Starting the query":
            self._state = "Running"


def _object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _snapshot(body: dict[str, Any]) -> SnapshotLook:
    numbers = {name: body[name] for name in SnapshotLook.__dataclass_fields__ if name != "table"}
    return SnapshotLook(table=_name(body["table"]), **numbers)


def _name(table: str) -> str:
    return table.partition(".")[2] or table
