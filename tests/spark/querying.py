"""A query without a session: what Spark does with a driver, batch after batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace.capture.contract import TABLE_STOPPED
from tailrace.spark.driver import StreamDriver
from tailrace.spark.offsets import Offset
from tailrace.spark.options import SourceOptions
from tailrace.spark.read import read_slice
from tailrace.spark.source import open_capture
from tests.support.postgres import Database
from tests.support.waiting import wait_until


class Query:
    """What Spark does with a driver: batch after batch, and their rows."""

    def __init__(self, source: Database, state: Path, offset: Offset | None = None, **options: Any) -> None:
        url = f"postgresql://tailrace@127.0.0.1:{source.server.port}/{source.name}"
        given = {"url": url, "tables": "items,others", "stateDir": str(state), "setup": "manual", **options}
        self.options = SourceOptions.parse(given)
        self._changelog = f"{state}/changelog"
        self.driver = StreamDriver(self.options, open_capture)
        self.offset = offset or self.driver.initial()
        self.rows: list[tuple[str, str, str]] = []

    def batch(self) -> None:
        end = self.driver.latest(self.offset, max_rows=None, max_bytes=None)
        if end != self.offset:
            self.rows += self.read(end)

    def read(self, end: Offset) -> list[tuple[str, str, str]]:
        """The rows of the batch that ends there."""
        capture = open_capture(self.options)
        rows = [
            (row["table"], row["op"], row["after"] or "")
            for part in self.driver.partitions(self.offset, end, single=False)
            for found in read_slice(part, "envelope", self._changelog, capture)
            for row in found.to_pylist()
        ]
        self.offset = end
        return rows

    def until(self, table: str, op: str, text: str) -> None:
        def there() -> bool:
            self.batch()
            return any(row[:2] == (table, op) and text in row[2] for row in self.rows)

        wait_until(there, timeout=30, what=f"{op} of {text} in {table}")

    def stopped(self) -> list[str]:
        report = self.driver.report() or {}
        return [notice["table"] for notice in report["notices"] if notice["code"] == TABLE_STOPPED]

    def until_stopped(self, *tables: str) -> None:
        def told() -> bool:
            self.batch()
            return self.stopped() == list(tables)

        wait_until(told, timeout=30, what="a stopped table")

    def restart(self, source: Database, state: Path, **options: Any) -> Query:
        self.driver.close()
        return Query(source, state, self.offset, **options)
