"""Chunks of a table's rows: planning them, and reading one as it is now.

A chunk is a half-open range of the key `(after, upto]` with the first open below and the last open above,
so that together they hold every row, also one inserted later. The key is the primary key, in key order and
by row values; the rowid only where there is none, for VACUUM may renumber that. Rows with NULL in a primary
key (SQLite allows it) are in no range and have a chunk of their own.

Bounds travel as JSON and must be exact: `["i", "123"]`, `["r", "0x1.8p+0"]`, `["t", "…"]`, `["b", base64]`,
`["x", base64]` for text that is not UTF-8.
"""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tailrace.capture.contract import Chunk
from tailrace.capture.sqlite import catalog, decode, drift, images
from tailrace.capture.sqlite.catalog import Shape, Term, quoted
from tailrace.capture.sqlite.config import SqliteConfig
from tailrace.capture.sqlite.decode import Cells, InvalidText, lenient_text
from tailrace.capture.sqlite.kept import Reading
from tailrace.capture.sqlite.rows import Pace, slices
from tailrace.model.change import ChangeBatch
from tailrace.model.errors import ConfigError, StateUnreadable
from tailrace.model.table import TableRef, TableSchema, quote

_STEP = 4096
_SAMPLE = 100
_MOST_COUNTED = 10_000_000
_BUILT_IN = ("BINARY", "NOCASE", "RTRIM")


def plan(
    reading: Reading, ref: TableRef, rows_per_chunk: int, bytes_per_chunk: int | None = None
) -> list[Chunk]:
    """Cut a table into ranges of about that many rows, or bytes if those are fewer rows. Never empty."""
    if rows_per_chunk < 1 or (bytes_per_chunk is not None and bytes_per_chunk < 1):
        raise ConfigError("a chunk must have at least one row, and one byte")
    with reading() as connection:
        shape = _shape(connection, ref)
        connection.text_factory = lenient_text
        terms = _key(shape)
        bounds: list[list[Any] | None] = [None]
        rows: list[int] = []
        sizes: list[int] = []
        while True:
            size, each = rows_per_chunk, 0.0
            if bytes_per_chunk is not None:
                # Anew for each: rows of one age are often of one size.
                each = _average(connection, shape, terms, bounds[-1], bytes_per_chunk)
                size = min(size, max(1, int(bytes_per_chunk / each)))
            bound = _walk(connection, shape, terms, bounds[-1], size)
            if bound is None:
                rows.append(_tail(connection, shape, terms, bounds[-1], size))
                sizes.append(int(rows[-1] * each))
                break
            bounds.append(bound)
            rows.append(size)
            sizes.append(int(size * each))
        ends = [*bounds[1:], None]
        chunks = [
            Chunk(ref, index, {"after": after, "upto": upto}, size, nbytes=nbytes)
            for index, (after, upto, size, nbytes) in enumerate(zip(bounds, ends, rows, sizes, strict=True))
        ]
        if _nullable_key(shape):
            chunks.append(Chunk(ref, len(chunks), {"null": True}, 0))
    return chunks


def _average(
    connection: sqlite3.Connection, shape: Shape, terms: Sequence[Term], after: list[Any] | None, nbytes: int
) -> float:
    """The bytes of a row after `after`, at least one, by the first of them up to `nbytes`."""
    where, parameters = _range(shape, terms, after, None)
    order = ", ".join(_column(term) for term in terms)
    names = quoted(column.name for column in shape.columns)
    sample = connection.execute(
        f"SELECT {names} FROM {quote(shape.name)} WHERE {where} ORDER BY {order} LIMIT {_SAMPLE}", parameters
    )
    count = total = 0
    # One at a time: each may be large.
    for row in sample:
        count += 1
        total += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if total >= nbytes:
            break
    sample.close()
    return max(1.0, total / max(count, 1))


def _tail(
    connection: sqlite3.Connection, shape: Shape, terms: Sequence[Term], after: list[Any] | None, rows: int
) -> int:
    """How many rows follow `after`, counted up to `rows`; a chunk without a bound is not worth a count."""
    if rows > _MOST_COUNTED:
        return 0
    where, parameters = _range(shape, terms, after, None)
    inner = f"SELECT 1 FROM {quote(shape.name)} WHERE {where} LIMIT ?"
    return int(connection.execute(f"SELECT count(*) FROM ({inner})", (*parameters, rows)).fetchone()[0])


def _walk(
    connection: sqlite3.Connection, shape: Shape, terms: Sequence[Term], after: list[Any] | None, rows: int
) -> list[Any] | None:
    """The key `rows` rows after `after`, where another row follows it."""
    where, parameters = _range(shape, terms, after, None)
    order = ", ".join(_column(term) for term in terms)
    names = quoted(str(term.column) for term in terms)
    found = connection.execute(
        f"SELECT {names} FROM {quote(shape.name)} WHERE {where} ORDER BY {order} LIMIT 2 OFFSET ?",
        (*parameters, rows - 1),
    ).fetchall()
    return [_write(value) for value in found[0]] if len(found) == 2 else None


