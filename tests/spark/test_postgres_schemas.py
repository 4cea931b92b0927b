"""A changed PostgreSQL table through Spark: each row by its own columns, typed views in the query's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.postgres import Database, database, postgres
from tests.support.sparks import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database", "postgres"]
pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_rows_of_several_schemas_are_read_in_one_query(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE orders (id int PRIMARY KEY, n int)")
    envelopes = Query(spark, tmp_path / "envelope", database.superuser_url())
    typed = Query(spark, tmp_path / "table", database.superuser_url(), view="table")
    for query in (envelopes, typed):
        query.once()
    database.sql("INSERT INTO orders VALUES (1, 10)", "ALTER TABLE orders ADD COLUMN note text")
    database.sql("INSERT INTO orders VALUES (2, 20, 'x')", "ALTER TABLE orders ALTER n TYPE text")
    database.sql("INSERT INTO orders VALUES (3, '30', 'y')", "ALTER TABLE orders DROP COLUMN note")
    database.sql("INSERT INTO orders VALUES (4, '40')")
    assert [json.loads(row["after"]) for row in envelopes.once() if row["op"] == "c"] == [
        {"id": 1, "n": 10},
        {"id": 2, "n": 20, "note": "x"},
        {"id": 3, "n": "30", "note": "y"},
        {"id": 4, "n": "40"},
    ]
    rows = [(row["id"], row["n"]) for row in typed.once() if row["_change_type"] == "insert"]
    assert rows == [(1, "10"), (2, "20"), (3, "30"), (4, "40")]
    database.sql("ALTER TABLE orders ADD COLUMN more int", "INSERT INTO orders VALUES (5, '50', 5)")
    assert [(row["id"], row["n"], row["more"], row["_absent"]) for row in typed.once()] == [
        (5, "50", 5, None)
    ]
