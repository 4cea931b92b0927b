"""Rows 30 to 32: images that lack columns, tables altered between rows of a transaction, clocks that jump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.faults.clocks import Clock
from tests.faults.marks import databases
from tests.faults.oracles import changes_of
from tests.faults.rig import Rig
from tests.support.postgres import Server

Make = Callable[..., Rig]
pytestmark = databases("postgres")
LARGE = "(SELECT ':' || string_agg(md5((n * {0})::text), '') FROM generate_series(1, 400) n)"
LARGE_KEYS = range(3_001_001, 3_001_009)


def update_of(rig: Rig, key: int) -> list[dict[str, Any]]:
    """The images after updates of a key, as the feed tells them."""
    changes = [line["change"] for line in changes_of(rig.feed)]
    return [c["after"] for c in changes if c["op"] == "u" and c["after"]["key"] == key]


def large_rows(rig: Rig) -> None:
    """Rows with notes that the server keeps aside, so that an update which leaves them alone has none."""
    rig.run(
        *(f"INSERT INTO ledger VALUES ({key}, {key % 10000}, {LARGE.format(key)})" for key in LARGE_KEYS),
        "INSERT INTO ledger VALUES (3001009, 1009, NULL), (3001010, 1010, NULL), (3001011, 1011, NULL)",
    )


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX ours"])
def test_what_an_image_does_not_carry_is_neither_lost_nor_written_as_null(rig: Make, identity: str) -> None:
    r = rig()
    r.run(
        "CREATE UNIQUE INDEX ours ON ledger (number, key)", f"ALTER TABLE ledger REPLICA IDENTITY {identity}"
    )
    large_rows(r)
    r.start()
    r.arrived(r.sentinel())
    r.run("UPDATE ledger SET number = 2001 WHERE key = 3001001")
    r.run(*(f"UPDATE ledger SET number = {number} WHERE key = 3001002" for number in (2002, 2003)))
    r.run("UPDATE ledger SET number = 2006, note = NULL WHERE key = 3001006")
    r.run("UPDATE ledger SET key = 3002011, number = 2012 WHERE key = 3001011")
    r.run("DELETE FROM ledger WHERE key = 3001007", "INSERT INTO ledger VALUES (3001007, 3007, ':again')")
    r.run("DELETE FROM ledger WHERE key = 3001008", "DELETE FROM ledger WHERE key = 3001009")
    r.run("UPDATE ledger SET number = 2010 WHERE key = 3001010")
    r.pipe.kill()
    r.run("UPDATE ledger SET number = 4001 WHERE key = 3001001")
    if identity == "FULL":
        r.run("UPDATE ledger SET key = 3002005, number = 2005 WHERE key = 3001005")
    r.start()
    r.settle()
    notes = [image.get("note", "absent") for image in update_of(r, 3_001_001)]
    assert None not in notes
    if identity == "FULL":
        assert "absent" not in notes, "the image before has it"
    else:
        assert set(notes) == {"absent"}
    assert {image["note"] for image in update_of(r, 3_001_006)} == {None}


def test_a_key_that_changes_without_its_large_column_is_moved_whole_or_stops_with_the_remedy(
    rig: Make,
) -> None:
    r = rig()
    large_rows(r)
    r.start()
    r.arrived(r.sentinel())
    version = r.delta_version()
    r.run("UPDATE ledger SET key = 3002004 WHERE key = 3001004")
    outcome = r.pipe.ended()
    assert outcome["error"] == "DataError", outcome
    assert "REPLICA IDENTITY FULL" in outcome["message"]
    assert r.delta_version() == version, "nothing is written as NULL"


def test_an_identity_without_the_primary_key_stops_the_mirror_with_the_remedy(rig: Make) -> None:
    r = rig()
    r.run(
        "CREATE UNIQUE INDEX ours ON ledger (number)", "ALTER TABLE ledger REPLICA IDENTITY USING INDEX ours"
    )
    large_rows(r)
    r.start()
    r.arrived(r.sentinel())
    version = r.delta_version()
    r.run("UPDATE ledger SET key = 3002008 WHERE key = 3001008")
    outcome = r.pipe.ended()
    assert outcome["error"] == "DataError", outcome
    assert "REPLICA IDENTITY DEFAULT" in outcome["message"]
    assert r.delta_version() == version, "the row is not there twice"


@pytest.mark.long
def test_an_identity_that_changes_while_rows_come_is_followed(rig: Make) -> None:
    r = rig(rows=50)
    r.start()
    r.write()
    r.arrived(r.sentinel())
    for identity in ("FULL", "DEFAULT", "FULL"):
        r.run(f"ALTER TABLE ledger REPLICA IDENTITY {identity}")
        r.arrived(r.sentinel())
    r.settle()
    deletes = [line["change"]["before"] for line in changes_of(r.feed) if line["change"]["op"] == "d"]
    assert {len(image) for image in deletes} <= {1, 3}


def extras(rig: Rig) -> dict[int, Any]:
    table = DeltaTable(str(rig.lake)).to_pyarrow_table(columns=["key", "extra"])
    return dict(zip(table["key"].to_pylist(), table["extra"].to_pylist(), strict=True))


@pytest.mark.parametrize("down", [True, pytest.param(False, marks=pytest.mark.long)])
def test_rows_around_an_altered_table_in_one_transaction_are_read_by_their_own_schema(
    rig: Make, down: bool
) -> None:
    r = rig(rows=20)
    r.start()
    r.arrived(r.sentinel())
    if down:
        r.pipe.kill()
    r.run("INSERT INTO ledger VALUES (2000000, 1, ':before')")
    r.run(
        "INSERT INTO ledger VALUES (2000001, 1, ':in it')",
        "ALTER TABLE ledger ADD COLUMN extra text",
        "INSERT INTO ledger VALUES (2000002, 1, ':in it', 'first')",
        "UPDATE ledger SET number = 2, extra = 'second' WHERE key = 2000001",
    )
    if down:
        r.start()
    r.arrived(2_000_002)
    r.pipe.kill()
    r.run("INSERT INTO ledger VALUES (2000003, 1, ':after', 'third')")
    r.start()
    r.settle()
    told = extras(r)
    assert [told[2_000_000 + n] for n in range(4)] == [None, "second", "first", "third"]


@pytest.mark.long
def test_clocks_that_jump_do_not_change_the_order(rig: Make, own_server: Server) -> None:
    # Where the server's own user may read it.
    clock = Clock(own_server.directory / "clock")
    own_server.stop()
    own_server.environment = clock.variables
    own_server.start()
    clock.jump_under(rig(rows=20, server=own_server))
