"""Documents of a pipeline through its life: filled, changed, begun again for every reason there is."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from tailrace import app
from tailrace.engine.documents import indexes
from tailrace.model.errors import NeedsOperator, StateUnreadable, TailraceError
from tailrace.sinks.contract import DocumentBatch, DocumentReport
from tailrace.sinks.sqlite import SqliteSink
from tests.engine.documenting import FEW, NAMES, SCHEMA, Documents, filling
from tests.faults.microbatch import Manners
from tests.support.postgres import Database, database, postgres
from tests.support.waiting import wait_until

__all__ = ["database", "postgres"]

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.long)]
CITIES = """
version: 1
table: cities
primary_key: id
fields: [{long: id}, {text: title}, {count: people, table: customers, foreign_key: city}]
"""
# Everything that can happen to rows, each line a transaction.
STEPS = (
    ("INSERT INTO customers VALUES (100, 'Ada', 1)", "INSERT INTO orders VALUES (100, 100, 5)"),
    ("UPDATE orders SET customer = 100 WHERE id = 1",),
    ("DELETE FROM items WHERE of = 4",),
    ("UPDATE cities SET title = 'Torino' WHERE id = 1",),
    ("UPDATE customers SET id = 101 WHERE id = 100", "UPDATE orders SET customer = 101 WHERE id = 100"),
    ("DELETE FROM tags WHERE id = 2", "DELETE FROM tagged WHERE tag = 3"),
    ("DELETE FROM customers WHERE id = 5", "UPDATE items SET of = 2 WHERE id < 20"),
)
ALL_STEPS = tuple(statement for step in STEPS for statement in step)


def filled(made: Documents) -> Documents:
    made.transaction(*filling(*FEW))
    made.index("customers")
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Documents:
    """A filled source and one index over it."""
    own: Database | None = request.getfixturevalue("database") if request.param == "postgres" else None
    return filled(Documents(tmp_path, own))


@pytest.fixture
def small(tmp_path: Path) -> Documents:
    """The same in a file, for every run of the tests."""
    return filled(Documents(tmp_path))


def test_documents_are_filled_and_follow_changes_without_being_filled_again(small: Documents) -> None:
    small.run()
    small.check()
    assert small.fillings()[-1] == ("customers", "the snapshot of its root begins")
    small.transaction(*ALL_STEPS)
    small.run()
    small.check()
    assert small.fillings() == []


@pytest.mark.long
def test_documents_are_right_after_every_step(shop: Documents) -> None:
    shop.run()
    shop.check()
    for step in STEPS:
        shop.transaction(*step)
        shop.run()
        shop.check()
        assert shop.fillings() == []
    shop.transaction(*(f"DELETE FROM {name}" for name in NAMES))
    shop.run()
    shop.check()
    assert shop.ids() == set()


@pytest.mark.long
def test_an_empty_root_gives_a_complete_index_without_documents(shop: Documents) -> None:
    shop.transaction("DELETE FROM customers")
    shop.run()
    shop.check()
    assert shop.status().indexes[0].state == "complete"
    shop.transaction("INSERT INTO customers VALUES (1, 'Ada', 1)")
    shop.run()
    shop.check()
    assert shop.ids() == {"1"}
    assert shop.fillings() == []


@pytest.mark.long
def test_two_indexes_over_one_root_and_one_that_joins_later_are_all_right(shop: Documents) -> None:
    shop.index("short", "version: 1\ntable: customers\nprimary_key: id\nfields: [{text: name}]\n")
    shop.run()
    shop.check()
    shop.transaction(*STEPS[0])
    shop.run()
    shop.check()
    shop.transaction(*STEPS[1], *STEPS[2])
    shop.index("late", SCHEMA.replace("text: name", "text: name\n    transforms: [uppercase]"))
    shop.index("cities", CITIES)
    shop.run()
    for index in ("customers", "short", "cities"):
        assert shop.differences(index) == [], index
    assert shop.ids("late") == shop.ids()
    shop.transaction(*STEPS[3], "UPDATE customers SET city = 2 WHERE id = 3")
    shop.run()
    for index in ("customers", "short", "cities"):
        assert shop.differences(index) == [], index


@pytest.mark.long
@pytest.mark.parametrize("few", [0, 2000], ids=["on executors", "in the driver"])
def test_batches_that_come_three_times_shuffled_and_by_twins_leave_the_same_documents(
    shop: Documents, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(indexes, "FEW", few)
    shop.manners = Manners(times=3, shuffled=True, twins=True)
    shop.options = {"chunkRows": "3", "maxRowsPerTrigger": "6", "numPartitions": "4"}
    shop.run()
    shop.check()
    for step in STEPS:
        shop.transaction(*step)
    shop.run()
    shop.check()


# The store


@pytest.mark.parametrize("how", ["file", "index"])
def test_a_store_that_lost_its_documents_between_runs_is_filled_again(small: Documents, how: str) -> None:
    small.run()
    if how == "file":
        for path in small.directory.glob("docs.db*"):
            path.unlink()
    else:
        sink = small.spec().indexes[0].sink
        sink.drop("customers")
        sink.close()
    small.transaction(*STEPS[1])
    small.run()
    small.check()
    assert ("customers", "its sink holds something else") in small.fillings()


@pytest.mark.long
@pytest.mark.parametrize("few", [0, 2000], ids=["on executors", "in the driver"])
def test_a_store_that_is_removed_under_a_run_stops_it_with_the_remedy_and_is_filled_by_the_next(
    shop: Documents, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(indexes, "FEW", few)
    with shop.running() as error:
        shop.settles(error=error)
        for path in shop.directory.glob("docs.db*"):
            path.unlink()
        shop.transaction(*STEPS[1])
        wait_until(error, what="the end of the run")
    found = error()
    assert isinstance(found, NeedsOperator)
    assert "no index customers" in found.message
    assert "start the pipeline again" in (found.remedy or "")
    shop.run()
    shop.check()


# The schema


def shorter(text: str = SCHEMA) -> str:
    """The same index without its tags, and names in upper case."""
    return text.split("  - many_to_many", maxsplit=1)[0]


@pytest.mark.long
def test_a_changed_schema_fills_a_generation_beside_the_old_one_which_readers_see_until_then(
    shop: Documents,
) -> None:
    shop.run()
    before = shop.found().to_pydict()
    shop.index("customers", shorter())
    control = app.control(shop.config())
    control.pause("customers")
    shop.transaction(*STEPS[0])
    shop.run()
    assert shop.found().to_pydict() == before, "the old one, complete"
    status = shop.status().indexes[0]
    assert (status.state, status.reason) == ("waiting", "its schema changed")
    control.resume()
    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append(len(shop.found()))

    reader = threading.Thread(target=look)
    reader.start()
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    shop.run()
    ended.set()
    reader.join()
    shop.check()
    assert min(seen) == len(before["id"]), "never fewer"
    # And back again: what is shown is never the generation of the first time.
    shop.transaction(*STEPS[1])
    shop.index("customers", SCHEMA)
    shop.run()
    shop.check()


@pytest.mark.long
def test_an_index_that_was_disabled_while_rows_changed_is_filled_again(shop: Documents) -> None:
    shop.index("cities", CITIES)
    shop.run()
    shop.index("customers", SCHEMA, enabled="false")
    shop.run()
    shop.transaction(*ALL_STEPS)
    shop.run()
    shop.check("cities")
    shop.index("customers", SCHEMA)
    shop.run()
    shop.check()
    assert ("customers", "it is new") in shop.fillings()
    # Never disabled for as much as one batch of a run, and yet not kept.
    shop.index("customers", SCHEMA, enabled="false")
    shop.run()
    shop.transaction("UPDATE customers SET name = 'Grace' WHERE id = 3")
    shop.index("customers", SCHEMA)
    shop.run()
    shop.check()


MIRRORS = '[sinks.lake]\ntype = "delta"\npath = "lake"\n[[table]]\nname = "*"\nsink = "lake"\n'


@pytest.mark.long
def test_the_only_index_is_filled_again_after_a_run_without_it_though_its_tables_were_read_on(
    shop: Documents,
) -> None:
    shop.more = MIRRORS
    shop.run()
    shop.check()
    shop.index("customers", SCHEMA, enabled="false")
    shop.transaction(*ALL_STEPS)
    shop.run()
    shop.index("customers", SCHEMA)
    shop.run()
    shop.check()
    # Nor is what link state knows from before.
    shop.transaction("DELETE FROM orders WHERE id IN (1, 100)", "DELETE FROM items WHERE id < 20")
    shop.run()
    shop.check()


@pytest.mark.long
def test_a_filling_whose_last_chunks_were_left_out_for_a_new_one_is_never_shown(
    shop: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that failed comes again without the chunks that a snapshot will replace that was asked for."""
    shop.run()
    control = app.control(shop.config())
    control.snapshot("customers")
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    original, least = SqliteSink.write, FEW[0]

    def failing(self: SqliteSink, batch: DocumentBatch) -> DocumentReport:
        if "20" in batch.ids.to_pylist():
            raise NeedsOperator("the last chunk")
        return original(self, batch)

    def looking(self: SqliteSink, batch: DocumentBatch) -> DocumentReport:
        nonlocal least
        least = min(least, len(shop.found()))
        return original(self, batch)

    monkeypatch.setattr(SqliteSink, "write", failing)
    with pytest.raises(NeedsOperator, match="the last chunk"):
        shop.run()
    monkeypatch.setattr(SqliteSink, "write", looking)
    control.snapshot("customers")
    shop.run()
    shop.check()
    assert least == FEW[0], "readers never saw fewer"


