"""Indexes filled again while somebody reads them: nothing vanishes, and all that can follows changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace import app
from tailrace.app.control import Control
from tailrace.engine.documents import indexes
from tailrace.engine.documents.state import IndexState, States
from tailrace.engine.status import IndexStatus
from tailrace.model.errors import ConfigError, NeedsOperator
from tailrace.sinks.contract import DocumentBatch, DocumentReport, Marker
from tailrace.sinks.sqlite import SqliteSink
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.engine.test_documents import CITIES, MIRRORS, STEPS, shorter
from tests.support.documents.polling import Polling
from tests.support.postgres import Database, database, postgres
from tests.support.waiting import wait_until

__all__ = ["database", "postgres"]

SLOW = {"chunkRows": "2", "maxRowsPerTrigger": "4", "snapshotRowsPerSecond": "6"}
SHORT = "version: 1\ntable: customers\nprimary_key: id\nfields: [{text: name}]\n"
# Changes of each kind that readers must see; the last of them adds a document and removes one.
LIVE: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("UPDATE customers SET name = 'Ada' WHERE id = 2", lambda seen: seen["2"]["name"] == "Ada"),
    ("UPDATE cities SET title = 'Oslo' WHERE id = 1", lambda seen: seen["3"]["home"]["title"] == "Oslo"),
    ("UPDATE orders SET customer = 20", lambda seen: seen["20"]["order_count"] == FEW[1]),
    ("INSERT INTO customers VALUES (77, 'Grace', 2)", lambda seen: "77" in seen),
    ("DELETE FROM customers WHERE id = 4", lambda seen: "4" not in seen),
)


@pytest.fixture
def shop(tmp_path: Path) -> Documents:
    made = Documents(tmp_path)
    made.transaction(*filling(*FEW))
    made.index("customers")
    made.run()
    made.check()
    return made


def steering(shop: Documents) -> Control:
    return app.control(shop.config())


def state(shop: Documents, index: str = "customers") -> IndexStatus:
    return next(one for one in shop.status().indexes if one.index == index)


def remembered(shop: Documents, index: str = "customers") -> IndexState:
    found = States(str(shop.directory / ".tailrace")).get(index)
    assert found is not None
    return found


def read(shop: Documents, index: str = "customers", store: Path | None = None) -> Callable[[], Any]:
    """What anybody sees of the store, by id."""

    def look() -> dict[str, Any]:
        place = f"file:{store or shop.store}?mode=ro"
        query = 'SELECT id, document FROM documents WHERE "index" = ?'
        with closing(sqlite3.connect(place, uri=True, timeout=60)) as connection:
            return {id_: json.loads(text) for id_, text in connection.execute(query, (index,))}

    return look


def filling_is_held(shop: Documents, index: str = "customers") -> None:
    """Wait until some of the index is filled, and hold the rest back."""
    wait_until(lambda: state(shop, index).state == "filling", timeout=60, what="a filling")
    steering(shop).pause("customers")


# Live sync goes on in both


def test_while_an_index_is_filled_again_every_change_is_seen_and_no_document_vanishes(
    shop: Documents,
) -> None:
    before = state(shop).generation
    shop.options = SLOW
    with shop.running() as error, Polling(read(shop)).reading() as reader:
        assert set(steering(shop).reindex("customers")) == {"customers"}
        filling_is_held(shop)
        for statement, right in LIVE:
            reader.deletes("4")
            shop.transaction(statement)
            reader.sees(statement, right)
            assert state(shop).state == "filling", "it was seen before the new one was complete"
        now = state(shop)
        assert (now.shown, now.still, now.generation == before) == (before, None, False)
        assert str(now.waits_for).endswith(".customers, which is paused")
        steering(shop).resume()
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="the new one")
        shop.settles(error=error)
    done = state(shop)
    assert done.generation == done.shown != before
    assert shop.fillings() == [("customers", "somebody asked for it")]
    assert remembered(shop).before is None
    shop.transaction(*STEPS[1])
    shop.run()
    shop.check()
    assert shop.fillings() == []


@pytest.mark.long
def test_a_request_waits_for_the_next_run_and_is_served_once(shop: Documents) -> None:
    first, again = steering(shop).reindex("customers"), steering(shop).reindex("customers")
    assert first == again
    assert state(shop).requested
    assert steering(shop).waiting() == ["customers for the index customers"]
    shop.run()
    shop.check()
    assert shop.fillings() == [("customers", "somebody asked for it")]
    assert not state(shop).requested
    shop.run()
    assert shop.fillings() == []


def test_mirrors_feeds_and_other_indexes_of_the_table_are_left_alone(shop: Documents) -> None:
    shop.more = MIRRORS
    shop.index("short", SHORT)
    shop.run()
    other = remembered(shop, "short")
    steering(shop).reindex("customers")
    shop.run()
    shop.check()
    assert [one["index"] for one in shop.events("index.written")] == ["customers"]
    assert shop.events("mirror.applied") == []
    assert remembered(shop, "short").generation == other.generation
    shop.transaction(*STEPS[0])
    shop.run()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize("emptied", ["customers", "orders"])
def test_a_table_that_is_emptied_meanwhile_is_empty_in_what_readers_see(
    shop: Documents, emptied: str
) -> None:
    shop.options = SLOW
    with shop.running() as error:
        steering(shop).reindex("customers")
        filling_is_held(shop)
        shop.transaction(f"DELETE FROM {emptied}")
        shop.settles(error=error)
        assert state(shop).state == "filling"
        steering(shop).resume()
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="the new one")
        shop.settles(error=error)


# Cancelling


def test_a_cancelled_filling_leaves_what_readers_see_which_has_every_change(shop: Documents) -> None:
    before = state(shop).generation
    shop.options = SLOW
    with shop.running() as error, Polling(read(shop)).reading() as reader:
        steering(shop).reindex("customers")
        filling_is_held(shop)
        reader.deletes("5")
        shop.transaction(*STEPS[6])
        shop.settles(error=error)
        filled = state(shop).generation
        refills = steering(shop).refills
        (joined,) = refills.ask(["customers"])
        assert (joined.request, refills.state(joined)) == (None, "filling")
        assert steering(shop).cancel_reindex("customers") == ["customers"]
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="the old one again")
        assert refills.state(joined) == "cancelled"
        shop.transaction(*STEPS[0])
        shop.settles(error=error)
    assert state(shop).generation == before
    sink = shop.spec().indexes[0].sink
    assert not sink.holds("customers", str(filled)), "what was filled is removed"
    sink.close()
    steering(shop).resume()
    shop.transaction(*STEPS[1])
    shop.run()
    shop.check()
    assert shop.fillings() == []
    assert "incomplete" not in str([table.problem for table in shop.status().tables])
    # And it can be asked for again.
    steering(shop).reindex("customers")
    shop.options = {}
    shop.run()
    shop.check()
    assert state(shop).generation not in (before, filled)


@pytest.mark.long
def test_a_request_that_has_not_begun_is_withdrawn_and_nothing_happens(shop: Documents) -> None:
    before = remembered(shop)
    steering(shop).reindex("customers")
    assert steering(shop).cancel_reindex("*") == ["customers"]
    assert steering(shop).cancel_reindex("*") == []
    shop.run()
    assert shop.fillings() == []
    assert remembered(shop) == before


@pytest.mark.long
def test_a_filling_that_is_needed_cannot_be_cancelled(shop: Documents) -> None:
    shop.index("customers", shorter())
    steering(shop).pause("customers")
    shop.run()
    with pytest.raises(ConfigError, match="its schema changed"):
        steering(shop).cancel_reindex("customers")


@pytest.mark.long
def test_a_stopped_filling_is_not_given_up_for_documents_that_missed_changes(shop: Documents) -> None:
    """What readers see is followed on, and is never taken for complete again."""
    shop.options = SLOW
    with shop.running():
        steering(shop).reindex("customers")
        filling_is_held(shop)
    app.teardown(shop.config(), ["orders"])
    shop.transaction("DELETE FROM orders WHERE id = 9")
    app.setup(shop.config())
    shop.transaction("DELETE FROM orders WHERE id = 10")
    shop.run()
    assert "orders may have been missed" in str(state(shop).reason)
    assert steering(shop).cancel_reindex("customers") == ["customers"]
    shop.options = {}
    steering(shop).resume()
    shop.run()
    shop.run()
    shop.check()
    assert state(shop).state == "complete"


# What stands still


def test_what_readers_see_of_an_old_schema_stands_still_says_so_and_never_counts_again(
    shop: Documents,
) -> None:
    """A, then B whose filling is held, then A again."""
    first = state(shop).generation
    position = shop.status().position
    steering(shop).pause("customers")
    shop.index("customers", shorter())
    with Polling(read(shop)).reading() as reader:
        shop.transaction(*STEPS[0])
        shop.run()
        now = state(shop)
        assert (now.state, now.shown) == ("waiting", first)
        assert now.still is not None
        assert now.still.position == now.position == position
        assert "100" not in read(shop)()
        shop.index("customers", SCHEMA)
        shop.run()
        again = state(shop)
        assert (again.state, again.shown, again.still) == ("waiting", first, now.still)
        steering(shop).resume()
        shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
        reader.deletes("5")
        shop.transaction(*STEPS[6])
        shop.run()
    shop.check()
    assert state(shop).generation != first
    assert state(shop).still is None


@pytest.mark.long
def test_a_sink_that_is_added_is_filled_while_the_others_follow_and_lose_nothing(shop: Documents) -> None:
    shop.more = '[sinks.other]\ntype = "sqlite"\npath = "other.db"\n'
    shop.index("customers", SCHEMA, sinks='["store", "other"]')
    shop.options = SLOW
    with shop.running() as error, Polling(read(shop)).reading() as reader:
        filling_is_held(shop)
        for statement, right in LIVE:
            reader.deletes("4")
            shop.transaction(statement)
            reader.sees(statement, right)
        assert state(shop).state == "filling"
        steering(shop).resume()
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="both")
        shop.settles(error=error)
    assert read(shop, store=shop.directory / "other.db")() == read(shop)()


@pytest.mark.long
def test_a_first_filling_that_begins_again_goes_on_being_seen(tmp_path: Path) -> None:
    made = Documents(tmp_path)
    made.transaction(*filling(*FEW))
    made.index("customers")
    made.options = SLOW
    with made.running() as error:
        wait_until(lambda: error() or len(made.found()) >= 4, timeout=60, what="some documents")
        with Polling(read(made)).reading() as reader:
            steering(made).snapshot("customers")
            wait_until(lambda: error() or remembered(made).before is not None, timeout=60, what="another")
            steering(made).pause("customers")
            made.transaction("INSERT INTO customers VALUES (78, 'Alan', 1)")
            reader.sees("the new one", lambda seen: "78" in seen)
            steering(made).resume()
            wait_until(lambda: error() or state(made).state == "complete", timeout=60, what="all")
    made.check()


# Dead letters


@pytest.mark.long
def test_dead_letters_outlive_a_cancelled_filling_and_end_with_a_complete_one(shop: Documents) -> None:
    shop.index("customers", SCHEMA, on_error='"skip"')
    shop.limit = 2_000
    shop.transaction(f"UPDATE customers SET name = '{'x' * 3_000}' WHERE id = 7")
    shop.run()
    assert [letter.id for letter in shop.letters()] == ["7"]
    shop.options = SLOW
    shop.limit = None
    with shop.running() as error:
        steering(shop).reindex("customers")
        wait_until(
            lambda: error() or (state(shop).rows_done or 0) > 8, timeout=60, what="the poison in the new one"
        )
        steering(shop).cancel_reindex("customers")
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="the old one")
    assert shop.events("index.kept")
    assert [letter.id for letter in shop.letters()] == ["7"], "what readers see does not have it"
    shop.options = {}
    steering(shop).reindex("customers")
    shop.run()
    assert shop.letters() == []
    shop.check()


@pytest.mark.long
def test_a_dead_letter_that_is_retried_meanwhile_is_seen_at_once_and_in_the_new_one(shop: Documents) -> None:
    shop.index("customers", SCHEMA, on_error='"skip"')
    shop.limit = 2_000
    shop.transaction(f"UPDATE customers SET name = '{'x' * 3_000}' WHERE id = 20")
    shop.run()
    shop.limit = None
    shop.options = SLOW
    with shop.running() as error:
        steering(shop).reindex("customers")
        filling_is_held(shop)
        assert shop.retry().written == 1
        assert len(read(shop)()["20"]["name"]) == 3_000
        steering(shop).resume()
        wait_until(lambda: error() or state(shop).state == "complete", timeout=60, what="the new one")
    shop.check()
    assert shop.letters() == []


# Faults


@pytest.mark.long
@pytest.mark.parametrize("where", ["ensure", "write", "publish before", "publish after"])
def test_a_run_that_dies_anywhere_in_a_filling_leaves_readers_all_documents(
    shop: Documents, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    call, _, when = where.partition(" ")
    original: Any = getattr(SqliteSink, call)
    steering(shop).reindex("customers")
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    left = 2 if call == "write" else 1

    def dies(self: SqliteSink, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and when != "after":
            raise NeedsOperator("killed", remedy="run again")
        answer = original(self, *arguments)
        if left == 0:
            raise NeedsOperator("killed", remedy="run again")
        return answer

    with Polling(read(shop)).reading() as reader:
        monkeypatch.setattr(SqliteSink, call, dies)
        with pytest.raises(NeedsOperator, match="killed"):
            shop.run()
        monkeypatch.setattr(SqliteSink, call, original)
        reader.deletes("5")
        shop.transaction(*STEPS[6])
        shop.transaction(*STEPS[0])
        shop.run()
    shop.check()
    assert state(shop).state == "complete"
    shop.run()
    assert shop.fillings() == []


@pytest.mark.long
def test_a_cancel_that_comes_after_the_new_one_was_shown_does_not_bring_the_old_one_back(
    shop: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the sink's step and the pipeline's note of it."""
    original = SqliteSink.publish

    def dies(self: SqliteSink, index: str, marker: Marker) -> None:
        original(self, index, marker)
        raise NeedsOperator("killed", remedy="run again")

    before = state(shop).generation
    steering(shop).reindex("customers")
    monkeypatch.setattr(SqliteSink, "publish", dies)
    with pytest.raises(NeedsOperator, match="killed"):
        shop.run()
    monkeypatch.setattr(SqliteSink, "publish", original)
    steering(shop).cancel_reindex("customers")
    shop.transaction(*STEPS[0])
    shop.run()
    shop.run()
    shop.check()
    assert state(shop).state == "complete"
    assert state(shop).generation != before


