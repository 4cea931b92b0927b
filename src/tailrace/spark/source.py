"""The data source itself: what Spark calls, and in which process.

`TailraceSource` and `schema` run in a short-lived worker when a query is loaded. The stream reader lives in
one runner process beside the driver as long as the query runs (`StreamDriver`); a second copy of it is made
only to be pickled, so nothing is opened in `__init__`. `read` runs on executors.
"""

from __future__ import annotations

import importlib
import json
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.capture.contract import Capture
from tailrace.model.errors import ConfigError
from tailrace.model.render import envelope_schema
from tailrace.model.table import TableRef, TableSchema
from tailrace.model.views import net_view_schema, table_view_schema
from tailrace.spark.crossing import crossing, crossing_items
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.partitions import ChunkRead, Slice
from tailrace.spark.read import PACKED, read_slice, typed_rows

# Layers: only the composition root names concrete captures, so it is found by name.
FACTORY = "tailrace.app:capture_for"
WHOLE_TABLE = 2**62


def open_capture(options: SourceOptions) -> Capture:
    """The capture that the options' URL means."""
    module, _, name = FACTORY.partition(":")
    factory = getattr(importlib.import_module(module), name)
    return cast(Capture, factory(options.url, types=options.types, options=options.source_options))


def _one_table(capture: Capture, options: SourceOptions, view: str) -> TableRef:
    refs = capture.resolve(options.tables)
    if len(refs) != 1:
        raise ConfigError(
            f"view `{view}` reads one table, but `tables` names {len(refs)}",
            remedy='name one table, or use .option("view", "envelope")',
        )
    return refs[0]


class TailraceSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("tailrace")` and `spark.read.format("tailrace")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tailrace"

    @crossing
    def schema(self) -> StructType:
        """The columns of the chosen view. Spark does not say whether a stream or a batch is being loaded."""
        options = SourceOptions.parse(self.options)
        if options.view == "packed":
            return _spark_schema(PACKED)
        if options.view == "envelope" or (options.view is None and options.state_dir is not None):
            return _spark_schema(envelope_schema())
        capture = open_capture(options)
        try:
            table = capture.describe(_one_table(capture, options, options.view or "table"))
        finally:
            capture.close()
        if options.view == "net":
            return _spark_schema(net_view_schema(table))
        if options.state_dir is not None:
            return _spark_schema(table_view_schema(table))
        return _spark_schema(pa.schema(table.struct))

    @crossing
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's contract
        """A batch reader: the table's rows as they are now."""
        options = SourceOptions.parse(self.options)
        if options.state_dir is not None or options.view not in (None, "table"):
            raise ConfigError(
                "a batch read gives a table's rows as they are now; it takes neither `stateDir` nor a `view`",
                remedy='spark.read.format("tailrace").option("url", …).option("tables", "orders").load()',
            )
        return SnapshotReader(options)

    @crossing
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader: snapshot and changes."""
        options = SourceOptions.parse(self.options)
        if options.state_dir is None:
            raise ConfigError(
                "option `stateDir` is missing: a stream keeps its changelog there",
                remedy='.option("stateDir", "/a/directory/that/driver/and/executors/share")',
            )
        return StreamReader(options, schema.json())


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """See Spark's contract; calls go to the `StreamDriver`, and errors cross as ours."""

    def __init__(self, options: SourceOptions, schema: str) -> None:
        self._options = options
        self._schema = schema
        self._driver: StreamDriver | None = None

    @crossing
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._open().initial().to_json()

    @crossing
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. `start` ends the last batch Spark committed, so it is acknowledged."""
        rows: int | None = self._options.max_rows
        size: int | None = self._options.max_bytes
        if isinstance(limit, ReadAllAvailable):
            rows = size = None
        elif isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return self._open().latest(Offset.from_json(start), max_rows=rows, max_bytes=size).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Rows by Spark's own limit; bytes are ours to keep, Spark has no limit of both."""
        return ReadMaxRows(self._options.max_rows)

    @crossing
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now; batches stop at it."""
        self._open().prepare_available_now()

    @crossing
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Position and lag, shown in the query's progress."""
        return self._open().report()

    @crossing
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        single = self._options.view == "net"
        slices = self._open().partitions(Offset.from_json(start), Offset.from_json(end), single=single)
        return cast(list[InputPartition], slices)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the rows of one task."""
        return crossing_items(self._read(cast(Slice, partition)))

    def _read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        capture = open_capture(self._options)
        try:
            changelog = f"{self._options.state_dir}/changelog"
            schema = to_arrow_schema(StructType.fromJson(json.loads(self._schema)), timezone="UTC")
            yield from read_slice(part, self._options.view or "envelope", changelog, capture, schema)
        finally:
            capture.close()

    @crossing
    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to `end` is done with."""
        self._open().acknowledge(Offset.from_json(end))

    def stop(self) -> None:
        """The query ends."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _open(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver(self._options, open_capture)
            if threading.current_thread() is threading.main_thread():
                # Spark ends this process by SIGTERM without calling stop(); leave cleanly all the same.
                signal.signal(signal.SIGTERM, _leave)
        return self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


class SnapshotReader(DataSourceReader):  # type: ignore[misc]
    """The rows of one table as they are now. One partition sees one moment; several see one each."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @crossing
    def partitions(self) -> list[InputPartition]:
        """One task, or as many as asked for, by key ranges."""
        capture = open_capture(self._options)
        try:
            table = capture.describe(_one_table(capture, self._options, "table"))
            parts = self._options.partitions or 1
            rows = WHOLE_TABLE if parts == 1 else self._options.chunk_rows
            body = table.to_json()
            reads = [ChunkRead(body, chunk, 0, "") for chunk in capture.plan(table.ref, rows_per_chunk=rows)]
        finally:
            capture.close()
        if parts == 1:
            return [Slice(chunks=tuple(reads))]
        return [Slice(chunks=tuple(reads[part::parts])) for part in range(min(parts, len(reads)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The typed rows of the task's chunk."""
        return crossing_items(self._read(cast(Slice, partition)))

    def _read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        capture = open_capture(self._options)
        try:
            for chunk in part.chunks:
                table = TableSchema.from_json(chunk.table)
                for batch in capture.snapshot(table, chunk.chunk, position=0, seq=0):
                    yield typed_rows(batch)
        finally:
            capture.close()
