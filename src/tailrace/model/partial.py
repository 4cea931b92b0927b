"""Row images that lack columns, completed from earlier images of the same row within a set of changes.

What happens to the keys with such images, and to the keys they came from, is laid out by key and time. An
image without a value points to the image before it, of its key or of the key its row had; the pointers are
followed for all of them at once, doubling the step each time. Values move only then, by columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import Op
from tailrace.model.errors import DataError
from tailrace.model.keys import Keys
from tailrace.model.render import absent_lists, absent_masks, field_of, optional
from tailrace.model.table import TableSchema

if TYPE_CHECKING:
    from tailrace.model.net import Rows

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Masks = dict[str, Bools]
# Places of values that no image of the set has: the row of that key elsewhere may have it, or nothing has.
_ELSEWHERE, _NOWHERE = -1, -2
# Keys may have come from keys that came from others. So many steps are looked at before all keys are taken.
_STEPS = 16
_MOST_BYTES = 1 << 29


@dataclass(frozen=True)
class Completed:
    """The winning rows with what could be completed; `absent` says what could not."""

    values: pa.Table
    exact: pa.Table | None
    absent: pa.ChunkedArray | None


@dataclass(frozen=True)
class _History:
    """Upserts and ends of keys, by key and then time, a repeated change once.

    `rows` are the changes. `base` is the upsert whose row each upsert changes, or the place of an unknown
    one, and itself for an end. `moved` are the upserts that change their row's key.
    """

    rows: Ints
    ends: Bools
    base: Ints
    moved: Bools
    # The first change with the position and seq of each row.
    original: Ints


def complete(
    rows: Rows,
    table: TableSchema,
    keys: Keys,
    order: Ints,
    winners: Ints,
    *,
    later: frozenset[str] = frozenset(),
) -> Completed | None:
    """Complete the winning after images; None where none of the images lacks a column.

    Columns that came `later` than a row are not lost with the row's old key: it had no value in them.
    """
    after = _masks(rows, "after")
    lacking = [name for name, mask in after.items() if mask[keys.rows].any()]
    if not lacking:
        return None
    before = _masks(rows, "before")
    has_before = _each(rows, [batch.data.column("before").is_valid() for batch in rows.batches])
    has_before &= _each(rows, [pc.equal(b.data.column("op"), Op.UPDATE.value) for b in rows.batches])
    partial = np.zeros(rows.count, dtype=bool)
    for name in lacking:
        partial |= after[name]
    now = np.full(rows.count, -1, dtype=np.int64)
    now[keys.rows] = keys.codes
    history = _history(rows, keys, order, now, _involved(keys, now, partial))
    sources = {}
    for name in lacking:
        told = has_before & ~before[name] if name in before else has_before
        places = _places(rows, history, after[name], told)
        sources[name] = source = places[history.original[winners]]
        if name not in later:
            _refuse_lost(table, name, source)
    return _assemble(rows, table, winners, sources)


def _each(rows: Rows, arrays: list[pa.Array]) -> Bools:
    result = np.empty(rows.count, dtype=bool)
    for i, array in enumerate(arrays):
        result[rows.starts[i] : rows.starts[i + 1]] = array.to_numpy(zero_copy_only=False)
    return result


def _masks(rows: Rows, side: str) -> Masks:
    result: Masks = {}
    for i, batch in enumerate(rows.batches):
        for name, mask in absent_masks(optional(batch, f"{side}_absent"), len(batch)).items():
            whole = result.setdefault(name, np.zeros(rows.count, dtype=bool))
            whole[rows.starts[i] : rows.starts[i + 1]] = mask
    return result


def _involved(keys: Keys, now: Ints, partial: Bools) -> Bools:
    """By key: those with partial images, and those their rows had before, however often they changed."""
    involved = np.zeros(keys.count, dtype=bool)
    involved[keys.codes[partial[keys.rows]]] = True
    to, origin = now[keys.gone_rows], keys.gone_codes
    to, origin = to[to >= 0], origin[to >= 0]
    for _ in range(_STEPS):
        more = origin[involved[to]]
        if involved[more].all():
            return involved
        involved[more] = True
    return np.ones(keys.count, dtype=bool)


def _history(rows: Rows, keys: Keys, order: Ints, now: Ints, involved: Bools) -> _History:
    original = _originals(rows, order, now)
    ending = involved[keys.gone_codes] & (original[keys.gone_rows] == keys.gone_rows)
    upserting = involved[keys.codes] & (original[keys.rows] == keys.rows)
    who = np.concatenate((keys.gone_rows[ending], keys.rows[upserting]))
    codes = np.concatenate((keys.gone_codes[ending], keys.codes[upserting]))
    ends = np.arange(len(who)) < np.count_nonzero(ending)
    # A change of the key ends the old one before the new one begins.
    by_key = np.lexsort((order[who] * 2 + ~ends, codes))
    who, codes, ends = who[by_key], codes[by_key], ends[by_key]

    place = np.arange(len(who))
    fresh = np.ones(len(who), dtype=bool)
    fresh[1:] = codes[1:] != codes[:-1]
    previous = np.where(fresh, _ELSEWHERE, place - 1)
    previous[1:][~fresh[1:] & ends[:-1]] = _NOWHERE
    # The state that an end takes away goes on in the upsert of the same change, if it has one.
    ended = np.full(rows.count, -1, dtype=np.int64)
    ended[who[ends]] = place[ends]
    moved = ~ends & (ended[who] >= 0)
    base = previous.copy()
    base[moved] = previous[ended[who[moved]]]
    base[moved & (base < 0)] = _NOWHERE
    base[ends] = place[ends]
    return _History(who, ends, base, moved, original)


def _originals(rows: Rows, order: Ints, now: Ints) -> Ints:
    """For each row the first copy of its change: copies have one position, seq and key, side by side."""
    in_time = np.empty(rows.count, dtype=np.int64)
    in_time[order] = np.arange(rows.count)
    first = np.zeros(rows.count, dtype=bool)
    first[:1] = True
    for told in (rows.position, rows.seq, now):
        first[1:] |= np.diff(told[in_time]) != 0
    original = np.empty(rows.count, dtype=np.int64)
    original[in_time] = in_time[np.maximum.accumulate(np.where(first, np.arange(rows.count), 0))]
    return original


def _places(rows: Rows, history: _History, lacks: Bools, told: Bools) -> Ints:
    """For each row where the column's value is: an after image, a before image (plus the count), or unknown.

    Rows of keys that are not involved have their own.
    """
    who, base = history.rows, history.base
    found = np.where(told[who], rows.count + who, _ELSEWHERE)
    found[~lacks[who]] = who[~lacks[who]]
    open_ = ~history.ends & (found < 0)
    unknown = open_ & (base < 0)
    found[unknown] = base[unknown]
    pointer = np.where(open_ & ~unknown, base, np.arange(len(who)))
    moved = history.moved & open_
    todo = np.flatnonzero(open_ & ~unknown)
    while len(todo):
        step = pointer[todo]
        beyond = pointer[step]
        passed = moved[todo] | moved[step]
        going = beyond != step
        pointer[todo], moved[todo] = beyond, passed
        todo = todo[going]
    found = found[pointer]
    # The row elsewhere has another key by now.
    found[moved & (found < 0)] = _NOWHERE
    result = np.arange(rows.count)
    result[who[~history.ends]] = found[~history.ends]
    return result


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
    after = [(batch.data.column("after"), optional(batch, "after_exact")) for batch in rows.batches]
    before = [(batch.data.column("before"), optional(batch, "before_exact")) for batch in rows.batches]
    values = []
    exact: dict[str, pa.ChunkedArray] = {}
    for field in struct:
        source = sources.get(field.name, winners)
        images = after + before if len(source) and source.max() >= rows.count else after
        lengths = [len(image) for image, _ in images]
        values.append(_take([image for image, _ in images], field.name, field.type, source, lengths))
        if any(_holds(tagged, field.name, pa.string()) for _, tagged in images):
            text = _take([tagged for _, tagged in images], field.name, pa.string(), source, lengths)
            if text.null_count < len(text):
                exact[field.name] = text
    return Completed(
        pa.Table.from_arrays(values, schema=pa.schema(list(struct))),
        pa.table(exact) if exact else None,
        _still_absent(sources),
    )


def _holds(struct: pa.StructArray | None, name: str, kind: pa.DataType) -> bool:
    if struct is None:
        return False
    index = struct.type.get_field_index(name)
    return index >= 0 and bool(struct.type[index].type == kind)


def _take(
    structs: list[pa.StructArray | None], name: str, kind: pa.DataType, source: Ints, lengths: list[int]
) -> pa.ChunkedArray:
    # Batches from before a reset may have other columns; none of their rows is taken.
    chunks = [
        field_of(struct, name) if _holds(struct, name, kind) else pa.nulls(length, kind)
        for struct, length in zip(structs, lengths, strict=True)
    ]
    return gather(chunks, source, kind)


def gather(
    chunks: list[pa.Array], source: Ints, kind: pa.DataType, most: int = _MOST_BYTES
) -> pa.ChunkedArray:
    """The values at `source` of the chunks laid end to end, null below zero, in arrays of about `most` bytes.

    Arrow's own `take` makes one array of all chunks first, which ends at 2 GiB of text.
    """
    starts = np.concatenate(([0], np.cumsum([len(chunk) for chunk in chunks]))).astype(np.int64)
    chunks = [pa.nulls(1, kind), *chunks]
    chunk = np.where(source < 0, 0, np.searchsorted(starts, source, side="right"))
    within = np.where(source < 0, 0, source - starts[chunk - 1])
    pieces: list[pa.Array] = []
    for begin, end in _cuts(chunks, chunk, within, most):
        which, where = chunk[begin:end], within[begin:end]
        by_chunk = np.argsort(which, kind="stable")
        bounds = np.flatnonzero(np.diff(which[by_chunk], prepend=-1, append=len(chunks)))
        taken = [chunks[which[by_chunk[a]]].take(pa.array(where[by_chunk[a:b]])) for a, b in pairwise(bounds)]
        if (np.diff(by_chunk) < 0).any():
            back = np.empty(end - begin, dtype=np.int64)
            back[by_chunk] = np.arange(end - begin)
            taken = [pa.concat_arrays(taken).take(pa.array(back))]
        pieces += taken
    return pa.chunked_array(pieces, kind)


def _cuts(chunks: list[pa.Array], chunk: Ints, within: Ints, most: int) -> list[tuple[int, int]]:
    """Ranges of what is taken whose texts are together small enough for one array."""
    if not len(chunk):
        return []
    if not (pa.types.is_string(chunks[0].type) or pa.types.is_binary(chunks[0].type)):
        return [(0, len(chunk))]
    offsets = np.concatenate(([0], np.cumsum([len(array) for array in chunks])))
    sizes = np.concatenate(
        [pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False) for array in chunks]
    )
    share = np.cumsum(sizes[offsets[chunk] + within].astype(np.int64)) // most
    edges = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(chunk)]
    return list(pairwise(edges))


def _still_absent(sources: dict[str, Ints]) -> pa.ChunkedArray | None:
    lists = absent_lists({name: source < 0 for name, source in sources.items()})
    return None if lists is None else pa.chunked_array([lists])
