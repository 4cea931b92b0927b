"""A scripted source with one table, and runtimes on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace.capture.scripted import ScriptedCapture, ScriptedSource
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableRef
from tailrace.runtime.checkpoint import Checkpoint, CheckpointStore
from tailrace.runtime.delivery import Delivery, Piece
from tailrace.runtime.observer import Recorder
from tailrace.runtime.runtime import Runtime


def row(number: int, name: str = "n") -> dict[str, Any]:
    return {"id": number, "name": name}


class Bench:
    """One source, one state directory, and as many lives of a runtime as a test wants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = ScriptedSource()
        self.items = self.source.table("items")
        self.observer = Recorder()
        self.capture = ScriptedCapture(self.source)

    def store(self) -> CheckpointStore:
        return CheckpointStore(str(self.path), "test")

    @property
    def checkpoint_file(self) -> Path:
        return self.path / "runtime" / "test" / "checkpoint.json"

    def stored(self) -> Checkpoint:
        loaded = self.store().load()
        assert loaded is not None
        return loaded

    def write(self, checkpoint: Checkpoint) -> None:
        store = self.store()
        store.acquire()
        store.save(checkpoint)
        store.release()
        self.source.cursors.setdefault("test", checkpoint.position.version)

    def runtime(self, tables: list[TableRef | str] | None = None, **settings: Any) -> Runtime:
        settings.setdefault("mode", "changes")
        settings.setdefault("wait", 0.01)
        settings.setdefault("store", self.store())
        chosen = [self.items] if tables is None else tables
        return Runtime(self.capture, chosen, consumer="test", observer=self.observer, **settings)

    def started(self, **settings: Any) -> Runtime:
        runtime = self.runtime(**settings)
        runtime.start()
        return runtime


def rows_of(taken: Delivery | Piece | ChangeBatch | None) -> list[tuple[str, int | None]]:
    """(op, id) of every change, in order."""
    assert taken is not None
    batches = (taken,) if isinstance(taken, ChangeBatch) else taken.batches
    found: list[tuple[str, int | None]] = []
    for batch in batches:
        for change in batch.data.to_pylist():
            image = change["after"] or change["before"]
            found.append((change["op"], image["id"] if image else None))
    return found


def drain(runtime: Runtime) -> list[tuple[str, int | None]]:
    """Poll and acknowledge until nothing comes."""
    found: list[tuple[str, int | None]] = []
    while delivery := runtime.poll(0.05):
        found += rows_of(delivery)
        if delivery.complete:
            runtime.acknowledge(delivery.token)
    return found
