"""The contestant Tailrace, on as many cores as it is told: batch reads, streams and changes, into nowhere."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contestant import Answer, serve
from bench.postgres_server import ROLE
from bench.postgres_spark import Tailrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Scaling(Tailrace):
    """One session, in which everything is read."""

    def __init__(self, home: Path, master: str) -> None:
        super().__init__(home, master, ("noop",))
        # A query remembers the progress of so many batches; rows are counted by it.
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)

    def batch(self, port: int, database: str, tables: str, parts: int, **_: Any) -> Answer:
        """A batch read; counts from `load()`."""
        begun = time.perf_counter()
        reader = self._spark.read.format("tailrace")
        found = self._count(
            reader.options(url=_url(port, database), tables=tables, numPartitions=parts).load()
        )
        return {"seconds": time.perf_counter() - begun, "rows": found}

    def stream(
        self, *, port: int, database: str, tables: str, parts: int, name: str, view: str, **_: Any
    ) -> Answer:
        """What a query finds that is new or goes on where it ended; counts from `load()`."""
        place = self._home / name
        begun = time.perf_counter()
        reader = self._spark.readStream.format("tailrace").options(
            url=_url(port, database),
            tables=tables,
            stateDir=str(place / "state"),
            consumer=name,
            numPartitions=parts,
            view=view,
        )
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(place / "check"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "rows": sum(one["numInputRows"] for one in query.recentProgress)}

    def forget(self, name: str, **_: Any) -> None:
        """Remove a query's files."""
        shutil.rmtree(self._home / name, ignore_errors=True)

    def _count(self, frame: DataFrame) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        counted = Observation()
        frame.observe(counted, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return int(counted.get["rows"])


def _url(port: int, database: str) -> str:
    return f"postgresql://{ROLE}@127.0.0.1:{port}/{database}"


def main(cores: int) -> None:
    """Answer until told to end."""
    contestant = Scaling(Path(sys.argv[2]), f"local[{cores}]")
    verbs = ("batch", "stream", "forget", "prepare", "drain", "finish")
    try:
        serve({verb: getattr(contestant, verb) for verb in verbs})
    finally:
        contestant.close()


if __name__ == "__main__":
    main(2)
