"""A chunk of a table, read as it is now.

The rows come by COPY in text, the same text the log carries, and are decoded by the same functions
(`types.py`), so that a value is the same in both. The table is locked against ALTER for as long as the read
lasts; a transaction never outlives its chunk. How a table is cut is in `chunks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import psycopg
import pyarrow as pa

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres import catalog, chunks, exported
from tailrace.capture.postgres.catalog import Relation
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.client import session as opened
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.copying import buffers
from tailrace.capture.postgres.copytext import CopyText
from tailrace.capture.postgres.privileges import missing
from tailrace.capture.postgres.types import Decoded, from_text
from tailrace.model.change import TS, ChangeBatch, schema_of
from tailrace.model.errors import ConfigError, NeedsOperator, SchemaDrift
from tailrace.model.table import ColumnType, TableRef, TableSchema, quote

Session = Callable[[], AbstractContextManager[Connection]]
# A column costs something in every batch, so that of a wide table a batch is larger.
_COLUMN_BYTES = 32 << 10


@dataclass(frozen=True)
class _Known:
    """A table as the catalog had it when a connection last read a chunk of it."""

    digest: str
    found: Relation


# Chunks of a task come over one connection: most of them find the table as the one before did.
_known: WeakKeyDictionary[Connection, dict[TableRef, _Known]] = WeakKeyDictionary()


def plan(
    config: PostgresConfig,
    ref: TableRef,
    rows: int,
    nbytes: int | None = None,
    *,
    session: Session | None = None,
) -> list[Chunk]:
    """Cut a table into ranges of about that many rows, or bytes if those are fewer rows. Never empty."""
    if rows < 1 or (nbytes is not None and nbytes < 1):
        raise ConfigError("a chunk must have at least one row, and one byte")
    with session() if session is not None else opened(config, patient=True) as connection:
        try:
            begin(connection)
            planned = chunks.plan(connection, catalog.existing(connection, ref), rows, nbytes=nbytes)
            connection.execute("COMMIT")
            return planned
        except psycopg.errors.InsufficientPrivilege as error:
            raise _forbidden(config, ref, error) from None


def read(
    config: PostgresConfig,
    table: TableSchema,
    chunk: Chunk,
    *,
    position: int,
    seq: int,
    columns: Sequence[str] | None = None,
    session: Session | None = None,
) -> Iterator[ChangeBatch]:
    """The rows of a chunk as they are now, in one transaction that ends with the chunk."""
    wanted = table if columns is None else _project(table, columns)
    with session() if session is not None else opened(config, patient=True) as connection:
        try:
            begin(connection, chunk.moment)
            found = _locked(config, connection, table, wanted, chunk.moment)
            if chunk.moment is not None:
                exported.unchanged(connection, found)
            names = ", ".join(quote(column.name) for column in wanted.columns)
            bounds, wish = chunks.condition(connection, found, chunk), f"({chunk.where})"
            where = " AND ".join(part for part in (bounds, wish if chunk.where else "") if part)
            query = f"SELECT {names} FROM {found.sql}" + (f" WHERE {where}" if where else "")
            if bounds:
                # A range of a hundred thousand rows is read in the order of its blocks, not of its keys:
                # cheaper where the two agree, and much cheaper where they do not.
                connection.execute("SET LOCAL enable_indexscan = off")
            made = _Rows(wanted, position, time.time_ns() // 1000)
            nbytes = max(config.batch_bytes, _COLUMN_BYTES * len(wanted.columns))
            copied = buffers(config, connection, query, nbytes)
            text = CopyText(len(wanted.columns), lead=True, types=_direct(config, wanted))
            for data, count in copied:
                # The server goes on meanwhile, as far as the socket has room.
                read = zip(text.read(data), wanted.columns, strict=True)
                cells = [_cell(values, column.type) for values, column in read]
                yield made.batch(cells, count, seq)
                seq += count
            if chunk.moment is not None:
                exported.unchanged(connection, found)
            connection.execute("COMMIT")
        except psycopg.errors.InsufficientPrivilege as error:
            raise _forbidden(config, table.ref, error) from None


def begin(connection: Connection, moment: str | None = None) -> None:
    """A transaction that only reads, and sees every row or fails; with `moment`, as they were then.

    The search path stays the role's: the log's texts of `regclass` and its like depend on it too.
    """
    level = "READ COMMITTED" if moment is None else "REPEATABLE READ"
    connection.execute(
        f"BEGIN ISOLATION LEVEL {level} READ ONLY; SET LOCAL row_security = off;"
        " SET LOCAL statement_timeout = 0; SET LOCAL jit = off; SET LOCAL client_min_messages = error"
    )
    if moment is not None:
        exported.enter(connection, moment)


def _direct(config: PostgresConfig, table: TableSchema) -> dict[int, pa.DataType]:
    """The columns whose text Arrow may read as their type while it cuts the rows, which is cheaper.

    Not where a type was given by hand: texts of other types may have blanks around them, which it ignores.
    """
    kinds = {} if config.types else dict(enumerate(column.type for column in table.columns))
    return {place: kind.arrow for place, kind in kinds.items() if kind.name not in ("string", "binary")}


def _cell(values: pa.Array, kind: ColumnType) -> Decoded:
    if kind.name == "binary" or values.type != kind.arrow:
        return from_text(values, kind)
    return values, None


def _locked(
    config: PostgresConfig,
    connection: Connection,
    table: TableSchema,
    wanted: TableSchema,
    moment: str | None,
) -> Relation:
    """The table, which nobody can alter from now on until the transaction ends, with the columns expected."""
    # A moment's catalog may be an earlier one: nothing is remembered of it, nor for it.
    known = _known.setdefault(connection, {}) if moment is None else {}
    last = known.get(table.ref)
    found = catalog.existing(connection, table.ref) if last is None else last.found
    names = ", ".join(quote(column.name) for column in wanted.columns)
    try:
        described = connection.execute(f"SELECT {names} FROM {found.sql} WHERE false").pgresult
    except psycopg.errors.UndefinedTable:
        raise catalog.gone(table.ref) from None
    except psycopg.errors.UndefinedColumn:
        raise _drift(table.ref) from None
    digest = catalog.digest(connection, table.ref) if moment is None else None
    if last is None or last.digest != digest:
        found = catalog.existing(connection, table.ref)
    if digest is not None:
        known[table.ref] = _Known(digest, found)
    numbers = {attribute.name: attribute.number for attribute in found.attributes}
    for place, column in enumerate(wanted.columns):
        # Names mean what they mean now, also to a moment that knows an earlier catalog.
        same = found.oid, numbers.get(column.name)
        if described is None or (described.ftable(place), described.ftablecol(place)) != same:
            raise _drift(table.ref)
    now = catalog.schema_of(found, config.types)
    kinds = {column.name: column.type for column in now.columns}
    if now.key != table.key or any(kinds.get(column.name) != column.type for column in table.columns):
        raise _drift(table.ref)
    return found


def _drift(ref: TableRef) -> SchemaDrift:
    return SchemaDrift(
        f"table {ref} no longer has the columns and key that its snapshot began with",
        remedy=f"tailrace snapshot --table {ref}",
    )


def _forbidden(
    config: PostgresConfig, ref: TableRef, error: psycopg.errors.InsufficientPrivilege
) -> NeedsOperator:
    with opened(config) as connection:
        gaps = missing(connection, [ref])
    told = error.diag.message_primary or "permission denied"
    message = "; ".join(gap.message for gap in gaps) or told
    return NeedsOperator(
        f"{config.name}: {message}", remedy="; ".join(gap.sql for gap in gaps) or f"GRANT SELECT ON {ref}"
    )


def _project(table: TableSchema, columns: Sequence[str]) -> TableSchema:
    unknown = [name for name in columns if name not in {column.name for column in table.columns}]
    if unknown or not columns:
        raise ConfigError(f"table {table.ref} has no column {', '.join(unknown) or 'of an empty list'}")
    return replace(table, columns=tuple(table.column(name) for name in columns))


class _Rows:
    """Makes the batches of one read. What is the same in every row is made once, for the largest so far."""

    def __init__(self, table: TableSchema, position: int, ts: int) -> None:
        self._table, self._position, self._ts = table, position, ts
        self._same: list[pa.Array] = []
        self._room = 0

    def batch(self, cells: Sequence[Decoded], count: int, seq: int) -> ChangeBatch:
        """So many rows, numbered from `seq`."""
        table = self._table
        if count > self._room:
            self._room = count
            self._same = [
                pa.repeat(pa.scalar("r", pa.string()), count),
                pa.repeat(pa.scalar(self._position, pa.int64()), count),
                pa.nulls(count, pa.string()),
                pa.repeat(pa.scalar(self._ts, TS), count),
                pa.nulls(count, table.struct),
            ]
        op, position, xid, ts, before = (column.slice(0, count) for column in self._same)
        after = pa.Array.from_buffers(table.struct, count, [None], 0, 0, [typed for typed, _ in cells])
        columns = [op, position, pa.array(np.arange(seq, seq + count)), xid, ts, before, after]
        exact = [
            (c.name, tags) for c, (_, tags) in zip(table.columns, cells, strict=True) if tags is not None
        ]
        if not exact:
            return ChangeBatch(table, pa.RecordBatch.from_arrays(columns, schema=schema_of(table)))
        fields = [pa.field(name, pa.string()) for name, _ in exact]
        tagged = pa.StructArray.from_arrays([tags for _, tags in exact], fields=fields)
        schema = schema_of(table, [pa.field("after_exact", tagged.type)])
        return ChangeBatch(table, pa.RecordBatch.from_arrays([*columns, tagged], schema=schema))
