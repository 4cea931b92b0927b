"""Full disks and large transactions."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.changelog.log import Changelog
from tailrace.model.errors import Transient
from tests.changelog.support import SOURCE, all_rows, at, child, expected, hear, in_parts, part


def test_a_write_beyond_the_limit_is_transient_leaves_nothing_torn_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    with child("filling", "limited", str(tmp_path)) as process:
        count, _, rest = hear(process).partition(" ")
        assert int(count) > 3
        assert rest == "failures, whole: True"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("unavailable: the right to mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_transient_and_heals_when_space_is_freed(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Changelog.open(str(small_disk / "log"), owner_name="t", source=SOURCE, spill_bytes=30_000) as log:
        log.begin(at(0))
        log.append(part(1))
        log.flush()
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(1 << 20))
        places = set()
        for piece in in_parts(2, 3000, 500):
            try:
                log.append(piece)
            except Transient as error:
                places.add(error.place)
                ballast.unlink(missing_ok=True)
                log.append(piece)
        assert places == {str(small_disk / "log")}
        log.flush()
        assert all_rows(log) == expected(1, 3) + expected(2, 3000)


def test_a_full_disk_can_be_freed_by_acknowledging(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Changelog.open(str(small_disk / "log"), owner_name="t", source=SOURCE) as log:
        log.begin(at(0))
        for position in (1, 2):
            log.append(part(position, rows=2000))
            log.flush()
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(1 << 20))
        log.append(part(3, rows=2000))
        with pytest.raises(Transient):
            log.flush()
        log.acknowledge(at(2))
        assert log.prune() == 2
        log.flush()
        assert all_rows(log, 2) == expected(3, 2000)


def test_memory_does_not_grow_with_the_transaction(tmp_path: Path) -> None:
    spill = 4 << 20
    grown, weight = {}, {}
    for rows in (200_000, 800_000):
        arguments = ("measured", str(tmp_path / str(rows)), str(rows), str(spill))
        # The system's allocator gives memory back; what Arrow's own keeps for later would be measured too.
        with child("filling", *arguments, ARROW_DEFAULT_MEMORY_POOL="system") as process:
            grown[rows], weight[rows] = map(int, hear(process).split())
    assert weight[800_000] - weight[200_000] > 8 * spill
    assert grown[800_000] - grown[200_000] < spill, grown
