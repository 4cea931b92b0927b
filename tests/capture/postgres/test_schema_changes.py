"""Changed tables: rows, keys and types as of their own position, also where the catalog has moved on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import Transient
from tailrace.model.table import TableSchema
from tailrace.runtime.feed import Feed
from tailrace.runtime.history import SchemaHistory
from tailrace.runtime.observer import Recorder
from tests.capture.postgres.streaming import CONSUMER, Source, seen
from tests.support.postgres import Database
from tests.support.waiting import wait_until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def schemas(source: Source) -> list[TableSchema]:
    """The schema of each batch, in order."""
    return [batch.table for part in source.parts() for batch in part.batches]


def keys(source: Source) -> list[tuple[str, ...]]:
    return [table.key for table in schemas(source)]


class Reader:
    """A consumer of the log with a schema history, that can be begun again."""

    def __init__(self, source: Source, directory: Path) -> None:
        self.source = source
        self.path = str(directory / "schemas.json")
        self.observer = Recorder()
        self.read()

    def history(self) -> SchemaHistory:
        return SchemaHistory(
            pafs.LocalFileSystem(), self.path, self.source.start.source, observer=self.observer
        )

    def read(self, start: int | None = None) -> list[ChangeBatch]:
        """Everything from `start` to the log's end, by a capture and a history that were just opened."""
        begin = self.source.start if start is None else self.source.start.at(start)
        capture, end = self.source.open(), self.source.head()
        feed = Feed(
            capture, self.source.refs, consumer=CONSUMER, start=begin, wait=0.2, history=self.history()
        )
        batches: list[ChangeBatch] = []

        def done() -> bool:
            part = feed.take()
            if part is not None:
                batches.extend(part.batches)
            return feed.position >= end

        wait_until(done, timeout=30)
        feed.close()
        capture.close()
        return batches

    def entries(self) -> list[tuple[int, list[str]]]:
        ref = self.source.ref("items")
        found = self.history().entries.get(ref, ())
        return [(entry.position, [column.name for column in entry.schema.columns]) for entry in found]


def test_a_key_that_was_another_one_is_the_key_of_its_time(database: Database) -> None:
    source = Source(database, "CREATE TABLE items (a int PRIMARY KEY, b int NOT NULL, c int NOT NULL)")
    source.sql(
        "INSERT INTO items VALUES (1, 2, 3)",
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (c, b)",
        "INSERT INTO items VALUES (4, 5, 6)",
        "ALTER TABLE items DROP CONSTRAINT items_pkey",
        "INSERT INTO items VALUES (7, 8, 9)",
        "ALTER TABLE items ADD PRIMARY KEY (b)",
        "DELETE FROM items WHERE b = 8",
    )
    # The log says which columns; their order in a key that is gone is nobody's to know.
    assert keys(source) == [("a",), ("b", "c"), (), ("b",)]
    assert seen(b for part in source.parts() for b in part.batches)[-1].before == {"b": 8}


def test_the_order_of_a_key_is_remembered_when_the_catalog_has_another_one(
    database: Database, tmp_path: Path
) -> None:
    source = Source(database, "CREATE TABLE items (a int, b int, c int NOT NULL, PRIMARY KEY (b, a))")
    reader = Reader(source, tmp_path)
    source.sql("INSERT INTO items VALUES (1, 2, 3)")
    assert [batch.table.key for batch in reader.read()] == [("b", "a")]
    source.sql("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (c)")
    assert [batch.table.key for batch in reader.read()] == [("b", "a")]


@pytest.mark.parametrize("identity", ["FULL", "USING INDEX items_b_key"])
def test_a_primary_key_that_the_log_does_not_tell_follows_the_catalog(
    database: Database, identity: str
) -> None:
    source = Source(
        database,
        "CREATE TABLE items (a int PRIMARY KEY, b int NOT NULL UNIQUE, c int NOT NULL)",
        f"ALTER TABLE items REPLICA IDENTITY {identity}",
    )
    capture = source.open()
    live = capture.live(source.start, source.refs, consumer=CONSUMER, wait=0.1)
    found: list[tuple[str, ...]] = []

    def seen_keys() -> list[tuple[str, ...]]:
        part = next(live)
        found.extend(batch.table.key for batch in part.batches) if part else None
        return found

    source.sql("INSERT INTO items VALUES (1, 2, 3)")
    wait_until(lambda: seen_keys() == [("a",)])
    # The columns and the identity are the same: only that the table is described again tells of it.
    source.sql("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (c)")
    source.sql("INSERT INTO items VALUES (4, 5, 6)")
    wait_until(lambda: seen_keys() == [("a",), ("c",)])
    capture.close()


