"""`SqliteCapture`: the contract, put together from this folder's parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.capture.contract import Capabilities, Capture, Chunk, Consumer, Finding, Lag
from tailrace.capture.sqlite import catalog, conditions, drift, meta, provision, query, snapshot
from tailrace.capture.sqlite import filters as sql_filters
from tailrace.capture.sqlite.acknowledge import Acknowledger
from tailrace.capture.sqlite.client import IDENTITY_REMEDY, writing
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.functions import install
from tailrace.capture.sqlite.kept import Kept
from tailrace.capture.sqlite.stream import Stream
from tailrace.capture.sqlite.wake import Waker
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import IdentityMismatch, Transient, UsageError
from tailrace.model.filters import Condition, Filter
from tailrace.model.position import Position
from tailrace.model.table import ColumnType, TableRef, TableSchema

_POLL = 0.005


class SqliteCapture(Capture):
    """Changes of a SQLite database, by triggers that write a log in the same file."""

    kind = "sqlite"
    dialect = "sqlite"
    capabilities = Capabilities(
        before_images=True,
        transactions=True,
        truncate=False,
        schema_events=False,
        snapshot=True,
        resumable_snapshot=True,
        interleaved_snapshot=True,
        lag=True,
        standby=False,
        regroups=True,
    )

    def __init__(self, config: SqliteConfig) -> None:
        self._config = config
        self._kept = Kept(config)
        self._cursors = Acknowledger(config, self._kept.reading)
        # Apart: in a condition of people's, what only our own statements may call is an error.
        self._computing = Kept(config, install)
        self._closed = threading.Event()
        # `close` may come from a signal handler while this thread holds it.
        self._guard = threading.RLock()
        self._waker: Waker | None = None
        self._source: str | None = None

    def identity(self) -> str:
        with self._kept.reading() as connection:
            return meta.identity(connection, self._config)

    def tables(self) -> list[TableRef]:
        with self._kept.reading() as connection:
            return [TableRef(catalog.SCHEMA, name) for name in catalog.table_names(connection)]

    def resolve(self, names: Sequence[str]) -> list[TableRef]:
        with self._kept.reading() as connection:
            return catalog.resolve(connection, names)

    def describe(self, ref: TableRef) -> TableSchema:
        with self._kept.reading() as connection:
            name = catalog.existing(connection, ref)
            shape = catalog.read_shape(connection, name)
            if shape is None:
                raise drift.error(name, ["it was dropped"])
            generation = meta.generation(connection, name) if meta.exists(connection) else ""
            return catalog.schema_of(shape, self._config.types, generation)

    def generations(self) -> dict[TableRef, tuple[str, int]]:
        """Each captured table's generation, and the position at which it began."""
        with self._kept.reading() as connection:
            meta.identity(connection, self._config)
            return meta.generations(connection)

    def coverage(self, tables: Sequence[TableRef]) -> list[Finding]:
        return provision.coverage(self._config, tables, reading=self._kept.reading)

    def setup(self, tables: Sequence[TableRef]) -> list[str]:
        return provision.setup(self._config, tables)

    def teardown(self, tables: Sequence[TableRef] | None = None) -> list[str]:
        return provision.teardown(self._config, tables)

    def register(self, consumer: str, at: Position | None = None) -> Position:
        with self._kept.reading() as connection:
            source = meta.identity(connection, self._config)
            cursor = meta.cursor_of(connection, consumer)
        if cursor is None:
            with writing(self._config) as connection:
                source = meta.identity(connection, self._config)
                start = meta.counter(connection) if at is None else meta.kept_from(connection, at.version)
                connection.execute(
                    f"INSERT INTO {meta.CONSUMERS} VALUES (?, ?, datetime('now')) ON CONFLICT DO NOTHING",
                    (consumer, start),
                )
                cursor = meta.cursor_of(connection, consumer)
        return Position(source, cursor or 0)

    def forget(self, consumer: str) -> None:
        with self._kept.reading() as connection:
            if not meta.exists(connection) or meta.cursor_of(connection, consumer) is None:
                return
        with writing(self._config) as connection:
            connection.execute(f"DELETE FROM {meta.CONSUMERS} WHERE name = ?", (consumer,))
        self._cursors.forget(consumer)

    def consumers(self) -> list[Consumer]:
        with self._kept.reading() as connection:
            meta.identity(connection, self._config)
            rows = connection.execute(
                f"SELECT name, acknowledged FROM {meta.CONSUMERS} ORDER BY name"
            ).fetchall()
            return [Consumer(name, version, meta.pending(connection, version)) for name, version in rows]

    def head(self) -> Position:
        with self._kept.reading() as connection:
            return Position(meta.identity(connection, self._config), meta.counter(connection))

    def live(
        self,
        start: Position,
        tables: Sequence[TableRef],
        *,
        consumer: str,
        wait: float = 0.5,
        accept: Mapping[TableRef, str] | None = None,
    ) -> Iterator[Part | None]:
        with self._guard:
            if self._closed.is_set():
                return
            if self._waker is not None:
                raise UsageError("live is running already on this capture")
            waker = self._waker = Waker(self._config.path)
        try:
            stream = Stream(
                self._config,
                self._cursors,
                self._closed,
                waker,
                start=start,
                tables=tables,
                consumer=consumer,
                accept=accept or {},
            )
            yield from stream.run(wait)
        finally:
            with self._guard:
                self._waker = None
            waker.close()

    def acknowledge(self, position: Position, *, consumer: str) -> Position:
        self._expect(position)
        return position.at(self._cursors.note(consumer, position.version))

    def wait_visible(self, position: Position, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            head = self.head()
            if head >= position:
                return
            if time.monotonic() >= deadline:
                raise Transient(f"position {position.version} was not visible within {timeout:g} seconds")
            time.sleep(_POLL)

    def plan(
        self, table: TableRef, *, rows_per_chunk: int, bytes_per_chunk: int | None = None
    ) -> list[Chunk]:
        return snapshot.plan(self._kept.reading, table, rows_per_chunk, bytes_per_chunk)

    def check_condition(self, table: TableRef, where: str) -> None:
        conditions.check(self._kept.reading, table, where)

    def condition(self, table: TableSchema, filters: Sequence[Filter]) -> Condition:
        with self._kept.reading() as connection:
            (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        return sql_filters.condition(table, filters, encoding)

    def snapshot(
        self,
        table: TableSchema,
        chunk: Chunk,
        *,
        position: int,
        seq: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[ChangeBatch]:
        return snapshot.read(
            self._config,
            table,
            chunk,
            position=position,
            seq=seq,
            columns=columns,
            reading=self._kept.reading,
        )

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any],
        columns: Sequence[tuple[str, ColumnType]],
    ) -> Iterator[pa.RecordBatch]:
        return query.read(self._config, sql, parameters, columns, reading=self._computing.reading)

    def missing_index(self, table: TableRef, columns: Sequence[str]) -> str | None:
        with self._kept.reading() as connection:
            return catalog.missing_index(connection, table.name, columns)

    def lag(self, position: Position) -> Lag:
        self._expect(position)
        with self._kept.reading() as connection:
            behind = meta.pending(connection, position.version)
            oldest = meta.oldest(connection, position.version)
        seconds = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)
        return Lag(changes=behind, seconds=seconds)

    def close(self) -> None:
        with self._guard:
            self._closed.set()
            if self._waker is not None:
                self._waker.wake()
        self._cursors.close()
        self._kept.close()
        self._computing.close()

    def _expect(self, position: Position) -> None:
        if self._source is None:
            self._source = self.identity()
        if position.source != self._source:
            raise IdentityMismatch(
                f"{self._config.path} is not the database this position belongs to",
                remedy=IDENTITY_REMEDY,
            )