# The source


@pytest.mark.long
@pytest.mark.parametrize("table", NAMES)
def test_a_table_that_is_emptied_leaves_the_right_documents(shop: Documents, table: str) -> None:
    shop.run()
    shop.transaction(f"TRUNCATE {table}" if shop.kind == "postgres" else f"DELETE FROM {table}")
    shop.run()
    shop.check()
    empty = f"TRUNCATE {table}" if shop.kind == "postgres" else f"DELETE FROM {table}"
    with closing(shop.source()) as connection:
        columns = len(connection.execute(f"SELECT * FROM {table} LIMIT 0").description)
    row = ", ".join(["7", "2", "3"][:columns])
    shop.transaction(f"INSERT INTO {table} VALUES ({row})", empty, f"INSERT INTO {table} VALUES ({row})")
    shop.run()
    shop.check()
    assert shop.fillings() == []


@pytest.mark.long
@pytest.mark.parametrize("table", ["orders", "items", "tagged", "customers"])
def test_capture_of_a_table_that_was_set_up_anew_fills_the_index_again(shop: Documents, table: str) -> None:
    shop.run()
    app.teardown(shop.config(), [table])
    shop.transaction(*ALL_STEPS)
    shop.transaction(f"DELETE FROM {table} WHERE id = 9")
    app.setup(shop.config())
    shop.transaction(f"DELETE FROM {table} WHERE id = 10")
    shop.run()
    shop.run()
    shop.check()
    shop.transaction("UPDATE orders SET customer = 3 WHERE id = 11")
    shop.run()
    shop.check()
    assert shop.fillings() == []


