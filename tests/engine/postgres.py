"""A pipeline from PostgreSQL into Delta and a feed, on the stand-in for Spark, in the test's own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tailrace.app.backends import capture_for
from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.spec import Feed, Mirror, PipelineSpec, SchemaPolicy
from tailrace.model.table import TableRef
from tailrace.runtime.observer import Recorder
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.memory import MemoryFeedSink
from tailrace.spark.offsets import Offset
from tailrace.spark.plans import PlanStore
from tailrace.spark.source import TailraceSource
from tests.faults.microbatch import StandIn
from tests.support.postgres import Database

ITEMS = TableRef("public", "items")


class Shop:
    """The table `items`, its mirror and its feed. Each `run` is a process's life: everything is made anew."""

    def __init__(
        self, database: Database, directory: Path, *ddl: str, policy: SchemaPolicy = "evolve"
    ) -> None:
        self.database, self.directory, self.policy = database, directory, policy
        database.sql(*ddl)
        self.observer = Recorder()
        self.feed = MemoryFeedSink()
        self.run()

    @property
    def url(self) -> str:
        return self.database.superuser_url()

    def sql(self, *statements: str) -> None:
        self.database.sql(*statements)

    def transaction(self, *statements: str) -> None:
        with self.database.app.transaction():
            self.database.sql(*statements)

    def spec(self) -> PipelineSpec:
        options = {
            "view": "packed",
            "url": self.url,
            "tables": "items",
            "stateDir": str(self.directory / "state"),
            "consumer": "shop",
            "startingOffsets": "earliest",
        }
        return PipelineSpec(
            name="shop",
            options=options,
            checkpoint=str(self.directory / "checkpoint"),
            mirrors=(Mirror(ITEMS, "items", self.sink(), self.policy),),
            feeds=(Feed(frozenset([ITEMS]), self.feed),),
        )

    def sink(self) -> DeltaSink:
        return DeltaSink(DeltaConfig(str(self.directory / "lake")))

    def run(self) -> None:
        """Take everything that there is now, then end; raises what stopped it."""
        spark = StandIn()
        spark.register(TailraceSource)
        pipeline = Pipeline(self.spec(), spark, release=self._release, observer=self.observer)
        try:
            pipeline.run(once=True)
        finally:
            spark.stop()

    def _release(self, offset: Offset) -> None:
        capture = capture_for(self.url)
        capture.acknowledge(offset.position, consumer="shop")
        capture.close()

    def snapshot(self) -> None:
        """What `tailrace snapshot --table items` does."""
        PlanStore(*open_filesystem(str(self.directory / "state"))).request(ITEMS)

    def mirror(self) -> list[dict[str, Any]]:
        return sorted(self.sink().read("items").to_pylist(), key=lambda row: str(row["id"]))

    def table(self) -> list[dict[str, Any]]:
        """The source itself."""
        cursor = self.database.app.execute("SELECT * FROM items ORDER BY id::text")
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def fed(self) -> list[dict[str, Any]]:
        """The after images of the feed, in order, without those of snapshots."""
        lines = [json.loads(line) for line in self.feed.text]
        return [line["after"] for line in lines if line["op"] not in "rs"]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.observer.events if told == name]
