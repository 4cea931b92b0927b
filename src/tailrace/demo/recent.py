"""The last changes that passed, for the eye: a feed sink that remembers a few."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from tailrace.model.change import ChangeBatch, Op
from tailrace.sinks.contract import FeedSink, Progress, Report

WORDS = {Op.INSERT: "insert", Op.UPDATE: "update", Op.DELETE: "delete"}
A_BATCH = 4


class Recent(FeedSink):
    """Keeps the last changes as short texts, and counts all of them by table."""

    def __init__(self, keep: int = 8) -> None:
        self._lock = threading.Lock()
        self._texts: deque[tuple[str, str, str]] = deque(maxlen=keep)
        self._counts: Counter[str] = Counter()

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:  # noqa: ARG002
        """Remember the last few of every batch."""
        with self._lock:
            for batch in batches:
                self._counts[batch.table.ref.name] += len(batch)
                first = max(0, len(batch) - A_BATCH)
                self._texts.extend(_text(batch, row) for row in batch.data.slice(first).to_pylist())
        return Report(written=sum(map(len, batches)))

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def texts(self) -> list[tuple[str, str, str]]:
        """Operation, table and row of the last changes, the newest last."""
        with self._lock:
            return list(self._texts)

    def counts(self) -> dict[str, int]:
        """How many changes of each table passed."""
        with self._lock:
            return dict(self._counts)


def _text(batch: ChangeBatch, row: dict[str, Any]) -> tuple[str, str, str]:
    image, key = row["after"] or row["before"] or {}, batch.table.identity
    shown, rest = _names(image, key), ""
    if row["op"] == Op.UPDATE:
        absent = row.get("before_absent") or ()
        old = {name: value for name, value in (row["before"] or {}).items() if name not in absent}
        if old and _names(old, key) != shown:
            shown = f"{_names(old, key)} → {shown}"
        rest = ", ".join(_changes({name: image[name] for name in image if name not in key}, old)[:2])
    return WORDS.get(Op(row["op"]), "row"), batch.table.ref.name, f"{shown}  {rest}".strip()


def _changes(image: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """What changed, and the new values of columns whose old ones the log does not have."""
    return [
        f"{name}: {old[name]} → {value}" if name in old else f"{name}: {value}"
        for name, value in image.items()
        if name not in old or old[name] != value
    ]


def _names(image: dict[str, Any], key: Sequence[str]) -> str:
    return "/".join(str(image.get(name)) for name in key)
