"""Transactions whose rows follow from their position, so that any reader can tell what must be there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tailrace.changelog.log import Changelog
from tailrace.changelog.reader import read_windows
from tailrace.changelog.segment import WindowRef
from tailrace.model.change import TS, ChangeBatch, Ends, Part, schema_of
from tailrace.model.position import Position
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "test-source"


def table_named(name: str, generation: str = "") -> TableSchema:
    columns = (Column("id", ColumnType("long")), Column("text", ColumnType("string")))
    return TableSchema(TableRef("main", name), columns, ("id",), generation=generation)


ORDERS = table_named("orders")
LINES = table_named("lines")


def at(version: int) -> Position:
    return Position(SOURCE, version)


def changes(table: TableSchema, position: int, seqs: Iterable[int]) -> ChangeBatch:
    seq = np.array(list(seqs), np.int64)
    texts = pa.array([f"{position}/{n}" for n in seq], pa.string())
    after = pa.StructArray.from_arrays([pa.array(seq), texts], fields=list(table.struct))
    arrays = [
        pa.array(["c"] * len(seq), pa.string()),
        pa.array(np.full(len(seq), position)),
        pa.array(seq),
        pa.nulls(len(seq), pa.string()),
        pa.array(seq, TS),
        pa.nulls(len(seq), table.struct),
        after,
    ]
    return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=schema_of(table)))


def part(position: int, rows: int = 3, *, first: int = 0, complete: bool = True) -> Part:
    """Rows `first` to `first + rows`; the even ones are orders, the odd ones lines."""
    seqs = range(first, first + rows)
    even, odd = ([n for n in seqs if n % 2 == rest] for rest in (0, 1))
    batches = (changes(ORDERS, position, even), changes(LINES, position, odd))
    return Part(tuple(batch for batch in batches if len(batch)), at(position), complete)


def several(positions: Sequence[int], rows: int = 3) -> Part:
    """Whole transactions in one part, as a capture that decodes many at once delivers them."""
    parts = [part(position, rows) for position in positions]
    batches = []
    for table in (ORDERS, LINES):
        data = [batch.data for one in parts for batch in one.batches if batch.table is table]
        if data:
            batches.append(ChangeBatch(table, pa.concat_batches(data)))
    counts = np.cumsum([one.rows for one in parts])
    return Part(tuple(batches), at(positions[-1]), ends=Ends(np.array(positions, np.int64), counts))


def in_parts(position: int, rows: int, each: int) -> Iterator[Part]:
    for first in range(0, rows, each):
        count = min(each, rows - first)
        yield part(position, count, first=first, complete=first + count == rows)


def rows_of(uri: str, refs: Iterable[WindowRef]) -> list[tuple[int, int, str, str]]:
    """(position, seq, table, text) in the order that a consumer gives them."""
    found = []
    for batches in read_windows(uri, refs):
        window = []
        for batch in batches:
            columns = batch.data.to_pydict()
            texts = [after["text"] for after in columns["after"]]
            names = [batch.table.ref.name] * len(batch)
            window += list(zip(columns["position"], columns["seq"], names, texts, strict=True))
        found += sorted(window)
    return found


def expected(position: int, rows: int) -> list[tuple[int, int, str, str]]:
    return [(position, n, "lines" if n % 2 else "orders", f"{position}/{n}") for n in range(rows)]


def all_rows(log: Changelog, start: int = 0) -> list[tuple[int, int, str, str]]:
    return rows_of(log.uri, log.plan(start, log.end))


@contextmanager
def child(module: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that runs a module of these tests; ended with the block, frozen or not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.changelog.{module}", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
