"""Rows 10, 19 to 22: the slot goes on while its tables rest; lost, purged, made again or of an older copy, it
stops the pipeline with the remedy, and a fresh snapshot heals."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import oracles
from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.rig import Rig
from tests.support.postgres import Server
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
pytestmark = databases("postgres")


def postgres_of(rig: Rig) -> Postgres:
    assert isinstance(rig.ledger, Postgres)
    return rig.ledger


def drop(rig: Rig) -> None:
    ledger = postgres_of(rig)
    ledger.admin(f"SELECT pg_drop_replication_slot('{ledger.slot}')")


def refused(rig: Rig, *errors: str) -> dict[str, Any]:
    """A run that ends with one of these, twice the same, and changes nothing at either end."""
    held = rig.delta_version(), rig.feed.read_bytes(), rig.commits()
    outcome = rig.once()
    assert outcome["error"] in errors, outcome
    assert "remedy" in outcome["message"]
    again = rig.once()
    assert again["error"] == outcome["error"], again
    assert (rig.delta_version(), rig.feed.read_bytes(), rig.commits()) == held
    return outcome


def healed_by_a_snapshot(rig: Rig) -> None:
    """What the remedy promises: with the user's word, fresh snapshots and then an equal mirror."""
    rig.settings["options"]["failOnDataLoss"] = "false"
    rig.start()
    rig.arrived(rig.sentinel())
    rig.arrived(rig.sentinel())
    rig.caught_up()
    oracles.final_state(rig.ledger, rig.lake, rig.feed)


def test_the_acknowledged_position_goes_on_while_other_tables_write(rig: Make) -> None:
    r = rig(rows=50)
    ledger = postgres_of(r)
    r.run("CREATE TABLE noise (id bigint, text text)")
    r.start()
    r.arrived(r.sentinel())
    r.caught_up()
    version = r.delta_version()
    before = r.cursor() or 0
    r.run("INSERT INTO noise SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
    assert ledger.mark - before > 2_000_000
    r.caught_up(timeout=60)
    assert r.delta_version() == version, "nothing of it is the mirror's"
    r.settle()


def test_a_slot_that_was_dropped_while_down_stops_with_the_remedy_and_a_snapshot_heals(rig: Make) -> None:
    r = rig(rows=50)
    assert r.once()["error"] is None
    drop(r)
    r.insert(2_000_000, 20)
    r.run("DELETE FROM ledger WHERE key < 1000010")
    outcome = refused(r, "LogLost")
    assert postgres_of(r).slot in outcome["message"]
    healed_by_a_snapshot(r)


def test_a_log_that_was_purged_stops_with_the_first_position_there_is_and_a_snapshot_heals(
    rig: Make, own_server: Server
) -> None:
    own_server.restart(max_slot_wal_keep_size="1MB", wal_keep_size="0", checkpoint_timeout="1h")
    r = rig(rows=50, server=own_server)
    assert r.once()["error"] is None
    r.insert(2_000_000, 20)
    ledger = postgres_of(r)
    for _ in range(4):
        ledger.admin("SELECT pg_switch_wal()", "SELECT pg_logical_emit_message(false, 'x', 'y')")
    ledger.admin("CHECKPOINT")
    ((status, first),) = ledger.admin(
        "SELECT wal_status, (SELECT redo_lsn::text FROM pg_control_checkpoint())"
        f" FROM pg_replication_slots WHERE slot_name = '{ledger.slot}'"
    )
    assert status == "lost", "nothing was purged"
    outcome = refused(r, "LogLost")
    assert first in outcome["message"]
    assert "--on-data-loss snapshot" in outcome["message"]
    healed_by_a_snapshot(r)


def test_a_slot_that_was_made_again_by_hand_is_refused_wherever_it_stands(rig: Make) -> None:
    r = rig(rows=50)
    assert r.once()["error"] is None
    ledger = postgres_of(r)
    r.insert(2_000_000, 20)
    create = f"pg_create_logical_replication_slot('{ledger.slot}', 'pgoutput')"

    drop(r)
    with ledger.server.admin() as elsewhere:
        elsewhere.execute(f"SELECT {create}".encode())
        outcome = refused(r, "IdentityMismatch")
        assert "belongs to database postgres" in outcome["message"]
        elsewhere.execute(f"SELECT pg_drop_replication_slot('{ledger.slot}')".encode())

    ledger.admin(f"SELECT pg_create_physical_replication_slot('{ledger.slot}', true)")
    assert "physical" in refused(r, "IdentityMismatch")["message"]
    drop(r)

    ledger.admin(f"SELECT pg_create_logical_replication_slot('{ledger.slot}', 'test_decoding')")
    assert "test_decoding" in refused(r, "IdentityMismatch")["message"]
    drop(r)

    ledger.admin(f"SELECT {create}")
    made = r.cursor()
    assert "made again" in refused(r, "LogLost")["message"]
    assert r.cursor() == made, "nothing is acknowledged to it"
    healed_by_a_snapshot(r)


def backup(server: Server, place: Path) -> None:
    server.stop()
    subprocess.run(["cp", "-a", str(server.data), str(place)], check=True)
    server.start()


def restore(server: Server, place: Path, *, promoted: bool = False) -> None:
    server.stop()
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", str(place), str(server.data)], check=True)
    if promoted:
        (server.data / "standby.signal").touch()
    server.start()
    if promoted:
        with server.admin() as admin:
            admin.execute("SELECT pg_promote()")


def checkpointed(rig: Rig) -> int:
    """What the pipeline's state says the server has on record for good, after a checkpoint."""
    postgres_of(rig).admin("SELECT pg_switch_wal()", "SELECT pg_logical_emit_message(false, 'x', 'y')")
    postgres_of(rig).admin("CHECKPOINT")
    text = (rig.state / "changelog" / "filler.json").read_text()
    found = re.search(r'"acknowledged": ?([0-9]+)', text)
    return int(found[1]) if found else 0


@pytest.mark.long
@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("later", [0, 5000])
def test_a_server_restored_from_a_backup_is_refused(
    rig: Make, own_server: Server, promoted: bool, later: int
) -> None:
    r = rig(rows=50, server=own_server, capture={"watch_interval": 0.2})
    r.start()
    r.arrived(r.sentinel())
    assert r.pipe.terminate()["error"] is None
    place = own_server.directory / "backup"
    backup(own_server, place)
    held = r.cursor() or 0
    r.start()
    r.insert(2_000_000, 500)
    r.arrived(r.sentinel())
    # A day has checkpoints: what was confirmed before one is on the server's disk.
    wait_until(lambda: checkpointed(r) > held, interval=0.3, what="a record of it")
    assert r.pipe.terminate()["error"] is None
    newest = r.cursor() or 0
    restore(own_server, place, promoted=promoted)
    if later:
        # The application has gone on meanwhile, further than the lost day.
        r.insert(2_500_000, later)
        while r.ledger.mark <= newest:
            postgres_of(r).admin("SELECT pg_switch_wal()")
            r.insert(2_600_000 + r.ledger.mark, 10)
    outcome = refused(r, "IdentityMismatch", "StateUnreadable")
    assert ("timeline" if promoted else "older") in outcome["message"]
