"""A replica identity that lacks the primary key: refused for mirrors, on a real PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace import app
from tailrace.config import Config, load_config
from tailrace.model.errors import DataError, NeedsOperator
from tests.engine.postgres import Shop
from tests.support.postgres import PASSWORD, Database, database, postgres

__all__ = ["database", "postgres"]
TABLE = "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL)"
ROWS = "INSERT INTO items SELECT i, i FROM generate_series(1, 3) i"
OTHER = (
    "CREATE UNIQUE INDEX other ON items (n) INCLUDE (id)",
    "ALTER TABLE items REPLICA IDENTITY USING INDEX other",
)
PARTITIONED = (
    "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF items FOR VALUES FROM (10) TO (20)",
    "CREATE UNIQUE INDEX other ON high (n)",
    "ALTER TABLE high REPLICA IDENTITY USING INDEX other",
)
WIDER = (
    TABLE,
    "CREATE UNIQUE INDEX wider ON items (n, id)",
    "ALTER TABLE items REPLICA IDENTITY USING INDEX wider",
)
SOURCE = '[source]\nurl = "postgresql://tailrace@127.0.0.1:{port}/{name}"\nsetup = "manual"\n'
MIRROR = '[sinks.lake]\ntype = "delta"\npath = "lake"\n[[table]]\nname = "items"\n'
FEED = '[sinks.out]\ntype = "stdout"\n[[feed]]\ntables = ["items"]\nsink = "out"\n'


def config_of(database: Database, directory: Path, sinks: str) -> Config:
    path = directory / "tailrace.toml"
    path.write_text(SOURCE.format(port=database.server.port, name=database.name) + sinks)
    return load_config(path)


def publish(database: Database) -> None:
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items WITH (publish_via_partition_root)")


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("ddl", [(TABLE, *OTHER), PARTITIONED], ids=["table", "partition"])
def test_a_mirror_is_refused_before_anything_begins_and_a_feed_is_not(
    database: Database, tmp_path: Path, ddl: tuple[str, ...]
) -> None:
    database.sql(*ddl)
    publish(database)
    mirror = config_of(database, tmp_path, MIRROR)
    with pytest.raises(NeedsOperator, match="primary key") as refused:
        app.setup(mirror)
    table = "high" if ddl is PARTITIONED else "items"
    assert refused.value.remedy == f'ALTER TABLE "public"."{table}" REPLICA IDENTITY DEFAULT'
    with pytest.raises(NeedsOperator, match="primary key"):
        app.pipeline_spec(mirror)
    (told,) = [finding for finding in app.check(mirror) if finding.severity == "error"]
    assert "REPLICA IDENTITY" in str(told.remedy)
    feed = config_of(database, tmp_path, FEED)
    assert not [finding for finding in app.check(feed) if finding.severity == "error"]
    app.pipeline_spec(feed)


def test_an_identity_with_the_key_in_it_may_be_mirrored(database: Database, tmp_path: Path) -> None:
    database.sql(*WIDER)
    publish(database)
    mirror = config_of(database, tmp_path, MIRROR)
    assert not [finding for finding in app.check(mirror) if finding.severity == "error"]
    app.pipeline_spec(mirror)


def test_an_identity_that_loses_the_key_while_changes_come_stops_the_mirror_with_the_remedy(
    database: Database, tmp_path: Path
) -> None:
    shop = Shop(database, tmp_path, TABLE, ROWS)
    shop.sql(*OTHER, "INSERT INTO items VALUES (4, 4)")
    shop.run()
    assert shop.mirror() == shop.table(), "a row that is new needs no key of before"
    shop.sql("UPDATE items SET id = 100 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(DataError, match="key") as stopped:
            shop.run()
        assert "REPLICA IDENTITY DEFAULT" in str(stopped.value.remedy)
    assert len(shop.mirror()) == 4
    shop.sql("ALTER TABLE items REPLICA IDENTITY DEFAULT", "DELETE FROM items WHERE id = 2")
    shop.snapshot()
    shop.run()
    shop.sql("UPDATE items SET id = 101 WHERE id = 100")
    shop.run()
    assert shop.mirror() == shop.table()
    assert [json.loads(line)["op"] for line in shop.feed.text].count("u") >= 2, "the feed has them all"
