"""A runtime whose source has a table that stands still."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.capture.postgres import PostgresCapture, PostgresConfig
from tailrace.model.errors import SetupMissing
from tailrace.runtime.checkpoint import CheckpointStore
from tailrace.runtime.observer import Recorder
from tailrace.runtime.runtime import Runtime
from tests.support.postgres import Database, database, postgres
from tests.support.waiting import wait_until

__all__ = ["database", "postgres"]


def admin(source: Database, statement: str) -> None:
    with source.admin() as connection:
        connection.execute(statement.encode())


def taken(runtime: Runtime) -> list[tuple[str, str]]:
    delivery = runtime.poll(0.2)
    if delivery is None:
        return []
    rows = [
        (batch.table.ref.name, op)
        for batch in delivery.batches
        for op in batch.data.column("op").to_pylist()
        if op in "rcud"
    ]
    if delivery.complete:
        runtime.acknowledge(delivery.token)
    return rows


def test_a_runtime_goes_on_without_the_table_and_tells_of_it(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE others (id int PRIMARY KEY)")
    database.sql("INSERT INTO items VALUES (1)", "INSERT INTO others VALUES (1)")
    admin(database, "CREATE PUBLICATION tailrace FOR TABLE items WITH (publish_via_partition_root)")
    seen = Recorder()

    def begun() -> Runtime:
        capture = PostgresCapture(PostgresConfig.from_url(database.url(), {"watch_interval": 0.1}))
        store = CheckpointStore(str(tmp_path), "test")
        made = Runtime(capture, ["items", "others"], store=store, consumer="test", observer=seen)
        try:
            made.start()
        except BaseException:
            made.close()
            raise
        return made

    with pytest.raises(SetupMissing, match=r"public\.others"):
        begun()
    admin(database, "ALTER PUBLICATION tailrace ADD TABLE others")
    runtime = begun()
    rows: list[tuple[str, str]] = []
    wait_until(lambda: (rows.extend(taken(runtime)), len(rows) == 2)[1])  # type: ignore[func-returns-value]
    runtime.close()
    admin(database, "ALTER PUBLICATION tailrace DROP TABLE items")
    database.sql("INSERT INTO items VALUES (2)", "INSERT INTO others VALUES (2)")
    runtime, later = begun(), rows.copy()
    wait_until(lambda: (later.extend(taken(runtime)), len(later) > 2)[1])  # type: ignore[func-returns-value]
    assert later[2:] == [("others", "c")]
    assert seen.fields("source.notice")["table"] == "public.items"
    runtime.close()
