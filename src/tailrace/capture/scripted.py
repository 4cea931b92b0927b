"""A capture without a database, for tests of ours and of users: it plays what a script committed.

`ScriptedSource` stands for the database. It has tables, current rows, a log of transactions, the cursors of
its consumers and a point below which its log is gone; `commit` changes rows and log together, as a database
does. `ScriptedCapture` reads it under the whole contract, so a restart is a new capture of the same source.
`Faults` makes it fail on purpose. Everything is in memory and safe to use from several threads.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from tailrace.capture.answers import Columns, answer
from tailrace.capture.contract import Capabilities, Capture, Chunk, Consumer, Finding, Lag
from tailrace.model.change import TS, ChangeBatch, Op, Part, schema_of
from tailrace.model.errors import (
    ConfigError,
    IdentityMismatch,
    LogLost,
    SchemaDrift,
    SetupMissing,
    Transient,
    UsageError,
)
from tailrace.model.position import Position
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema, quote

Row = Mapping[str, Any]
ALL = Capabilities(
    before_images=True,
    transactions=True,
    truncate=True,
    schema_events=False,
    snapshot=True,
    resumable_snapshot=True,
    interleaved_snapshot=True,
    lag=True,
    standby=False,
)


@dataclass(frozen=True)
class Event:
    """One row change of a script: what happened to which table, with its images."""

    op: Op
    table: TableRef
    before: Row | None = None
    after: Row | None = None


@dataclass
class Faults:
    """What fails, and how often. Each counts down as it strikes, so that a later try succeeds."""

    error: type[Exception] = Transient
    connect: int = 0
    acknowledge: int = 0
    visible: int = 0
    at_part: int | None = None
    at_chunk: int | None = None

    def strike(self, what: str) -> None:
        """Raise if `what` (connect, acknowledge, visible) is still due to fail."""
        left = getattr(self, what)
        if left:
            setattr(self, what, left - 1)
            raise self.error(f"the script fails {what}")

    def reach(self, what: str) -> None:
        """Raise if `what` (at_part, at_chunk) is reached; it counts down to one and strikes once."""
        left = getattr(self, what)
        if left is None:
            return
        setattr(self, what, left - 1 if left > 1 else None)
        if left <= 1:
            raise self.error(f"the script fails {what}")


def batch_of(table: TableSchema, events: Sequence[Event], position: int, seqs: Sequence[int]) -> ChangeBatch:
    """The events of one table as a batch of changes."""
    count = len(events)
    images = [
        pa.array([None if e.before is None else dict(e.before) for e in events], table.struct),
        pa.array([None if e.after is None else dict(e.after) for e in events], table.struct),
    ]
    columns: list[Any] = [
        pa.array([e.op.value for e in events], pa.string()),
        pa.array([position] * count, pa.int64()),
        pa.array(list(seqs), pa.int64()),
        pa.array([f"t{position}"] * count, pa.string()),
        pa.array([position] * count, TS),
        *images,
    ]
    return ChangeBatch(table, pa.RecordBatch.from_arrays(columns, schema=schema_of(table)))


@dataclass
class ScriptedSource:
    """The database of a script. Versions count its transactions from one."""

    name: str = "scripted"
    schemas: dict[TableRef, TableSchema] = field(default_factory=dict)
    rows: dict[TableRef, dict[tuple[Any, ...], Row]] = field(default_factory=dict)
    log: dict[int, tuple[tuple[Event, ...], ...]] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    began: dict[TableRef, int] = field(default_factory=dict)
    head: int = 0
    pruned: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def table(self, name: str, *, key: Sequence[str] = ("id",), **columns: str) -> TableRef:
        """Create a table with columns by Spark's type names; `id` alone if none are given."""
        ref = TableRef("main", name)
        types = columns or {"id": "long", "name": "string"}
        made = tuple(Column(column, ColumnType(kind)) for column, kind in types.items())
        self.schemas[ref] = TableSchema(ref, made, tuple(key), generation="1")
        self.rows[ref] = {}
        self.began[ref] = self.head
        return ref

    def recreate(self, ref: TableRef) -> None:
        """Begin capture of a table anew: what happened to it in between was not captured."""
        with self.changed:
            schema = self.schemas[ref]
            self.schemas[ref] = replace(schema, generation=str(int(schema.generation) + 1))
            self.head += 1
            self.log[self.head] = ((),)
            self.began[ref] = self.head
            self.changed.notify_all()

    def insert(self, ref: TableRef, *rows: Row) -> int:
        """One transaction that inserts these rows."""
        return self.commit(*(Event(Op.INSERT, ref, None, row) for row in rows))

    def update(self, ref: TableRef, before: Row, after: Row) -> int:
        """One transaction that updates a row."""
        return self.commit(Event(Op.UPDATE, ref, before, after))

    def delete(self, ref: TableRef, row: Row) -> int:
        """One transaction that deletes a row."""
        return self.commit(Event(Op.DELETE, ref, row, None))

    def commit(self, *events: Event, parts: int = 1, logged: bool = True) -> int:
        """One transaction, which its reader gets in that many parts; its version is returned.

        Without `logged` the rows are there and their log is not: rows that are older than capture.
        """
        with self.changed:
            for event in events:
                self._apply(event)
            if not logged:
                return self.head
            self.head += 1
            size = max(1, -(-len(events) // parts))
            cut = tuple(events[at : at + size] for at in range(0, len(events), size))
            self.log[self.head] = cut or ((),)
            self.changed.notify_all()
            return self.head

    def _apply(self, event: Event) -> None:
        rows, key = self.rows[event.table], self.schemas[event.table].key
        if event.op == Op.TRUNCATE:
            rows.clear()
        if event.before is not None:
            rows.pop(tuple(event.before[name] for name in key), None)
        if event.after is not None:
            rows[tuple(event.after[name] for name in key)] = event.after

    def prune(self, below: int) -> None:
        """Lose the log up to and including `below`."""
        self.pruned = max(self.pruned, below)

    def at(self, version: int) -> Position:
        """A position of this source."""
        return Position(self.name, version)


class ScriptedCapture(Capture):
    """Reads a `ScriptedSource`. `replay` makes `live` begin that many transactions too early, once a call."""

    kind = "scripted"
    dialect = "sqlite"

    def __init__(
        self,
        source: ScriptedSource,
        *,
        capabilities: Capabilities = ALL,
        faults: Faults | None = None,
        replay: int = 0,
    ) -> None:
        self.source = source
        self.capabilities = capabilities
        self.faults = faults or Faults()
        self.replay = replay
        self.open_lives = 0
        self.closed = False

    def identity(self) -> str:
        self.faults.strike("connect")
        return self.source.name

    def tables(self) -> list[TableRef]:
        return sorted(self.source.schemas)

    def resolve(self, names: Sequence[str]) -> list[TableRef]:
        known = {str(ref): ref for ref in self.tables()} | {ref.name: ref for ref in self.tables()}
        found: dict[TableRef, None] = {}
        for name in names:
            if name == "*":
                found |= dict.fromkeys(self.tables())
            elif name in known:
                found[known[name]] = None
            else:
                nearest = get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"no table {name}", remedy=f"did you mean {nearest[0]}?" if nearest else None
                )
        return list(found)

    def describe(self, ref: TableRef) -> TableSchema:
        if ref not in self.source.schemas:
            raise SetupMissing(f"no table {ref}")
        return self.source.schemas[ref]

    def generations(self) -> dict[TableRef, tuple[str, int]]:
        """Each table's generation, and the position at which it began."""
        return {
            ref: (schema.generation, self.source.began[ref]) for ref, schema in self.source.schemas.items()
        }

    def coverage(self, tables: Sequence[TableRef]) -> list[Finding]:
        missing = [ref for ref in tables if ref not in self.source.schemas]
        return [Finding("error", "table-missing", f"no table {ref}", str(ref)) for ref in missing]

    def setup(self, tables: Sequence[TableRef]) -> list[str]:
        return [f"{ref} needs nothing" for ref in tables if ref not in self.source.schemas]

    def teardown(self, tables: Sequence[TableRef] | None = None) -> list[str]:
        if tables is None:
            self.source.cursors.clear()
        return []

    def register(self, consumer: str, at: Position | None = None) -> Position:
        self.faults.strike("connect")
        with self.source.changed:
            start = self.source.head if at is None else at.version
            return self.source.at(self.source.cursors.setdefault(consumer, start))

    def forget(self, consumer: str) -> None:
        self.source.cursors.pop(consumer, None)

    def consumers(self) -> list[Consumer]:
        return [Consumer(name, at, self.source.head - at) for name, at in sorted(self.source.cursors.items())]

    def head(self) -> Position:
        return self.source.at(self.source.head)

    def live(
        self,
        start: Position,
        tables: Sequence[TableRef],
        *,
        consumer: str,
        wait: float = 0.5,
        accept: Mapping[TableRef, str] | None = None,
    ) -> Iterator[Part | None]:
        if consumer not in self.source.cursors:
            raise UsageError(f"{consumer} was never registered")
        self._continuable(start)
        wanted = set(tables)
        generations = self.generations()
        for ref in wanted:
            generation, began = generations[ref]
            if began > start.version and (accept or {}).get(ref) != generation:
                raise LogLost(f"capture of {ref} began at {began}, after position {start.version}")
        version = max(self.source.pruned, start.version - self.replay)
        self.open_lives += 1
        try:
            while not self.closed:
                if any(self.generations()[ref] != generations[ref] for ref in wanted):
                    raise SchemaDrift("capture of a table began anew", remedy="start again")
                if not self._grew(version, wait):
                    yield None
                    continue
                version += 1
                yield from self._transaction(version, wanted)
        finally:
            self.open_lives -= 1

    def _grew(self, version: int, wait: float) -> bool:
        with self.source.changed:
            self.source.changed.wait_for(lambda: self.closed or self.source.head > version, wait)
            return self.source.head > version

    def _continuable(self, start: Position) -> None:
        if start.source != self.source.name:
            raise IdentityMismatch(
                f"the position belongs to source {start.source}, this is {self.source.name}"
            )
        if start.version < self.source.pruned:
            raise LogLost(
                f"the log begins after {self.source.pruned}, position {start.version} is needed",
                remedy="take a new snapshot",
            )

    def _transaction(self, version: int, wanted: set[TableRef]) -> Iterator[Part]:
        pieces, seq = self.source.log[version], 0
        for number, events in enumerate(pieces, 1):
            self.faults.reach("at_part")
            grouped: dict[TableRef, tuple[list[Event], list[int]]] = {}
            for event in events:
                if event.table in wanted:
                    chosen, seqs = grouped.setdefault(event.table, ([], []))
                    chosen.append(event)
                    seqs.append(seq)
                seq += 1
            batches = [
                batch_of(self.describe(ref), chosen, version, seqs) for ref, (chosen, seqs) in grouped.items()
            ]
            yield Part(tuple(batches), self.source.at(version), number == len(pieces))

    def acknowledge(self, position: Position, *, consumer: str) -> Position:
        self.faults.strike("acknowledge")
        with self.source.changed:
            known = max(self.source.cursors.get(consumer, 0), position.version)
            self.source.cursors[consumer] = known
        return self.source.at(known)

    def wait_visible(self, position: Position, timeout: float) -> None:
        self.faults.strike("visible")
        with self.source.changed:
            if not self.source.changed.wait_for(lambda: self.source.head >= position.version, timeout):
                raise Transient(f"position {position.version} did not become visible within {timeout:g} s")

    def plan(
        self, table: TableRef, *, rows_per_chunk: int, bytes_per_chunk: int | None = None
    ) -> list[Chunk]:
        rows = self.source.rows[table]
        keys = sorted(rows)
        if bytes_per_chunk is not None and rows:
            width = sum(len(repr(row)) for row in rows.values()) // len(rows)
            rows_per_chunk = max(1, min(rows_per_chunk, bytes_per_chunk // max(1, width)))
        starts = [None, *(list(key) for key in keys[rows_per_chunk::rows_per_chunk])]
        ends = [*starts[1:], None]
        return [
            Chunk(table, index, {"from": low, "to": high}, rows_per_chunk)
            for index, (low, high) in enumerate(zip(starts, ends, strict=True))
        ]

    def snapshot(
        self,
        table: TableSchema,
        chunk: Chunk,
        *,
        position: int,
        seq: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[ChangeBatch]:
        if self.describe(table.ref) != table:
            raise SchemaDrift(f"{table.ref} is no longer what the snapshot began with", remedy="start again")
        self.faults.reach("at_chunk")
        low, high = chunk.bounds.get("from"), chunk.bounds.get("to")
        with self.source.changed:
            rows = [
                row if columns is None else {name: row[name] for name in columns}
                for key, row in sorted(self.source.rows[table.ref].items())
                if (low is None or list(key) >= low) and (high is None or list(key) < high)
            ]
        if rows:
            events = [Event(Op.READ, table.ref, None, row) for row in rows]
            yield batch_of(table, events, position, range(seq, seq + len(rows)))

    def query(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], columns: Columns
    ) -> Iterator[pa.RecordBatch]:
        """By a SQLite database in memory that has the rows of the script, made for each question."""
        with self.source.changed:
            tables = {
                ref: (self.source.schemas[ref], list(rows.values())) for ref, rows in self.source.rows.items()
            }
        connection = sqlite3.connect(":memory:")
        # SQLite has it since 3.41.
        connection.create_function("unhex", 1, lambda text: None if text is None else bytes.fromhex(text))
        try:
            for ref, (schema, rows) in tables.items():
                names = ", ".join(quote(column.name) for column in schema.columns)
                connection.execute(f"CREATE TABLE {quote(ref.name)} ({names})")
                marks = ", ".join("?" * len(schema.columns))
                connection.executemany(
                    f"INSERT INTO {quote(ref.name)} VALUES ({marks})",
                    [[row.get(column.name) for column in schema.columns] for row in rows],
                )
            found = connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()
        if found:
            cells = zip(zip(*found, strict=True), columns, strict=True)
            yield answer(columns, [(pa.array(values, kind.arrow), None) for values, (_, kind) in cells])

    def lag(self, position: Position) -> Lag:
        return Lag(changes=self.source.head - position.version)

    def close(self) -> None:
        with self.source.changed:
            self.closed = True
            self.source.changed.notify_all()
