"""The contestant Tailrace: a stream that waits for changes, and `foreachBatch` that takes note of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from bench.arrivals import Arrivals
from bench.contestant import Answer, serve
from bench.empty import empty_batches
from bench.postgres_server import ROLE
from bench.postgres_spark import PATIENT
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tailrace:
    """One session, one query."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._spark: SparkSession = open_session("bench", settings=PATIENT, log=home / "spark.log")
        tailrace.register(self._spark)
        self.arrivals = Arrivals()
        self._query: Any = None

    def listen(self, port: int, database: str, **_: Any) -> None:
        """Returns when the row that is there already has come."""

        def sink(frame: DataFrame, _: int) -> None:
            self.arrivals.came(frame.select("id").toArrow()["id"].to_pylist())

        frame = self._spark.readStream.format("tailrace").options(
            url=f"postgresql://{ROLE}@127.0.0.1:{port}/{database}",
            tables="orders",
            stateDir=str(self._home / "state"),
            view="table",
        )
        writer = frame.load().writeStream.foreachBatch(sink)
        self._query = writer.option("checkpointLocation", str(self._home / "check")).start()
        self.arrivals.wait(0)

    def rest(self, count: int, **_: Any) -> Answer:
        """End the query; then micro-batches that hold nothing."""
        self._query.stop()
        return {"empty": empty_batches(self._spark, self._home, count)}

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


if __name__ == "__main__":
    contestant = Tailrace(Path(sys.argv[2]))
    try:
        serve({"listen": contestant.listen, "wait": contestant.arrivals.wait, "rest": contestant.rest})
    finally:
        contestant.close()
