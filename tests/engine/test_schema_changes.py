"""Changed tables of a real PostgreSQL, through the engine into a feed and a Delta mirror."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.changelog.filesystem import open_filesystem
from tailrace.model.errors import SchemaDrift
from tailrace.runtime.history import FILE, read_history
from tests.engine.postgres import Shop
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]
TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text, n int)"
LONG = pytest.mark.long
ROWS = "INSERT INTO items SELECT i, 'old', i FROM generate_series(1, 3) i"


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Shop:
    return Shop(database, tmp_path, TABLE, ROWS)


def test_a_column_without_a_default_is_added_to_the_mirror(shop: Shop) -> None:
    shop.transaction(
        "UPDATE items SET name = 'before' WHERE id = 1",
        "INSERT INTO items VALUES (4, 'before', 4)",
        "ALTER TABLE items ADD COLUMN more text",
        "INSERT INTO items VALUES (5, 'after', 5, 'more')",
    )
    shop.run()
    assert shop.mirror() == shop.table()
    assert shop.fed() == [
        {"id": 1, "name": "before", "n": 1},
        {"id": 4, "name": "before", "n": 4},
        {"id": 5, "name": "after", "n": 5, "more": "more"},
    ]
    shop.sql("UPDATE items SET more = 'late' WHERE id = 2", "DELETE FROM items WHERE id = 3")
    shop.run()
    assert shop.mirror() == shop.table()
    (event,) = shop.events("schema.changed")
    assert event["added"] == ["more"]
    assert event["position"] > 0


@pytest.mark.parametrize(
    "default",
    [
        "DEFAULT 'x'",
        pytest.param("DEFAULT md5(random()::text)", marks=LONG),
        pytest.param("NOT NULL DEFAULT ''", marks=LONG),
    ],
)
def test_a_column_with_a_default_stops_until_a_snapshot_is_made(shop: Shop, default: str) -> None:
    shop.sql(f"ALTER TABLE items ADD COLUMN more text {default}", "INSERT INTO items VALUES (4, 'after', 4)")
    mirror = shop.mirror()
    for _ in range(2):
        with pytest.raises(SchemaDrift, match="more") as caught:
            shop.run()
        assert caught.value.remedy == "tailrace snapshot --table items, then run again"
        assert shop.mirror() == mirror
    shop.snapshot()
    shop.run()
    shop.run()
    assert shop.mirror() == shop.table()
    shop.sql("UPDATE items SET more = 'y' WHERE id = 1", "INSERT INTO items VALUES (5, 'more', 5)")
    shop.run()
    assert shop.mirror() == shop.table()


def test_a_dropped_column_stays_in_the_mirror_and_rows_that_are_new_have_null_in_it(shop: Shop) -> None:
    shop.transaction(
        "UPDATE items SET n = 10 WHERE id = 1",
        "ALTER TABLE items DROP COLUMN n",
        "UPDATE items SET name = 'new' WHERE id = 2",
        "INSERT INTO items VALUES (4, 'new')",
    )
    shop.run()
    kept = {1: 1, 2: 2, 3: 3}
    assert shop.mirror() == [{**row, "n": kept.get(row["id"])} for row in shop.table()]
    shop.sql("INSERT INTO items VALUES (5, 'newer')", "DELETE FROM items WHERE id = 1")
    shop.run()
    assert shop.mirror() == [{**row, "n": kept.get(row["id"])} for row in shop.table()]
    shop.sql("ALTER TABLE items ADD COLUMN other int", "INSERT INTO items VALUES (6, 'other', 6)")
    shop.run()
    assert shop.mirror() == [{**row, "n": kept.get(row["id"])} for row in shop.table()]
    shop.sql("ALTER TABLE items ADD COLUMN n int", "INSERT INTO items VALUES (7, 'again', 7, 7)")
    with pytest.raises(SchemaDrift, match="n of table"):
        shop.run()
    shop.snapshot()
    shop.run()
    shop.run()
    assert shop.mirror() == shop.table()


UNTOLD = [
    ("RENAME COLUMN n TO m", "added m; dropped n"),
    ("DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (n)", "another key"),
]
MORE = [
    ("ALTER n TYPE bigint", "n"),
    ("DROP COLUMN n, ADD COLUMN n int", "added again n"),
    ("ALTER n TYPE text", "n"),
    ("ALTER n TYPE numeric(10,2)", "n"),
    ("DROP COLUMN n, ADD COLUMN m int", "added m; dropped n"),
    ("DROP COLUMN name, ADD COLUMN name text", "added again name"),
]


@pytest.mark.parametrize(
    ("ddl", "told", "running"),
    [
        *((*case, False) for case in UNTOLD),
        *(pytest.param(*case, True, marks=LONG) for case in UNTOLD),
        *(pytest.param(*case, False, marks=LONG) for case in MORE),
    ],
)
def test_what_the_log_does_not_tell_the_outcome_of_stops_until_a_snapshot_is_made(
    shop: Shop, ddl: str, told: str, running: bool
) -> None:
    if running:
        shop.sql("INSERT INTO items VALUES (8, 'running', 8)")
        shop.run()
    shop.sql("UPDATE items SET name = 'before' WHERE id = 1", f"ALTER TABLE items {ddl}")
    insert = "INSERT INTO items (id, name) VALUES (9, 'after')"
    shop.sql("DELETE FROM items WHERE n = 3" if "KEY" in ddl else insert)
    with pytest.raises(SchemaDrift, match=told):
        shop.run()
    shop.snapshot()
    shop.run()
    shop.run()
    assert shop.mirror() == shop.table()
    shop.sql("DELETE FROM items WHERE id = 2", "UPDATE items SET name = 'end' WHERE id = 1")
    shop.run()
    assert shop.mirror() == shop.table()


def test_what_does_not_change_the_mirrors_columns_goes_on(shop: Shop) -> None:
    for ddl in ("ALTER name TYPE varchar(80)", "ALTER name SET DEFAULT 'x'", "ADD CHECK (n > 0)"):
        shop.sql(f"ALTER TABLE items {ddl}", "UPDATE items SET n = n + 1")
    shop.sql("INSERT INTO items VALUES (4, 'after', 4)", "VACUUM FULL items")
    shop.sql("UPDATE items SET name = 'rewritten'")
    shop.run()
    assert shop.mirror() == shop.table()
    assert shop.events("schema.changed") == []


def test_a_table_is_read_anew_by_itself_where_that_is_the_policy(database: Database, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, TABLE, ROWS, policy="snapshot")
    shop.sql("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (4, 'after', 4, 4)")
    shop.run()
    assert shop.mirror() == shop.table()
    assert shop.events("mirror.snapshot") == []
    shop.sql("ALTER TABLE items RENAME n TO m", "INSERT INTO items VALUES (5, 'after', 5, 5)")
    shop.run()
    shop.run()
    assert len(shop.events("mirror.snapshot")) == 1
    assert shop.mirror() == shop.table()


@LONG
def test_any_change_stops_where_that_is_the_policy(database: Database, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, TABLE, ROWS, policy="stop")
    shop.sql("INSERT INTO items VALUES (4, 'same', 4)")
    shop.run()
    shop.sql("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (5, 'after', 5, 5)")
    with pytest.raises(SchemaDrift, match="added more"):
        shop.run()
    shop.snapshot()
    shop.run()
    shop.run()
    assert shop.mirror() == shop.table()


@pytest.mark.parametrize(
    ("when", "captured"),
    [
        ("before", "lost"),
        pytest.param("before", "kept", marks=LONG),
        pytest.param("after", "lost", marks=LONG),
        pytest.param("after", "kept", marks=LONG),
    ],
)
def test_rows_before_and_after_a_change_survive_a_kill_though_the_catalog_moves_on(
    database: Database, tmp_path: Path, when: str, captured: str
) -> None:
    shop = Shop(
        database,
        tmp_path,
        "CREATE DOMAIN price AS numeric(8,2)",
        "CREATE TABLE items (id int PRIMARY KEY, name text, cost price)",
        "INSERT INTO items VALUES (1, 'old', 1.5), (2, 'old', 2.5)",
    )
    shop.transaction(
        "UPDATE items SET cost = 10.25 WHERE id = 1",
        "ALTER TABLE items ADD COLUMN more text",
        "INSERT INTO items VALUES (3, 'new', 3.5, 'more')",
    )
    expected = shop.table()
    shop.killed(when)
    if captured == "lost":
        # Everything is read from the slot once more.
        for segment in (tmp_path / "state" / "changelog").glob("*.seg"):
            segment.unlink()
    shop.sql("ALTER TABLE items DROP COLUMN cost", "DROP DOMAIN price")
    shop.run()
    assert shop.mirror() == expected
    assert shop.fed() == [
        {"id": 1, "name": "old", "cost": 10.25},
        {"id": 3, "name": "new", "cost": 3.5, "more": "more"},
    ]
    shop.sql("UPDATE items SET name = 'end'")
    shop.run()
    assert shop.mirror() == [{**row, "name": "end"} for row in expected]
    events = [(event["added"], event["dropped"]) for event in shop.events("schema.changed")]
    assert events == [(["more"], []), ([], ["cost"])]


@LONG
def test_the_history_of_schemas_stays_small(shop: Shop, tmp_path: Path) -> None:
    for number in range(3):
        shop.sql(f"ALTER TABLE items ADD COLUMN c{number} int", f"UPDATE items SET c{number} = 1")
        shop.run()
    shop.sql("UPDATE items SET n = 0")
    shop.run()
    fs, root = open_filesystem(str(tmp_path / "state" / "changelog"))
    source = json.loads((tmp_path / "state" / "changelog" / FILE).read_text())["body"]["source"]
    (entries,) = read_history(fs, f"{root}/{FILE}", source).values()
    assert len(entries) <= 2
    assert [column.name for column in entries[-1].schema.columns][-1] == "c2"
