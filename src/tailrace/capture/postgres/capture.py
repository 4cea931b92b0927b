"""`PostgresCapture`: the contract, put together from this folder's parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from tailrace.capture.contract import Capabilities, Capture, Chunk, Consumer, Finding, Lag, Load
from tailrace.capture.postgres import (
    catalog,
    conditions,
    exported,
    load,
    provision,
    publication,
    query,
    slots,
    snapshot,
    timelines,
    visible,
)
from tailrace.capture.postgres import filters as sql_filters
from tailrace.capture.postgres import names as table_names
from tailrace.capture.postgres.client import Connection, session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.halts import Halts
from tailrace.capture.postgres.kept import Kept
from tailrace.capture.postgres.messages import lsn_text
from tailrace.capture.postgres.stream import IDENTITY_REMEDY, Stream, identity
from tailrace.capture.postgres.visible import Recent
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.errors import IdentityMismatch, SetupMissing, Transient, UsageError
from tailrace.model.filters import Condition, Filter
from tailrace.model.position import Position
from tailrace.model.table import ColumnType, TableRef, TableSchema

_POLL = 0.01


class PostgresCapture(Capture):
    """Changes of a PostgreSQL database, by logical replication."""

    kind = "postgres"
    dialect = "postgres"
    capabilities = Capabilities(
        before_images=True,
        transactions=True,
        truncate=True,
        schema_events=True,
        snapshot=True,
        resumable_snapshot=True,
        interleaved_snapshot=True,
        lag=True,
        standby=False,
        partial=True,
        moments=True,
    )

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._recent = Recent()
        self._halts = Halts()
        self._standbys = load.Standbys()
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._stream: Stream | None = None
        self._remembered: Mapping[TableRef, Sequence[TableSchema]] = {}
        self._named: str | None = None
        self._kept = Kept(config)

    def identity(self) -> str:
        with session(self._config) as connection:
            return identity(connection, self._config)

    def moved(self, position: Position) -> Position:
        return timelines.moved(self._config, position)

    def tables(self) -> list[TableRef]:
        with session(self._config) as connection:
            return table_names.tables(connection)

    def resolve(self, names: Sequence[str]) -> list[TableRef]:
        with self._kept.session(patient=False) as connection:
            return table_names.resolve(connection, names)

    def describe(self, ref: TableRef) -> TableSchema:
        with self._kept.session(patient=False) as connection:
            found = publication.read(connection, self._config.publication, only=ref)
            member = found.members.get(ref) if found is not None else None
            generation = member.generation if member is not None else ""
            return catalog.describe(connection, ref, self._config.types, generation)

    def generations(self) -> dict[TableRef, tuple[str, int]]:
        with session(self._config) as connection:
            found = self._publication(connection)
            return {
                ref: (member.generation, member.began)
                for ref, member in found.members.items()
                if member.began is not None
            }

    def coverage(self, tables: Sequence[TableRef]) -> list[Finding]:
        return provision.coverage(self._config, tables)

    def setup(self, tables: Sequence[TableRef]) -> list[str]:
        return provision.setup(self._config, tables)

    def teardown(self, tables: Sequence[TableRef] | None = None) -> list[str]:
        return provision.teardown(self._config, tables)

    def register(self, consumer: str, at: Position | None = None) -> Position:
        self._named = consumer
        name = slots.slot_name(self._config, consumer)
        with session(self._config, patient=True) as connection:
            self._publication(connection)
            source = identity(connection, self._config)
            found = slots.find(connection, name)
            if found is not None:
                return Position(source, slots.checked(found, connection).confirmed or 0)
            if at is not None:
                # A new slot begins behind everything that there is.
                raise slots.missing(name)
            return Position(source, slots.create(connection, name).confirmed or 0)

    def forget(self, consumer: str) -> None:
        with session(self._config, patient=True) as connection:
            slots.drop(connection, slots.slot_name(self._config, consumer))

    def consumers(self) -> list[Consumer]:
        with session(self._config) as connection:
            return [
                Consumer(
                    self._consumer(slot.name),
                    slot.confirmed or 0,
                    retained=slot.retained,
                    risk=next((found.message for found in slots.risks(slot, self._config)), None),
                )
                for slot in slots.ours(connection, self._config)
            ]

    def head(self) -> Position:
        stream = self._stream
        if stream is not None and (known := stream.head()) is not None:
            return known
        with session(self._config) as connection:
            return Position(identity(connection, self._config), slots.end(connection))

    def seen(self) -> int:
        with session(self._config) as connection:
            # An asynchronous commit is visible before it is written out.
            return slots.written(connection)

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
            if self._stream is not None:
                raise UsageError("live is running already on this capture")
            self._named = consumer
            stream = self._stream = Stream(
                self._config,
                self._recent,
                self._halts,
                self._closed,
                start=start,
                tables=tables,
                consumer=consumer,
                accept=accept or {},
                remembered=self._remembered,
            )
        try:
            yield from stream.run(wait)
        finally:
            with self._guard:
                self._stream = None

    def remember(self, schemas: Mapping[TableRef, Sequence[TableSchema]]) -> None:
        self._remembered = schemas

    def notices(self) -> list[Finding]:
        return self._halts.findings()

    def acknowledge(self, position: Position, *, consumer: str) -> Position:
        stream = self._stream
        if stream is not None:
            if position.source != stream.source:
                raise self._other()
            return position.at(stream.acknowledge(position.version))
        self._named = consumer
        with session(self._config, patient=True) as connection:
            # Asked each time: a fail-over changes it.
            if position.source != identity(connection, self._config):
                raise self._other()
            found = slots.find(connection, slots.slot_name(self._config, consumer))
            if found is None:
                raise slots.missing(slots.slot_name(self._config, consumer))
            confirmed = slots.checked(found, connection).confirmed or 0
            # No stream remembers here which transactions were delivered: all that run now must end first.
            if confirmed < position.version and visible.settled(connection):
                slots.advance(connection, found, position.version)
        # What was confirmed last a crash may forget, but not what the slot keeps the log from.
        return position.at(min(found.restart or 0, position.version))

    def wait_visible(self, position: Position, timeout: float) -> None:
        """Return when a read begun now, by whichever process, sees every transaction up to `position`.

        The capture that streams is the one to ask (`visible.py`). One that knows no consumer, as on an
        executor, waits for the log alone: its driver has waited for the rest.
        """
        deadline = time.monotonic() + timeout
        consumer = self._named
        with self._kept.session() as connection:
            while slots.end(connection) < position.version and time.monotonic() < deadline:
                time.sleep(_POLL)
            if slots.end(connection) >= position.version and (
                consumer is None
                or visible.wait(
                    connection,
                    self._recent,
                    position.version,
                    streaming=self._streaming,
                    peek=lambda asked: slots.peek(
                        asked, self._config, slots.slot_name(self._config, consumer), position.version
                    ),
                    timeout=deadline - time.monotonic(),
                )
            ):
                return
        raise Transient(
            f"what was committed up to {lsn_text(position.version)} was not visible within {timeout:g} "
            "seconds (does the server wait for a synchronous standby?)"
        )

    def plan(
        self, table: TableRef, *, rows_per_chunk: int, bytes_per_chunk: int | None = None
    ) -> list[Chunk]:
        session = self._kept.session
        return snapshot.plan(self._config, table, rows_per_chunk, bytes_per_chunk, session=session)

    def check_condition(self, table: TableRef, where: str) -> None:
        conditions.check(self._config, table, where)

    def condition(self, table: TableSchema, filters: Sequence[Filter]) -> Condition:
        with session(self._config) as connection:
            encoding = connection.info.parameter_status("server_encoding") or ""
        return sql_filters.condition(table, filters, encoding)

    def moment(self) -> AbstractContextManager[str]:
        return exported.moment(self._config)

    def together(self) -> AbstractContextManager[None]:
        return self._kept.together()

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
            session=self._kept.session,
        )

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any],
        columns: Sequence[tuple[str, ColumnType]],
    ) -> Iterator[pa.RecordBatch]:
        return query.read(self._config, sql, parameters, columns, session=self._kept.session)

    def told_before(self, table: TableSchema) -> frozenset[str]:
        with self._kept.session(patient=False) as connection:
            found = catalog.existing(connection, table.ref)
            told = catalog.told_before(connection, found)
        return frozenset(column.name for column in table.columns if column.name in told)

    def partitions(self, table: TableRef) -> list[TableRef]:
        with self._kept.session(patient=False) as connection:
            return catalog.partitions(connection, catalog.existing(connection, table))

    def missing_index(self, table: TableRef, columns: Sequence[str]) -> str | None:
        with self._kept.session(patient=False) as connection:
            return catalog.missing_index(connection, catalog.existing(connection, table), columns)

    def lag(self, position: Position) -> Lag:
        """Bytes to the log's end, and since when the oldest transaction after `position` waits.

        Only the capture that streams knows the latter.
        """
        newest = self.head()
        if position.source != newest.source:
            raise self._other()
        behind = max(0, newest.version - position.version)
        since = self._recent.delivered_since(position.version)
        if since is not None and behind:
            return Lag(bytes=behind, seconds=max(0.0, time.time() - since))
        if not behind:
            return Lag(bytes=0, seconds=0.0)
        if not self._streaming() or self._recent.passed < position.version:
            return Lag(bytes=behind)
        # Nothing of ours came since: what is behind is the server's own log, or on its way.
        caught_up = self._recent.passed >= newest.version
        return Lag(bytes=behind, seconds=0.0 if caught_up else max(0.0, time.time() - self._recent.heard))

    def load(self, consumer: str) -> Load:
        with session(self._config) as connection:
            return load.sample(connection, self._config, consumer, self._standbys)

    def close(self) -> None:
        self._closed.set()

    def _publication(self, connection: Connection) -> publication.Publication:
        found = publication.read(connection, self._config.publication)
        if found is None:
            raise SetupMissing(
                f"there is no publication {self._config.publication} in {self._config.name}",
                remedy="tailrace setup",
            )
        return found

    def _consumer(self, slot: str) -> str:
        if slot == self._config.slot:
            return self._named or slot
        return slots.consumer_of(slot) or slot

    def _streaming(self) -> bool:
        stream = self._stream
        return stream is not None and stream.reading

    def _other(self) -> IdentityMismatch:
        return IdentityMismatch(
            f"{self._config.name} is not the server and timeline this position belongs to",
            remedy=IDENTITY_REMEDY,
        )
