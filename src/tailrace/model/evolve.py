"""Changes of a table whose columns changed in between, in the columns that it has at the end.

A column that was added is lacking in rows from before, one that was dropped is left out of them. Nothing else
can be told from the log alone: a renamed column looks like one that was dropped beside one that was added,
and what became of the values of a retyped one, or which rows a new key means, is nowhere said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch, Op, schema_of
from tailrace.model.errors import SchemaDrift
from tailrace.model.render import absent_lists, absent_masks, field_of, optional
from tailrace.model.table import SchemaChange, TableSchema, schema_change

_NAMES = pa.list_(pa.string())
_SNAPSHOT = (Op.READ.value, Op.SNAPSHOT.value)


@dataclass(frozen=True)
class Alike:
    """The batches with equal columns; what some of them lacked, and what the log shows to be dropped."""

    batches: Sequence[ChangeBatch]
    later: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()


def drift(table: TableSchema, change: SchemaChange) -> SchemaDrift:
    """The error of a change that older rows do not tell the outcome of."""
    hint = " (a rename?)" if change.added and change.dropped else ""
    return SchemaDrift(
        f"the columns or key of table {table.ref} changed in a way that leaves older rows unknown: "
        f"{change}{hint}",
        remedy="make a new snapshot of the table",
        place=str(table.ref),
    )


def from_log(batch: ChangeBatch) -> bool:
    """Whether the batch is of the log: a snapshot's rows look as the catalog did, wherever the log is."""
    return not len(batch) or batch.data.column("op")[0].as_py() not in _SNAPSHOT


def evolve(
    batches: Sequence[ChangeBatch],
    live: Sequence[npt.NDArray[np.bool_]],
    order: npt.NDArray[np.int64],
    table: TableSchema,
) -> Alike:
    """The batches in the columns of `table`, as far as rows of them are `live`; else SchemaDrift.

    `order` is each row's place in time, over the rows of all batches.
    """
    shape = table.struct, table.identity
    if all(batch.table is table or (batch.table.struct, batch.table.identity) == shape for batch in batches):
        return Alike(batches)
    starts = np.cumsum([0, *(len(batch) for batch in batches)])
    alive = [number for number, rows in enumerate(live) if rows.any()]
    alive.sort(key=lambda number: int(order[starts[number] : starts[number + 1]].min()))
    previous: TableSchema | None = None
    dropped: set[str] = set()
    later: set[str] = set()
    made = list(batches)
    for number in alive:
        batch = batches[number]
        left = schema_change(batch.table, table)
        if left.retyped or left.key:
            raise drift(table, left)
        if from_log(batch):
            step = schema_change(previous or batch.table, batch.table)
            if not step.followed or dropped.intersection(step.added):
                raise drift(table, step)
            dropped.update(step.dropped)
            previous = batch.table
        later.update(left.added)
        made[number] = _conformed(batch, table, left.added)
    return Alike(made, frozenset(later), frozenset(dropped))


def _conformed(batch: ChangeBatch, table: TableSchema, lacking: Sequence[str]) -> ChangeBatch:
    if batch.table.struct == table.struct:
        return ChangeBatch(table, batch.data)
    columns: dict[str, pa.Array] = dict(zip(batch.data.schema.names, batch.data.columns, strict=True))
    for side in ("before", "after"):
        image = columns[side]
        columns[side] = _image(image, table)
        if lacking:
            known = optional(batch, f"{side}_absent")
            columns[f"{side}_absent"] = _absent(image.is_valid(), known, list(lacking))
    plain = schema_of(table).names
    fields = [pa.field(name, column.type) for name, column in columns.items() if name not in plain]
    schema = schema_of(table, fields)
    return ChangeBatch(table, pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=schema))


def _image(image: pa.StructArray, table: TableSchema) -> pa.StructArray:
    held = {field.name for field in image.type}
    values = [
        field_of(image, field.name) if field.name in held else pa.nulls(len(image), field.type)
        for field in table.struct
    ]
    mask = pc.invert(image.is_valid())
    return pa.StructArray.from_arrays(values, fields=list(table.struct), mask=mask)


def _absent(there: pa.Array, known: pa.ListArray | None, lacking: list[str]) -> pa.ListArray:
    valid = np.asarray(there.to_numpy(zero_copy_only=False))
    if known is None or known.null_count == len(known):
        return pa.array([lacking], _NAMES).take(pa.array(np.zeros(len(there), np.int64), mask=~valid))
    lists = absent_lists({**absent_masks(known, len(there)), **dict.fromkeys(lacking, valid)})
    return pa.nulls(len(there), _NAMES) if lists is None else lists
