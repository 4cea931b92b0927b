"""Net changes: what a set of changes of one table leaves behind, latest per key, by columns.

`net` lays the batches end to end without copying them, numbers every key (`tailrace.model.keys`), turns each
change into events of a key (an upsert, a delete, or both where an update changes its key), and keeps the last
event of each key in (position, seq) order. Only the rows that win are copied. Images that lack columns take a
slower way (`tailrace.model.partial`), which only they pay for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import META, ChangeBatch, Op
from tailrace.model.errors import ConfigError, DataError, UsageError
from tailrace.model.evolve import evolve
from tailrace.model.keys import Keys, number_keys
from tailrace.model.partial import complete
from tailrace.model.render import field_of, in_order, optional
from tailrace.model.table import TableSchema

Ints = npt.NDArray[np.int64]
_OPS = [op.value for op in (Op.INSERT, Op.UPDATE, Op.READ, Op.DELETE, Op.TRUNCATE, Op.SNAPSHOT)]
_UPDATE, _DELETE, _FIRST_MARKER = 1, 3, 4
_META = ("position", "seq", "ts")


@dataclass(frozen=True)
class NetChanges:
    """The current rows and the gone keys of one table, as far as a set of changes tells.

    `reset` says that a truncate or the begin of a snapshot is among the changes: what was known of the table
    before is void, and `upserts` is all there is. Applying is otherwise: delete the keys of `deletes` (which
    may not exist), and put the rows of `upserts` in place of those with their key. No key is in both.

    `upserts` has the table's columns, `deletes` its identity columns; the order of rows means nothing.
    `exact` and `deletes_exact` hold tagged values (`tailrace.model.change`) for the columns that need them,
    row by row beside `upserts` and `deletes`. `absent` names the columns that a row of `upserts` lacks: they
    keep the value they have in the row of that key. `*_meta` has the position, seq and ts of each row's last
    change; `reset_meta` those of the reset. `position` is the newest position, `rows_in` the number of
    changes that went in, repeated ones counted once.

    `later` names columns that the table did not have when some of the rows were written: these lack them, and
    in a row that is new they are NULL. `dropped` names those that the log shows to have gone on the way.
    """

    table: TableSchema
    reset: bool
    upserts: pa.Table
    deletes: pa.Table
    position: int
    rows_in: int
    upserts_meta: pa.Table
    deletes_meta: pa.Table
    reset_meta: pa.Table | None = None
    exact: pa.Table | None = None
    deletes_exact: pa.Table | None = None
    absent: pa.ChunkedArray | None = None
    later: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether applying it would change nothing."""
        return not (self.reset or self.upserts.num_rows or self.deletes.num_rows)

    def upserting(self, rows: npt.NDArray[np.bool_]) -> NetChanges:
        """With these rows of `upserts` only."""
        mask = pa.array(rows)
        return replace(
            self,
            upserts=self.upserts.filter(mask),
            upserts_meta=self.upserts_meta.filter(mask),
            exact=None if self.exact is None else self.exact.filter(mask),
            absent=None if self.absent is None else self.absent.filter(mask),
        )


