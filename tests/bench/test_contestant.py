"""Who gives no answer leaves a word about what it was doing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import contestant
from bench.contestant import Contestant, Failed
from tests.support.waiting import wait_until

SILENT = """
import sys, time

def never_answering():
    time.sleep(600)

print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    never_answering()
"""


def test_the_stacks_of_who_gives_no_answer_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "silent_contestant.py").write_text(SILENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(contestant, "PATIENCE", 1)
    monkeypatch.setattr(contestant, "RESULTS", tmp_path / "results")
    silent = Contestant("silent", "silent_contestant", tmp_path)
    try:
        wait_until(lambda: "ready" in (tmp_path / "silent.log").read_text())
        with pytest.raises(Failed, match="no answer within 1 seconds; what it did stands in"):
            silent.ask("fill")
    finally:
        silent.close()
    text = (tmp_path / "results" / "stacks-silent.txt").read_text()
    assert "python" in text
    # py-spy must be allowed to trace processes, which it is not everywhere.
    assert "never_answering" in text or "ermission" in text
