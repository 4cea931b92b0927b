"""The contestant Tailrace: a pipeline that keeps one index, in a session of Spark's that stays warm.

Its sink is the document store, or one that only counts. A backfill is a run of a new pipeline up to what the
source has; for bursts the same pipeline goes on, and tells when it has written so many changes.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from bench import documents_data
from bench.contestant import Answer, serve
from bench.documents_sink import CountingSink
from tailrace import app
from tailrace.config.load import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.engine.spec import PipelineSpec

PATIENCE = 300.0


class Counter:
    """An observer that knows how many changes and documents were written."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.rows = self.documents = 0

    def event(self, name: str, **fields: Any) -> None:
        """Count batches."""
        if name == "batch.written":
            with self._changed:
                self.rows += fields["rows"]
                self.documents += fields["documents"]
                self._changed.notify_all()

    def wait(self, rows: int, failed: list[BaseException]) -> None:
        """Return when so many changes were written."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.rows >= rows or failed, PATIENCE) or failed:
                raise failed[0] if failed else RuntimeError(f"{self.rows} changes instead of {rows}")


class Tailrace:
    """One session for all pipelines, one of which may be running."""

    def __init__(self, home: Path) -> None:
        self._home = home
        # On a machine that others use too a worker may need longer to answer than Spark waits.
        settings = {"spark.python.authenticate.socketTimeout": "120s"}
        self._spark: SparkSession = open_session("bench", settings=settings, log=home / "spark.log")
        tailrace.register(self._spark)
        self._counter = Counter()
        self._failed: list[BaseException] = []
        self._pipeline: Pipeline | None = None
        self._thread: threading.Thread | None = None

    def fill(self, port: int, rows: int, sink: str, turn: int, **_: Any) -> Answer:
        """Every document, by a new pipeline from its start to its end."""
        place = self._place(rows, sink, turn)
        file = documents_data.configure(place, port, rows, f"{sink}_{rows}_{turn}")
        begun = time.perf_counter()
        self._made(self._spec(file, sink), Counter()).run(once=True)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, **self._found(place, sink)}

    def forget(self, rows: int, sink: str, turn: int, **_: Any) -> None:
        """Remove a pipeline's files."""
        shutil.rmtree(self._place(rows, sink, turn), ignore_errors=True)

    def live(self, rows: int, sink: str, turn: int, **_: Any) -> None:
        """Let a pipeline go on until `rest`; returns when it waits for changes."""
        self._counter, self._failed = Counter(), []
        spec = self._spec(self._place(rows, sink, turn) / "tailrace.toml", sink)
        self._pipeline = pipeline = self._made(spec, self._counter)

        def run() -> None:
            try:
                pipeline.run()
            except BaseException as error:
                self._failed.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def reach(self, changes: int, **_: Any) -> Answer:
        """Return when so many changes were written since `live`."""
        self._counter.wait(changes, self._failed)
        return {"changes": self._counter.rows, "documents": self._counter.documents}

    def rest(self, rows: int, sink: str, turn: int, **_: Any) -> Answer:
        """End the pipeline."""
        if self._pipeline is not None and self._thread is not None:
            self._pipeline.request_stop()
            self._thread.join(PATIENCE)
        self._pipeline = self._thread = None
        if self._failed:
            raise self._failed[0]
        return self._found(self._place(rows, sink, turn), sink)

    def _spec(self, file: Path, sink: str) -> PipelineSpec:
        spec = app.pipeline_spec(load_config(file))
        if sink == "store":
            return spec
        counting = CountingSink(str(file.parent / "counted"))
        return replace(spec, indexes=tuple(replace(index, sink=counting) for index in spec.indexes))

    def _made(self, spec: PipelineSpec, counter: Counter) -> Pipeline:
        return Pipeline(spec, self._spark, release=lambda _: None, observer=counter)

    def _found(self, place: Path, sink: str) -> Answer:
        """Documents that there are, and bytes of ids and documents."""
        if sink != "store":
            found = CountingSink(str(place / "counted")).counted()
            return {"documents": found["written"], "bytes": found["bytes"]}
        with contextlib.closing(sqlite3.connect(place / "documents.db")) as store:
            count, size = store.execute(
                "SELECT count(*), sum(octet_length(id) + octet_length(document)) FROM documents"
                if sqlite3.sqlite_version_info >= (3, 43)
                else "SELECT count(*), sum(length(CAST(id AS BLOB)) + length(CAST(document AS BLOB)))"
                " FROM documents"
            ).fetchone()
        return {"documents": count, "bytes": size}

    def _place(self, rows: int, sink: str, turn: int) -> Path:
        return self._home / f"{sink}-{rows}-{turn}"

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


if __name__ == "__main__":
    contestant = Tailrace(Path(sys.argv[2]))
    verbs = ("fill", "forget", "live", "reach", "rest")
    try:
        serve({verb: getattr(contestant, verb) for verb in verbs})
    finally:
        contestant.close()
