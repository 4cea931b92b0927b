"""What became of the tables of a micro-batch: each schema beside the one before it in the log.

The one before the batch is known from the batch before, or after a restart from the schema history. Rows of
snapshots do not count: they look as the catalog did, wherever the log was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.change import ChangeBatch
from tailrace.model.evolve import from_log
from tailrace.model.table import SchemaChange, TableRef, TableSchema, schema_change
from tailrace.runtime.history import FILE, Entry, at, read_history, tell
from tailrace.runtime.observer import Observer
from tailrace.sinks.contract import Progress

Steps = dict[TableRef, list[SchemaChange]]


class Schemas:
    """The schemas of one pipeline's tables. Belongs to the thread that writes batches."""

    def __init__(self, state_dir: str, observer: Observer) -> None:
        self._state_dir = state_dir
        self._observer = observer
        self._history: dict[TableRef, list[Entry]] | None = None
        self._last: dict[TableRef, TableSchema] = {}

    def steps(self, batches: Iterable[ChangeBatch], progress: Progress) -> Steps:
        """For each table: the change up to its first rows here, then those between its rows. Told, too."""
        found: Steps = {}
        for batch in sorted(filter(_counts, batches), key=_place):
            ref = batch.table.ref
            before = self._last.get(ref) or self._before(ref, progress) or batch.table
            steps = found.setdefault(ref, [])
            change = schema_change(before, batch.table)
            if change or not steps:
                steps.append(change)
            if change:
                tell(self._observer, before, batch.table, _place(batch)[0])
            self._last[ref] = batch.table
        return found

    def _before(self, ref: TableRef, progress: Progress) -> TableSchema | None:
        if self._history is None:
            fs, root = open_filesystem(self._state_dir)
            # Of whichever name: a batch that is repeated after a fail-over has the former one.
            self._history = read_history(fs, f"{root}/changelog/{FILE}")
        entry = at(self._history.get(ref, ()), progress.start)
        return None if entry is None else entry.schema


def _counts(batch: ChangeBatch) -> bool:
    return len(batch) > 0 and from_log(batch)


def _place(batch: ChangeBatch) -> tuple[int, int]:
    return int(batch.data.column("position")[0].as_py()), int(batch.data.column("seq")[0].as_py())


def whole(steps: Sequence[SchemaChange]) -> str:
    """All of it as a sentence."""
    return "; ".join(str(step) for step in steps if step)
