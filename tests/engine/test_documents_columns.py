"""Columns that become others while documents are kept: the log does not tell what their values became."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.model.errors import SchemaDrift
from tests.engine.documenting import FEW, NAMES, Documents, filling
from tests.support.postgres import (
    Server,
    postgres,  # noqa: F401 - a fixture
)
from tests.support.waiting import wait_until


@pytest.fixture
def shop(tmp_path: Path, postgres: Server) -> Iterator[Documents]:  # noqa: F811
    database = postgres.database()
    made = Documents(tmp_path, database)
    made.transaction(*filling(*FEW))
    database.publish(*NAMES)
    made.index("customers")
    yield made
    database.drop()


def test_a_retyped_column_stops_the_run_and_the_next_one_fills_the_index_again(shop: Documents) -> None:
    with shop.running() as error:
        shop.settles(error=error)
        shop.sql("ALTER TABLE items ALTER COLUMN qty TYPE integer USING qty + 100")
        shop.sql("UPDATE items SET qty = 7 WHERE id = 1")
        wait_until(error, timeout=60, what="the end of the run")
    found = error()
    assert isinstance(found, SchemaDrift)
    assert "items" in found.message
    assert "qty" in found.message
    assert found.remedy is not None
    assert "tailrace run" in found.remedy
    shop.run()
    assert ("customers", "its schema changed") in shop.fillings()
    shop.run()
    shop.check()


def test_a_column_that_is_dropped_and_added_again_has_the_index_filled_again(shop: Documents) -> None:
    with shop.running() as error:
        shop.settles(error=error)
        shop.sql(
            "ALTER TABLE cities DROP COLUMN title, ADD COLUMN title text DEFAULT 'somewhere'",
            "UPDATE cities SET title = 'Torino' WHERE id = 1",
        )
        shop.settles(error=error)
    assert [reason for _, reason in shop.fillings() if "cities" in reason]
