"""A pipeline from PostgreSQL into Delta and a feed, on the stand-in for Spark, in the test's own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tailrace.app.backends import capture_for
from tailrace.changelog.filesystem import open_filesystem
from tailrace.engine.pipeline import Pipeline
from tailrace.engine.spec import Feed, Mirror, PipelineSpec, SchemaPolicy
from tailrace.model.net import NetChanges
from tailrace.model.table import TableRef
from tailrace.runtime.observer import Recorder
from tailrace.sinks.contract import Progress, Report
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.memory import MemoryFeedSink
from tailrace.spark.offsets import Offset
from tailrace.spark.plans import PlanStore
from tailrace.spark.source import TailraceSource
from tests.faults.microbatch import StandIn
from tests.support.postgres import Database

ITEMS = TableRef("public", "items")
ROOT = Path(__file__).resolve().parents[2]


class Shop:
    """The table `items`, its mirror and its feed. Each `run` is a process's life: everything is made anew."""

    def __init__(
        self, database: Database, directory: Path, *ddl: str, policy: SchemaPolicy = "evolve"
    ) -> None:
        self.database, self.directory, self.policy = database, directory, policy
        self.url = database.superuser_url()
        database.sql(*ddl)
        self.observer = Recorder()
        self.feed = MemoryFeedSink()
        self.deadly = ""
        self.run()

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
        config = DeltaConfig(str(self.directory / "lake"))
        return Deadly(config, self.deadly) if self.deadly else DeltaSink(config)

    def run(self) -> None:
        """Take everything that there is now, then end; raises what stopped it."""
        spark = StandIn()
        spark.register(TailraceSource)
        pipeline = Pipeline(self.spec(), spark, release=self._release, observer=self.observer)
        try:
            pipeline.run(once=True)
        finally:
            spark.stop()

    def killed(self, when: str) -> None:
        """A run in a process of its own that is killed `before` or `after` a batch is in the mirror."""
        settings = json.dumps({"url": self.url, "directory": str(self.directory), "when": when})
        command = [sys.executable, "-m", "tests.engine.postgres", settings]
        ended = subprocess.run(command, cwd=ROOT, check=False, timeout=120, capture_output=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()

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


class Deadly(DeltaSink):
    """Kills its process, as power loss would, before or after a batch is in the mirror."""

    def __init__(self, config: DeltaConfig, when: str) -> None:
        super().__init__(config)
        self._when = when

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        if self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        report = super().apply(target, net, progress)
        os.kill(os.getpid(), signal.SIGKILL)
        return report


def main(settings: dict[str, str]) -> None:
    """One run that kills itself."""
    shop = Shop.__new__(Shop)
    shop.url, shop.directory, shop.policy = settings["url"], Path(settings["directory"]), "evolve"
    shop.observer, shop.feed, shop.deadly = Recorder(), MemoryFeedSink(), settings["when"]
    shop.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