@pytest.mark.long
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_link_state_that_was_lost_between_runs_is_made_anew_and_no_old_parent_is_missed(
    tmp_path: Path, database: Database, damage: str
) -> None:
    shop = filled(Documents(tmp_path, database))
    shop.run()
    shop.transaction("DELETE FROM items WHERE id = 3")
    shop.run()
    shop.check()
    (links,) = (tmp_path / ".tailrace").rglob("links.db")
    for path in links.parent.glob("links.db*"):
        path.unlink()
    if damage == "damaged":
        links.write_bytes(b"not a database at all" * 1000)
        with pytest.raises(StateUnreadable) as refused:
            shop.run()
        assert f"rm {links}" in (refused.value.remedy or "")
        links.unlink()
    # What only link state could tell of: rows that are deleted or moved, before it is there again.
    shop.transaction("DELETE FROM orders WHERE id IN (2, 3)", "UPDATE items SET of = 7 WHERE id < 10")
    shop.run()
    shop.run()
    shop.check()
    shop.transaction("DELETE FROM orders WHERE id IN (4, 5)", "UPDATE items SET of = 8 WHERE id < 10")
    shop.run()
    shop.check()
    assert shop.fillings() == []


@pytest.mark.long
def test_a_filling_that_is_paused_goes_on_where_it_was_and_misses_nothing(shop: Documents) -> None:
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "2"}
    control = app.control(shop.config())
    with shop.running() as error:
        wait_until(lambda: error() is None and len(shop.found()) >= 4, what="some documents")
        control.pause("customers")
        wait_until(
            lambda: any(table.paused for table in shop.status().tables) and shop.status().lag is not None,
            what="the pause",
        )
        shop.transaction(*ALL_STEPS)
    state = shop.status().indexes[0]
    if state.state == "filling":
        # Killed or stopped meanwhile: the next run goes on with the pause and the same generation.
        shop.run()
        assert shop.fillings() == []
    control.resume()
    shop.run()
    shop.check()
    assert shop.status().indexes[0].state == "complete"


