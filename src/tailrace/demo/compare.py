"""Is a mirror equal to its table? Plain SQL of SQLite against `deltalake`; no code of the pipeline's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.demo.database import Database, connect

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Difference:
    """How many rows of a mirror are wrong, and in which way."""

    table: str
    rows: int
    missing: int
    extra: int
    different: int

    @property
    def equal(self) -> bool:
        """Whether the mirror holds exactly the table's rows."""
        return self.missing == self.extra == self.different == 0


def compare(shop: str, lake: Path, tables: Iterable[str]) -> list[Difference]:
    """Compare every table with its mirror, all keys and all values, at one moment of the source."""
    with connect(shop, reading=True) as source:
        source.begin_reading()
        return [_compare(source, lake, table) for table in tables]


def _compare(source: Database, lake: Path, table: str) -> Difference:
    info = source.execute(f'PRAGMA table_info("{table}")').fetchall()
    columns = [column[1] for column in info]
    key = [column[1] for column in sorted(info, key=lambda column: column[5]) if column[5]]
    wanted = _keyed(source.execute(f'SELECT * FROM "{table}"').fetchall(), columns, key)
    mirrored = _mirrored(lake / table, columns)
    mirror = _keyed(mirrored, columns, key)
    return Difference(
        table,
        rows=len(wanted),
        missing=len(wanted.keys() - mirror.keys()),
        # A key that is there twice is one row too many.
        extra=len(mirror.keys() - wanted.keys()) + len(mirrored) - len(mirror),
        different=sum(wanted[found] != mirror[found] for found in wanted.keys() & mirror.keys()),
    )


def _mirrored(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable, QueryBuilder

    if not (path / "_delta_log").is_dir():
        return []
    # Not `to_pyarrow_table`: its threads may still run when the interpreter ends, and then abort it.
    asked = QueryBuilder().register("mirror", DeltaTable(str(path))).execute("SELECT * FROM mirror")
    read = pa.table(asked.read_all())
    return list(zip(*(read[column].to_pylist() for column in columns), strict=True))


def _keyed(rows: Iterable[tuple[Any, ...]], columns: list[str], key: list[str]) -> Rows:
    places = [columns.index(column) for column in key]
    return {tuple(_plain(row[place]) for place in places): tuple(map(_plain, row)) for row in rows}


def _plain(value: Any) -> Any:
    """One form for values that the two sides spell differently: SQLite has no booleans and no decimals."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    return value