def test_a_type_that_is_gone_is_decoded_as_it_was(database: Database, tmp_path: Path) -> None:
    source = Source(
        database, "CREATE DOMAIN price AS numeric(8,2)", "CREATE TABLE items (id int PRIMARY KEY, cost price)"
    )
    reader = Reader(source, tmp_path)
    source.sql("INSERT INTO items VALUES (1, 1.5)")
    before = reader.read()
    source.sql("ALTER TABLE items DROP COLUMN cost", "DROP DOMAIN price", "INSERT INTO items VALUES (2)")
    again = reader.read()
    assert [batch.table for batch in again[:1]] == [batch.table for batch in before]
    assert [column.type.name for column in again[0].table.columns] == ["integer", "decimal(8,2)"]
    assert [change.after for change in seen(again)] == [change.after for change in seen(before)] + [{"id": 2}]


def test_an_entry_that_could_not_be_written_is_written_before_its_rows_are_used(
    database: Database, tmp_path: Path
) -> None:
    source = Source(database, ITEMS)
    reader = Reader(source, tmp_path)
    faults = [Transient("the disk is full")]

    def check() -> None:
        if faults:
            raise faults.pop()

    source.sql("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (1)")
    history = SchemaHistory(pafs.LocalFileSystem(), reader.path, source.start.source, check=check)
    capture = source.open()
    feed = Feed(capture, source.refs, consumer=CONSUMER, start=source.start, wait=0.2, history=history)
    with pytest.raises(Transient, match="full"):
        wait_until(feed.take)
    assert len(reader.entries()) == 1
    wait_until(lambda: (part := feed.take()) and part.rows)
    assert len(reader.entries()) == 2
    feed.close()
    capture.close()


def test_every_kind_of_change_is_an_entry_and_an_event_with_its_position(
    database: Database, tmp_path: Path
) -> None:
    source = Source(database, ITEMS)
    reader = Reader(source, tmp_path)
    source.sql("INSERT INTO items VALUES (1, '1')")
    source.transaction(
        "INSERT INTO items VALUES (2, '2')",
        "ALTER TABLE items ADD COLUMN more int",
        "INSERT INTO items VALUES (3, '3', 3)",
    )
    source.sql(
        "ALTER TABLE items RENAME name TO label",
        "INSERT INTO items VALUES (4, '4', 4)",
        "ALTER TABLE items ALTER label TYPE int USING id + 10",
        "INSERT INTO items VALUES (5, 5, 5)",
        "ALTER TABLE items DROP more, DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (label)",
        "INSERT INTO items VALUES (6, 6)",
    )
    batches = reader.read()
    events = [fields for name, fields in reader.observer.events if name == "schema.changed"]
    nothing: dict[str, Any] = {"added": [], "dropped": [], "retyped": [], "again": [], "key": None}
    positions = [change.position for change in seen(batches)]
    assert positions[1] == positions[2]
    assert events == [
        {"table": "public.items", "position": positions[2], **nothing, "added": ["more"]},
        {
            "table": "public.items",
            "position": positions[3],
            **nothing,
            "added": ["label"],
            "dropped": ["name"],
        },
        {"table": "public.items", "position": positions[4], **nothing, "retyped": ["label"]},
        {"table": "public.items", "position": positions[5], **nothing, "dropped": ["more"], "key": ["label"]},
    ]
    entries = reader.entries()
    assert entries[1:] == [
        (positions[2], ["id", "name", "more"]),
        (positions[3], ["id", "label", "more"]),
        (positions[4], ["id", "label", "more"]),
        (positions[5], ["id", "label"]),
    ]
    # The log is read again, from the start and from within: the same rows, and nothing is noted twice.
    for start in (source.start.version, *positions):
        again = seen(reader.read(start))
        assert again == [change for change in seen(batches) if change.position > start]
        assert reader.entries() == entries
    assert reader.observer.count("schema.changed") == 4