class Rows:
    """The rows of several batches under one running number."""

    def __init__(self, batches: Sequence[ChangeBatch]) -> None:
        self.batches = batches
        self.starts = np.concatenate(([0], np.cumsum([len(batch) for batch in batches]))).astype(np.int64)
        self.count = int(self.starts[-1])
        # Not at import: the first array of a process makes Arrow import pandas.
        known = pa.array(_OPS)
        self.ops: Ints = self._ints([pc.index_in(b.data.column("op"), value_set=known) for b in batches])
        self.position = self._ints([b.data.column("position") for b in batches])
        self.seq = self._ints([b.data.column("seq") for b in batches])

    @staticmethod
    def _ints(arrays: list[Any]) -> Ints:
        return np.concatenate([np.asarray(a.to_numpy(zero_copy_only=False), dtype=np.int64) for a in arrays])

    def rank(self) -> Ints | None:
        """Each row's place in (position, seq) order; None where they stand in order already."""
        if in_order(self.position, self.seq):
            return None
        rank = np.empty(self.count, dtype=np.int64)
        rank[np.lexsort((self.seq, self.position))] = np.arange(self.count)
        return rank

    def distinct(self, rank: Ints | None) -> int:
        """How many different (position, seq) there are."""
        order = slice(None) if rank is None else np.argsort(rank)
        return 1 + int(np.count_nonzero(np.diff(self.position[order]) | np.diff(self.seq[order])))

    def split(self, rows: Ints) -> list[tuple[ChangeBatch, Ints]]:
        """Rows in ascending order, as batches with the places within each."""
        cuts = np.searchsorted(rows, self.starts)
        return [
            (batch, rows[cuts[i] : cuts[i + 1]] - self.starts[i])
            for i, batch in enumerate(self.batches)
            if cuts[i] < cuts[i + 1]
        ]


def net(batches: Sequence[ChangeBatch]) -> NetChanges:
    """The net changes of one table's batches, which may come in any order and repeatedly.

    Only what follows the last truncate or begin of a snapshot counts. Where the columns changed after that,
    rows take the newest ones; SchemaDrift where older rows do not tell how they look now. Keys compare by
    value; a NULL in one is a DataError. A table without identity is a ConfigError.
    """
    if not batches or len({batch.table.ref for batch in batches}) > 1:
        raise UsageError("net changes are made of the batches of one table")
    filled = [batch for batch in batches if len(batch)]
    if not filled:
        return _nothing(_identified(batches[-1].table))
    rows = Rows(filled)
    rank = rows.rank()
    order = np.arange(rows.count) if rank is None else rank
    newest = int(np.argmax(order))
    table = _identified(filled[int(np.searchsorted(rows.starts, newest, side="right")) - 1].table)

    markers = np.flatnonzero(rows.ops >= _FIRST_MARKER)
    reset = int(markers[np.argmax(order[markers])]) if len(markers) else None
    live = np.ones(rows.count, dtype=bool) if reset is None else order > order[reset]
    live[markers] = False
    _refuse_untold(rows, live)
    alike = evolve(rows.batches, [live[a:b] for a, b in pairwise(rows.starts)], order, table)
    rows = rows if alike.batches is rows.batches else Rows(alike.batches)

    keys = number_keys(rows.split, table, _upserting(rows, live), _deleting(rows, live), rows.count)
    upserts, deletes = _winners(keys, order)
    names = [column.name for column in table.columns]
    completed = complete(rows, table, keys, order, upserts, later=alike.later)
    return NetChanges(
        table=table,
        reset=reset is not None,
        upserts=_images(rows, upserts, "after", table, names) if completed is None else completed.values,
        deletes=_images(rows, deletes, "before", table, list(table.identity)),
        position=int(rows.position.max()),
        rows_in=rows.distinct(rank),
        upserts_meta=_meta(rows, upserts),
        deletes_meta=_meta(rows, deletes),
        reset_meta=None if reset is None else _meta(rows, np.array([reset])),
        exact=_exact(rows, upserts, "after", names) if completed is None else completed.exact,
        deletes_exact=_exact(rows, deletes, "before", list(table.identity)),
        absent=None if completed is None else completed.absent,
        later=alike.later,
        dropped=alike.dropped,
    )


def _identified(table: TableSchema) -> TableSchema:
    if not table.identity:
        raise ConfigError(
            f"table {table.ref} has nothing that tells its rows apart, so there is no latest row of a key",
            remedy="declare a primary key",
            place=str(table.ref),
        )
    return table


