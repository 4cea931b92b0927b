"""The two kinds of sink over plain Python objects: the smallest complete reading of the contract.

Rows are dicts and replays are refused by the same rule as at the Delta sink. Not for large data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import DataError, SchemaDrift, UsageError
from tailrace.model.net import NetChanges
from tailrace.model.render import lines
from tailrace.model.table import TableSchema, schema_change
from tailrace.model.views import net_view
from tailrace.sinks.contract import FeedSink, Progress, Report, TableSink


@dataclass
class _Target:
    table: TableSchema
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    end: int = -1
    piece: tuple[int, int] = (-1, 0)
    chunks: dict[str, int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)


class MemoryTableSink(TableSink):
    """Tables as dicts of rows by key."""

    def __init__(self) -> None:
        self._targets: dict[str, _Target] = {}

    def ensure(self, target: str, table: TableSchema) -> None:
        self._targets.setdefault(target, _Target(table))

    def exists(self, target: str) -> bool:
        return target in self._targets

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        self.ensure(target, net.table)
        held = self._targets[target]
        plan, index = progress.snapshots.get(str(net.table.ref), (None, 0))
        done = plan is None or held.chunks.get(plan, -1) >= index
        if held.end >= progress.end and done:
            return Report(skipped=True)
        if progress.part and held.piece >= (progress.end, progress.part):
            return Report(skipped=True)
        rows = {} if net.reset else dict(held.rows)
        table, dropped = net.table, set[str]()
        if not net.reset:
            table, dropped = _adapted(held, net)
        written = deleted = 0
        for row in net_view(net).to_pylist():
            key = tuple(row[name] for name in net.table.identity)
            if row["_change_type"] == "delete":
                deleted += rows.pop(key, None) is not None
            elif row["_change_type"] == "upsert":
                lost = [name for name in row["_absent"] or () if name not in net.later]
                if lost and key not in rows:
                    if str(table.ref) in progress.unsettled:
                        continue
                    raise _partial(table, lost)
                rows[key] = _completed(table, row, rows.get(key))
                written += 1
        held.table, held.rows, held.dropped = table, rows, dropped
        if progress.part:
            held.piece = (progress.end, progress.part)
        else:
            held.end = progress.end if net.reset else max(held.end, progress.end)
            held.piece = (-1, 0) if net.reset else held.piece
        if plan is not None:
            held.chunks[plan] = index
        return Report(written=written, deleted=deleted)

    def read(self, target: str) -> pa.Table:
        held = self._targets.get(target)
        if held is None:
            raise UsageError(f"there is no table {target}")
        return pa.Table.from_pylist(list(held.rows.values()), schema=pa.schema(list(held.table.struct)))

    def close(self) -> None:
        """Nothing to release: what was applied can still be read."""


def _adapted(held: _Target, net: NetChanges) -> tuple[TableSchema, set[str]]:
    """The target's table with the columns that are new, and the names of those that are gone."""
    old, new = held.table, net.table
    change = schema_change(old, new)
    filled = [name for name in change.added if new.column(name).filled and (held.rows or name in net.later)]
    again = [column.name for column in new.columns if column.name in held.dropped]
    if change.retyped or filled or again:
        raise SchemaDrift(
            f"columns of table {new.ref} have another type, or values in older rows that are not in the log: "
            f"{', '.join((*change.retyped, *filled, *again))}",
            remedy="make a new snapshot of the table",
            place=str(new.ref),
        )
    columns = (*old.columns, *(new.column(name) for name in change.added))
    return replace(new, columns=columns), held.dropped | (net.dropped & set(change.dropped))


def _partial(table: TableSchema, lost: Sequence[str]) -> DataError:
    return DataError(
        f"table {table.ref}: a new row lacks its columns {', '.join(lost)}",
        remedy="make a new snapshot of the table",
        place=str(table.ref),
    )


def _completed(table: TableSchema, row: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    absent = row["_absent"] or ()
    kept = {name: value for name, value in (old or {}).items() if name in absent or name not in row}
    return {c.name: kept.get(c.name, row.get(c.name)) for c in table.columns}


class MemoryFeedSink(FeedSink):
    """Collects what it is given: `batches` with their progress, `text` as lines of JSON."""

    def __init__(self) -> None:
        self.batches: list[tuple[Progress, tuple[ChangeBatch, ...]]] = []
        self.text: list[str] = []
        self.flushed = 0

    def write(self, batches: Sequence[ChangeBatch], progress: Progress) -> Report:
        self.batches.append((progress, tuple(batches)))
        text = lines(batches).to_pylist()
        self.text += text
        return Report(written=len(text))

    def flush(self) -> None:
        self.flushed = len(self.batches)

    def close(self) -> None:
        """Nothing to release: what was written can still be read."""
