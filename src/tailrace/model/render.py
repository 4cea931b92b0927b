"""Changes as JSON text, by columns.

`json_objects` turns row images into one JSON object a row; `envelope` is the flat record that Spark
reads; `ndjson` and `lines` are whole changes as lines of JSON, for sinks that write text. All of it is Arrow
kernels over whole columns: `json_values` (in `tailrace.model.text`) renders a column's values, this module
puts the pieces together. How values look is in `docs/envelope.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import TS, ChangeBatch, Op
from tailrace.model.table import TableSchema
from tailrace.model.text import exact_values, json_values, quoted

_ENVELOPE = pa.schema(
    [
        pa.field("op", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("key", pa.string()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("xid", pa.string()),
        pa.field("ts", TS),
    ]
)
# Arrow's strings end at 2 GiB an array; a piece is cut so that its text stays below this.
_PIECE = 1 << 30


def envelope_schema() -> pa.Schema:
    """The Arrow schema of `envelope`: every field nullable, as Spark declares it."""
    return _ENVELOPE


def json_objects(
    struct: pa.StructArray,
    table: TableSchema,
    *,
    exact: pa.StructArray | None = None,
    absent: pa.ListArray | None = None,
    columns: Sequence[str] | None = None,
) -> pa.StringArray:
    """Row images as JSON objects; a null image is a null text.

    `exact` and `absent` are the batch's optional columns of the same image. Absent columns are left out of
    the object, NULL is `null`. `columns` picks and orders; all columns of the image in their order otherwise.
    """
    rows = len(struct)
    if struct.null_count == rows:
        return pa.nulls(rows, pa.string())
    fields = {field.name for field in struct.type}
    names = [n for n in (columns if columns is not None else (c.name for c in table.columns)) if n in fields]
    exact_fields = {field.name for field in exact.type} if exact is not None else set()
    missing = absent_masks(absent, rows)
    if missing:
        # A deleted row often has its key only: what no row has is not rendered to be left out again.
        there = struct.is_valid().to_numpy(zero_copy_only=False)
        names = [name for name in names if name not in missing or (there & ~missing[name]).any()]
    pieces: list[pa.Array | str] = []
    for name in names:
        values, is_text = json_values(field_of(struct, name))
        if name in exact_fields:
            tagged = field_of(exact, name)
            if tagged.null_count < rows:
                values, is_text = _overlay(quoted(values) if is_text else values, tagged), False
        label = "," + json.dumps(name, ensure_ascii=False) + ":"
        if name in missing:
            shown = pc.fill_null(quoted(values) if is_text else values, "null")
            with_label = pc.binary_join_element_wise(label, shown, "")
            pieces.append(pc.if_else(pa.array(missing[name]), "", with_label))
        elif is_text and values.null_count == 0:
            pieces += [label + '"', values, '"']
        else:
            pieces += [label, quoted(values) if is_text else values]
    return _objects(struct, pieces, loose=any(name in missing for name in names))


def _objects(struct: pa.StructArray, pieces: list[pa.Array | str], *, loose: bool) -> pa.StringArray:
    """Join the labelled pieces. `loose` says that the first piece may be empty in some rows."""
    rows = len(struct)
    if not pieces:
        text: pa.StringArray = pa.repeat(pa.scalar("{}"), rows)
    elif loose:
        body = pc.binary_join_element_wise(*pieces, "}", "", null_handling="replace", null_replacement="null")
        # The comma that leads the first piece becomes the brace; an object without any piece has no comma.
        empty = pc.equal(body, "}")
        text = pc.if_else(empty, "{}", pc.replace_substring(body, ",", "{", max_replacements=1))
    else:
        merged: list[pa.Array | str] = []
        for piece in ("{", *pieces, "}"):
            if isinstance(piece, str) and merged and isinstance(merged[-1], str):
                merged[-1] += piece
            else:
                merged.append(piece)
        merged[0] = "{" + str(merged[0])[2:]
        text = pc.binary_join_element_wise(*merged, "", null_handling="replace", null_replacement="null")
    if struct.null_count:
        text = pc.if_else(struct.is_valid(), text, pa.scalar(None, pa.string()))
    return text


def field_of(struct: pa.StructArray, name: str) -> pa.Array:
    """A field's values, null where the struct is. By index: to Arrow, `.name` is a path."""
    place = struct.type.get_field_index(name)
    if place < 0:
        raise KeyError(name)
    # A copy of the validity and more per field, where there is nothing to merge.
    return pc.struct_field(struct, [place]) if struct.null_count else struct.field(place)


def absent_masks(absent: pa.ListArray | None, rows: int) -> dict[str, npt.NDArray[Any]]:
    """For each column that some row lacks: which rows lack it."""
    if absent is None or absent.null_count == rows:
        return {}
    parents = pc.list_parent_indices(absent).to_numpy(zero_copy_only=False)
    names = pc.list_flatten(absent).dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    masks: dict[str, npt.NDArray[Any]] = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        mask = np.zeros(rows, dtype=bool)
        mask[parents[codes == code]] = True
        masks[name] = mask
    return masks


