"""A chunk of a table, read as it is now.

The rows come by COPY in text, the same text the log carries, and are decoded by the same functions
(`types.py`), so that a value is the same in both. The table is locked against ALTER for as long as the read
lasts; a transaction never outlives its chunk. How a table is cut is in `chunks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace

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
from tailrace.model.table import TableRef, TableSchema, quote

_MOST_ROWS = 65_536
Session = Callable[[], AbstractContextManager[Connection]]
# A column costs something in every batch, so that of a wide table a batch is larger.
_COLUMN_BYTES = 32 << 10


def plan(
    config: PostgresConfig, ref: TableRef, rows_per_chunk: int, bytes_per_chunk: int | None = None
) -> list[Chunk]:
    """Cut a table into ranges of about that many rows, or bytes if those are fewer rows. Never empty."""
    if rows_per_chunk < 1 or (bytes_per_chunk is not None and bytes_per_chunk < 1):
        raise ConfigError("a chunk must have at least one row, and one byte")
    with opened(config, patient=True) as connection:
        try:
            begin(connection)
            found = catalog.existing(connection, ref)
            return chunks.plan(connection, found, rows_per_chunk, nbytes=bytes_per_chunk)
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
            found = _locked(config, connection, table, wanted)
            if chunk.moment is not None:
                exported.unchanged(connection, found)
            names = ", ".join(quote(column.name) for column in wanted.columns)
            bounds, wish = chunks.condition(connection, found, chunk), f"({chunk.where})"
            where = " AND ".join(part for part in (bounds, wish if chunk.where else "") if part)
            query = f"SELECT {names} FROM {found.sql}" + (f" WHERE {where}" if where else "")
            ts = time.time_ns() // 1000
            nbytes = max(config.batch_bytes, _COLUMN_BYTES * len(wanted.columns))
            copied = buffers(config, connection, query, rows=_MOST_ROWS, nbytes=nbytes)
            for cells, count in _decoded(wanted, copied):
                yield _batch(wanted, cells, count, position=position, seq=seq, ts=ts)
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
        " SET LOCAL statement_timeout = 0; SET LOCAL jit = off"
    )
    if moment is not None:
        exported.enter(connection, moment)


def _decoded(
    table: TableSchema, copied: Iterator[tuple[bytearray, int]]
) -> Iterator[tuple[list[Decoded], int]]:
    """Buffers of rows as columns, each decoded while the next is read: the server need not wait for us."""
    text, kinds = CopyText(len(table.columns)), [column.type for column in table.columns]

    def decode(data: bytearray) -> list[Decoded]:
        return [from_text(values, kind) for values, kind in zip(text.read(data), kinds, strict=True)]

    with ThreadPoolExecutor(1, "decode") as other:
        waiting: tuple[Future[list[Decoded]], int] | None = None
        for data, count in copied:
            begun = other.submit(decode, data), count
            if waiting is not None:
                yield waiting[0].result(), waiting[1]
            waiting = begun
        if waiting is not None:
            yield waiting[0].result(), waiting[1]


def _locked(
    config: PostgresConfig, connection: Connection, table: TableSchema, wanted: TableSchema
) -> Relation:
    """The table, which nobody can alter from now on until the transaction ends, with the columns expected."""
    found = catalog.existing(connection, table.ref)
    names = ", ".join(quote(column.name) for column in wanted.columns)
    try:
        described = connection.execute(f"SELECT {names} FROM {found.sql} WHERE false").pgresult
    except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable):
        raise _drift(table.ref) from None
    found = catalog.existing(connection, table.ref)
    numbers = {attribute.name: attribute.number for attribute in found.attributes}
    for place, column in enumerate(wanted.columns):
        # Names mean what they mean now, also to a moment that knows an earlier catalog.
        known = found.oid, numbers.get(column.name)
        if described is None or (described.ftable(place), described.ftablecol(place)) != known:
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


def _batch(
    table: TableSchema, cells: Sequence[Decoded], count: int, *, position: int, seq: int, ts: int
) -> ChangeBatch:
    exact = [(c.name, tags) for c, (_, tags) in zip(table.columns, cells, strict=True) if tags is not None]
    optional = [
        pa.StructArray.from_arrays(
            [tags for _, tags in exact], fields=[pa.field(name, pa.string()) for name, _ in exact]
        )
    ]
    optional = optional if exact else []
    data = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar("r", pa.string()), count),
            pa.repeat(pa.scalar(position, pa.int64()), count),
            pa.array(np.arange(seq, seq + count, dtype=np.int64)),
            pa.nulls(count, pa.string()),
            pa.repeat(pa.scalar(ts, TS), count),
            pa.nulls(count, table.struct),
            pa.Array.from_buffers(table.struct, count, [None], 0, 0, [typed for typed, _ in cells]),
            *optional,
        ],
        schema=schema_of(table, [pa.field("after_exact", array.type) for array in optional]),
    )
    return ChangeBatch(table, data)
