"""Row 23: a table that is not published as it was stops alone, with the remedy, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.rig import Rig
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
pytestmark = databases("postgres")


def postgres_of(rig: Rig) -> Postgres:
    assert isinstance(rig.ledger, Postgres)
    return rig.ledger


def two_tables(rig: Make) -> Rig:
    """A pipeline of two tables that runs and has both."""
    r = rig(rows=20, tables=("second",), capture={"watch_interval": 0.3})
    r.run("CREATE TABLE second (id bigint PRIMARY KEY, a text, b text)")
    postgres_of(r).admin("ALTER PUBLICATION tailrace ADD TABLE second")
    r.run("INSERT INTO second VALUES (1, 'one', 'one')")
    r.start()
    r.arrived(r.sentinel())
    r.run("INSERT INTO second VALUES (2, 'two', 'two')")
    wait_until(lambda: set(second(r)) == {1, 2}, timeout=60, what="the second table's rows")
    return r


def second(rig: Rig) -> dict[int, Any]:
    path = rig.lake.parent / "second"
    if not (path / "_delta_log").exists():
        return {}
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["ALTER PUBLICATION tailrace DROP TABLE second"], id="unpublished"),
        pytest.param(
            [
                "ALTER PUBLICATION tailrace DROP TABLE second",
                "ALTER PUBLICATION tailrace ADD TABLE second (id, a)",
            ],
            id="column",
            marks=pytest.mark.long,
        ),
        pytest.param(["DROP TABLE second"], id="dropped"),
    ],
)
def test_a_table_that_is_not_published_as_it_was_stops_alone_and_the_other_goes_on(
    rig: Make, statements: list[str]
) -> None:
    r = two_tables(rig)
    r.write()
    r.points.arm("report", "note", stopped=["public.second"])
    postgres_of(r).admin(*statements)
    if "DROP TABLE second" not in statements:
        r.run("INSERT INTO second VALUES (3, 'three', 'three')")
    r.struck("report")
    r.settle()
    assert set(second(r)) == {1, 2}, "nothing behind a gap"


def test_a_publication_that_is_dropped_stops_the_pipeline_with_the_remedy(rig: Make) -> None:
    r = two_tables(rig)
    postgres_of(r).admin("DROP PUBLICATION tailrace")
    outcome = r.pipe.ended(timeout=60)
    assert outcome["error"] == "SetupMissing", outcome
    assert "tailrace setup" in outcome["message"]
