"""A batch of changes against link state, by columns.

Each change is one or two events of keys: it sets a key's values, or removes a key, or, where it changes the
key, removes the old one and sets the new one. Events laid out by key and time say what was before each: the
event before it, of the same batch, or the state. From that come the missing columns of before images, the
values to keep for going back, and the state after the batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import ChangeBatch, Op, schema_of
from tailrace.model.errors import NeedsOperator
from tailrace.model.render import absent_lists, absent_masks, field_of, optional
from tailrace.model.table import TableSchema
from tailrace.runtime.links.cells import Column, held, keys, nothing, together, typed
from tailrace.runtime.links.store import Remembered, Store

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_STRING = pa.string()


class Completing:
    """Completes batches of one table, inside of one transaction of the store."""

    def __init__(self, store: Store, db: sqlite3.Connection, known: Remembered, horizon: int = 0) -> None:
        self._store, self._db, self._horizon = store, db, horizon
        self.known = known

    def complete(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch with what its before images lack of the remembered columns; then remembers it."""
        anew = batch.table.generation != self.known.generation
        if anew or not self.known.fits(batch.table, self.known.columns):
            if len(batch) and pc.max(batch.data.column("position")).as_py() <= self._horizon:
                # From before the table became what it is: what was read then shows it, and documents too.
                return batch
            why = "was set up anew since its link state was read"
            raise NeedsOperator(
                f"table {batch.table.ref} "
                + (why if anew else "has another key, or other types, than its link state"),
                remedy="index again: link state is then read from the source anew",
                place=str(batch.table.ref),
            )
        pieces = [self._piece(piece) for piece in self._pieces(batch)]
        return pieces[0] if len(pieces) == 1 else _joined(batch.table, pieces)

    def _pieces(self, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        """Cut so that a TRUNCATE is alone, and an after image that lacks a column the last of its piece."""
        ops = batch.data.column("op")
        alone = pc.is_in(ops, value_set=pa.array([Op.TRUNCATE.value])).to_numpy(zero_copy_only=False)
        last = alone.copy()
        for name, mask in absent_masks(optional(batch, "after_absent"), len(batch)).items():
            if name in self.known.columns:
                last |= mask
        ends = np.flatnonzero(last) + 1
        starts = np.flatnonzero(alone)
        edges = np.unique(np.concatenate(([0], ends, starts, [len(batch)])))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield batch.slice(start, end - start)

    def _piece(self, batch: ChangeBatch) -> ChangeBatch:
        data = batch.data
        if len(batch) == 1 and data.column("op")[0].as_py() == Op.TRUNCATE.value:
            position, seq = (data.column(name)[0].as_py() for name in ("position", "seq"))
            self.known = self._store.truncate(self._db, self.known, position, seq)
            return batch
        rows = _Rows.of(batch)
        if not len(rows.who):
            return batch
        events = _Events.of(rows)
        there, stored = self._state(events)
        after = [
            held(data.column("after"), optional(batch, "after_exact"), name) for name in self.known.columns
        ]
        before = events.before(there)
        previous = [together([one, two]).take(before.places) for one, two in zip(stored, after, strict=True)]
        event = events.of_old(rows)
        found = (event >= 0) & before.there[np.where(event >= 0, event, 0)]
        places = pa.array(np.where(event >= 0, event, 0), mask=~found)
        olds = [column.take(places) for column in previous]
        completed = _filled(batch, rows, found, dict(zip(self.known.columns, olds, strict=True)))
        after = _kept(batch, after, olds, self.known)
        self._remember(batch, events, before, previous, after)
        return completed

    def _state(self, events: _Events) -> tuple[Bools, list[Column]]:
        if not len(events.keys):
            return np.empty(0, np.bool_), [nothing(0, kind) for kind in self.known.kinds]
        return self._store.look(self._db, self.known, events.keys)

    def _remember(
        self,
        batch: ChangeBatch,
        events: _Events,
        before: _Before,
        previous: list[Column],
        after: list[Column],
    ) -> None:
        """What changed anything: its undoing, and the state after the last change of each key."""
        new = [column.take(pa.array(events.who)) for column in after]
        altered = before.there | events.sets
        same = before.there & events.sets
        for one, two in zip(previous, new, strict=True):
            same &= _same(one.held, two.held) & _same(one.exact, two.exact)
        altered &= ~same
        if not altered.any():
            return
        picked = np.flatnonzero(altered)
        in_time = picked[np.argsort(events.order[picked], kind="stable")]
        at, who = pa.array(in_time), pa.array(events.who[in_time])
        places = (
            batch.data.column("position").take(who),
            batch.data.column("seq").take(who),
            pa.array(events.order[in_time] % 2),
        )
        keys_of = events.keys.take(pa.array(events.codes))
        store, db, known = self._store, self._db, self.known
        there = pa.array(before.there[in_time])
        store.note(
            db,
            known,
            places=places,
            keys=keys_of.take(at),
            there=there,
            values=[column.take(at) for column in previous],
        )
        touched = np.zeros(len(events.keys), np.bool_)
        touched[events.codes[picked]] = True
        final = events.last & touched[events.codes]
        gone, set_ = (
            pa.array(np.flatnonzero(final & ~events.sets)),
            pa.array(np.flatnonzero(final & events.sets)),
        )
        if len(gone):
            store.remove(db, known, keys_of.take(gone))
        if len(set_):
            store.put(db, known, keys_of.take(set_), [column.take(set_) for column in new])


@dataclass(frozen=True)
class _Rows:
    """The changes of a batch that touch rows: which, and the keys that they leave and reach."""

    who: Ints
    updates: Bools
    deletes: Bools
    sets: Bools
    told: Bools
    old: pa.Array
    new: pa.Array

    @classmethod
    def of(cls, batch: ChangeBatch) -> _Rows:
        data, table = batch.data, batch.table
        ops = data.column("op")
        updates, deletes = (
            pc.equal(ops, op.value).to_numpy(zero_copy_only=False) for op in (Op.UPDATE, Op.DELETE)
        )
        sets = pc.is_in(ops, value_set=pa.array(["c", "u", "r"])).to_numpy(zero_copy_only=False)
        before, after = data.column("before"), data.column("after")
        told = (updates | deletes) & before.is_valid().to_numpy(zero_copy_only=False)
        absent = absent_masks(optional(batch, "before_absent"), len(batch))
        for name in table.identity:
            if name in absent:
                told = told & ~absent[name]
        return cls(
            np.flatnonzero(updates | deletes | sets),
            updates,
            deletes,
            sets,
            told,
            _picked(batch, "before", before, told),
            _picked(batch, "after", after, sets),
        )


def _picked(batch: ChangeBatch, side: str, struct: pa.StructArray, mask: Bools) -> pa.Array:
    """The keys of some images."""
    exact = optional(batch, f"{side}_exact")
    chosen = pa.array(np.flatnonzero(mask))
    return keys(struct.take(chosen), None if exact is None else exact.take(chosen), batch.table)


@dataclass(frozen=True)
class _Before:
    """What was before each event: its place in the state (a key's code) or in the batch, null for nothing."""

    there: Bools
    places: pa.Array


@dataclass(frozen=True)
class _Events:
    """Events by key and time. `who` are the changes, `codes` their keys, which are numbers of `keys`.

    `order` is twice the number of the change, and one more for what sets a key.
    """

    keys: pa.Array
    codes: Ints
    order: Ints
    who: Ints
    sets: Bools
    first: Bools
    last: Bools

    @classmethod
    def of(cls, rows: _Rows) -> _Events:
        told, sets = np.flatnonzero(rows.told), np.flatnonzero(rows.sets)
        distinct, codes = _numbered(pa.concat_arrays([rows.old, rows.new]))
        old, new = codes[: len(told)], codes[len(told) :]
        # An update that keeps its key sets it, and removes none.
        now = np.full(len(rows.sets), -1, np.int64)
        now[sets] = new
        leaves = now[told] != old
        who = np.concatenate((told[leaves], sets))
        every = np.concatenate((old[leaves], new))
        setting = np.arange(len(who)) >= int(leaves.sum())
        order = who * 2 + setting
        by_key = np.lexsort((order, every))
        who, every, setting, order = who[by_key], every[by_key], setting[by_key], order[by_key]
        first = np.ones(len(who), np.bool_)
        first[1:] = every[1:] != every[:-1]
        last = np.ones(len(who), np.bool_)
        last[:-1] = first[1:]
        return cls(distinct, every, order, who, setting, first, last)

    def before(self, there: Bools) -> _Before:
        """What was before each; `there` says which keys are in the state."""
        known = np.zeros(len(self.who), np.bool_)
        places = np.zeros(len(self.who), np.int64)
        known[self.first] = there[self.codes[self.first]]
        places[self.first] = self.codes[self.first]
        follows = np.flatnonzero(~self.first)
        known[follows] = self.sets[follows - 1]
        places[follows] = len(self.keys) + self.who[follows - 1]
        return _Before(known, pa.array(places, mask=~known))

    def of_old(self, rows: _Rows) -> Ints:
        """For each change the event of the key that its row had, or -1."""
        found = np.full(len(rows.sets), -1, np.int64)
        setting = np.flatnonzero(self.sets)
        found[self.who[setting]] = setting
        # What removes a key is of the row's old one; it comes second to stay.
        removing = np.flatnonzero(~self.sets)
        found[self.who[removing]] = removing
        found[~(rows.updates | rows.deletes)] = -1
        return found


def _numbered(values: pa.Array) -> tuple[pa.Array, Ints]:
    """The distinct values, and the number of each. Whole numbers are in order, so that they are near."""
    if pa.types.is_integer(values.type):
        distinct, codes = np.unique(values.to_numpy(), return_inverse=True)
        return pa.array(distinct), codes.astype(np.int64)
    encoded = values.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def _same(one: pa.Array, two: pa.Array) -> Bools:
    if one.null_count == len(one) and two.null_count == len(two):
        return np.ones(len(one), np.bool_)
    equal = pc.fill_null(pc.equal(one, two), False)
    both = pc.and_(one.is_null(), two.is_null())
    found: Bools = pc.or_(equal, both).to_numpy(zero_copy_only=False)
    return found


def _filled(batch: ChangeBatch, rows: _Rows, found: Bools, olds: dict[str, Column]) -> ChangeBatch:
    """The batch with completed before images: `olds` are what was before each change, where it was found."""
    valid = batch.data.column("before").is_valid().to_numpy(zero_copy_only=False)
    absent = absent_masks(optional(batch, "before_absent"), len(batch))
    lacks: dict[str, Bools] = {}
    for name in olds:
        missing = ~valid | absent[name] if name in absent else ~valid
        if name in batch.table.unchanged:
            missing = missing & valid
        lacks[name] = (rows.updates | rows.deletes) & missing & found
    if not any(mask.any() for mask in lacks.values()):
        return batch
    # An update without any before image did not change its key.
    made = np.logical_or.reduce(list(lacks.values())) & ~valid
    return _Image(batch, made, lacks, olds, absent).batch()


@dataclass(frozen=True)
class _Image:
    """Before images to be made (`made`) or completed (`lacks`, by column)."""

    of: ChangeBatch
    made: Bools
    lacks: dict[str, Bools]
    olds: dict[str, Column]
    absent: dict[str, Bools]

    def batch(self) -> ChangeBatch:
        """The batch with these images."""
        table, data = self.of.table, self.of.data
        before, after = data.column("before"), data.column("after")
        same = {*table.key, *table.unchanged}
        fields, masks = [], dict(self.absent)
        exact = self._exact(same)
        after_lacks = absent_masks(optional(self.of, "after_absent"), len(self.of))
        making = pa.array(self.made)
        for field in table.struct:
            values = field_of(before, field.name)
            lacking = self.absent.get(field.name, np.zeros(len(self.of), np.bool_))
            if field.name in same:
                values = (
                    pc.if_else(making, field_of(after, field.name), values) if self.made.any() else values
                )
                lacking = lacking | (self.made & after_lacks.get(field.name, np.False_))
            elif field.name not in self.lacks:
                lacking = lacking | self.made
            if field.name in self.lacks:
                fill = self.lacks[field.name]
                old = typed(self.olds[field.name].held, field.type)
                values = pc.if_else(pa.array(fill), old, values)
                lacking = (lacking | self.made) & ~fill if field.name not in same else lacking & ~fill
            fields.append(values)
            masks[field.name] = lacking
        valid = before.is_valid().to_numpy(zero_copy_only=False) | self.made
        struct = pa.StructArray.from_arrays(fields, fields=list(table.struct), mask=pa.array(~valid))
        columns = {field.name: data.column(field.name) for field in data.schema}
        columns["before"] = struct
        lists = absent_lists(
            {name: mask for name, mask in masks.items() if mask.any()} or {"": _none(self.of)}
        )
        for name, array in (("before_absent", lists), ("before_exact", exact)):
            columns.pop(name, None)
            if array is not None:
                columns[name] = array
        return _made(table, columns)

    def _exact(self, same: set[str]) -> pa.StructArray | None:
        """The tagged values, with those of what was filled in."""
        rows = len(self.of)
        old, after = optional(self.of, "before_exact"), optional(self.of, "after_exact")
        found: dict[str, pa.Array] = {}
        for field in self.of.table.struct:
            name = field.name
            tags = field_of(old, name) if old is not None and old.type.get_field_index(name) >= 0 else None
            if (
                name in same
                and self.made.any()
                and after is not None
                and after.type.get_field_index(name) >= 0
            ):
                none = pa.nulls(rows, _STRING) if tags is None else tags
                tags = pc.if_else(pa.array(self.made), field_of(after, name), none)
            if name in self.lacks and self.olds[name].exact.null_count < rows:
                none = pa.nulls(rows, _STRING) if tags is None else tags
                tags = pc.if_else(pa.array(self.lacks[name]), self.olds[name].exact, none)
            if tags is not None and tags.null_count < rows:
                found[name] = tags
        if not found:
            return None
        return pa.StructArray.from_arrays(
            list(found.values()), fields=[pa.field(name, _STRING) for name in found]
        )


def _none(batch: ChangeBatch) -> Bools:
    return np.zeros(len(batch), np.bool_)


def _kept(batch: ChangeBatch, after: list[Column], olds: list[Column], known: Remembered) -> list[Column]:
    """The after values; what an after image lacks is as it was, which the before image or the state says."""
    lacking = absent_masks(optional(batch, "after_absent"), len(batch))
    struct, exact = batch.data.column("before"), optional(batch, "before_exact")
    absent = absent_masks(optional(batch, "before_absent"), len(batch))
    result = []
    for name, column, old in zip(known.columns, after, olds, strict=True):
        if name not in lacking:
            result.append(column)
            continue
        image = held(struct, exact, name)
        told = struct.is_valid().to_numpy(zero_copy_only=False) & ~absent.get(name, _none(batch))
        value = (
            pc.if_else(pa.array(told), image.held, old.held),
            pc.if_else(pa.array(told), image.exact, old.exact),
        )
        mask = pa.array(lacking[name])
        result.append(
            Column(pc.if_else(mask, value[0], column.held), pc.if_else(mask, value[1], column.exact))
        )
    return result


def _made(table: TableSchema, columns: dict[str, pa.Array]) -> ChangeBatch:
    optional_ = [
        pa.field(name, array.type) for name, array in columns.items() if name.endswith(("_absent", "_exact"))
    ]
    schema = schema_of(table, optional_)
    return ChangeBatch(
        table, pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
    )


def _joined(table: TableSchema, pieces: list[ChangeBatch]) -> ChangeBatch:
    """Pieces of one batch, one after the other; each may have optional columns that others do not need."""
    names: dict[str, pa.DataType] = {}
    for piece in pieces:
        for field in piece.data.schema:
            if field.name.endswith("_exact") and field.name in names:
                fields = {one.name: one for one in (*names[field.name], *field.type)}
                names[field.name] = pa.struct(list(fields.values()))
            else:
                names.setdefault(field.name, field.type)
    columns = {}
    for name, kind in names.items():
        parts = [_part(piece.data, name, kind) for piece in pieces]
        columns[name] = pa.concat_arrays(parts)
    return _made(table, columns)


def _part(data: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    place = data.schema.get_field_index(name)
    if place < 0:
        return pa.nulls(data.num_rows, kind)
    array = data.column(place)
    if array.type == kind:
        return array
    fields = [
        field_of(array, one.name)
        if array.type.get_field_index(one.name) >= 0
        else pa.nulls(len(array), one.type)
        for one in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
