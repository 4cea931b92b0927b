"""Rows 33 to 36: state that is damaged, unreadable, out of space, or of another day, from end to end.

Whatever was done to it, a run either refuses by name or ends with an equal mirror; never silently wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults import oracles
from tests.faults.disks import fill
from tests.faults.marks import databases
from tests.faults.rig import Rig
from tests.support.waiting import wait_until

Make = Callable[..., Rig]


def prepared(rig: Make, **settings: Any) -> Rig:
    """A pipeline killed with a batch of the log logged and not written, and more to come after it."""
    r = rig(rows=300, chunkRows=100, retention=3600, **settings)
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    wait_until((r.state / "changelog" / "filler.json").exists)
    r.points.arm("partitions", "kill", grown=True)
    r.insert(2_000_000, 50)
    r.pipe.died()
    r.points.disarm("partitions")
    r.insert(2_000_100, 50)
    return r


def newest(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[-1]


def put_back(path: Path, saved: bytes, status: os.stat_result) -> None:
    """The file as it was, with its time: an owner's is its heartbeat."""
    path.write_bytes(saved)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


FILES: dict[str, Callable[[Rig], Path]] = {
    "changelog": lambda r: r.state / "changelog" / "changelog.json",
    "filler": lambda r: r.state / "changelog" / "filler.json",
    "owner": lambda r: newest(r.state / "changelog" / "owner", "*.json"),
    "segment": lambda r: newest(r.state / "changelog", "*.seg"),
    "offset": lambda r: newest(r.checkpoint / "offsets", "[0-9]*"),
}


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


def newer(path: Path) -> None:
    text = path.read_text()
    for known in ('"version":1', '"version": 1', '"v":1', '"v": 1', '"format":1', '"format": 1'):
        if known in text:
            path.write_text(text.replace(known, known[:-1] + "99"))
            return
    raise AssertionError(f"no version in {text[:80]}")


def refused_or_equal(rig: Rig, *, history: bool = True) -> str | None:
    """How a run ended; without an error everything must be there.

    Without `history` the state is of another day: positions begin anew, for O2 and O3 too.
    """
    acknowledged = rig.cursor()
    outcome = rig.once()
    if outcome["error"] is None:
        oracles.final_state(rig.ledger, rig.lake, rig.feed)
        if history:
            oracles.history(rig.journals, rig.feed, rig.lake)
            rig.sampler.check()
        return None
    assert rig.cursor() == acknowledged, "nothing is acknowledged by a run that refuses"
    return str(outcome["error"])


def test_damaged_or_newer_state_is_refused_by_name_and_nothing_is_acknowledged(rig: Make) -> None:
    r = prepared(rig)
    version = r.delta_version()
    for name in ("changelog", "filler", "owner", "offset"):
        for damage in (truncated, emptied, flipped, newer):
            path = FILES[name](r)
            saved, status = path.read_bytes(), path.stat()
            damage(path)
            ended = refused_or_equal(r)
            # Spark's own file is Spark's to judge where it no longer is JSON; it may only not be silent.
            assert ended == "StateUnreadable" or (name == "offset" and ended), f"{name} {damage.__name__}"
            # The batch that was logged may be whole in the changelog, and is then still right to write.
            assert r.delta_version() <= version + 1
            put_back(path, saved, status)
    assert refused_or_equal(r) is None, "and heals when the files are there again"


@databases(long="postgres")
@pytest.mark.parametrize("damage", [truncated, emptied, flipped])
def test_a_damaged_segment_is_captured_again(rig: Make, damage: Callable[[Path], None]) -> None:
    r = prepared(rig)
    damage(FILES["segment"](r))
    assert refused_or_equal(r) in (None, "StateUnreadable")


def test_state_of_another_source_is_refused(rig: Make) -> None:
    r, other = prepared(rig), prepared(rig)
    held = other.ledger.rows(), other.ledger.provisioned()
    r.settings["url"] = other.settings["url"]
    outcome = r.once()
    assert outcome["error"] == "IdentityMismatch"
    assert (other.ledger.rows(), other.ledger.provisioned()) == held
    r.settings["url"] = r.ledger.url
    assert refused_or_equal(r) is None


def test_state_that_cannot_be_read_is_an_error_and_not_taken_for_none(rig: Make) -> None:
    r = prepared(rig)
    version = r.delta_version()
    for name in ("changelog", "filler", "owner", "segment"):
        path = FILES[name](r)
        saved, status = path.read_bytes(), path.stat()
        path.unlink()
        # A loop of links fails for every user, root too, and is no missing file.
        path.symlink_to(path.name)
        assert refused_or_equal(r) is not None, name
        assert r.delta_version() <= version + 1
        path.unlink()
        put_back(path, saved, status)
    assert refused_or_equal(r) is None, "and heals when it can be read again"


