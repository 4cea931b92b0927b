"""PostgreSQL through Spark: snapshot and changes of one query, and the barrier between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.postgres import Database, database, postgres
from tests.support.replay import replay
from tests.support.sparks import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.spark


def test_a_postgres_table_streams_its_snapshot_and_its_changes(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    with database.connect() as source:
        source.execute("CREATE TABLE orders (id bigint PRIMARY KEY, city text, price numeric(10,2))")
        source.execute("INSERT INTO orders SELECT i, 'Oslo', i * 0.25 FROM generate_series(1, 300) i")
        database.publish("orders")
        query = Query(spark, tmp_path, database.socket_url(), chunkRows="100")
        assert [row["op"] for row in query.once()].count("r") == 300
        source.execute("UPDATE orders SET city = 'Bergen' WHERE id <= 10")
        source.execute("DELETE FROM orders WHERE id > 290")
        source.execute("UPDATE orders SET id = 1000 WHERE id = 5")
        query.once()
        expected = {
            f'{{"id":{i}}}': {"id": i, "city": city, "price": float(price)}
            for i, city, price in source.execute("SELECT * FROM orders")
        }
        assert replay(query.rows) == expected
        assert query.once() == []
