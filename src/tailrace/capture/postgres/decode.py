"""Row messages to Arrow columns, for all rows of one table at once. Pure.

Each row has a position of its own in the buffer. Column by column all positions step over one value: a kind
byte, a length, the value. The values of a column then are slices of the buffer at growing places, which is
what Arrow's offsets describe, so no value is ever touched by Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.capture.postgres.messages import (
    DELETE,
    INSERT,
    UPDATE,
    Bytes,
    Frame,
    Ints,
    Relation,
    broken,
)
from tailrace.capture.postgres.types import from_text
from tailrace.model.change import TS, ChangeBatch, schema_of
from tailrace.model.table import TableSchema

_NULL, _UNCHANGED, _TEXT = (ord(c) for c in "nut")
_KEY, _OLD, _NEW = (ord(c) for c in "KON")
_NAMES = pa.list_(pa.string())
_OPS = pa.array(["c", "u", "d"])
_MAX_OFFSET = 2**31 - 1
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cells:
    """One column of some rows: where each value is. `kinds` is None where every value is a text."""

    starts: Ints
    lengths: Ints
    kinds: Bytes | None = None

    def are(self, kind: int) -> Flags:
        """Which of them are of this kind."""
        if self.kinds is None:
            return np.full(len(self.starts), kind == _TEXT)
        return np.equal(self.kinds, kind)


@dataclass(frozen=True)
class Meta:
    """What a change has besides its images, one entry a row."""

    position: Ints
    seq: Ints
    xid: pa.Array
    ts: Ints


def read_tuples(frame: Frame, at: Ints, ends: Ints, width: int) -> tuple[list[Cells], Ints]:
    """The cells of tuples that begin at `at`, and where they end."""
    data, words = frame.data, frame.words
    if (at + 2 > ends).any():
        raise broken("a row ends too early")
    if not (data[at].astype(np.int64) * 256 + data[at + 1] == width).all():
        raise broken("a row has another number of columns than its table")
    at = at + 2
    columns = []
    for _ in range(width):
        # At the row's end this reads what stands behind it, and the check below finds that out.
        kinds = data[at]
        text = kinds == _TEXT
        if text.all():
            starts = at + 5
            lengths = words[at + 1].astype(np.int64)
            columns.append(Cells(starts, lengths))
        else:
            if not (text | (kinds == _NULL) | (kinds == _UNCHANGED)).all():
                raise broken("a value of an unknown kind")
            starts = at + 1 + 4 * text
            lengths = np.where(text, words[at + 1], 0).astype(np.int64)
            columns.append(Cells(starts, lengths, kinds))
        at = starts + lengths
        # Before the next column is read: a damaged length must lead nowhere.
        if (at > ends).any():
            raise broken("a value is longer than its row")
    return columns, at


def texts(frame: Frame, cells: Cells) -> pa.Array:
    """The values as a binary array: every second entry of one that lies over the whole buffer."""
    count = len(cells.starts)
    large = len(frame.data) > _MAX_OFFSET
    offsets = np.empty(2 * count + 1, np.int64 if large else np.int32)
    offsets[0:-1:2] = cells.starts
    offsets[1::2] = cells.starts + cells.lengths
    offsets[-1] = offsets[-2] if count else 0
    kind = pa.large_binary() if large else pa.binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(frame.data)]
    whole = pa.Array.from_buffers(kind, 2 * count, buffers)
    mask = None if cells.kinds is None else cells.kinds != _TEXT
    values = whole.take(pa.array(np.arange(0, 2 * count, 2), mask=mask))
    return values.cast(pa.binary()) if large else values


@dataclass(frozen=True)
class _Images:
    """Old or new rows: `place` says for each change where its image is, -1 where it has none."""

    cells: list[Cells]
    place: Ints
    count: int


def changes(
    frame: Frame, rows: Ints, *, shift: int, relation: Relation, table: TableSchema, meta: Meta
) -> ChangeBatch:
    """The changes of one table that these messages hold; `meta` has an entry for each of them."""
    kinds = frame.kinds[rows]
    ends = frame.ends[rows]
    at = frame.starts[rows] + 5 + shift
    if (at >= ends).any():
        raise broken("a change ends too early")
    tags = frame.data[at]
    width = len(relation.columns)
    olds = (tags == _KEY) | (tags == _OLD)
    if ((kinds == INSERT) & olds).any() or ((kinds == DELETE) & ~olds).any():
        raise broken("a change without its row")
    old = None
    after_at = at
    if olds.any():
        cells, stop = read_tuples(frame, at[olds] + 1, ends[olds], width)
        old = _Images(cells, _places(olds), int(olds.sum()))
        after_at = at.copy()
        after_at[olds] = stop
    news = kinds != DELETE
    new = None
    if news.any():
        starts, stops = after_at[news], ends[news]
        if (starts >= stops).any() or not (frame.data[starts] == _NEW).all():
            raise broken("a change without its row")
        cells, stop = read_tuples(frame, starts + 1, stops, width)
        if old is not None:
            cells = _filled(cells, old, np.flatnonzero(news), tags)
        new = _Images(cells, _places(news), int(news.sum()))
    found = {"before": old, "after": new}
    return _assemble(frame, kinds, tags, found, relation=relation, table=table, meta=meta)


def _places(there: Flags) -> Ints:
    return np.where(there, np.cumsum(there) - 1, -1)


def _filled(cells: list[Cells], old: _Images, rows: Ints, tags: Bytes) -> list[Cells]:
    """The new cells, what is unchanged taken from a full old row. Places keep growing: it stands before."""
    source = np.where(tags[rows] == _OLD, old.place[rows], -1)
    filled = []
    for new, before in zip(cells, old.cells, strict=True):
        fill = new.are(_UNCHANGED) & (source >= 0)
        if new.kinds is None or not fill.any():
            filled.append(new)
            continue
        from_old = source[fill]
        made = replace(new, starts=new.starts.copy(), lengths=new.lengths.copy(), kinds=new.kinds.copy())
        made.starts[fill] = before.starts[from_old]
        made.lengths[fill] = before.lengths[from_old]
        if made.kinds is not None:
            made.kinds[fill] = _TEXT if before.kinds is None else before.kinds[from_old]
        filled.append(made)
    return filled


def _assemble(
    frame: Frame,
    kinds: Bytes,
    tags: Bytes,
    found: dict[str, _Images | None],
    *,
    relation: Relation,
    table: TableSchema,
    meta: Meta,
) -> ChangeBatch:
    count = len(kinds)
    optional: list[tuple[pa.Field, pa.Array]] = []
    images = []
    old, new = found["before"], found["after"]
    for side, image in found.items():
        if image is None:
            images.append(pa.nulls(count, table.struct))
            continue
        typed, exact = _typed(frame, image.cells, table)
        images.append(_spread(typed, image, count))
        if exact is not None:
            optional.append((pa.field(f"{side}_exact", exact.type), _spread(exact, image, count)))
    if old is not None and (tags == _KEY).any():
        names = [column.name for column in relation.columns if not column.key]
        if names:
            one = pa.array([names], _NAMES)
            lists = one.take(pa.array(np.zeros(count, np.int64), mask=tags != _KEY))
            optional.append((pa.field("before_absent", _NAMES), lists))
    if new is not None and (lists := _unchanged(new, relation, count)) is not None:
        optional.append((pa.field("after_absent", _NAMES), lists))
    codes = np.zeros(count, np.int64)
    codes[kinds == UPDATE] = 1
    codes[kinds == DELETE] = 2
    data = pa.RecordBatch.from_arrays(
        [
            _OPS.take(pa.array(codes)),
            pa.array(meta.position),
            pa.array(meta.seq),
            meta.xid,
            pa.array(meta.ts).cast(TS),
            *images,
            *(array for _, array in optional),
        ],
        schema=schema_of(table, [field for field, _ in optional]),
    )
    return ChangeBatch(table, data)


def _typed(
    frame: Frame, cells: Sequence[Cells], table: TableSchema
) -> tuple[pa.StructArray, pa.StructArray | None]:
    pairs = [from_text(texts(frame, cell), c.type) for c, cell in zip(table.columns, cells, strict=True)]
    typed = pa.StructArray.from_arrays([typed for typed, _ in pairs], fields=list(table.struct))
    found = [(c.name, exact) for c, (_, exact) in zip(table.columns, pairs, strict=True) if exact is not None]
    if not found:
        return typed, None
    fields = [pa.field(name, pa.string()) for name, _ in found]
    return typed, pa.StructArray.from_arrays([exact for _, exact in found], fields=fields)


def _spread(images: pa.StructArray, found: _Images, count: int) -> pa.StructArray:
    if found.count == count:
        return images
    return images.take(pa.array(found.place, mask=found.place < 0))


def _unchanged(new: _Images, relation: Relation, count: int) -> pa.Array | None:
    """The names of the columns that the log left out of the new row, because they are large and as before."""
    lacking = [
        (column.name, flags)
        for column, cells in zip(relation.columns, new.cells, strict=True)
        if cells.kinds is not None and (flags := cells.are(_UNCHANGED)).any()
    ]
    if not lacking:
        return None
    matrix = np.stack([flags for _, flags in lacking], axis=1)
    lacks = matrix.any(axis=1)
    offsets = np.concatenate(([0], np.cumsum(matrix.sum(axis=1)))).astype(np.int32)
    flat = pa.array([name for name, _ in lacking]).take(pa.array(np.nonzero(matrix)[1]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~lacks))
    if new.count == count:
        return lists
    return lists.take(pa.array(new.place, mask=new.place < 0))


def truncation(table: TableSchema, meta: Meta) -> ChangeBatch:
    """The change that says: every row is gone."""
    count = len(meta.seq)
    nothing = pa.nulls(count, table.struct)
    data = pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * count),
            pa.array(meta.position),
            pa.array(meta.seq),
            meta.xid,
            pa.array(meta.ts).cast(TS),
            nothing,
            nothing,
        ],
        schema=schema_of(table),
    )
    return ChangeBatch(table, data)


def names_of(xids: Ints) -> pa.Array:
    """Transaction ids as the `xid` column has them."""
    return pc.cast(pa.array(xids), pa.string())
