"""Documents where state, sink, checkpoint and requests meet in unlucky orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tailrace import app
from tailrace.model.errors import ConfigError, NeedsOperator, Transient
from tailrace.model.position import Position
from tailrace.runtime.links import Links
from tailrace.sinks.contract import DocumentBatch, DocumentReport, Marker
from tailrace.sinks.sqlite import SqliteSink
from tailrace.spark import driver
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]

LAKE = '[sinks.lake]\ntype = "delta"\npath = "lake"\n[[table]]\nname = "customers"\nsink = "lake"\n'


@pytest.fixture
def small(tmp_path: Path) -> Documents:
    """A filled source in a file, and one index over it."""
    made = Documents(tmp_path)
    made.transaction(*filling(*FEW))
    made.index("customers")
    return made


def test_a_filling_whose_last_chunks_were_not_read_because_capture_began_anew_is_never_shown(
    small: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run()
    app.control(small.config()).snapshot("customers")
    small.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    write, publish = SqliteSink.write, SqliteSink.publish
    shown: list[int] = []

    def failing(self: SqliteSink, batch: DocumentBatch) -> DocumentReport:
        if "20" in batch.ids.to_pylist():
            raise NeedsOperator("the last chunk")
        return write(self, batch)

    def looking(self: SqliteSink, index: str, marker: Marker) -> None:
        shown.append(len(self.read(index, marker.generation)))
        publish(self, index, marker)

    monkeypatch.setattr(SqliteSink, "write", failing)
    with pytest.raises(NeedsOperator, match="the last chunk"):
        small.run()
    monkeypatch.setattr(SqliteSink, "write", write)
    monkeypatch.setattr(SqliteSink, "publish", looking)
    app.teardown(small.config(), ["customers"])
    app.setup(small.config())
    small.run()
    small.check()
    assert set(shown) == {FEW[0]}


def test_a_sink_that_was_left_out_for_a_while_is_filled_again(small: Documents) -> None:
    small.more = '[sinks.other]\ntype = "sqlite"\npath = "other.db"\n'
    small.index("customers", SCHEMA, sinks='["store", "other"]')
    small.run()
    small.index("customers", SCHEMA, sinks='["other"]')
    small.transaction("UPDATE customers SET name = 'Ada' WHERE id = 3", "DELETE FROM customers WHERE id = 4")
    small.run()
    assert small.fillings() == [], "those that stay need no filling"
    small.index("customers", SCHEMA, sinks='["store", "other"]')
    small.run()
    small.check()


def test_a_store_is_filled_again_after_documents_went_to_a_stream_instead(small: Documents) -> None:
    small.run()
    small.more = '[sinks.screen]\ntype = "stdout"\n'
    small.index("customers", SCHEMA, sinks='["screen"]')
    small.transaction("UPDATE customers SET name = 'Ada' WHERE id = 3")
    small.run()
    small.index("customers", SCHEMA, sinks='["store"]')
    small.run()
    small.check()


def test_dead_letters_are_not_built_by_a_schema_that_no_run_has_filled_the_index_with(
    small: Documents,
) -> None:
    small.limit = 200
    small.index("customers", SCHEMA, on_error='"skip"')
    small.run()
    assert small.letters()
    before = small.found().to_pydict()
    small.index("customers", SCHEMA.split("  - many_to_many", maxsplit=1)[0], on_error='"skip"')
    with pytest.raises(ConfigError, match="schema"):
        small.retry()
    assert small.found().to_pydict() == before


@pytest.mark.parametrize("step", ["ensure", "publish"])
def test_a_passing_fault_of_the_sink_at_either_end_of_a_filling_is_waited_for(
    small: Documents, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    original = getattr(SqliteSink, step)
    faults = [Transient("the store is busy")]

    def failing(self: SqliteSink, *args: object) -> None:
        if faults:
            raise faults.pop()
        original(self, *args)

    monkeypatch.setattr(SqliteSink, step, failing)
    small.run()
    small.check()


def test_copies_of_a_filling_that_was_given_up_are_removed(small: Documents) -> None:
    left = small.config().state.directory / "filling" / "abandoned" / "0"
    left.mkdir(parents=True)
    (left / "part.parquet").write_bytes(b"rows")
    small.run()
    assert not left.parent.exists()


def mirrored(shop: Documents) -> dict[int, str]:
    (log,) = (shop.directory / "lake").rglob("_delta_log")
    rows = DeltaTable(str(log.parent)).to_pyarrow_table()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def test_a_root_of_which_only_keys_were_read_is_mirrored_whole_once_a_mirror_is_added(
    small: Documents,
) -> None:
    small.run()
    small.more = LAKE
    small.transaction("UPDATE customers SET name = 'Ada' WHERE id = 3")
    small.run()
    small.check()
    wanted = {number: f"customer {number}" for number in range(1, FEW[0] + 1)}
    assert mirrored(small) == {**wanted, 3: "Ada"}


def test_a_mirror_of_a_root_that_was_left_out_for_a_while_is_made_anew(small: Documents) -> None:
    small.more = LAKE
    small.run()
    small.more = ""
    small.transaction("UPDATE customers SET name = 'Ada' WHERE id = 3", "DELETE FROM customers WHERE id = 4")
    small.run()
    small.more = LAKE
    small.transaction("UPDATE customers SET name = 'Bob' WHERE id = 5")
    small.run()
    small.check()
    found = mirrored(small)
    assert (found[3], found[5], 4 in found, len(found)) == ("Ada", "Bob", False, FEW[0] - 1)


@pytest.mark.parametrize(("master", "local"), [("local[2]", False), ("spark://host:7077", True)])
def test_on_a_cluster_the_driver_alone_writes_to_a_store_on_its_disk(
    small: Documents, master: str, local: bool
) -> None:
    small.more = f'[spark]\nmaster = "{master}"\n'
    assert small.spec().indexes[0].sink.local is local


@pytest.mark.long
def test_documents_are_filled_when_all_that_link_state_may_lack_can_be_read(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes up to its horizon touch no document later, and some may be committed and hidden."""
    shop = Documents(tmp_path, database)
    shop.transaction(*filling(*FEW))
    shop.index("customers")
    begin, far = Links.begin, 1 << 50
    waited: list[int] = []

    def seeded(self: Links, *args: Any, **settings: Any) -> None:
        begin(self, *args, **settings)
        self.horizon = far

    def waiting(_: object, position: Position, *__: object) -> None:
        waited.append(position.version)

    monkeypatch.setattr(Links, "begin", seeded)
    monkeypatch.setattr(driver, "wait_visible", waiting)
    shop.run()
    shop.check()
    assert far in waited
