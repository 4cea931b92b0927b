"""Micro-batches of Spark that hold nothing: what a latency is measured against."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class EmptySource(DataSource):  # type: ignore[misc]
    """A source whose micro-batches hold nothing."""

    @classmethod
    def name(cls) -> str:
        return "bench_empty"

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: Any) -> EmptyReader:
        return EmptyReader()


class EmptyReader(DataSourceStreamReader):  # type: ignore[misc]
    """Always one batch further."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def empty_batches(spark: SparkSession, home: Path, count: int) -> list[float]:
    """Seconds of each empty micro-batch, back to back, with the same kind of sink."""
    spark.dataSource.register(EmptySource)
    ends: list[float] = []

    def sink(frame: DataFrame, _: int) -> None:
        frame.toArrow()
        ends.append(time.perf_counter())

    query = spark.readStream.format("bench_empty").load().writeStream.foreachBatch(sink)
    running = query.option("checkpointLocation", str(home / "empty-check")).start()
    deadline = time.monotonic() + 60
    while len(ends) < count and time.monotonic() < deadline:
        running.awaitTermination(0.1)
    running.stop()
    gaps = [after - before for before, after in pairwise(ends)]
    return gaps[len(gaps) // 4 :]
