"""Filling an index by Spark: its tables are read once, in parallel, and joined by the executors.

For large tables this asks the source for plain scans instead of many lookups, and the joins are as parallel
as the cluster is. The tables are copied to Parquet files in the state directory when the filling begins; each
batch of the root's snapshot then builds the documents of its keys from these copies, so that a filling is
resumed by chunk and changes flow meanwhile. Documents go by files too: what Spark has for handing rows to
Python in Arrow's format needs pandas.

A copy does not follow the source. So these documents have the version of the position at which the copies
were begun: whatever changed since was, or will be, built from the source with a higher one, and wins.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tailrace.changelog.filesystem import open_filesystem, remove
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render import Keys, build_query
from tailrace.engine.documents.build import Build
from tailrace.engine.documents.spread import ours, spread_files
from tailrace.engine.spec import tables_of
from tailrace.sinks.contract import DocumentReport
from tailrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIRECTORY = "filling"
# From so many root rows on, and with so many cores, joins are cheaper than questions to the source.
LARGE_ROWS = 2_000_000
MANY_CORES = 8


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
            ours(partial(self._copy, options, self._uri(place)))

    def _copy(self, options: Mapping[str, str], uri: str) -> None:
        self._spark.read.format("tailrace").options(**options).load().write.mode("overwrite").parquet(uri)

    def build(self, build: Build, keys: pa.Table, dialect: str) -> DocumentReport:
        """Build and write the documents of these keys; a key that the copies lack is left to the log."""
        spark, views = self._spark, {}
        for at, (ref, place) in enumerate(self._places.items()):
            views[ref] = f"tailrace_filling_{at}"
            spark.read.parquet(self._uri(place)).createOrReplaceTempView(views[ref])
        # As a file too: Spark takes Arrow tables from memory by way of pandas only.
        place = f"{self._root}/{DIRECTORY}/{self._name}/keys"
        self._fs.create_dir(place, recursive=True)
        name = f"{place}/{build.version}-{uuid.uuid4().hex[:8]}.parquet"
        pq.write_table(keys.select(list(self._plan.root.key)), name, filesystem=self._fs)
        spark.read.parquet(self._uri(name)).createOrReplaceTempView("tailrace_filling_keys")
        query = build_query(build.plan, "spark", Keys("tailrace_filling_keys"), source=dialect, views=views)
        made = f"{self._root}/{DIRECTORY}/{self._name}/documents"
        ours(lambda: spark.sql(query.sql).write.mode("overwrite").parquet(self._uri(made)))
        found = self._fs.get_file_info(pafs.FileSelector(made))
        report = spread_files(
            spark, self._source, build, [one.path for one in found if one.path.endswith(".parquet")]
        )
        remove_tree(self._fs, made)
        return report

    def _uri(self, place: str) -> str:
        return f"file:{place}" if isinstance(self._fs, pafs.LocalFileSystem) else self._remote(place)

    def _remote(self, place: str) -> str:
        base = (self._source.state_dir or "").rstrip("/")
        return f"{base}{place.removeprefix(self._root)}"


def keep_copies(fs: pafs.FileSystem, root: str, generations: set[str]) -> None:
    """Remove the copies of all fillings but these."""
    for found in fs.get_file_info(pafs.FileSelector(f"{root}/{DIRECTORY}", allow_not_found=True)):
        if found.base_name not in generations:
            remove_tree(fs, found.path)


def remove_tree(fs: pafs.FileSystem, path: str) -> None:
    """Remove a directory, if it is there."""
    if fs.get_file_info(path).type == pafs.FileType.Directory:
        fs.delete_dir(path)
    else:
        remove(fs, path)
