"""The pipeline under test as a process of its own: `python -m tests.faults.child SETTINGS.json`.

The engine's own `Pipeline` on Spark or on the stand-in, with the faulty source and sinks. How it ended is in
`outcome.json`; SIGTERM stops it as the command line does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from tailrace import app
from tailrace.app.indexing import document_needs, indexes_of
from tailrace.app.parts import captured_tables
from tailrace.capture.contract import Capture
from tailrace.changelog.log import Changelog
from tailrace.config import load_config
from tailrace.engine.documents.build import Build
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.spec import Feed, Mirror, PipelineSpec
from tailrace.engine.writer import BatchWriter
from tailrace.model.change import Part
from tailrace.model.errors import TailraceError
from tailrace.model.table import TableRef
from tailrace.sinks.contract import DocumentReport, DocumentSink, FeedSink
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.http import HttpConfig, HttpSink
from tailrace.sinks.opensearch import OpenSearchConfig, OpenSearchSink
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tailrace.sinks.stdout import StdoutConfig, StdoutSink
from tests.faults.microbatch import Manners, StandIn
from tests.faults.points import reach
from tests.faults.sinks import FaultyDocuments, FaultyFeed, FaultyTable, FileFeed
from tests.faults.source import FaultySource, shorten_lease, skip_old_parent, tune_capture


def watch_appends() -> None:
    """A point before each part that the filler appends: the stand-in has it in this very process."""
    original = Changelog.append
    if getattr(original, "watched", False):
        return
    parts = 0

    def append(self: Changelog, part: Part) -> None:
        nonlocal parts
        parts = parts + 1 if self._intake.open is not None else 0
        reach("append", parts=parts)
        original(self, part)

    append.watched = True  # type: ignore[attr-defined]
    Changelog.append = append  # type: ignore[method-assign]


class FaultyWriter(BatchWriter):
    """The product's writer, and a point after everything is with the sinks."""

    def __call__(self, frame: Any, number: int) -> None:
        super().__call__(frame, number)
        reach("flushed", batch=number)


def specification(settings: dict[str, Any]) -> PipelineSpec:
    """What the pipeline does: a mirror of each table, and a feed of the ledger; documents where wanted."""
    refs = [TableRef(settings["schema"], name) for name in settings["tables"]]
    place = Path(settings["directory"])
    mirror = FaultyTable(DeltaSink(DeltaConfig(str(place / "lake"))), place, late=settings["late"])
    spec = PipelineSpec(
        name="rig",
        options={
            "view": "packed",
            "url": settings["url"],
            "tables": ",".join(settings["tables"]),
            **settings["options"],
        },
        checkpoint=settings["checkpoint"],
        mirrors=tuple(Mirror(ref, ref.name, mirror) for ref in refs),
        feeds=tuple(Feed(frozenset(refs[:1]), sink) for sink in feeds(place, settings["receiver"])),
        spark_log=str(place / "spark.log"),
    )
    return documented(spec, place / "tailrace.toml", settings)


def feeds(place: Path, receiver: str | None) -> Iterator[FeedSink]:
    """The file that oracles read, and, where there is a receiver, the feeds that people use."""
    yield FileFeed(place / "feed.ndjson")
    if receiver is not None:
        # Small bodies, so that a batch has some of them.
        quick = HttpConfig(receiver, max_batch_bytes=1000, backoff=0.05, max_backoff=0.2)
        yield FaultyFeed(HttpSink(quick), "http")
        # Each run has an output of its own, as each process has.
        name = f"stdout-{time.time_ns()}.ndjson"
        yield FaultyFeed(StdoutSink(StdoutConfig((place / name).open("wb"))), "stdout")


def documented(spec: PipelineSpec, file: Path, settings: dict[str, Any]) -> PipelineSpec:
    """The same with the indexes of a configuration, if there is one, in a file or in a cluster."""
    if not file.exists():
        return spec
    config = load_config(file, environ={})
    with app.opened(config) as capture:
        refs = captured_tables(config, capture)
        indexes = indexes_of(config, capture)
        needs = document_needs(capture, indexes, refs, spec.mirrors, spec.feeds)
    names = json.dumps([str(ref) for ref in refs])
    store = {"path": str(file.parent / "docs.db"), **settings["store"]}
    inner: DocumentSink = SqliteSink(SqliteStoreConfig(**store))
    if settings["search"] is not None:
        inner = OpenSearchSink(OpenSearchConfig(**settings["search"]))
    late = settings["late"]
    return replace(
        spec,
        options={**spec.options, "tables": names, "documents": needs.to_json()},
        indexes=tuple(replace(one, sink=FaultyDocuments(inner, late=late)) for one in indexes),
        dead_letters=str(file.parent / "deadletters"),
    )


def watch_builds() -> None:
    """A point between the resolving of documents and their building."""
    original = Build.keys
    if getattr(original, "watched", False):
        return

    def watched(self: Build, capture: Capture, keys: pa.Table) -> DocumentReport:
        reach("build", index=self.index, version=self.version, documents=keys.num_rows)
        return original(self, capture, keys)

    watched.watched = True  # type: ignore[attr-defined]
    Build.keys = watched  # type: ignore[method-assign]


def session(settings: dict[str, Any]) -> Any:
    """Spark, or its stand-in."""
    if settings["engine"] == "loop":
        return StandIn(Manners(**settings["manners"]))
    from tailrace.spark.session import open_session

    quick = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    return open_session(
        "rig", master=settings["master"], settings=quick, log=Path(settings["directory"]) / "spark.log"
    )


def run(settings: dict[str, Any], *, once: bool) -> dict[str, Any]:
    """Run a pipeline to its end; how it ended."""
    shorten_lease()
    tune_capture()
    watch_appends()
    watch_builds()
    skip_old_parent()
    spark = session(settings)
    spark.dataSource.register(FaultySource)
    source = SimpleNamespace(url=settings["url"], types={}, options={})
    config = SimpleNamespace(source=source, consumer=settings["options"]["consumer"])
    pipeline = Pipeline(specification(settings), spark, release=app.release(cast(Any, config)))
    pipeline._writer = FaultyWriter(pipeline._spec, pipeline._gate, pipeline._observer)
    if settings.get("signals"):
        signal.signal(signal.SIGTERM, lambda *_: pipeline.request_stop())
    reach("running")
    try:
        result = pipeline.run(once=once)
    except TailraceError as error:
        return {"error": type(error).__name__, "message": str(error), "exit": error.exit_code}
    finally:
        spark.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"error": None, "batches": result.batches, "rows": result.rows, "exit": 0, "peak": peak}


def main() -> int:
    """Run, and leave the outcome behind."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    outcome = run({**settings, "signals": True}, once=settings["once"])
    path = Path(settings["directory"], f"outcome-{os.getpid()}.json")
    path.write_text(json.dumps(outcome))
    return int(outcome["exit"])


if __name__ == "__main__":
    sys.exit(main())
