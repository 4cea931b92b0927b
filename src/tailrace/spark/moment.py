"""Several tables at one point in time: what `tailrace.moment` gives.

The source holds the point in time for this process, by one connection; each task enters it by the id that
travels in the option `moment`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.model.errors import UsageError
from tailrace.spark.opening import open_capture
from tailrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Moment:
    """One point in time of a source, for as long as the block of `tailrace.moment` runs."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = options
        self._ended = False

    def table(
        self,
        name: str,
        *,
        partitions: int = 1,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """The rows of a table as they were at this moment. Spark reads them when an action asks for them.

        partitions: how many tasks read it.
        columns: only these; default all.
        where: a condition in the source's own SQL; default all rows.
        """
        if self._ended:
            raise UsageError(
                "this moment has ended", remedy="call table() inside `with tailrace.moment(…) as moment:`"
            )
        more = {"tables": json.dumps([name]), "numPartitions": str(partitions)}
        if columns is not None:
            more["columns"] = json.dumps(list(columns))
        if where is not None:
            more["where"] = where
        return self._spark.read.format("tailrace").options(**self._options, **more).load()

    def end(self) -> None:
        """No table is read by it from now on."""
        self._ended = True


@contextmanager
def moment(
    spark: SparkSession,
    url: str,
    *,
    types: Mapping[str, str] | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> Iterator[Moment]:
    """See `tailrace.moment`."""
    given = {"url": url}
    if types:
        given["types"] = json.dumps(dict(types))
    if source_options:
        given["sourceOptions"] = json.dumps(dict(source_options))
    with (
        closing(open_capture(SourceOptions.parse({**given, "tables": "*"}))) as capture,
        capture.moment() as held,
    ):
        made = Moment(spark, {**given, "moment": held})
        try:
            yield made
        finally:
            made.end()
