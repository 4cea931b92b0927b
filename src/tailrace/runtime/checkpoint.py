"""What a runtime remembers between two lives: where it stands, and how far its snapshot is.

`Checkpoint` is a value; `CheckpointStore` keeps one in a state file (version, checksum, atomic, mode 0600:
see `changelog.statefile`). None means that there never was one. A checkpoint that is there and cannot be
trusted is StateUnreadable: nothing here turns a fault into "begin anew".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import quote_plus

from tailrace.capture.contract import Chunk
from tailrace.changelog.filesystem import make_directory, open_filesystem
from tailrace.changelog.owner import Ownership
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import ConfigError, StateUnreadable, UsageError
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.runtime import resume
from tailrace.runtime.history import FILE, SchemaHistory
from tailrace.runtime.observer import Observer

Order = Literal["interleaved", "first"]
ORDERS: tuple[str, ...] = get_args(Order)
KIND = "runtime-checkpoint"


@dataclass(frozen=True)
class Cursor:
    """How far the snapshot of one table is: chunks before `next` are confirmed.

    The chunks' bounds are kept, so that a resumed snapshot reads exactly the ranges that are left. A cursor
    without a plan is a table whose snapshot has not begun.
    """

    table: TableRef
    plan: str = ""
    next: int = 0
    of: int = 0
    chunks: tuple[Chunk, ...] = ()
    generation: str = ""
    complete: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON object; a complete cursor needs no bounds any more."""
        chunks = [] if self.complete else [[chunk.index, chunk.bounds, chunk.rows] for chunk in self.chunks]
        return {
            "schema": self.table.schema,
            "name": self.table.name,
            "plan": self.plan,
            "next": self.next,
            "of": self.of,
            "chunks": chunks,
            "generation": self.generation,
            "complete": self.complete,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Cursor:
        """The cursor that `to_json` wrote."""
        table = TableRef(str(body["schema"]), str(body["name"]))
        chunks = tuple(
            Chunk(table, int(index), dict(bounds), int(rows)) for index, bounds, rows in body["chunks"]
        )
        cursor = cls(
            table,
            str(body["plan"]),
            int(body["next"]),
            int(body["of"]),
            chunks,
            str(body["generation"]),
            bool(body["complete"]),
        )
        whole = cursor.complete or len(chunks) == cursor.of
        if not 0 <= cursor.next <= cursor.of or not whole:
            raise StateUnreadable(f"the snapshot cursor of {table} contradicts itself")
        return cursor


@dataclass(frozen=True)
class Checkpoint:
    """Everything up to `position` is confirmed, and so is every chunk below its table's cursor.

    `committed` counts the changes confirmed since the first start. `acknowledged` is the version the source
    last said it has on record for us: a source that knows less is an older copy of itself. `snapshot_rows`
    numbers the rows of snapshots, and `snapshot_complete` is the moment (seconds since 1970) the last chunk
    was confirmed.
    """

    kind: str
    position: Position
    order: Order = "interleaved"
    cursors: Mapping[TableRef, Cursor] = field(default_factory=dict)
    committed: int = 0
    generations: Mapping[str, str] = field(default_factory=dict)
    acknowledged: int = 0
    snapshot_rows: int = 0
    snapshot_complete: float | None = None

    @property
    def snapshotting(self) -> bool:
        """Whether a snapshot is unfinished: this is then a snapshot position, not only a stream position."""
        return any(not cursor.complete for cursor in self.cursors.values())

    def to_json(self) -> dict[str, Any]:
        """The body of the state file."""
        return {
            "source_kind": self.kind,
            "position": self.position.to_json(),
            "resume": _payload(self),
            "order": self.order,
            "cursors": [cursor.to_json() for cursor in self.cursors.values()],
            "committed": self.committed,
            "generations": dict(self.generations),
            "acknowledged": self.acknowledged,
            "snapshot_rows": self.snapshot_rows,
            "snapshot_complete": self.snapshot_complete,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Checkpoint:
        """The checkpoint that `to_json` wrote; every field is judged."""
        committed = committed_of(body)
        kind = str(body.get("source_kind", ""))
        resume.validate(kind, body.get("resume"))
        position = Position.from_json(body.get("position"))
        order = body.get("order")
        if order not in ORDERS:
            raise StateUnreadable("the checkpoint's `order` is neither interleaved nor first")
        try:
            cursors = [Cursor.from_json(item) for item in body["cursors"]]
            complete = body["snapshot_complete"]
            made = cls(
                kind,
                position,
                order,
                {cursor.table: cursor for cursor in cursors},
                committed,
                {str(table): str(generation) for table, generation in body["generations"].items()},
                int(body["acknowledged"]),
                int(body["snapshot_rows"]),
                None if complete is None else float(complete),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateUnreadable(f"the checkpoint cannot be read: {type(error).__name__}") from error
        if _payload(made) != body["resume"]:
            raise StateUnreadable("the checkpoint's position and its `resume` contradict each other")
        return made


def committed_of(body: Mapping[str, Any]) -> int:
    """The committed count of a checkpoint's body, read before anything else of it."""
    count = body.get("committed")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise StateUnreadable(
            "the checkpoint's `committed` is not a count", place="checkpoint field committed"
        )
    return count


def _payload(checkpoint: Checkpoint) -> resume.Payload:
    if checkpoint.kind in ("sqlite", "scripted"):
        open_cursors = {str(c.table): c.next for c in checkpoint.cursors.values() if not c.complete}
        return {"log_id": checkpoint.position.version, "cursors": open_cursors}
    if checkpoint.kind == "postgres":
        return {"snapshot_watermark": checkpoint.position.version}
    raise ConfigError(f"a source of kind {checkpoint.kind!r} has no position that a checkpoint can hold")


class CheckpointStore:
    """One checkpoint under a state directory, by the name of its consumer, with one owner at a time.

    `acquire` before the first `save`; a process that lost the ownership meanwhile is Fenced, not obeyed.
    """

    def __init__(self, uri: str, name: str) -> None:
        self._name = name
        self._fs, root = open_filesystem(uri)
        self._directory = f"{root}/runtime/{quote_plus(name)}"
        self._path = f"{self._directory}/checkpoint.json"
        self._ownership: Ownership | None = None

    def acquire(self, *, wait: float = 5.0) -> None:
        """Become the owner; StateOwned where another living process is. Idempotent."""
        if self._ownership is None:
            self._ownership = Ownership.acquire(self._fs, self._directory, self._name, wait=wait)

    def release(self) -> None:
        """Let the next process in. Idempotent."""
        owned, self._ownership = self._ownership, None
        if owned is not None:
            owned.release()

    def read(self) -> dict[str, Any] | None:
        """The body as it is stored, its checksum proved; None if there never was one."""
        return read_state(self._fs, self._path, KIND)

    def load(self) -> Checkpoint | None:
        """The checkpoint, or None if there never was one; StateUnreadable if it cannot be trusted."""
        body = self.read()
        return None if body is None else Checkpoint.from_json(body)

    def save(self, checkpoint: Checkpoint) -> None:
        """Make it durable. Transient where the file system fails: the former checkpoint still stands."""
        if self._ownership is None:
            raise UsageError("a checkpoint is saved by its owner only: acquire the store first")
        self._ownership.check()
        make_directory(self._fs, self._directory)
        write_state(self._fs, self._path, KIND, checkpoint.to_json())

    def history(self, source: str, retention: float | None, observer: Observer) -> SchemaHistory:
        """The schema history beside the checkpoint, which its owner alone writes."""
        if self._ownership is None:
            raise UsageError("a schema history is kept by its owner only: acquire the store first")
        make_directory(self._fs, self._directory)
        path, check = f"{self._directory}/{FILE}", self._ownership.check
        return SchemaHistory(self._fs, path, source, retention=retention, observer=observer, check=check)
