"""Dealing work out to Spark's executors: each builds and writes its own documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tailrace.capture.contract import Chunk
from tailrace.engine.documents.build import PIECE, Build, Task, packed
from tailrace.model.errors import TailraceError
from tailrace.sinks.contract import DocumentReport
from tailrace.spark.crossing import TailraceSourceError, cause
from tailrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tasks for each core: one that is done early takes another.
TASKS = 2
Answer = TypeVar("Answer")


def spread_keys(spark: SparkSession, source: SourceOptions, build: Build, keys: pa.Table) -> DocumentReport:
    """Build and write the documents of these keys on the executors."""
    tasks = spark.sparkContext.defaultParallelism * TASKS
    size = even(keys.num_rows, tasks)
    pieces = [packed(keys.slice(start, size)) for start in range(0, keys.num_rows, size)]
    return _run(spark, [Task(build, source, keys=tuple(run)) for run in _dealt(pieces, tasks)])


def spread_chunks(
    spark: SparkSession, source: SourceOptions, build: Build, chunks: Sequence[Chunk]
) -> DocumentReport:
    """Build and write the documents of all root rows on the executors."""
    tasks = spark.sparkContext.defaultParallelism * TASKS
    return _run(spark, [Task(build, source, chunks=tuple(run)) for run in _dealt(chunks, tasks)])


def spread_files(
    spark: SparkSession, source: SourceOptions, build: Build, files: Sequence[str]
) -> DocumentReport:
    """Write documents that are in files of the state directory's filesystem, on the executors."""
    tasks = spark.sparkContext.defaultParallelism * TASKS
    return _run(spark, [Task(build, source, files=tuple(run)) for run in _dealt(files, tasks)])


def even(rows: int, tasks: int) -> int:
    """The size of pieces, at most PIECE, of which every task gets as many: nobody waits for the last one."""
    rounds = max(1, -(-rows // (tasks * PIECE)))
    return max(1, -(-rows // (tasks * rounds)))


def _dealt(items: Sequence[Any], tasks: int) -> list[list[Any]]:
    return [run for at in range(tasks) if (run := list(items[at::tasks]))]


def _run(spark: SparkSession, tasks: Sequence[Task]) -> DocumentReport:
    if not tasks:
        return DocumentReport()
    jobs = spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(_all)
    return sum(ours(jobs.collect), DocumentReport())


def ours(call: Callable[[], Answer]) -> Answer:
    """What a call of Spark's gives; Tailrace's own error where one is behind Spark's."""
    try:
        return call()
    except Exception as error:
        found = cause(error)
        if found is None:
            raise
        raise found from error


def _all(tasks: Iterator[Task]) -> Iterator[DocumentReport]:
    try:
        for task in tasks:
            yield task.run()
    except TailraceError as error:
        raise TailraceSourceError(error) from None
