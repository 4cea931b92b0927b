"""Typed views of changes: a table's own columns beside what happened to the row, as Spark reads them.

`table_view` has every change, an update as two rows; `net_view` has the latest of each key. Column names are
those of Delta's change feed. The schemas of both are known from the table alone, every field nullable, and
are exactly what the functions return.

A typed view has no place for a value that does not fit its column (`*_exact`). What fits is carried: in a
string column integers, reals and the source's own text are their text. What does not fit is a DataError that
names the column and how to declare it wider; nothing is ever turned into NULL. The envelope carries every
value exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.change import TS, ChangeBatch
from tailrace.model.errors import ConfigError, DataError
from tailrace.model.net import NetChanges
from tailrace.model.render import envelope_schema, field_of, optional
from tailrace.model.table import TableSchema
from tailrace.model.text import split_tags

__all__ = [
    "envelope_schema",
    "net_view",
    "net_view_schema",
    "resolve_exact",
    "table_view",
    "table_view_schema",
]

NAMES = pa.list_(pa.field("element", pa.string()))
META = (
    pa.field("_change_type", pa.string()),
    pa.field("_commit_version", pa.int64()),
    pa.field("_commit_seq", pa.int64()),
    pa.field("_commit_timestamp", TS),
    pa.field("_absent", NAMES),
)
_OPS = ["c", "u", "d", "r", "t", "s"]
_UPDATE, _DELETE = 1, 2
_TYPES = ["insert", "update_postimage", "delete", "insert", "truncate", "snapshot", "update_preimage"]
_PREIMAGE = 6


def table_view_schema(table: TableSchema) -> pa.Schema:
    """The schema of `table_view`: the table's columns, then the five of the change."""
    taken = {field.name for field in META}
    for column in table.columns:
        # Spark tells columns apart regardless of case.
        if column.name.lower() in taken:
            raise ConfigError(
                f"table {table.ref} has a column {column.name}, which a typed view needs for itself",
                remedy='read the table as envelopes: option view = "envelope"',
                place=str(table.ref),
            )
    return pa.schema([*table.struct, *META])


def net_view_schema(table: TableSchema) -> pa.Schema:
    """The schema of `net_view`, which is that of `table_view`."""
    return table_view_schema(table)


def resolve_exact(
    values: pa.Array, tagged: pa.Array | None, table: TableSchema, column: str, *, by_key: bool = False
) -> pa.Array:
    """A column with its tagged values put in, or DataError where the column's type cannot hold them.

    In a string column the tags i, r, t and v become their text. Bytes, text that is not UTF-8, and any tagged
    value in a column of another type do not fit. With `by_key`, where rows are found again by their key, a
    number in a key of text does not fit either: the number 1 and the text 1 are two keys.
    """
    if tagged is None or tagged.null_count == len(tagged):
        return values
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    if isinstance(tagged, pa.ChunkedArray):
        tagged = pa.concat_arrays(tagged.chunks)
    mask = tagged.is_valid()
    tags, text = split_tags(tagged.filter(mask))
    string = pa.types.is_string(values.type)
    unfit = pc.is_in(tags, value_set=pa.array(["b", "x"])).true_count if string else len(tags)
    name = f"{table.ref.name}.{column}"
    if by_key and string and column in table.identity:
        numbers = pc.is_in(tags, value_set=pa.array(["i", "r"])).true_count
        if numbers:
            raise DataError(
                f"table {table.ref}: {numbers} values of the key column {column} are numbers, not text",
                remedy=f'types = {{ "{name}" = "long" }} in [source], or declare the column\'s type',
                place=str(table.ref),
            )
    if unfit:
        what = "text" if string else str(table.column(column).type.name)
        remedy = f'types = {{ "{name}" = "string" }} in [source]'
        if string:
            remedy = f'types = {{ "{name}" = "binary" }} in [source], or read the table as envelopes'
        raise DataError(
            f"table {table.ref}: {unfit} values of column {column} are not {what}",
            remedy=remedy,
            place=str(table.ref),
        )
    return pc.replace_with_mask(values, mask, text)


def conform(view: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """A typed view in the columns of `schema`, where the table had other columns when the change was made.

    A column that it did not have is null and named in `_absent`; one that `schema` lacks is left out.
    DataError where a type changed in a way that loses a value.
    """
    if schema is None or view.schema.equals(schema):
        return view
    missing = [field.name for field in schema if view.schema.get_field_index(field.name) < 0]
    columns = []
    for field in schema:
        if field.name in missing:
            columns.append(pa.nulls(len(view), field.type))
        elif field.name == "_absent" and missing:
            columns.append(_joined(view.column("_absent"), missing))
        else:
            columns.append(_cast(view.column(field.name), field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined(known: pa.ListArray, missing: list[str]) -> pa.ListArray:
    if known.null_count == len(known):
        return pa.repeat(pa.scalar(missing, NAMES), len(known))
    return pa.array([[*(names or ()), *missing] for names in known.to_pylist()], NAMES)


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    """The values as another type, if each of them then means the same and can be had back."""
    if values.type == field.type:
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), field.type)
    kinds = _kind(values.type), _kind(field.type)
    try:
        if kinds[0] == kinds[1] or "text" in kinds or kinds == ("date", "timestamp"):
            wide = values
            if pa.types.is_integer(values.type) and pa.types.is_decimal(field.type):
                # Arrow wants room for every value of the type, not for those that are there.
                wide = values.cast(pa.decimal128(38, field.type.scale))
            cast = wide.cast(field.type)
            if kinds[0] == "list" or cast.cast(values.type).equals(values):
                return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise DataError(
        f"column {field.name} had another type when it changed, and its values do not fit {field.type}",
        remedy="read the table as envelopes, or start anew with a snapshot",
    )


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind):
        return f"timestamp {kind.tz}" if kind.tz else "timestamp"
    if pa.types.is_list(kind):
        return "list"
    return "text" if pa.types.is_string(kind) else "date" if pa.types.is_date(kind) else str(kind)


