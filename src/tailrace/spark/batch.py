"""Batch reads: the rows of one table as they are now, or as they were at a moment.

`schema`, `pushFilters` and `partitions` run in short-lived workers beside the driver, `read` on executors.
One partition is one statement of one transaction and sees one point in time. Several are transactions of
their own: they share a point in time where `tailrace.moment` holds one for them.

Filters of the query are handed over only where option `pushFilters` asks for it. Spark 4.3 remembers the last
plan of a source in the DataFrame (`PythonDataSourceV2.readInfo`): after `frame.where(…).count()` the next
query of the same `frame` would get the filtered plan, and lose rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.capture.contract import Capture, Chunk
from tailrace.model.errors import ConfigError
from tailrace.model.filters import Filter, Test
from tailrace.model.table import TableSchema
from tailrace.spark.crossing import crossing, crossing_items
from tailrace.spark.lending import lent_capture
from tailrace.spark.opening import one_table
from tailrace.spark.options import SourceOptions
from tailrace.spark.planners import settle
from tailrace.spark.read import patient_rows, typed_rows

_TESTS: dict[type, Test] = {
    spark_filters.EqualTo: "=",
    spark_filters.EqualNullSafe: "<=>",
    spark_filters.LessThan: "<",
    spark_filters.LessThanOrEqual: "<=",
    spark_filters.GreaterThan: ">",
    spark_filters.GreaterThanOrEqual: ">=",
    spark_filters.In: "in",
    spark_filters.StringStartsWith: "prefix",
    spark_filters.StringEndsWith: "suffix",
    spark_filters.StringContains: "contains",
}


@dataclass(frozen=True)
class TablePart(InputPartition):  # type: ignore[misc]
    """One task's share of a table."""

    table: dict[str, Any]
    chunks: tuple[Chunk, ...]


class SnapshotReader(DataSourceReader):  # type: ignore[misc]
    """The rows of one table."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed: str | None = None

    @crossing
    def partitions(self) -> list[InputPartition]:
        """One task, or as many as asked for, by key ranges of about equal size."""
        with lent_capture(self._options) as capture:
            settle()
            table = self._table(capture)
            if self._options.moment is not None and not capture.capabilities.moments:
                raise ConfigError(
                    f"a {capture.kind} source has no moments", remedy="leave out the option `moment`"
                )
            if self._options.where is not None:
                capture.check_condition(table.ref, self._options.where)
            parts = self._options.partitions or 1
            # Without bounds it is the whole table, and one look at it.
            chunks = [Chunk(table.ref, 0)] if parts == 1 else self._plan(capture, table, parts)
        wishes = [f"({wish})" for wish in (self._options.where, self._pushed) if wish is not None]
        where = " AND ".join(wishes) or None
        marked = [replace(chunk, where=where, moment=self._options.moment) for chunk in chunks]
        body = table.to_json()
        return [TablePart(body, share) for share in shares(marked, parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The typed rows of a task's chunks."""
        return crossing_items(self._read(cast(TablePart, partition)))

    def _read(self, part: TablePart) -> Iterator[pa.RecordBatch]:
        table = TableSchema.from_json(part.table)
        with lent_capture(self._options) as capture:
            begin = partial(capture.snapshot, table, position=0, seq=0, columns=self._options.columns)
            for chunk in part.chunks:
                for batch in patient_rows(partial(begin, chunk)):
                    yield typed_rows(batch)

    def _table(self, capture: Capture) -> TableSchema:
        return capture.describe(one_table(capture, self._options, "table"))

    def _plan(self, capture: Capture, table: TableSchema, parts: int) -> list[Chunk]:
        nbytes = self._options.chunk_bytes
        chunks = capture.plan(table.ref, rows_per_chunk=self._options.chunk_rows, bytes_per_chunk=nbytes)
        rows = sum(chunk.rows for chunk in chunks)
        if len(chunks) < parts and rows > len(chunks):
            chunks = capture.plan(table.ref, rows_per_chunk=max(1, -(-rows // parts)))
        return chunks


class FilteringReader(SnapshotReader):
    """The same, with filters of the query in the source. Spark has a setting that must be on for it."""

    @crossing
    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Let the source filter where it can; the filters that Spark must test all the same."""
        neutral = [neutral_filter(one) for one in filters]
        with lent_capture(self._options) as capture:
            table = self._table(capture)
            made = capture.condition(table, [one for one in neutral if one is not None])
        self._pushed = made.sql
        return [given for given, one in zip(filters, neutral, strict=True) if one not in made.exact]


def batch_reader(options: SourceOptions) -> SnapshotReader:
    """The reader for these options; ConfigError where they are those of a stream."""
    if options.state_dir is not None or options.view not in (None, "table"):
        raise ConfigError(
            "a batch read gives a table's rows as they are now; it takes neither `stateDir` nor a `view`",
            remedy='spark.read.format("tailrace").option("url", …).option("tables", "orders").load()',
        )
    return FilteringReader(options) if options.push_filters else SnapshotReader(options)


def batch_schema(capture: Capture, options: SourceOptions) -> pa.Schema:
    """The columns of a batch read."""
    table = capture.describe(one_table(capture, options, "table"))
    if options.columns is None:
        return pa.schema(table.struct)
    fields = {field.name: field for field in table.struct}
    for name in options.columns:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            raise ConfigError(
                f"option `columns`: table {table.ref} has no column {name}",
                remedy=f"did you mean {near[0]}?" if near else f"columns: {', '.join(fields)}",
            )
    if len(set(options.columns)) < len(options.columns):
        raise ConfigError("option `columns` names a column twice")
    return pa.schema([fields[name] for name in options.columns])


def check_stream(options: SourceOptions) -> None:
    """ConfigError where an option is one of batch reads only."""
    given = [
        name
        for name, value in (
            ("columns", options.columns),
            ("where", options.where),
            ("pushFilters", options.push_filters or None),
            ("moment", options.moment),
        )
        if value is not None
    ]
    if given:
        raise ConfigError(
            f"option `{given[0]}` is for batch reads", remedy="use select() and where() of the stream"
        )


def neutral_filter(given: Any) -> Filter | None:
    """A filter of Spark as ours; None for one that is not about a column as a whole."""
    if isinstance(given, spark_filters.Not):
        inner = neutral_filter(given.child)
        return None if inner is None else replace(inner, negated=not inner.negated)
    if len(given.attribute) != 1:
        return None
    (column,) = given.attribute
    if isinstance(given, spark_filters.IsNull | spark_filters.IsNotNull):
        return Filter(column, "null", negated=isinstance(given, spark_filters.IsNotNull))
    test = _TESTS.get(type(given))
    if test is None:
        return None
    value = tuple(given.value) if test == "in" else given.value
    return Filter(column, test, value)


def shares(chunks: Sequence[Chunk], parts: int) -> list[tuple[Chunk, ...]]:
    """The chunks in at most `parts` shares of about equal size."""
    loads = [0] * min(parts, len(chunks))
    made: list[list[Chunk]] = [[] for _ in loads]
    # The largest first, each to the least share.
    for chunk in sorted(chunks, key=lambda one: -one.rows):
        least = loads.index(min(loads))
        loads[least] += max(1, chunk.rows)
        made[least].append(chunk)
    return [tuple(sorted(share, key=lambda one: one.index)) for share in made]
