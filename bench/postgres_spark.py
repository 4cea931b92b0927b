"""The contestant Tailrace: a Spark session that stays warm, `format("tailrace")` into no-op and Parquet.

A query of each sink begins before the writes (which makes its slot), and runs once more with nothing to read:
the seconds of that are what starting and ending a query costs by itself.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from bench.contestant import Answer, serve
from bench.postgres_server import ROLE
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = ("noop", "parquet")
# On a machine that others use too a worker may need longer to answer than Spark waits.
PATIENT = {"spark.python.authenticate.socketTimeout": "120s"}


class Tailrace:
    """One session for all workloads."""

    def __init__(self, home: Path, master: str = "local[2]", sinks: tuple[str, ...] = SINKS) -> None:
        self._home, self._sinks = home, sinks
        self._spark: SparkSession = open_session(
            "bench", master=master, settings=PATIENT, log=home / "spark.log"
        )
        tailrace.register(self._spark)
        self._empty: dict[str, float] = {}

    def prepare(self, port: int, database: str, view: str, **_: Any) -> None:
        """A place in the log before the writes for each sink, and the cost of a query without rows."""
        for sink in self._sinks:
            self._run(sink, port, database, view, startingOffsets="latest")
            self._empty[sink], rows = self._run(sink, port, database, view)
            if rows:
                raise RuntimeError(f"{rows} rows before anything was written")

    def drain(self, port: int, database: str, view: str, rows: int, sink: str, **_: Any) -> Answer:
        """Everything that was written, by one query."""
        seconds, found = self._run(sink, port, database, view)
        empty = self._empty[sink]
        return {"rows": found, "seconds": seconds, "sustained": seconds - empty, "empty": empty}

    def finish(self, database: str, rows: int, sink: str, **_: Any) -> None:
        """Look whether everything is there."""
        place = self._place(sink, database)
        if sink == "parquet":
            found = self._spark.read.parquet(str(place / "out")).count()
            if found != rows:
                raise RuntimeError(f"the files have {found} rows instead of {rows}")
        shutil.rmtree(place, ignore_errors=True)

    def _run(self, sink: str, port: int, database: str, view: str, **options: str) -> tuple[float, int]:
        place = self._place(sink, database)
        reader = self._spark.readStream.format("tailrace").options(
            url=f"postgresql://{ROLE}@127.0.0.1:{port}/{database}",
            tables="orders",
            stateDir=str(place / "state"),
            consumer=f"{sink}_{database}",
            view=view,
            **options,
        )
        writer = reader.load().writeStream.format(sink).option("checkpointLocation", str(place / "check"))
        if sink == "parquet":
            writer = writer.option("path", str(place / "out"))
        begun = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        return seconds, sum(progress["numInputRows"] for progress in query.recentProgress)

    def _place(self, sink: str, database: str) -> Path:
        return self._home / f"{database}-{sink}"

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


if __name__ == "__main__":
    contestant = Tailrace(Path(sys.argv[2]))
    try:
        serve({"prepare": contestant.prepare, "drain": contestant.drain, "finish": contestant.finish})
    finally:
        contestant.close()