def _shape(connection: sqlite3.Connection, ref: TableRef) -> Shape:
    shape = catalog.read_shape(connection, ref.name)
    if shape is None:
        raise drift.error(ref.name, ["it was dropped"])
    return shape


def _key(shape: Shape) -> tuple[Term, ...]:
    return shape.key_terms if shape.key else (Term(shape.row_id, None, "BINARY"),)


def _is_row_id(shape: Shape, term: Term) -> bool:
    return not shape.without_rowid and (term.column,) == shape.locator


def _nullable_key(shape: Shape) -> bool:
    nullable = {column.name for column in shape.columns if column.nullable}
    return any(term.column in nullable and not _is_row_id(shape, term) for term in _key(shape))


def _column(term: Term) -> str:
    # Any one order cuts the table cleanly; the column's own is that of the index in all but odd cases, and a
    # COLLATE inside a row value would hide the index. An application's own collation is not ours to call.
    name = quote(str(term.column))
    return name if term.collation.upper() in _BUILT_IN else f"{name} COLLATE BINARY"


def _range(
    shape: Shape, terms: Sequence[Term], after: list[Any] | None, upto: list[Any] | None
) -> tuple[str, list[Any]]:
    columns = ", ".join(_column(term) for term in terms)
    conditions, parameters = [], []
    for sign, bound in ((">", after), ("<=", upto)):
        if bound is not None:
            if len(bound) != len(terms):
                raise StateUnreadable(f"a chunk of table {shape.name} has another key than the table")
            marks = ", ".join("CAST(? AS TEXT)" if kind == "x" else "?" for kind, _ in bound)
            conditions.append(f"({columns}) {sign} ({marks})")
            parameters += [_read(part) for part in bound]
    if _nullable_key(shape):
        conditions += [f"{quote(str(term.column))} IS NOT NULL" for term in terms]
    return " AND ".join(conditions) or "1", parameters


def _write(value: object) -> list[str]:
    match value:
        case InvalidText():
            return ["x", base64.b64encode(value).decode()]
        case int():
            return ["i", str(value)]
        case float():
            return ["r", value.hex()]
        case str():
            return ["t", value]
        case bytes():
            return ["b", base64.b64encode(value).decode()]
    raise StateUnreadable("a key has a value of an unknown type")


def _read(part: Sequence[str]) -> object:
    kind, text = part
    match kind:
        case "i":
            return int(text)
        case "r":
            return float.fromhex(text)
        case "t":
            return text
        case "b" | "x":
            return base64.b64decode(text)
    raise StateUnreadable(f"a chunk's bound has the unknown kind {kind!r}")


def read(
    config: SqliteConfig,
    table: TableSchema,
    chunk: Chunk,
    *,
    position: int,
    seq: int,
    columns: Sequence[str] | None,
    reading: Reading,
) -> Iterator[ChangeBatch]:
    """The rows of a chunk as they are now, in one read transaction that ends with the chunk."""
    with reading() as connection:
        shape = _shape(connection, table.ref)
        now = catalog.schema_of(shape, config.types, table.generation)
        # By what was declared: the types may be overridden otherwise since, and those of the plan hold.
        if _declared(now) != _declared(table):
            raise drift.error(table.ref.name, ["its columns are not those the snapshot began with"])
        wanted = table if columns is None else _project(table, columns)
        sql, parameters = _query(shape, wanted, chunk)
        ts = time.time_ns() // 1000
        kinds = [column.type for column in wanted.columns]
        pace = Pace(len(kinds), config.slice_bytes, _STEP)
        for runs, rows in slices(connection, sql, parameters, kinds=kinds, pace=pace, config=config):
            yield _batch(wanted, runs, position, seq, ts)
            seq += rows


def _declared(table: TableSchema) -> tuple[object, ...]:
    return table.key, tuple((column.name, column.native, column.generated) for column in table.columns)


def _batch(table: TableSchema, runs: list[list[Cells]], position: int, seq: int, ts: int) -> ChangeBatch:
    cells = [decode.concat(parts) for parts in zip(*runs, strict=True)]
    return images.reads(table, cells, position=position, seq=seq, ts=ts)


def _project(table: TableSchema, columns: Sequence[str]) -> TableSchema:
    unknown = [name for name in columns if name not in {column.name for column in table.columns}]
    if unknown or not columns:
        raise ConfigError(f"table {table.ref.name} has no column {', '.join(unknown) or 'of an empty list'}")
    return replace(table, columns=tuple(table.column(name) for name in columns))


def _query(shape: Shape, wanted: TableSchema, chunk: Chunk) -> tuple[str, list[Any]]:
    names = quoted(column.name for column in wanted.columns)
    terms = _key(shape)
    parameters: list[Any] = []
    if not chunk.bounds:
        # Rows with NULL in the key too: all of the table in one look.
        where = "1"
    elif chunk.bounds.get("null"):
        where = " OR ".join(f"{quote(str(term.column))} IS NULL" for term in terms)
    else:
        where, parameters = _range(shape, terms, chunk.bounds.get("after"), chunk.bounds.get("upto"))
    if chunk.where:
        where = f"({where}) AND ({chunk.where})"
    return f"SELECT {names} FROM {quote(shape.name)} WHERE {where}", parameters