@pytest.mark.long
def test_a_filling_that_was_stopped_says_so_and_a_new_snapshot_completes_it(shop: Documents) -> None:
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "2"}
    control = app.control(shop.config())
    with shop.running() as error:
        wait_until(lambda: error() is None and len(shop.found()) >= 4, what="some documents")
        stopped = control.stop("customers")
    shop.run()
    if stopped and shop.status().indexes[0].state != "complete":
        assert "incomplete" in str(next(t for t in shop.status().tables if "customers" in t.table).problem)
    control.snapshot("customers")
    shop.transaction(*ALL_STEPS)
    shop.run()
    shop.check()
    assert shop.status().indexes[0].state == "complete"


@pytest.mark.long
def test_snapshots_that_are_asked_for_leave_the_documents_right(shop: Documents) -> None:
    shop.run()
    control = app.control(shop.config())
    control.snapshot("orders")
    shop.transaction(*STEPS[0])
    shop.run()
    shop.check()
    control.snapshot("customers", where="id < 5")
    shop.transaction(*STEPS[1])
    shop.run()
    shop.check()
    assert shop.fillings() == []
    control.snapshot("*")
    shop.transaction(*STEPS[4])
    shop.run()
    shop.check()


BROKEN = {
    "a table dropped": "DROP TABLE items",
    "a table renamed": "ALTER TABLE items RENAME TO things",
    "a part dropped": "ALTER TABLE cities DROP COLUMN title",
    "a column renamed": "ALTER TABLE cities RENAME COLUMN title TO name",
    "a key column renamed": "ALTER TABLE orders RENAME COLUMN customer TO client",
}


@pytest.mark.long
@pytest.mark.parametrize("what", BROKEN)
def test_a_source_that_lost_what_the_index_needs_stops_the_run_with_the_remedy(
    shop: Documents, what: str
) -> None:
    statement = BROKEN[what]
    if shop.kind == "sqlite" and what == "a part dropped":
        # It refuses to drop a column that a trigger names.
        statement = "DROP TABLE cities"
    with shop.running() as error:
        shop.settles(error=error)
        before = shop.found().to_pydict()
        shop.sql(statement)
        shop.transaction("UPDATE customers SET name = 'Grace', city = 2 WHERE id = 3")
        wait_until(error, timeout=30, what="the end of the run")
    found = error()
    assert isinstance(found, TailraceError)
    assert found.remedy, found.message
    names = ("items", "title", "cities", "customer", "orders")
    assert any(name in found.message for name in names), found.message
    after = shop.found().to_pydict()
    touched = [
        id_
        for id_, one in zip(before["id"], before["document"], strict=True)
        if id_ != "3" and one not in after["document"]
    ]
    assert touched == [], "nothing wrong was written"
    with pytest.raises(TailraceError) as again:
        shop.run()
    assert again.value.remedy or "customers.schema.yml:" in str(again.value)


@pytest.mark.long
def test_a_reader_of_the_store_never_sees_half_of_a_publication(shop: Documents) -> None:
    """The view shows one generation at a time, also while one takes the place of another."""
    shop.run()
    counts: set[int] = set()
    ended = threading.Event()

    def look() -> None:
        with closing(shop.reader()) as connection:
            while not ended.is_set():
                (count, ids) = connection.execute(
                    "SELECT count(*), count(DISTINCT id) FROM documents"
                ).fetchone()
                assert count == ids
                counts.add(count)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(3):
        app.control(shop.config()).snapshot("customers")
        shop.run()
        shop.check()
    ended.set()
    reader.join()
    assert counts == {FEW[0]}
