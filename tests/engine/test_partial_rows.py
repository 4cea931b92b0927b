"""Updates of a real PostgreSQL that leave a large column alone, while their table's snapshot is under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.engine.spec import PipelineSpec
from tailrace.model.errors import DataError, TailraceError
from tailrace.model.net import NetChanges
from tailrace.sinks.contract import Progress, Report
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tests.engine.postgres import Shop
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]
TABLE = "CREATE TABLE items (id int PRIMARY KEY, n int, note text)"
ASIDE = "ALTER TABLE items ALTER note SET STORAGE EXTERNAL"
ROWS = "INSERT INTO items SELECT i, i, repeat(md5(i::text), 200) FROM generate_series(1, 30) i"


class CutShort(TailraceError):
    """A run that ends in the middle."""


class Told(DeltaSink):
    """Calls back when a batch is in the mirror, with its number in this run."""

    def __init__(self, config: DeltaConfig, written: Callable[[int], None]) -> None:
        super().__init__(config)
        self._written = written
        self._count = 0

    def apply(self, target: str, net: NetChanges, progress: Progress) -> Report:
        report = super().apply(target, net, progress)
        self._count += 1
        self._written(self._count)
        return report


class Slow(Shop):
    """A shop whose snapshot takes many batches. `happens` is called when the first of them is written."""

    def __init__(self, database: Database, directory: Path, happens: Callable[[], None]) -> None:
        self.happens = happens
        try:
            super().__init__(database, directory, TABLE, ASIDE, ROWS)
        except CutShort:
            self.happens = lambda: None
            self.run()

    def sink(self) -> DeltaSink:
        return Told(DeltaConfig(str(self.directory / "lake")), lambda n: self.happens() if n == 1 else None)

    def spec(self) -> PipelineSpec:
        spec = super().spec()
        small = {"chunkRows": "10", "maxRowsPerTrigger": "1", "numPartitions": "1"}
        return replace(spec, options={**spec.options, **small})


def test_a_row_whose_chunk_is_not_read_yet_waits_for_its_chunk(database: Database, tmp_path: Path) -> None:
    def happens() -> None:
        database.sql("UPDATE items SET n = -1 WHERE id = 30", "UPDATE items SET n = -2 WHERE id = 5")
        raise CutShort("in the middle")

    shop = Slow(database, tmp_path, happens)
    assert shop.mirror() == shop.table()
    assert {"id": 30, "n": -1} in shop.fed(), "its chunk was not read when the log told of it"


def test_a_row_that_its_chunk_saw_deleted_may_still_be_updated_by_the_log(
    database: Database, tmp_path: Path
) -> None:
    def happens() -> None:
        # Not flushed at once, and visible all the same.
        database.sql("SET synchronous_commit = off", "UPDATE items SET n = -1 WHERE id = 30")
        database.sql("UPDATE items SET n = -2 WHERE id = 30", "DELETE FROM items WHERE id = 30")

    shop = Slow(database, tmp_path, happens)
    assert len(shop.mirror()) == 29
    shop.happens = lambda: None
    shop.run()
    assert shop.mirror() == shop.table()
    assert len(shop.fed()) == 3


def test_a_row_that_is_lost_from_the_mirror_is_an_error_once_the_snapshot_is_over(
    database: Database, tmp_path: Path
) -> None:
    shop = Slow(database, tmp_path, lambda: None)
    shop.sql("UPDATE items SET n = 0 WHERE id = 1")
    shop.run()
    assert shop.mirror() == shop.table()
    DeltaTable(str(tmp_path / "lake" / "items")).delete("id = 30")
    shop.sql("UPDATE items SET n = 0 WHERE id = 30")
    with pytest.raises(DataError, match="note"):
        shop.run()