def test_a_full_state_disk_acknowledges_nothing_and_heals_when_space_is_freed(rig: Make, disk: Path) -> None:
    r = rig(rows=100, state=disk / "state")
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    ballast = fill(disk)
    before = r.cursor()
    r.write(limit=300)
    r.insert(2_000_000, 5000)
    r.finish()
    r.stays(lambda: r.cursor() == before, 1.0)
    assert r.pipe.process.poll() is None, "it waits"
    ballast.unlink()
    r.settle()


@pytest.mark.long
def test_a_kill_while_the_state_disk_is_full_leaves_no_torn_file(rig: Make, disk: Path) -> None:
    r = rig(rows=100, state=disk / "state")
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    ballast = fill(disk)
    r.write(limit=100)
    r.insert(2_000_000, 5000)
    r.finish()
    r.stays(lambda: r.pipe.process.poll() is None, 0.5)
    r.pipe.kill()
    outcome = r.once()
    assert outcome["error"] is not None, "it cannot start without space, and says so"
    ballast.unlink()
    assert refused_or_equal(r) is None


@databases(long="postgres")
def test_a_full_checkpoint_disk_ends_the_run_and_heals(rig: Make, disk: Path) -> None:
    r = rig(rows=100, checkpoint=disk / "checkpoint")
    r.start()
    wait_until(r.commits)
    r.arrived(r.sentinel())
    r.caught_up()
    ballast = fill(disk)
    before = r.cursor()
    r.insert(2_000_000, 500)
    assert r.pipe.ended(timeout=30)["error"] is not None
    assert r.cursor() == before
    ballast.unlink()
    assert refused_or_equal(r) is None


def copy(r: Rig, name: str, *, state: bool) -> Path:
    """A backup of the state (with the checkpoint), or of the database, made while nothing runs."""
    place = r.directory / name
    place.mkdir()
    if state:
        shutil.copytree(r.state, place / "state")
        shutil.copytree(r.checkpoint, place / "checkpoint")
    else:
        with closing(r.connect()) as source, closing(sqlite3.connect(place / "shop.db")) as target:
            source.backup(target)
    return place


def restore(r: Rig, place: Path) -> None:
    if (place / "state").exists():
        for name, path in (("state", r.state), ("checkpoint", r.checkpoint)):
            shutil.rmtree(path)
            shutil.copytree(place / name, path)
        return
    for suffix in ("", "-wal", "-shm"):
        Path(f"{r.database}{suffix}").unlink(missing_ok=True)
    shutil.copy(place / "shop.db", r.database)


def test_state_of_yesterday_is_refused_where_the_log_is_gone(rig: Make) -> None:
    r = rig(rows=300)
    assert r.once()["error"] is None
    yesterday = copy(r, "yesterday", state=True)
    r.insert(2_000_000, 50)
    r.run("DELETE FROM ledger WHERE key < 1000010")
    assert r.once()["error"] is None
    restore(r, yesterday)
    version = r.delta_version()
    r.insert(2_000_100, 5)
    assert refused_or_equal(r) == "LogLost"
    assert r.delta_version() == version


def test_state_of_yesterday_converges_where_the_log_is_there(rig: Make) -> None:
    r = rig(rows=300)
    assert r.once()["error"] is None
    yesterday = copy(r, "yesterday", state=True)
    r.points.arm("latest", "kill", least={"start": (r.cursor() or 0) + 1})
    r.insert(2_000_000, 50)
    r.run("DELETE FROM ledger WHERE key < 1000010")
    r.start().died()
    # The mirror has the batch, Spark committed it, and the source was not told.
    restore(r, yesterday)
    r.points.disarm("latest")
    r.insert(2_000_100, 5)
    # The log is looked at anew, so what came before comes once more under other positions.
    assert refused_or_equal(r, history=False) is None


@databases("sqlite")
@pytest.mark.parametrize("later", [0, 200])
def test_a_database_restored_from_an_older_copy_is_refused(rig: Make, later: int) -> None:
    r = rig(rows=300)
    assert r.once()["error"] is None
    yesterday = copy(r, "yesterday", state=False)
    r.insert(2_000_000, 50)
    assert r.once()["error"] is None
    restore(r, yesterday)
    if later:
        # The application has gone on meanwhile, further than the lost day.
        r.insert(2_500_000, later)
    version, held = r.delta_version(), r.feed.read_bytes()
    outcome = r.once()
    assert outcome["error"] == "IdentityMismatch", outcome
    assert "older" in outcome["message"]
    assert (r.delta_version(), r.feed.read_bytes()) == (version, held)


def test_a_changelog_of_yesterday_under_a_checkpoint_of_today_goes_on(rig: Make) -> None:
    r = rig(rows=300)
    assert r.once()["error"] is None
    yesterday = copy(r, "yesterday", state=True)
    r.insert(2_000_000, 50)
    assert r.once()["error"] is None
    shutil.rmtree(r.state)
    shutil.copytree(yesterday / "state", r.state)
    r.insert(2_000_100, 5)
    assert refused_or_equal(r) is None
    assert json.loads(newest(r.checkpoint / "commits", "[0-9]*").read_text().splitlines()[1])
