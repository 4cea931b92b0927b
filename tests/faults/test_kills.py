"""SIGKILL at every point of a micro-batch, rows 1 to 4, 6 to 9 and 11, on the stand-in for Spark's loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.marks import databases
from tests.faults.oracles import changes_of, mirror_rows
from tests.faults.rig import Rig

Make = Callable[..., Rig]
CHUNKS: dict[str, Any] = {"rows": 1000, "chunkRows": 100, "maxRowsPerTrigger": 200}


def by_run(rig: Rig) -> dict[int, dict[int, list[Any]]]:
    """The feed's changes by end of batch and by process."""
    found: dict[int, dict[int, list[Any]]] = {}
    for line in changes_of(rig.feed):
        runs = found.setdefault(line["batch"]["end"], {})
        runs.setdefault(line["batch"]["pid"], []).append(line["change"])
    return found


def replayed(rig: Rig) -> int:
    """How many batches came twice; each with the same changes, or the test fails."""
    count = 0
    for runs in by_run(rig).values():
        copies = [[c for c in changes if c["op"] not in "rs"] for changes in runs.values()]
        count += len(copies) > 1
        assert all(copy == copies[0] for copy in copies)
    return count


def test_a_kill_after_setup_and_before_the_first_offset_reuses_what_was_installed(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.write()
    r.points.arm("initial", "kill")
    r.start().died()
    assert not (r.checkpoint / "offsets").exists()
    before = r.ledger.provisioned()
    assert before[0]
    assert len(before[2]) == 1
    r.start()
    r.settle()
    assert r.ledger.provisioned() == before, "nothing was made twice"
    kinds = [line["change"]["op"] for line in changes_of(r.feed)]
    assert kinds.count("s") == 1
    assert kinds.count("r") >= 1000


@databases(long="postgres")
def test_a_kill_inside_a_chunk_resumes_at_that_chunk(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.write()
    r.points.arm("read", "kill", kind="chunk", chunk=5)
    r.start().died()
    done = [line["change"] for line in changes_of(r.feed) if line["change"]["op"] == "r"]
    assert done, "chunks before it were delivered"
    committed = {change["after"]["key"] for change in done}
    r.start()
    r.settle()
    again = [line["change"]["after"]["key"] for line in changes_of(r.feed) if line["change"]["op"] == "r"]
    assert sum(key in committed for key in again) == len(committed), "a finished chunk is not read twice"
    assert set(range(1_000_000, 1_001_000)) <= set(again), "and none is skipped"


@databases(long="postgres")
@pytest.mark.parametrize(
    ("point", "facts"),
    [
        ("read", {"kind": "chunk", "chunk": 9}),
        ("apply.after", {"snapshot": True, "done": 10}),
        ("written", {"batch": 4}),
        ("latest", {"complete": True}),
        ("planned", {"complete": True, "grown": True, "chunks": 0}),
    ],
)
def test_a_kill_between_the_last_chunk_and_the_log_loses_nothing(
    rig: Make, point: str, facts: dict[str, Any]
) -> None:
    r = rig(**CHUNKS)
    r.write()
    r.points.arm(point, "kill", **facts)
    r.start().died()
    r.start()
    r.settle()


def test_a_kill_after_the_offset_is_logged_and_before_any_read_runs_the_same_batch(rig: Make) -> None:
    r = rig(rows=100)
    r.write()
    r.points.arm("partitions", "kill", grown=True)
    first = r.start()
    first.died()
    logged = max(int(path.name) for path in (r.checkpoint / "offsets").iterdir() if path.name.isdigit())
    assert logged not in r.commits()
    end = json.loads((r.checkpoint / "offsets" / str(logged)).read_text().splitlines()[2])["position"]
    r.points.arm("flushed", "note", batch=logged)
    r.start()
    r.struck("flushed")
    r.settle()
    assert end in by_run(r)


@databases(long="postgres")
@pytest.mark.parametrize("point", ["read", "feed.after", "apply.before"])
def test_a_batch_that_was_killed_halfway_comes_again_with_the_same_rows(rig: Make, point: str) -> None:
    r = rig(rows=100)
    r.start()
    r.arrived(r.sentinel())
    r.write()
    facts: dict[str, Any] = {"kind": "log"} if point == "read" else {}
    r.points.arm(point, "kill", **facts)
    r.pipe.died()
    r.start()
    r.settle()
    assert replayed(r) == (point != "read")


def test_a_kill_after_the_mirror_has_the_batch_and_before_its_reply_changes_nothing(rig: Make) -> None:
    r = rig(rows=100)
    r.write()
    r.points.arm("apply.after", "kill", grown=True)
    r.start().died()
    end, version = r.points.facts("apply.after")["end"], r.delta_version()
    r.points.arm("apply.after", "block", end=end)
    r.start()
    assert r.struck("apply.after")["skipped"], "the mirror knows the batch"
    assert r.delta_version() == version
    r.points.go("apply.after")
    r.settle()
    assert replayed(r) == 1


@pytest.mark.parametrize("point", ["flushed", "written"])
def test_a_kill_after_the_flush_and_before_the_commit_repeats_without_a_difference(
    rig: Make, point: str
) -> None:
    r = rig(rows=100)
    r.start()
    r.arrived(r.sentinel())
    r.write()
    r.points.arm(point, "kill")
    r.pipe.died()
    batch, version = r.points.facts(point)["batch"], r.delta_version()
    assert batch not in r.commits()
    end = json.loads((r.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])["position"]
    assert (r.cursor() or 0) < end, "it was not acknowledged"
    r.points.arm("flushed", "block", batch=batch)
    r.start()
    r.struck("flushed")
    assert r.delta_version() == version
    r.points.go("flushed")
    r.settle()
    assert replayed(r) == 1


def test_a_kill_after_the_commit_and_before_the_acknowledgement_rewrites_nothing(rig: Make) -> None:
    r = rig(rows=100)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    r.points.arm("apply.after", "block", grown=True)
    r.insert(2_000_000, 50)
    r.points.arm("latest", "kill", least={"start": r.struck("apply.after")["end"]})
    r.points.go("apply.after")
    r.pipe.died()
    assert max(r.commits()) == max(int(p.name) for p in (r.checkpoint / "offsets").iterdir())
    held = (r.delta_version(), r.feed.read_bytes(), r.commits())
    assert (r.cursor() or 0) < r.points.facts("latest")["start"], "it was not acknowledged"
    r.start()
    r.caught_up()
    assert (r.delta_version(), r.feed.read_bytes(), r.commits()) == held
    r.settle()


def test_a_row_that_changes_after_its_chunk_was_planned_is_never_older_in_the_mirror(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.points.arm("resolved", "block", done=4)
    r.start()
    planned = r.struck("resolved")
    r.run("UPDATE ledger SET number = 2", "DELETE FROM ledger WHERE key % 10 = 0")
    r.points.arm("flushed", "block", batch=1)
    r.points.go("resolved")
    r.struck("flushed")
    assert planned["end"] == planned["start"], "the log had not moved when the chunks were chosen"
    # Chunks 2 and 3 were read after the change and show it; 0 and 1 show it when the log comes.
    late = {key: row for key, row in mirror_rows(r.lake).items() if 1_000_200 <= key < 1_000_400}
    assert {row[1] for row in late.values()} == {2}
    assert len(late) == 180
    r.points.go("flushed")
    r.settle()


def test_sigterm_inside_a_batch_ends_soon_and_well_and_nothing_is_repeated(rig: Make) -> None:
    r = rig(**CHUNKS)
    r.write()
    for facts in ({"snapshot": True, "done": 4}, {"grown": True, "snapshot": False}):
        r.points.arm("apply.before", "block", **facts)
        pipe = r.start()
        r.struck("apply.before")
        pipe.process.terminate()
        r.stays(lambda: pipe.process.poll() is None, 0.3)  # noqa: B023
        begun = time.monotonic()
        r.points.go("apply.before")
        outcome = pipe.ended(timeout=60)
        assert outcome["error"] is None
        assert time.monotonic() - begun < 30
    r.start()
    r.settle()
    places = [(line["change"]["position"], line["change"]["seq"]) for line in changes_of(r.feed)]
    assert len(places) == len(set(places)), "not one change came twice"
