"""Documents that cannot be computed, or that the store does not take: passed over or stopped at, by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.engine.documents import indexes
from tailrace.model.errors import DataError
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.snapshots.hidden import Hidden, lonely
from tests.support.postgres import Database, Server, database, own_server, postgres

__all__ = ["database", "own_server", "postgres"]

# The absolute value of the least number there is cannot be computed, on either database.
LEAST = "(-9223372036854775807 - 1)"
ABSOLUTE = SCHEMA + "  - expression: size\n    sql: abs(city)\n    type: long\n"
MEND = f"UPDATE customers SET city = 1 WHERE city = {LEAST}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Documents:
    own: Database | None = request.getfixturevalue("database") if request.param == "postgres" else None
    made = Documents(tmp_path, own)
    made.transaction(*filling(*FEW))
    return made


def spoil(*ids: int) -> str:
    return f"UPDATE customers SET city = {LEAST} WHERE id IN ({', '.join(map(str, ids))})"


def test_documents_that_cannot_be_computed_become_dead_letters_and_the_others_are_kept(
    shop: Documents,
) -> None:
    shop.index("customers", ABSOLUTE, on_error='"skip"')
    shop.transaction(spoil(3, 7))
    shop.run()
    assert sorted((one.index, one.id) for one in shop.letters()) == [("customers", "3"), ("customers", "7")]
    assert shop.ids() == {str(id_) for id_ in range(1, 21)} - {"3", "7"}
    assert shop.differences(without=("3", "7"), mend=MEND) == []
    assert shop.status().indexes[0].dead_letters == 2
    # One that was right before keeps its last right state, and is told of.
    shop.transaction(spoil(4), "UPDATE customers SET name = 'Ada' WHERE id = 5")
    shop.run()
    assert {one.id for one in shop.letters()} == {"3", "4", "7"}
    assert shop.differences(without=("3", "4", "7"), mend=MEND) == []
    assert "4" in shop.ids()
    # A retry that changes nothing keeps them all; one after the rows were mended writes them.
    assert {one.id for one in shop.retry().rejected} == {"3", "4", "7"}
    shop.transaction(MEND)
    assert shop.retry().written == 3
    assert shop.letters() == []
    shop.check()
    shop.run()
    shop.check()


@pytest.mark.long
def test_a_document_that_cannot_be_computed_stops_the_run_by_name_until_it_is_mended(
    shop: Documents,
) -> None:
    shop.index("customers", ABSOLUTE)
    shop.run()
    shop.check()
    shop.transaction(spoil(7), "UPDATE customers SET name = 'Ada' WHERE id = 5")
    for _ in range(2):
        with pytest.raises(DataError) as stopped:
            shop.run()
        assert stopped.value.message.startswith("index customers: the document 7 was rejected: ")
        assert stopped.value.message.count("rejected") == 1
        assert 'on_error = "skip"' in (stopped.value.remedy or "")
    shop.transaction(MEND)
    shop.run()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize("few", [0, 2000], ids=["on executors", "in the driver"])
def test_documents_that_are_longer_than_the_store_takes_become_dead_letters(
    shop: Documents, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(indexes, "FEW", few)
    shop.index("customers", on_error='"skip"')
    shop.limit = 2000
    long = "UPDATE customers SET name = '" + "x" * 2000 + "' WHERE id IN (3, 7)"
    shop.transaction(long)
    shop.run()
    assert {one.id for one in shop.letters()} == {"3", "7"}
    assert all("xxx" not in one.reason for one in shop.letters())
    assert shop.differences(without=("3", "7")) == []
    shop.transaction("UPDATE customers SET name = 'short' WHERE id = 3")
    shop.run()
    assert shop.differences(without=("7",)) == []
    assert {one.id for one in shop.letters()} == {"7"}, "the other was written since"
    # The store takes more now.
    shop.limit = None
    assert shop.retry().written == 1
    shop.check()
    assert shop.letters() == []


@pytest.mark.long
@pytest.mark.parametrize("few", [0, 2000], ids=["on executors", "in the driver"])
def test_a_document_that_is_too_long_stops_the_run_by_name(
    shop: Documents, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(indexes, "FEW", few)
    shop.index("customers")
    shop.limit = 2000
    shop.transaction("UPDATE customers SET name = '" + "x" * 2000 + "' WHERE id = 3")
    with pytest.raises(DataError) as stopped:
        shop.run()
    assert stopped.value.message.startswith("index customers: the document 3 was rejected: ")
    assert stopped.value.message.count("rejected") == 1
    assert "xxx" not in stopped.value.message
    shop.transaction("UPDATE customers SET name = 'short' WHERE id = 3")
    shop.run()
    shop.check()


@pytest.mark.long
def test_every_document_may_be_refused_and_nothing_stops(shop: Documents) -> None:
    shop.index("customers", ABSOLUTE, on_error='"skip"')
    shop.transaction(f"UPDATE customers SET city = {LEAST}")
    shop.run()
    assert shop.ids() == set()
    assert len(shop.letters()) == 20
    assert shop.status().indexes[0].state == "complete"
    shop.transaction("UPDATE customers SET city = 2")
    shop.run()
    shop.check()


@pytest.mark.long
def test_a_retry_while_a_commit_is_hidden_does_not_keep_its_document_out(
    tmp_path: Path, own_server: Server
) -> None:
    """What is committed and not visible yet is not in a document that is built now, whatever its version."""
    shop = Documents(tmp_path, lonely(own_server).database())
    shop.transaction(*filling(*FEW))
    shop.index("customers", ABSOLUTE, on_error='"skip"')
    shop.transaction(spoil(3))
    shop.run()
    assert [one.id for one in shop.letters()] == ["3"]
    assert shop._database is not None
    held = cast(Any, SimpleNamespace(database=shop._database, connect=shop._database.connect))
    shop.transaction(MEND)
    with Hidden(held) as application:
        application.commit("INSERT INTO orders VALUES (900, 3, 77)")
        assert shop.retry().written == 1
        application.show()
    shop.run()
    shop.check()


def test_a_dead_letter_is_void_once_a_later_change_has_written_its_document(shop: Documents) -> None:
    shop.index("customers", ABSOLUTE, on_error='"skip"')
    shop.transaction(spoil(3, 7))
    shop.run()
    assert {one.id for one in shop.letters()} == {"3", "7"}
    assert shop.events("index.rejected")[0]["count"] == 2
    shop.sql("UPDATE customers SET city = 1 WHERE id = 3", "UPDATE customers SET name = 'Ada' WHERE id = 7")
    shop.run()
    assert [one.id for one in shop.letters()] == ["7"]
    assert shop.status().indexes[0].dead_letters == 1
    # Another schema, another filling: whatever is rejected then is told then.
    shop.index("customers", SCHEMA, on_error='"skip"')
    shop.run()
    shop.run()
    assert shop.letters() == []
    shop.check()
