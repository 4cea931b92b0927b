"""One Spark session for all tests of a run: starting one takes several seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A JVM that lives for seconds has no use for its second compiler, nor for several threads of collection.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def defaults_in(directory: Path) -> dict[str, str]:
    """The environment for a program that starts Spark by itself, so that its JVM is a quick one too."""
    directory.mkdir(exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in {**QUICK, "spark.ui.enabled": "false"}.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(directory)}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with the source registered; its log is shown when the directory survives a failure."""
    import tailrace
    from tailrace.spark.session import open_session

    with tempfile.TemporaryDirectory() as directory:
        session = open_session("tests", settings=QUICK, log=Path(directory) / "spark.log")
        tailrace.register(session)
        yield session
        session.stop()


class Query:
    """A stream into memory, restartable: its rows by micro-batch, as plain dictionaries."""

    def __init__(self, spark: SparkSession, directory: Path, url: str, **options: str) -> None:
        self._spark = spark
        self._checkpoint = str(directory / "checkpoint")
        self.state = directory / "state"
        self._options = {"url": url, "tables": "orders", "stateDir": str(self.state), **options}
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.calls: list[int] = []
        self._running: Any = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row so far; a replayed batch counts once."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def load(self, **options: str) -> DataFrame:
        """The streaming DataFrame."""
        return self._spark.readStream.format("tailrace").options(**{**self._options, **options}).load()

    def start(self, *, once: bool = False, **options: str) -> Any:
        """Begin, or go on from the checkpoint."""
        writer = self.load(**options).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        self._running = (writer.trigger(availableNow=True) if once else writer).start()
        return self._running

    def once(self, **options: str) -> list[dict[str, Any]]:
        """Run until caught up; the rows of this run."""
        known = set(self.batches)
        self.start(once=True, **options).awaitTermination()
        return [row for number, rows in sorted(self.batches.items()) if number not in known for row in rows]

    def stop(self) -> None:
        """End the running query."""
        if self._running is not None:
            self._running.stop()

    def _take(self, frame: DataFrame, number: int) -> None:
        self.calls.append(number)
        self.batches[number] = frame.toArrow().to_pylist()
