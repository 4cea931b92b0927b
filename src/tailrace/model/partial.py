"""Row images that lack columns, completed from earlier images of the same row within a set of changes.

Only the keys with such images, and the keys they came from, are replayed, change by change, and the replay
moves no values: it finds for each missing value the image that has it. The values are then taken by columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.model.change import ChangeBatch, Op
from tailrace.model.errors import DataError
from tailrace.model.keys import Keys
from tailrace.model.render import absent_masks, field_of, optional
from tailrace.model.table import TableSchema

if TYPE_CHECKING:
    from tailrace.model.net import Rows

Ints = npt.NDArray[np.int64]
Masks = dict[str, npt.NDArray[np.bool_]]
# Places of values that no image of the set has: the row of that key elsewhere may have it, or nothing has.
_ELSEWHERE, _NOWHERE = -1, -2


@dataclass(frozen=True)
class Completed:
    """The winning rows with what could be completed; `absent` says what could not."""

    values: pa.Table
    exact: pa.Table | None
    absent: pa.ChunkedArray | None


def complete(rows: Rows, table: TableSchema, keys: Keys, order: Ints, winners: Ints) -> Completed | None:
    """Complete the winning after images; None where none of the images lacks a column."""
    after = _masks(rows, "after")
    lacking = [name for name, mask in after.items() if mask[keys.rows].any()]
    if not lacking:
        return None
    before = _masks(rows, "before")
    places = _replay(rows, keys, order, after=after, before=before, lacking=lacking)
    sources = {}
    for name in lacking:
        source = winners.copy()
        for i, row in enumerate(winners.tolist()):
            if row in places:
                source[i] = places[row][lacking.index(name)]
        _refuse_lost(table, name, source)
        sources[name] = source
    return _assemble(rows, table, winners, sources)


def _masks(rows: Rows, side: str) -> Masks:
    result: Masks = {}
    for i, batch in enumerate(rows.batches):
        for name, mask in absent_masks(optional(batch, f"{side}_absent"), len(batch)).items():
            whole = result.setdefault(name, np.zeros(rows.count, dtype=bool))
            whole[rows.starts[i] : rows.starts[i + 1]] = mask
    return result


def _replay(
    rows: Rows, keys: Keys, order: Ints, *, after: Masks, before: Masks, lacking: list[str]
) -> dict[int, list[int]]:
    """For each row with a missing value, and for all rows of its key: the place of each lacking column."""
    old_key = dict(zip(keys.gone_rows.tolist(), keys.gone_codes.tolist(), strict=True))
    partial = np.zeros(rows.count, dtype=bool)
    for name in lacking:
        partial |= after[name]
    codes = np.full(rows.count, -1, dtype=np.int64)
    codes[keys.rows] = keys.codes
    involved = _involved(keys, old_key, codes, partial)

    has_before = np.concatenate(
        [batch.data.column("before").is_valid().to_numpy(zero_copy_only=False) for batch in rows.batches]
    )
    update = np.concatenate([_is_update(batch) for batch in rows.batches])
    events = [(int(order[r]) * 2, r, c) for r, c in old_key.items() if c in involved]
    mine = np.isin(keys.codes, np.fromiter(involved, np.int64, len(involved)))
    events += [
        (int(order[r]) * 2 + 1, r, c)
        for r, c in zip(keys.rows[mine].tolist(), keys.codes[mine].tolist(), strict=True)
    ]
    state: dict[int, list[int]] = {}
    moved: dict[int, list[int] | None] = {}
    gone: set[int] = set()
    places: dict[int, list[int]] = {}
    # A repeated change must not find the row moved away that its first copy moved.
    first: dict[tuple[int, int], int] = {}
    for when, row, code in sorted(events):
        original = first.setdefault((int(rows.position[row]), int(rows.seq[row])), row)
        if when % 2 == 0:
            if original == row:
                moved[row] = state.pop(code, None)
                gone.add(code)
            continue
        if original in places and codes[original] == code:
            places[row] = places[original]
            continue
        changed = row in old_key
        base = moved.get(row) if changed else state.get(code)
        unknown = _NOWHERE if changed or code in gone else _ELSEWHERE
        found = []
        for i, name in enumerate(lacking):
            if not after[name][row]:
                found.append(row)
            elif update[row] and has_before[row] and not (name in before and before[name][row]):
                found.append(rows.count + row)
            elif base is None or (changed and base[i] < 0):
                found.append(unknown)
            else:
                found.append(base[i])
        state[code] = places[row] = found
    return places


def _is_update(batch: ChangeBatch) -> npt.NDArray[np.bool_]:
    ops = np.asarray(batch.data.column("op").to_numpy(zero_copy_only=False))
    result: npt.NDArray[np.bool_] = ops == Op.UPDATE.value
    return result


def _involved(keys: Keys, old_key: dict[int, int], codes: Ints, partial: npt.NDArray[np.bool_]) -> set[int]:
    """The keys with partial images, and the keys their rows had before, however often they changed."""
    involved = set(codes[keys.rows[partial[keys.rows]]].tolist())
    came_from: dict[int, set[int]] = {}
    for row, old in old_key.items():
        if codes[row] >= 0:
            came_from.setdefault(int(codes[row]), set()).add(old)
    todo = list(involved)
    while todo:
        for old in came_from.get(todo.pop(), set()) - involved:
            involved.add(old)
            todo.append(old)
    return involved


def _refuse_lost(table: TableSchema, name: str, source: Ints) -> None:
    if lost := int(np.count_nonzero(source == _NOWHERE)):
        raise DataError(
            f"table {table.ref}: {lost} rows changed their key and the log did not carry their column {name}",
            remedy="let the log carry whole rows (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL), "
            "then make a new snapshot of the table",
            place=str(table.ref),
        )


def _assemble(rows: Rows, table: TableSchema, winners: Ints, sources: dict[str, Ints]) -> Completed:
    struct = table.struct
    values = []
    exact: dict[str, pa.ChunkedArray] = {}
    for field in struct:
        source = sources.get(field.name, winners)
        missing = source < 0
        taker = pa.array(np.where(missing, 0, source), mask=missing)
        images = [batch.data.column(side) for side in ("after", "before") for batch in rows.batches]
        values.append(_take(images, field.name, field.type, taker, [len(image) for image in images]))
        tagged = [optional(batch, f"{side}_exact") for side in ("after", "before") for batch in rows.batches]
        text = _take(tagged, field.name, pa.string(), taker, [len(image) for image in images])
        if text.null_count < len(text):
            exact[field.name] = text
    return Completed(
        pa.Table.from_arrays(values, schema=pa.schema(list(struct))),
        pa.table(exact) if exact else None,
        _still_absent(sources),
    )


def _take(
    structs: list[pa.StructArray | None], name: str, kind: pa.DataType, taker: pa.Array, lengths: list[int]
) -> pa.ChunkedArray:
    # Batches from before a reset may have other columns; none of their rows is taken.
    chunks = [
        field_of(struct, name)
        if struct is not None
        and (index := struct.type.get_field_index(name)) >= 0
        and struct.type[index].type == kind
        else pa.nulls(length, kind)
        for struct, length in zip(structs, lengths, strict=True)
    ]
    return pa.chunked_array(chunks, kind).take(taker)


def _still_absent(sources: dict[str, Ints]) -> pa.ChunkedArray | None:
    names = list(sources)
    matrix = np.stack([sources[name] < 0 for name in names], axis=1)
    lacks = matrix.any(axis=1)
    if not lacks.any():
        return None
    offsets = np.concatenate(([0], np.cumsum(matrix.sum(axis=1)))).astype(np.int32)
    flat = pa.array(names).take(pa.array(np.nonzero(matrix)[1]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~lacks))
    return pa.chunked_array([lists])