def table_view(batch: ChangeBatch) -> pa.RecordBatch:
    """Every change with the table's own columns.

    `_change_type` is insert (snapshot rows too), update_preimage, update_postimage, delete, truncate or
    snapshot; the last two have no values. An update without a before image has no preimage. `_absent` names
    the columns whose null means nothing.
    """
    schema = table_view_schema(batch.table)
    # Not at import: the first array of a process makes Arrow import pandas.
    known = pa.array(_OPS)
    ops = np.asarray(pc.index_in(batch.data.column("op"), value_set=known).to_numpy(), dtype=np.int64)
    has_before = batch.data.column("before").is_valid().to_numpy(zero_copy_only=False)
    two = (ops == _UPDATE) & has_before
    rows = np.repeat(np.arange(len(ops)), 1 + two)
    pre = np.zeros(len(rows), dtype=bool)
    pre[np.flatnonzero(two) + np.cumsum(two)[two] - 1] = True
    kinds = np.where(pre, _PREIMAGE, ops[rows])
    source = rows + len(ops) * (pre | (kinds == _DELETE))
    absent = _pick(optional(batch, "after_absent"), optional(batch, "before_absent"), source, len(ops), NAMES)
    picked = pa.array(rows)
    return pa.RecordBatch.from_arrays(
        [
            *(_column(batch, field, source) for field in batch.table.struct),
            pa.array(_TYPES).take(pa.array(kinds)),
            batch.data.column("position").take(picked),
            batch.data.column("seq").take(picked),
            batch.data.column("ts").take(picked),
            _null_where_empty(absent),
        ],
        schema=schema,
    )


def _column(batch: ChangeBatch, field: pa.Field, source: npt.NDArray[np.int64]) -> pa.Array:
    rows = len(batch)
    after, before = (field_of(batch.data.column(side), field.name) for side in ("after", "before"))
    values = _pick(after, before, source, rows, field.type)
    after, before = (_tagged(batch, side, field.name) for side in ("after", "before"))
    if after is None and before is None:
        return values
    return resolve_exact(values, _pick(after, before, source, rows, pa.string()), batch.table, field.name)


def _tagged(batch: ChangeBatch, side: str, name: str) -> pa.Array | None:
    column = optional(batch, f"{side}_exact")
    return None if column is None or column.type.get_field_index(name) < 0 else field_of(column, name)


def _pick(
    after: pa.Array | None,
    before: pa.Array | None,
    source: npt.NDArray[np.int64],
    rows: int,
    kind: pa.DataType,
) -> pa.Array:
    """Values by place: below `rows` from the after images, from there on from the before images."""
    if after is None and before is None:
        return pa.nulls(len(source), kind)
    after, before = (pa.nulls(rows, kind) if side is None else side.cast(kind) for side in (after, before))
    if len(source) == rows and bool((source < rows).all()):
        return after
    return pa.concat_arrays([after, before]).take(pa.array(source))


def _null_where_empty(names: pa.ListArray) -> pa.ListArray:
    if names.null_count == len(names):
        return names
    full = pc.greater(pc.list_value_length(names), 0)
    return pc.if_else(full, names, pa.scalar(None, NAMES))


def net_view(net: NetChanges) -> pa.RecordBatch:
    """The latest of each key: `upsert` rows, `delete` rows with only their key; first `truncate` if reset."""
    schema = net_view_schema(net.table)
    parts = []
    if net.reset_meta is not None:
        nothing = pa.table({})
        parts.append(_net_part(net, "truncate", nothing, nothing, net.reset_meta))
    if net.deletes.num_rows:
        parts.append(_net_part(net, "delete", net.deletes, net.deletes_exact, net.deletes_meta))
    if net.upserts.num_rows:
        parts.append(_net_part(net, "upsert", net.upserts, net.exact, net.upserts_meta))
        if net.absent is not None:
            parts[-1] = parts[-1].set_column(len(schema) - 1, schema.field("_absent"), net.absent.cast(NAMES))
    combined = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
    return combined.to_batches()[0] if combined.num_rows else pa.RecordBatch.from_pylist([], schema=schema)


def _net_part(
    net: NetChanges, kind: str, values: pa.Table, exact: pa.Table | None, meta: pa.Table
) -> pa.Table:
    rows = meta.num_rows
    columns: list[Any] = []
    for field in net.table.struct:
        if field.name not in values.schema.names:
            columns.append(pa.nulls(rows, field.type))
            continue
        tagged = exact.column(field.name) if exact is not None and field.name in exact.schema.names else None
        columns.append(resolve_exact(values.column(field.name), tagged, net.table, field.name, by_key=True))
    columns.append(pa.repeat(pa.scalar(kind), rows))
    columns += [meta.column(name) for name in ("position", "seq", "ts")]
    columns.append(pa.nulls(rows, NAMES))
    return pa.Table.from_arrays(columns, schema=net_view_schema(net.table))
