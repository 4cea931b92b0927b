"""The data source itself: what Spark calls, and in which process.

`TailraceSource` and `schema` run in a short-lived worker when a query is loaded. The stream reader lives in
one runner process beside the driver as long as the query runs (`StreamDriver`); a second copy of it is made
only to be pickled, so nothing is opened in `__init__`. `read` runs on executors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
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

from tailrace.model.errors import ConfigError
from tailrace.model.render import envelope_schema
from tailrace.model.views import net_view_schema, table_view_schema
from tailrace.spark.batch import batch_reader, batch_schema, check_stream
from tailrace.spark.crossing import crossing, crossing_items
from tailrace.spark.driver import StreamDriver
from tailrace.spark.leaving import close_when_told
from tailrace.spark.lending import lent_capture
from tailrace.spark.offsets import Offset
from tailrace.spark.opening import one_table, open_capture
from tailrace.spark.options import SourceOptions
from tailrace.spark.partitions import Slice
from tailrace.spark.planners import settle
from tailrace.spark.read import PACKED, read_slice

__all__ = ["StreamReader", "TailraceSource", "open_capture"]


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
        with lent_capture(options) as capture:
            settle()
            if options.state_dir is None and options.view != "net":
                return _spark_schema(batch_schema(capture, options))
            table = capture.describe(one_table(capture, options, options.view or "table"))
        return _spark_schema(net_view_schema(table) if options.view == "net" else table_view_schema(table))

    @crossing
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's contract
        """A batch reader: the table's rows as they are now."""
        return batch_reader(SourceOptions.parse(self.options))

    @crossing
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader: snapshot and changes."""
        options = SourceOptions.parse(self.options)
        check_stream(options)
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
        rows: int | None
        size: int | None
        rows, size = self._options.limits
        if isinstance(limit, ReadAllAvailable):
            rows = size = None
        elif isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        begin, roomy = Offset.from_json(start), self._options.roomy
        return self._open().latest(begin, max_rows=rows, max_bytes=size, roomy=roomy).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Rows by Spark's own limit; bytes are ours to keep, Spark has no limit of both."""
        return ReadMaxRows(self._options.limits[0])

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
        changelog = f"{self._options.state_dir}/changelog"
        schema = to_arrow_schema(StructType.fromJson(json.loads(self._schema)), timezone="UTC")
        with lent_capture(self._options) as capture:
            yield from read_slice(part, self._options.view or "envelope", changelog, capture, schema)

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
                close_when_told(self._driver.leave)
        return self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}