def _refuse_untold(rows: Rows, live: npt.NDArray[np.bool_]) -> None:
    """Refuse updates and deletes of nobody knows which row: one whose key changed would be there twice."""
    if all(batch.table.key_before for batch in rows.batches):
        return
    for batch, _ in rows.split(_deleting(rows, live)):
        if not batch.table.key_before:
            ref = batch.table.ref
            raise DataError(
                f"table {ref}: rows were updated or deleted, and the log does not have the key that they had",
                remedy="let the log carry the key (PostgreSQL: ALTER TABLE … REPLICA IDENTITY DEFAULT, or "
                "FULL), then make a new snapshot of the table",
                place=str(ref),
            )


def _upserting(rows: Rows, live: npt.NDArray[np.bool_]) -> Ints:
    return np.flatnonzero(live & (rows.ops < _DELETE))


def _deleting(rows: Rows, live: npt.NDArray[np.bool_]) -> Ints:
    return np.flatnonzero(live & ((rows.ops == _DELETE) | (rows.ops == _UPDATE)))


def _winners(keys: Keys, order: Ints) -> tuple[Ints, Ints]:
    """The rows whose after image is a key's last state, and those whose before image is a key now gone."""
    event_rows = np.concatenate((keys.gone_rows, keys.rows))
    codes = np.concatenate((keys.gone_codes, keys.codes))
    # A key change first deletes and then upserts, so a delete sorts before an upsert of its row.
    when = np.concatenate((order[keys.gone_rows] * 2, order[keys.rows] * 2 + 1))
    if np.any(np.diff(when) < 0):
        by_time = np.argsort(when, kind="stable")
        event_rows, codes, when = event_rows[by_time], codes[by_time], when[by_time]
    last = np.full(keys.count, -1, dtype=np.int64)
    last[codes] = np.arange(len(codes))
    last = last[last >= 0]
    upsert = (when[last] & 1).astype(bool)
    winners = event_rows[last]
    return np.sort(winners[upsert]), np.sort(winners[~upsert])


def _take(array: pa.Array, places: Ints) -> pa.Array:
    return array if len(places) == len(array) else array.take(pa.array(places))


def _images(rows: Rows, picked: Ints, side: str, table: TableSchema, names: list[str]) -> pa.Table:
    schema = pa.schema([pa.field(name, table.column(name).type.arrow) for name in names])
    parts = [
        pa.RecordBatch.from_arrays(
            [_take(field_of(batch.data.column(side), name), places) for name in names], schema=schema
        )
        for batch, places in rows.split(picked)
    ]
    return pa.Table.from_batches(parts, schema)


def _exact(rows: Rows, picked: Ints, side: str, names: list[str]) -> pa.Table | None:
    tagged = [(optional(batch, f"{side}_exact"), places) for batch, places in rows.split(picked)]
    having = {field.name for column, _ in tagged if column is not None for field in column.type}
    wanted = [name for name in names if name in having]
    if not wanted:
        return None
    schema = pa.schema([pa.field(name, pa.string()) for name in wanted])
    parts = [
        pa.RecordBatch.from_arrays(
            [
                pa.nulls(len(places), pa.string())
                if column is None or column.type.get_field_index(name) < 0
                else _take(field_of(column, name), places)
                for name in wanted
            ],
            schema=schema,
        )
        for column, places in tagged
    ]
    return pa.Table.from_batches(parts, schema)


def _meta(rows: Rows, picked: Ints) -> pa.Table:
    schema = pa.schema([rows.batches[0].data.schema.field(name) for name in _META])
    parts = [
        pa.RecordBatch.from_arrays([_take(batch.data.column(name), places) for name in _META], schema=schema)
        for batch, places in rows.split(picked)
    ]
    return pa.Table.from_batches(parts, schema)


def _nothing(table: TableSchema) -> NetChanges:
    def none(names: Sequence[str]) -> pa.Table:
        return pa.schema([pa.field(n, table.column(n).type.arrow) for n in names]).empty_table()

    meta = pa.schema([field for field in META if field.name in _META]).empty_table()
    return NetChanges(
        table, False, none([c.name for c in table.columns]), none(table.identity), 0, 0, meta, meta
    )
