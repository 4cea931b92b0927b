"""The schema history: how the tables of a log looked, and from which position on. Durable.

The changelog's segments carry the schema of their own rows. The history is for what is read from the source
again, when the source's catalog has moved on: before `live` begins the capture is told what is known
(`Capture.remember`). It also is what tells a changed table from one that looks as it did before a restart.

An entry is written, before anything of its part is handed on, when a table's columns or key are others than
before. The same log read again finds its entries there and adds none. Entries are kept that the log which is
not acknowledged yet may need: those after the acknowledged position, and the newest one before it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.fs as pafs

from tailrace.capture.contract import Capture
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import ConfigError, NeedsOperator, StateUnreadable
from tailrace.model.position import Position
from tailrace.model.table import TableRef, TableSchema, schema_change
from tailrace.runtime.observer import Observer, Silence

KIND = "schemas"
FILE = "schemas.json"


@dataclass(frozen=True)
class Entry:
    """From the transaction that ends at `position` on the table looked so; `noted` is when that was seen."""

    position: int
    schema: TableSchema
    noted: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "position": self.position,
            "schema": self.schema.to_json(),
            "extra": self.schema.extra,
            "noted": self.noted,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Entry:
        """The entry that `to_json` wrote."""
        schema = replace(TableSchema.from_json(body["schema"]), extra=dict(body["extra"]))
        return cls(int(body["position"]), schema, float(body["noted"]))


class SchemaHistory:
    """One consumer's, in one file. `note` and `prune` belong to one thread.

    `retention` is how many seconds an entry stays after it was noted though nothing needs it; None: for ever.
    `check` is called before the file is replaced, and raises where that is another process's by now.
    """

    def __init__(
        self,
        fs: pafs.FileSystem,
        path: str,
        source: str,
        *,
        retention: float | None = 0.0,
        observer: Observer | None = None,
        check: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fs, self._path, self._source = fs, path, source
        self._retention, self._clock = retention, clock
        self._observer: Observer = observer or Silence()
        self._check = check
        self._entries = read_history(fs, path, source)
        self._current: dict[TableRef, TableSchema] = {}
        self._unsaved = False

    @property
    def entries(self) -> Mapping[TableRef, Sequence[Entry]]:
        """What is known, oldest first."""
        return self._entries

    def begin(self, capture: Capture, tables: Sequence[TableRef], position: int) -> None:
        """The log is read on from `position`. Tables that are new here look as the catalog says now."""
        self._current = {}
        unknown = [ref for ref in tables if ref not in self._entries]
        with capture.together():
            for ref in unknown:
                # One that is gone, or may not be read, has its error in `live`.
                with contextlib.suppress(NeedsOperator, ConfigError):
                    self._entries[ref] = [Entry(position, capture.describe(ref), self._clock())]
        if unknown:
            self._save()
        for ref in tables:
            if (known := at(self._entries.get(ref, ()), position)) is not None:
                self._current[ref] = known.schema
        capture.remember({ref: [entry.schema for entry in entries] for ref, entries in self._entries.items()})

    def note(self, batches: Sequence[ChangeBatch]) -> None:
        """Make durable what these changes of the log show that was not known."""
        for batch in batches:
            table = batch.table
            held = self._current.get(table.ref)
            if held is table or not len(batch):
                continue
            self._current[table.ref] = table
            if held is None or schema_change(held, table):
                position = int(batch.data.column("position")[0].as_py())
                self._add(held, table, position)
        if self._unsaved:
            self._save()

    def prune(self, acknowledged: int) -> None:
        """Forget what only the log up to here needed."""
        if self._retention is None:
            return
        old = self._clock() - self._retention
        kept = {
            ref: [
                entry
                for entry, after in zip(entries, [*entries[1:], None], strict=True)
                if after is None or after.position > acknowledged or entry.noted > old
            ]
            for ref, entries in self._entries.items()
        }
        if kept != self._entries:
            self._entries = kept
            self._save()

    def _add(self, held: TableSchema | None, table: TableSchema, position: int) -> None:
        entries = self._entries.setdefault(table.ref, [])
        if any(entry.position == position and not schema_change(entry.schema, table) for entry in entries):
            return
        entries.append(Entry(position, table, self._clock()))
        entries.sort(key=lambda entry: entry.position)
        self._unsaved = True
        if held is not None:
            tell(self._observer, held, table, position)

    def _save(self) -> None:
        self._unsaved = True
        if self._check is not None:
            self._check()
        _write(self._fs, self._path, self._source, self._entries)
        self._unsaved = False


def tell(observer: Observer, old: TableSchema, new: TableSchema, position: int) -> None:
    """The event of a changed table."""
    change = schema_change(old, new)
    observer.event(
        "schema.changed",
        table=str(new.ref),
        position=position,
        added=list(change.added),
        dropped=list(change.dropped),
        retyped=list(change.retyped),
        again=list(change.moved),
        key=list(new.key) if change.key else None,
    )


def read_history(fs: pafs.FileSystem, path: str, source: str | None = None) -> dict[TableRef, list[Entry]]:
    """The history in a file; none where there is no file, or it is not of this source."""
    body = read_state(fs, path, KIND)
    if body is None or source not in (None, body.get("source")):
        return {}
    try:
        tables = [[Entry.from_json(entry) for entry in entries] for entries in body["tables"]]
    except (KeyError, TypeError, ValueError) as error:
        raise StateUnreadable("state lacks fields", place=path) from error
    return {entries[0].schema.ref: entries for entries in tables if entries}


def carry(fs: pafs.FileSystem, path: str, former: str, position: Position) -> None:
    """Go on with the history of a source that had this name, up to where it got another; idempotent.

    What was captured beyond is captured again, and may be another log.
    """
    if former == position.source or not (known := read_history(fs, path, former)):
        return
    kept = {ref: [e for e in entries if e.position <= position.version] for ref, entries in known.items()}
    _write(fs, path, position.source, kept)


def _write(fs: pafs.FileSystem, path: str, source: str, history: Mapping[TableRef, Sequence[Entry]]) -> None:
    tables = [[entry.to_json() for entry in entries] for entries in history.values()]
    write_state(fs, path, KIND, {"source": source, "tables": tables})


def at(entries: Sequence[Entry], position: int) -> Entry | None:
    """The entry that holds at a position."""
    return next((entry for entry in reversed(entries) if entry.position <= position), None)
