"""Net changes as the source of one MERGE: a table with marks, and the clauses that read the marks.

The source has the table's columns, a mark for rows to delete where there are any, and a mark for each column
that some row lacks. Identifiers are quoted in all SQL that is made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.model.net import NetChanges
from tailrace.model.render import absent_masks
from tailrace.model.table import TableSchema, quote
from tailrace.model.views import resolve_exact

# Types whose statistics in Delta's log are exact or rounded outwards. Decimals are not among them: their
# statistics are doubles, and a merge that trusts those inserts a second row for a key of twenty digits.
_PRUNABLE = frozenset({"short", "integer", "long", "string", "date"})


@dataclass(frozen=True)
class MergeSource:
    """The rows of a MERGE, its join condition, and its clauses. None: the clause is not needed.

    `prunable` says that a file's least and greatest keys may decide that it holds none of the rows.
    """

    rows: pa.Table
    on: str
    prunable: bool
    delete_when: str | None
    write_when: str | None
    updates: dict[str, str] | None
    inserts: dict[str, str] | None


def typed(net: NetChanges) -> tuple[pa.Table, pa.Table]:
    """Upserts and deletes with tagged values put into their columns; DataError where one does not fit."""
    return _resolved(net.table, net.upserts, net.exact), _resolved(net.table, net.deletes, net.deletes_exact)


def _resolved(table: TableSchema, rows: pa.Table, exact: pa.Table | None) -> pa.Table:
    if exact is None:
        return rows
    for name in exact.schema.names:
        values = resolve_exact(rows.column(name), exact.column(name), table, name, by_key=True)
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return rows


def lacking(net: NetChanges) -> dict[str, Any]:
    """For each column that some upsert lacks: which rows lack it."""
    if net.absent is None:
        return {}
    return absent_masks(pa.concat_arrays(net.absent.chunks), net.upserts.num_rows)


def merge_source(net: NetChanges) -> MergeSource:
    """What one MERGE needs to apply these changes."""
    upserts, deletes = typed(net)
    missing = lacking(net)
    names = upserts.schema.names
    marks = _free_names(names, 1 + len(missing))
    gone = marks[0]
    absent = dict(zip(missing, marks[1:], strict=True))

    rows = upserts
    if deletes.num_rows:
        nulls = [
            deletes.column(field.name)
            if field.name in deletes.schema.names
            else pa.nulls(deletes.num_rows, field.type)
            for field in upserts.schema
        ]
        rows = pa.concat_tables([upserts, pa.Table.from_arrays(nulls, schema=upserts.schema)])
        rows = rows.append_column(gone, pa.array(np.arange(rows.num_rows) >= upserts.num_rows))
    for name, mark in absent.items():
        mask = np.concatenate((missing[name], np.zeros(deletes.num_rows, dtype=bool)))
        rows = rows.append_column(mark, pa.array(mask))

    values = {quote(name): f"source.{quote(name)}" for name in names}
    updates = values | {
        quote(name): f"CASE WHEN source.{quote(mark)} THEN target.{quote(name)} ELSE source.{quote(name)} END"
        for name, mark in absent.items()
    }
    return MergeSource(
        rows=rows,
        on=" AND ".join(f"target.{quote(name)} = source.{quote(name)}" for name in net.table.identity),
        prunable=all(net.table.column(name).type.name in _PRUNABLE for name in net.table.identity),
        delete_when=f"source.{quote(gone)}" if deletes.num_rows else None,
        write_when=f"NOT source.{quote(gone)}" if deletes.num_rows else None,
        updates=updates if upserts.num_rows else None,
        inserts=values if upserts.num_rows else None,
    )


def _free_names(taken: list[str], count: int) -> list[str]:
    lower = {name.lower() for name in taken}
    found: list[str] = []
    number = 0
    while len(found) < count:
        name = f"tailrace_mark_{number}"
        if name not in lower:
            found.append(name)
        number += 1
    return found