@pytest.mark.long
def test_a_batch_whose_chunks_were_left_out_for_a_stop_is_never_taken_for_the_last(
    shop: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch fails, the filling is stopped, the batch comes again without its chunks."""
    original = SqliteSink.write
    before = state(shop).generation

    def failing(self: SqliteSink, batch: DocumentBatch) -> DocumentReport:
        if "20" in batch.ids.to_pylist():
            raise NeedsOperator("the last chunk", remedy="run again")
        return original(self, batch)

    steering(shop).reindex("customers")
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    monkeypatch.setattr(SqliteSink, "write", failing)
    with pytest.raises(NeedsOperator, match="the last chunk"):
        shop.run()
    monkeypatch.setattr(SqliteSink, "write", original)
    with Polling(read(shop)).reading():
        assert steering(shop).cancel_reindex("customers") == ["customers"]
        shop.run()
        shop.run()
    shop.check()
    assert (state(shop).state, state(shop).generation) == ("complete", before)


@pytest.mark.long
def test_a_new_schema_in_the_middle_of_a_filling_that_was_asked_for_is_filled_from_its_beginning(
    shop: Documents,
) -> None:
    """The chunks that come after it began are not all of them."""
    shop.options = SLOW
    with shop.running():
        steering(shop).reindex("customers")
        filling_is_held(shop)
    steering(shop).resume()
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4"}
    shop.index("customers", shorter())
    with Polling(read(shop)).reading():
        shop.run()
        shop.run()
    shop.check()
    assert state(shop).state == "complete"


@pytest.mark.long
def test_an_index_of_cities_is_filled_again_while_customers_move(shop: Documents) -> None:
    shop.index("cities", CITIES)
    shop.run()
    for number, step in enumerate(STEPS):
        steering(shop).reindex(["cities", "customers"][number % 2])
        shop.transaction(*step)
        shop.run()
        shop.check()


@pytest.mark.long
def test_on_postgres_every_change_is_seen_while_an_index_is_filled_again(
    tmp_path: Path, database: Database
) -> None:
    made = Documents(tmp_path, database)
    made.transaction(*filling(*FEW))
    made.index("customers")
    made.run()
    test_while_an_index_is_filled_again_every_change_is_seen_and_no_document_vanishes(made)


@pytest.mark.long
def test_executors_write_both_generations_to_the_sinks_that_have_them(
    shop: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "FEW", 0)
    shop.more = '[sinks.other]\ntype = "sqlite"\npath = "other.db"\n'
    shop.index("customers", SCHEMA, sinks='["store", "other"]')
    shop.options = {"chunkRows": "2", "maxRowsPerTrigger": "4", "numPartitions": "4"}
    with Polling(read(shop)).reading() as reader:
        # One of them gets another key on the way.
        reader.deletes("5", "100")
        for step in STEPS[:3]:
            shop.transaction(*step)
        shop.run()
        steering(shop).reindex("customers")
        for step in STEPS[3:]:
            shop.transaction(*step)
        shop.run()
    shop.check()
    assert read(shop, store=shop.directory / "other.db")() == read(shop)()
