"""Filling an index by Spark: its tables are read once, in parallel, and joined by the executors.

For large tables this asks the source for plain scans instead of many lookups, and the joins are as parallel
as the cluster is. The tables are copied to Parquet files in the state directory when the filling begins; each
batch of the root's snapshot then builds the documents of its keys from these copies, so that a filling is
resumed by chunk and changes flow meanwhile.

A copy does not follow the source. So these documents have the version of the position at which the copies
were begun: whatever changed since was, or will be, built from the source with a higher one, and wins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from tailrace.changelog.filesystem import open_filesystem, remove
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render import Keys, build_query
from tailrace.engine.documents.build import Build, rejected
from tailrace.engine.spec import tables_of
from tailrace.model.errors import TailraceError
from tailrace.sinks.contract import DocumentBatch, DocumentReport, Rejection
from tailrace.spark.crossing import TailraceSourceError, cause
from tailrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIRECTORY = "filling"
# From so many root rows on, and with so many cores, joins are cheaper than questions to the source.
LARGE_ROWS = 2_000_000
MANY_CORES = 8
Answer = TypeVar("Answer")
REPORT = "written long, deleted long, stale long, rejected string, notes string"


def cheaper(rows: int, cores: int) -> bool:
    """Whether filling by joins is likely to cost less than by questions to the source."""
    return rows >= LARGE_ROWS and cores >= MANY_CORES


class Copies:
    """The tables of one filling, as Parquet files under the state directory."""

    def __init__(self, spark: SparkSession, source: SourceOptions, plan: IndexPlan, generation: str) -> None:
        self._spark, self._source, self._plan = spark, source, plan
        self._name = generation
        self._fs, self._root = open_filesystem(source.state_dir or "")
        directory = f"{self._root}/{DIRECTORY}/{generation}"
        self._places = {ref: f"{directory}/{at}" for at, ref in enumerate(sorted(tables_of(plan)))}

    def make(self, tell: Callable[[str], None]) -> None:
        """Read the tables that are not copied yet. Everything up to the copies' position must be visible."""
        parts = str(self._spark.sparkContext.defaultParallelism * 2)
        for ref, place in self._places.items():
            if self._fs.get_file_info(f"{place}/_SUCCESS").type == pafs.FileType.File:
                continue
            tell(str(ref))
            options = {"url": self._source.url, "tables": json.dumps([str(ref)]), "numPartitions": parts}
            if self._source.types:
                options["types"] = json.dumps(self._source.types)
            if self._source.source_options:
                options["sourceOptions"] = json.dumps(self._source.source_options)
            _ours(partial(self._copy, options, self._uri(place)))

    def _copy(self, options: Mapping[str, str], uri: str) -> None:
        self._spark.read.format("tailrace").options(**options).load().write.mode("overwrite").parquet(uri)

    def build(self, build: Build, keys: pa.Table, dialect: str) -> DocumentReport:
        """Build and write the documents of these keys; a key that the copies lack is left to the log."""
        spark, views = self._spark, {}
        for at, (ref, place) in enumerate(self._places.items()):
            views[ref] = f"tailrace_filling_{at}"
            spark.read.parquet(self._uri(place)).createOrReplaceTempView(views[ref])
        names = list(self._plan.root.key)
        fields = ", ".join(
            f"`{name.replace('`', '``')}` {self._plan.root.table.column(name).type.name}" for name in names
        )
        spark.createDataFrame(keys.select(names), fields).createOrReplaceTempView("tailrace_filling_keys")
        query = build_query(build.plan, "spark", Keys("tailrace_filling_keys"), source=dialect, views=views)
        return _ours(lambda: _written(spark.sql(query.sql), build))

    def _uri(self, place: str) -> str:
        return f"file:{place}" if isinstance(self._fs, pafs.LocalFileSystem) else self._remote(place)

    def _remote(self, place: str) -> str:
        base = (self._source.state_dir or "").rstrip("/")
        return f"{base}{place.removeprefix(self._root)}"


def remove_tree(fs: pafs.FileSystem, path: str) -> None:
    """Remove a directory, if it is there."""
    if fs.get_file_info(path).type == pafs.FileType.Directory:
        fs.delete_dir(path)
    else:
        remove(fs, path)


def _written(frame: DataFrame, build: Build) -> DocumentReport:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield _report(_all(batches, build))
        except TailraceError as error:
            raise TailraceSourceError(error) from None

    rows = frame.mapInArrow(write, REPORT).collect()
    return sum(
        (
            DocumentReport(
                row["written"],
                row["deleted"],
                row["stale"],
                tuple(Rejection(*one) for one in json.loads(row["rejected"])),
                tuple(json.loads(row["notes"])),
            )
            for row in rows
        ),
        DocumentReport(),
    )


def _all(batches: Iterator[pa.RecordBatch], build: Build) -> DocumentReport:
    report = DocumentReport()
    try:
        for batch in batches:
            ids, documents = batch.column(0), batch.column(1)
            report += build.sink.write(
                DocumentBatch(build.index, build.generation, ids, documents, build.version)
            )
            if build.strict and report.rejected:
                raise rejected(build.index, report.rejected)
        build.sink.flush()
    finally:
        build.sink.close()
    return report


def _report(report: DocumentReport) -> pa.RecordBatch:
    refused = json.dumps([[one.id, one.reason] for one in report.rejected])
    return pa.RecordBatch.from_pydict(
        {
            "written": [report.written],
            "deleted": [report.deleted],
            "stale": [report.stale],
            "rejected": [refused],
            "notes": [json.dumps(list(report.notes))],
        }
    )


def _ours(call: Callable[[], Answer]) -> Answer:
    """What a call gives, with Tailrace's own error behind Spark's."""
    try:
        return call()
    except Exception as error:
        found = cause(error)
        if found is None:
            raise
        raise found from error
