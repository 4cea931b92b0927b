"""`on_error = "skip"`: the mirror lacks the rows that it cannot carry, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.engine.quarantine import Quarantine
from tailrace.model.net import net
from tailrace.sinks.contract import Progress
from tailrace.sinks.delta.config import DeltaConfig
from tailrace.sinks.delta.sink import DeltaSink
from tests.capture.sqlite.support import Source


class Mirrored:
    """A table with a key of its own and a mirror that skips what it cannot carry."""

    def __init__(self, directory: Path) -> None:
        self.source = Source(directory / "m.db", "CREATE TABLE t (k INT PRIMARY KEY, n INTEGER)").install()
        self.sink = DeltaSink(DeltaConfig(str(directory / "lake")))
        self.quarantine = Quarantine(str(directory / "dead"))
        self.dead = directory / "dead"

    def write(self, *statements: str) -> list[tuple[object, object]]:
        """The mirror after these statements, as one batch."""
        self.source.run(*statements)
        assert self.source.position is not None
        start = self.source.position
        batches = [self.quarantine.sift(batch) for part in self.source.parts() for batch in part.batches]
        progress = Progress("p", start.version, self.source.position.version, {}, start.source)
        self.sink.apply("t", net(batches), progress)
        return sorted((row["k"], row["n"]) for row in self.sink.read("t").to_pylist())

    def letters(self) -> list[str]:
        """The operations that were set aside."""
        return [
            json.loads(line)["op"]
            for file in self.dead.glob("*.ndjson")
            for line in file.read_text().splitlines()
        ]


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[Mirrored]:
    mirrored = Mirrored(tmp_path)
    yield mirrored
    mirrored.source.close()


def test_a_row_that_no_longer_fits_leaves_the_mirror_and_comes_back_when_it_fits_again(
    mirrored: Mirrored,
) -> None:
    assert mirrored.write("INSERT INTO t VALUES (1, 1), (2, 2)") == [(1, 1), (2, 2)]
    assert mirrored.write("UPDATE t SET n = 'many' WHERE k = 2") == [(1, 1)]
    assert mirrored.write("UPDATE t SET n = 3 WHERE k = 2") == [(1, 1), (2, 3)]
    assert mirrored.letters() == ["u"]


def test_a_row_that_moves_and_no_longer_fits_leaves_nothing_under_its_old_key(mirrored: Mirrored) -> None:
    mirrored.write("INSERT INTO t VALUES (1, 1), (2, 2)")
    assert mirrored.write("UPDATE t SET k = 9, n = 'many' WHERE k = 2") == [(1, 1)]
    assert mirrored.write("UPDATE t SET n = 9 WHERE k = 9") == [(1, 1), (9, 9)]


@pytest.mark.parametrize("key", ["'word'", "NULL"])
def test_a_row_whose_key_cannot_be_carried_is_skipped_all_its_life(mirrored: Mirrored, key: str) -> None:
    mirrored.write("INSERT INTO t VALUES (1, 1)")
    assert mirrored.write(f"INSERT INTO t VALUES ({key}, 2)") == [(1, 1)]
    assert mirrored.write(f"UPDATE t SET n = 3 WHERE k IS {key}") == [(1, 1)]
    assert mirrored.write(f"UPDATE t SET k = 5 WHERE k IS {key}") == [(1, 1), (5, 3)]
    assert mirrored.write(f"UPDATE t SET k = {key} WHERE k = 5") == [(1, 1)]
    assert mirrored.write(f"DELETE FROM t WHERE k IS {key}") == [(1, 1)]
    assert mirrored.letters() == ["c", "u", "u", "d"]
