"""Rows 14 to 18 and 25: the server is cut off, frozen, killed, exchanged or full, and the sink is slow."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.faults.databases import TABLE, Postgres
from tests.faults.disks import fill, mounted
from tests.faults.marks import databases
from tests.faults.rig import Rig
from tests.support.postgres import Server
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
pytestmark = databases("postgres")


def postgres_of(rig: Rig) -> Postgres:
    assert isinstance(rig.ledger, Postgres)
    return rig.ledger


@contextlib.contextmanager
def through_proxy(rig: Rig) -> Iterator[Proxy]:
    """The pipeline, and nobody else, reaches its server by a proxy."""
    ledger = postgres_of(rig)
    with proxy_to(ledger.server.port) as proxy:
        rig.settings["url"] = ledger.url_of(proxy.port)
        yield proxy


def test_a_connection_cut_inside_a_message_goes_on_at_a_boundary_and_delivers_no_half(rig: Make) -> None:
    r = rig(rows=50)
    with through_proxy(r) as proxy:
        r.start()
        r.arrived(r.sentinel())
        r.write(limit=150)
        for number, place in enumerate((100_003, 250_007)):
            cuts = proxy.cuts
            proxy.cut_after(place)
            # One message that is larger than everything that can come before it, so the cut is inside of it.
            r.run(f"INSERT INTO ledger VALUES ({2_000_000 + number}, 1, ':' || repeat('y', 400000))")
            wait_until(lambda: proxy.cuts > cuts, timeout=30, what="the cut")  # noqa: B023
        r.finish()
        r.settle()
        assert r.pipe.process.poll() is None, "it was the same process all the time"


@pytest.mark.long
def test_a_frozen_server_is_given_up_in_time_and_told_of_and_taken_up_again(
    rig: Make, own_server: Server
) -> None:
    r = rig(rows=50, server=own_server, capture={"timeout": 2.0})
    r.settings["url"] += "&connect_timeout=2"
    r.start()
    r.write(limit=100)
    r.finish()
    r.arrived(r.sentinel())
    r.points.arm("report", "note", state="retrying")
    own_server.freeze()
    begun = time.monotonic()
    try:
        r.struck("report", timeout=40)
        assert time.monotonic() - begun < 40
    finally:
        own_server.thaw()
    assert r.pipe.process.poll() is None
    r.insert(2_000_000, 20)
    r.settle()


@pytest.mark.long
def test_a_slow_sink_keeps_its_connection_and_its_slot_within_the_bounds(rig: Make) -> None:
    r = rig(rows=10, maxChangelogBytes=200_000)
    # The server gives up on a client after a second of silence.
    r.settings["url"] += "&options=-c%20wal_sender_timeout%3D1000"
    r.start()
    r.arrived(r.sentinel())
    ledger = postgres_of(r)

    def sender() -> int | None:
        query = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{ledger.slot}'"
        pid: int | None = ledger.admin(query)[0][0]
        return pid

    before, cursor = sender(), r.cursor()
    assert before is not None
    (r.directory / "slow").touch()
    for number in range(20):
        r.insert(2_000_000 + 10_000 * number, 2000, note=":" + "y" * 200)
    # Three times the server's patience, with a full changelog in front of it.
    r.stays(lambda: sender() == before, 3.5)
    assert (r.cursor() or 0) - (cursor or 0) < 1_000_000, "nothing of it is acknowledged"
    (r.directory / "slow").unlink()
    r.settle()
    assert sender() == before, "one connection for all of it"


def test_another_server_that_answers_is_refused_and_the_right_one_goes_on(
    rig: Make, other_server: Server
) -> None:
    r = rig(rows=50)
    ledger, other = postgres_of(r), other_server
    with through_proxy(r) as proxy:
        r.start()
        r.arrived(r.sentinel())
        r.caught_up()
        with other.admin() as admin:
            admin.execute(f"CREATE DATABASE {ledger.database.name} OWNER app".encode())
        with other.admin(ledger.database.name) as admin:
            for statement in (TABLE, "CREATE PUBLICATION tailrace FOR TABLE ledger"):
                admin.execute(statement.encode())
            admin.execute(f"SELECT pg_create_logical_replication_slot('{ledger.slot}', 'pgoutput')".encode())
        version, held = r.delta_version(), r.cursor()
        proxy.lead_to(other.port)
        assert proxy.cuts == 0
        proxy.cut()
        assert proxy.cuts > 0
        outcome = r.pipe.ended(timeout=60)
        assert outcome["error"] == "IdentityMismatch", outcome
        r.insert(2_000_000, 20)
        assert r.start().ended()["error"] == "IdentityMismatch"
        assert (r.delta_version(), r.cursor()) == (version, held)
        proxy.lead_to(ledger.server.port)
        r.start()
        r.settle()


@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.long)])
def test_a_server_that_dies_under_writers_and_comes_again_leaves_no_gap(
    rig: Make, own_server: Server, how: str
) -> None:
    r = rig(rows=50, server=own_server)
    r.start()
    r.write()
    r.arrived(r.sentinel())
    for _ in range(2):
        before = own_server.pid
        getattr(own_server, how)()
        during = own_server.pid
        own_server.start()
        assert before is not None
        assert during is None, "nothing was killed"
        r.arrived(r.sentinel())
    assert r.pipe.process.poll() is None, "it waited for the server"
    r.settle()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_server_whose_disk_is_full_is_waited_for_until_space_is_freed(
    rig: Make, own_server: Server
) -> None:
    # Where the server's own user may go.
    with mounted(own_server.directory / "disk", "48m") as disk:
        own_server.stop()
        # All of the log on the small disk, as an operator would lay it out.
        if own_server.installed.user is not None:
            shutil.chown(disk, own_server.installed.user)
        log = own_server.data / "pg_wal"
        subprocess.run(["cp", "-a", str(log), str(disk / "pg_wal")], check=True)
        subprocess.run(["rm", "-r", str(log)], check=True)
        log.symlink_to(disk / "pg_wal")
        own_server.start()
        r = rig(rows=50, server=own_server)
        r.start()
        r.arrived(r.sentinel())
        ballast = fill(disk)
        with pytest.raises(psycopg.OperationalError):
            r.insert(3_000_000, 1_000_000, note=":" + "z" * 100)
        assert "No space left on device" in (own_server.directory / "server.log").read_text()
        r.stays(lambda: r.pipe.process.poll() is None, 3.0)
        ballast.unlink()
        if own_server.pid is None:
            own_server.start()
        wait_until(own_server.answers, timeout=60, what="the server")
        r.write(limit=50)
        r.finish()
        r.insert(2_000_000, 20)
        r.settle()
