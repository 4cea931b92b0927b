"""O3 over a life: what was acknowledged before the mirror, or Spark, had it is told, also afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.faults.oracles import Violation
from tests.life.oracles import Watch
from tests.support.waiting import wait_until


class Ground:
    """A source that has this on record."""

    acknowledged = 0

    def cursor(self) -> int:
        return self.acknowledged


class Pipeline:
    """What a run leaves behind: batches that Spark committed, versions of a mirror, acknowledgements."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint, self.lake, self.ground = directory / "checkpoint", directory / "lake", Ground()
        self._batches = 0
        self.watch = Watch(self.ground, self.checkpoint, self.lake)  # type: ignore[arg-type]

    def commit(self, end: int) -> None:
        for kind, text in (("offsets", f"v1\n{{}}\n{json.dumps({'position': end})}"), ("commits", "v1")):
            (self.checkpoint / kind).mkdir(parents=True, exist_ok=True)
            (self.checkpoint / kind / str(self._batches)).write_text(text)
        self._batches += 1

    def apply(self, end: int, *keys: int) -> None:
        record = CommitProperties(app_transactions=[Transaction("tailrace:rig:log", end)])
        rows = pa.table({"key": pa.array(keys, pa.int64())})
        write_deltalake(str(self.lake), rows, mode="overwrite", commit_properties=record)

    def acknowledge(self, end: int) -> None:
        self.ground.acknowledged = end
        seen = self.watch.samples
        wait_until(lambda: self.watch.samples >= seen + 2, what="two looks")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path)
    made.apply(0, 1)
    with made.watch:
        made.commit(0)
        made.acknowledge(0)
        made.watch.judge([])
        yield made


def change(op: str, key: int, position: int) -> dict[str, Any]:
    image = {"key": key}
    before, after = (image, None) if op == "d" else (None, image)
    return {"op": op, "before": before, "after": after, "position": position, "seq": 0}


def test_what_the_mirror_and_spark_have_may_be_acknowledged(pipeline: Pipeline) -> None:
    pipeline.apply(10, 1, 2)
    pipeline.commit(10)
    pipeline.acknowledge(10)
    pipeline.watch.judge([change("c", 2, 10)])


def test_an_acknowledgement_before_the_mirror_has_it_is_caught_though_it_comes_later(
    pipeline: Pipeline,
) -> None:
    pipeline.commit(10)
    pipeline.acknowledge(10)
    pipeline.apply(10, 1, 2)
    with pytest.raises(Violation, match="10 was acknowledged before the mirror had 10"):
        pipeline.watch.judge([change("c", 2, 10)])


def test_an_acknowledgement_before_spark_has_it_is_caught_though_it_comes_later(pipeline: Pipeline) -> None:
    pipeline.apply(10, 1, 2)
    pipeline.acknowledge(10)
    pipeline.commit(10)
    with pytest.raises(Violation, match="10 was acknowledged before Spark's commit had 10"):
        pipeline.watch.judge([change("c", 2, 10)])


def test_what_leaves_the_mirror_as_it_is_needs_no_version_of_it(pipeline: Pipeline) -> None:
    pipeline.commit(20)
    pipeline.acknowledge(20)
    pipeline.watch.judge([change("c", 2, 10), change("d", 2, 20)])
    # Of a row that was there, the delete does.
    pipeline.commit(30)
    pipeline.acknowledge(30)
    with pytest.raises(Violation, match="before the mirror had 30"):
        pipeline.watch.judge([change("d", 1, 30)])


def test_a_row_that_came_in_one_batch_and_went_in_the_next_needs_versions(pipeline: Pipeline) -> None:
    pipeline.commit(10)
    pipeline.commit(20)
    pipeline.acknowledge(20)
    with pytest.raises(Violation, match="before the mirror had 20"):
        pipeline.watch.judge([change("c", 2, 10), change("d", 2, 20)])


def test_what_the_mirror_has_counts_and_not_what_was_told(pipeline: Pipeline) -> None:
    """A chunk was told and lost with its run; the one that came in its place did not have the row."""
    pipeline.watch.samples += 1
    pipeline.watch.judge([change("r", 7, 0)])
    pipeline.commit(10)
    pipeline.acknowledge(10)
    pipeline.watch.judge([change("d", 7, 10)])


def test_a_watch_that_nobody_keeps_judges_nothing(pipeline: Pipeline) -> None:
    pipeline.watch.__exit__()
    with pytest.raises(Violation, match="nobody looked"):
        pipeline.watch.judge([])