def absent_lists(masks: Mapping[str, npt.NDArray[np.bool_]]) -> pa.ListArray | None:
    """For each row the names of the columns that it lacks, as in a batch; None where no row lacks any."""
    matrix = np.stack(list(masks.values()), axis=1)
    lacks = matrix.any(axis=1)
    if not lacks.any():
        return None
    offsets = np.concatenate(([0], np.cumsum(matrix.sum(axis=1)))).astype(np.int32)
    names = pa.array(list(masks)).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pa.array(~lacks))


def _overlay(values: pa.StringArray, tagged: pa.StringArray) -> pa.StringArray:
    mask = tagged.is_valid()
    return pc.replace_with_mask(values, mask, exact_values(tagged.filter(mask)))


def optional(batch: ChangeBatch, name: str) -> pa.Array | None:
    """One of the batch's optional columns, or None where no row needs it."""
    index = batch.data.schema.get_field_index(name)
    return None if index < 0 else batch.data.column(index)


def _image(batch: ChangeBatch, side: str, columns: Sequence[str] | None = None) -> pa.StringArray:
    return json_objects(
        batch.data.column(side),
        batch.table,
        exact=optional(batch, f"{side}_exact"),
        absent=optional(batch, f"{side}_absent"),
        columns=columns,
    )


def _keys(batch: ChangeBatch) -> pa.StringArray:
    identity = batch.table.identity
    if not identity:
        return pa.nulls(len(batch), pa.string())
    keys = _image(batch, "after", identity)
    deleted = pc.equal(batch.data.column("op"), Op.DELETE.value)
    if pc.any(deleted).as_py():
        keys = pc.if_else(deleted, _image(batch, "before", identity), keys)
    return keys


def envelope(batch: ChangeBatch) -> pa.RecordBatch:
    """The changes as one flat record each, images and key as JSON text."""
    data, rows = batch.data, len(batch)
    return pa.RecordBatch.from_arrays(
        [
            data.column("op"),
            pa.repeat(pa.scalar(batch.table.ref.schema), rows),
            pa.repeat(pa.scalar(batch.table.ref.name), rows),
            _keys(batch),
            _image(batch, "before"),
            _image(batch, "after"),
            data.column("position"),
            data.column("seq"),
            data.column("xid"),
            data.column("ts"),
        ],
        schema=_ENVELOPE,
    )


def _text(batch: ChangeBatch) -> pa.StringArray:
    data, ref = batch.data, batch.table.ref
    schema, name = (json.dumps(part, ensure_ascii=False) for part in (ref.schema, ref.name))
    xid, _ = json_values(data.column("xid"))
    ts, _ = json_values(data.column("ts"))
    return pc.binary_join_element_wise(
        '{"op":"',
        data.column("op"),
        f'","schema":{schema},"table":{name},"key":',
        _keys(batch),
        ',"before":',
        _image(batch, "before"),
        ',"after":',
        _image(batch, "after"),
        ',"position":',
        data.column("position").cast(pa.string()),
        ',"seq":',
        data.column("seq").cast(pa.string()),
        ',"xid":',
        quoted(xid),
        ',"ts":',
        quoted(ts),
        "}\n",
        "",
        null_handling="replace",
        null_replacement="null",
    )


def _pieces(batch: ChangeBatch) -> list[ChangeBatch]:
    labels = sum(len(column.name.encode()) + 16 for column in batch.table.columns)
    estimate = batch.nbytes * 6 + len(batch) * (3 * labels + 256)
    step = max(1, len(batch) // (estimate // _PIECE + 1))
    return [batch.slice(start, min(step, len(batch) - start)) for start in range(0, len(batch), step)]


def lines(batches: Sequence[ChangeBatch]) -> pa.LargeStringArray:
    """Every change as one line of JSON with its newline, tables interleaved in (position, seq) order."""
    pieces = [piece for batch in batches for piece in _pieces(batch)]
    if not pieces:
        return pa.array([], pa.large_string())
    text = pa.concat_arrays([_text(piece).cast(pa.large_string()) for piece in pieces])
    position = np.concatenate([piece.data.column("position").to_numpy() for piece in pieces])
    seq = np.concatenate([piece.data.column("seq").to_numpy() for piece in pieces])
    if in_order(position, seq):
        return text
    return text.take(pa.array(np.lexsort((seq, position))))


def in_order(position: npt.NDArray[Any], seq: npt.NDArray[Any]) -> bool:
    """Whether (position, seq) never falls from one row to the next."""
    rise = np.diff(position)
    return bool(np.all((rise > 0) | ((rise == 0) & (np.diff(seq) >= 0))))


def buffer_of(text: pa.LargeStringArray) -> pa.Buffer:
    """The texts of an array one after the other, without copying."""
    if not len(text):
        return pa.py_buffer(b"")
    offsets = np.frombuffer(text.buffers()[1], dtype=np.int64)[text.offset : text.offset + len(text) + 1]
    return text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def ndjson(batch: ChangeBatch) -> pa.Buffer:
    """The batch's changes as lines of JSON, in (position, seq) order."""
    return buffer_of(lines([batch]))
