"""What strikes a SQLite source alone: rows 19, 20, 21, 25 and 32 from end to end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import oracles
from tests.faults.clocks import Clock
from tests.faults.databases import Sqlite
from tests.faults.disks import fill, mounted
from tests.faults.marks import databases
from tests.faults.rig import Rig

Make = Callable[..., Rig]
pytestmark = databases("sqlite")


def test_a_trigger_that_was_dropped_while_down_stops_with_the_remedy(rig: Make) -> None:
    r = rig(rows=50)
    assert r.once()["error"] is None
    with closing(r.connect()) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    assert names
    r.run(f'DROP TRIGGER "{names[0][0]}"')
    version, held = r.delta_version(), r.cursor()
    r.insert(2_000_000, 5)
    outcome = r.once()
    assert outcome["error"] == "SchemaDrift", outcome
    assert "tailrace setup" in outcome["message"]
    assert r.delta_version() <= version + 1
    assert r.cursor() == held, "nothing behind the gap is acknowledged"


def test_a_log_that_was_purged_while_down_stops_with_the_remedy(rig: Make) -> None:
    r = rig(rows=50)
    assert r.once()["error"] is None
    r.run("DELETE FROM _tailrace_consumers")
    version = r.delta_version()
    r.insert(2_000_000, 5)
    outcome = r.once()
    assert outcome["error"] == "LogLost", outcome
    assert "snapshot" in outcome["message"]
    assert r.delta_version() == version


def test_a_cursor_that_was_made_again_by_hand_is_refused_wherever_it_stands(rig: Make) -> None:
    r = rig(rows=50)
    assert r.once()["error"] is None
    r.insert(2_000_000, 20)
    assert r.once()["error"] is None
    held, version = r.cursor(), r.delta_version()
    r.insert(3_000_000, 20)

    def made_again(at: str) -> str:
        r.run(
            "DELETE FROM _tailrace_consumers",
            f"INSERT INTO _tailrace_consumers VALUES ('{r.ledger.consumer}', {at}, datetime('now'))",
        )
        made, outcome = r.cursor(), r.once()
        assert outcome["error"] is not None, outcome
        assert (r.cursor(), r.delta_version()) == (made, version), (
            "nothing is acknowledged to it, nor written"
        )
        return f"{outcome['error']}: {outcome['message']}"

    assert "LogLost" in made_again("(SELECT seq FROM _tailrace_meta)")
    assert "IdentityMismatch" in made_again("1")
    r.run(f"UPDATE _tailrace_consumers SET acknowledged = {held}")
    assert r.once()["error"] is None
    # Without O3, which saw a cursor that nobody had acknowledged.
    oracles.final_state(r.ledger, r.lake, r.feed)


@pytest.mark.long
def test_clocks_that_jump_do_not_change_the_order(rig: Make, tmp_path: Path) -> None:
    """Those of the application, whose moments are in the log."""
    clock = Clock(tmp_path / "clock")
    clock.jump_under(rig(rows=20, writing=clock.variables))


@pytest.mark.long
def test_a_database_whose_disk_is_full_is_waited_for_until_space_is_freed(tmp_path: Path, kind: str) -> None:
    assert kind == "sqlite"
    with (
        mounted(tmp_path / "disk", "4m") as disk,
        Rig(tmp_path / "rig", Sqlite(disk / "shop.db"), rows=50) as r,
    ):
        r.start()
        r.arrived(r.sentinel())
        r.caught_up()
        ballast = fill(disk)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            r.insert(3_000_000, 100_000, note=":" + "z" * 100)
        r.stays(lambda: r.pipe.process.poll() is None, 2.0)
        ballast.unlink()
        r.insert(2_000_000, 20)
        r.settle()
