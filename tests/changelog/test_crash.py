"""A writer killed at random moments, over and over, on the same directory."""

import random
import signal
import threading
from pathlib import Path

import pytest

from tailrace.changelog.log import Changelog
from tests.changelog.support import SOURCE, all_rows, child, expected
from tests.changelog.writing import rows_at


def run_until_killed(root: Path, delay: float, after: str) -> tuple[int, int]:
    """What the killed writer had reported: the flushed end and the acknowledged position.

    `after` is the word that the time to the kill is counted from.
    """
    flushed = acknowledged = 0
    with child("writing", str(root)) as process:
        assert process.stdout is not None
        timer: threading.Timer | None = None
        for line in process.stdout:
            word, _, number = line.partition(" ")
            # A line that the kill cut short reports nothing.
            if not line.endswith("\n"):
                break
            if word == after and timer is None:
                timer = threading.Timer(delay, process.send_signal, [signal.SIGKILL])
                timer.start()
            if word == "acknowledged":
                acknowledged = int(number)
            else:
                flushed = int(number)
        assert timer is not None
        timer.join()
        assert process.wait() == -signal.SIGKILL
    return flushed, acknowledged


def kill_and_check(root: Path, times: int) -> None:
    before = 0
    for number in range(times):
        # From its start, where it may not come to anything, and from its first flush.
        after = "flushed" if number % 2 else "opened"
        flushed, acknowledged = run_until_killed(root, random.uniform(0, 0.12), after)
        with Changelog.open(str(root), owner_name="judge", source=SOURCE, wait=0) as log:
            assert log.end >= max(flushed, before)
            assert log.acknowledged >= acknowledged
            start = log.stats().start
            assert start is not None
            wanted = [row for p in range(start + 1, log.end + 1) for row in expected(p, max(1, rows_at(p)))]
            assert all_rows(log, start) == wanted
            names = {file for summary in log._index.segments for file in summary.files}
            assert {p.name for p in root.iterdir() if p.suffix in {".seg", ".spill", ".tmp"}} == names
            before = log.end
    assert before > 0


def test_everything_flushed_survives_kills_whole_and_in_order(tmp_path: Path) -> None:
    kill_and_check(tmp_path, 6)


@pytest.mark.long
def test_everything_flushed_survives_many_kills(tmp_path: Path) -> None:
    kill_and_check(tmp_path, 60)