def test_a_table_that_is_described_again_as_it_was_is_no_event(database: Database, tmp_path: Path) -> None:
    source = Source(database, ITEMS)
    reader = Reader(source, tmp_path)
    source.sql("INSERT INTO items VALUES (1)", "ALTER TABLE items ALTER name SET DEFAULT 'x'")
    source.sql("ANALYZE items", "INSERT INTO items VALUES (2)", "VACUUM FULL items")
    source.sql("INSERT INTO items VALUES (3)")
    assert len(seen(reader.read())) == 3
    assert len(reader.entries()) == 1
    assert reader.observer.count("schema.changed") == 0


def test_entries_that_nothing_needs_any_more_are_forgotten(database: Database, tmp_path: Path) -> None:
    source = Source(database, ITEMS)
    reader = Reader(source, tmp_path)
    for number in range(4):
        source.sql(f"ALTER TABLE items ADD COLUMN c{number} int", f"INSERT INTO items VALUES ({number})")
    positions = [change.position for change in seen(reader.read())]
    assert len(reader.entries()) == 5
    history = reader.history()
    history.prune(positions[1] - 1)
    assert [position for position, _ in reader.entries()] == positions
    history.prune(positions[2])
    assert [position for position, _ in reader.entries()] == positions[2:]
    # What was kept is enough for the log from there on.
    again = reader.read(positions[2])
    assert [change.position for change in seen(again)] == positions[3:]
    assert [position for position, _ in reader.entries()] == positions[2:]
    history = reader.history()
    history.prune(positions[3] + 1000)
    assert [position for position, _ in reader.entries()] == positions[3:]


@pytest.mark.parametrize(
    ("ddl", "filled"),
    [
        ("ADD COLUMN more int", False),
        ("ADD COLUMN more int DEFAULT 7", True),
        ("ADD COLUMN more int DEFAULT 7, ALTER more DROP DEFAULT", True),
        ("ADD COLUMN more double precision DEFAULT random()", True),
        ("ADD COLUMN more int GENERATED BY DEFAULT AS IDENTITY", True),
        ("ADD COLUMN more seven", True),
    ],
)
def test_a_column_says_whether_older_rows_got_a_value_without_a_change(
    database: Database, ddl: str, filled: bool
) -> None:
    source = Source(database, "CREATE DOMAIN seven AS int DEFAULT 7", ITEMS)
    for statement in ddl.split(", "):
        source.sql(f"ALTER TABLE items {statement}")
    source.sql("INSERT INTO items VALUES (1)")
    assert [table.column("more").filled for table in schemas(source)] == [filled]


def test_a_change_that_is_rolled_back_to_a_savepoint_leaves_no_trace_in_a_streamed_transaction(
    database: Database,
) -> None:
    source = Source(database, ITEMS)
    with database.admin() as connection:
        connection.execute("ALTER ROLE tailrace SET logical_decoding_work_mem = '64kB'")
    try:
        fill = "INSERT INTO items (id, name) SELECT i, repeat('x', 50) FROM generate_series({}, {}) i"
        source.transaction(
            fill.format(1, 3000),
            "SAVEPOINT one",
            "ALTER TABLE items ADD COLUMN more int",
            fill.format(3001, 6000),
            "ROLLBACK TO one",
            fill.format(3001, 6000),
            "ALTER TABLE items DROP COLUMN name",
            "INSERT INTO items SELECT i FROM generate_series(6001, 9000) i",
        )
        changes = source.changes()
    finally:
        with database.admin() as connection:
            connection.execute("ALTER ROLE tailrace RESET logical_decoding_work_mem")
    assert [change.after["id"] for change in changes if change.after] == list(range(1, 9001))
    assert all(
        set(change.after or ()) == ({"id", "name"} if number < 6000 else {"id"})
        for number, change in enumerate(changes)
    )
