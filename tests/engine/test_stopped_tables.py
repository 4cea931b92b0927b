"""A pipeline one of whose tables cannot go on: what is refused, what goes on, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace import app
from tailrace.config import Config, load_config
from tailrace.engine.pipeline import _notices
from tailrace.model.errors import ConfigError, SetupMissing
from tailrace.spark.offsets import Cursor, Offset
from tests.support.postgres import PASSWORD, Database, database, postgres

__all__ = ["database", "postgres"]

FILE = """
[source]
url = "postgresql://tailrace@127.0.0.1:{port}/{name}"
[sinks.lake]
type = "delta"
path = "lake"
[[table]]
name = "items"
[[table]]
name = "others"
"""


@pytest.fixture
def config(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A pipeline whose Spark has logged a batch with both tables."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    database.sql("CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE others (id int PRIMARY KEY)")
    with database.admin() as admin:
        admin.execute("CREATE PUBLICATION tailrace FOR TABLE items, others WITH (publish_via_partition_root)")
    path = tmp_path / "tailrace.toml"
    path.write_text(FILE.format(port=database.server.port, name=database.name))
    loaded = load_config(path)
    with app.opened(loaded) as capture:
        cursors = {
            str(ref): Cursor("p", 1, 1, generation) for ref, (generation, _) in capture.generations().items()
        }
        offset = Offset(capture.register(loaded.consumer), cursors)
    for kind, text in (("offsets", f"v1\n{{}}\n{json.dumps(offset.to_json())}"), ("commits", "v1\n{}")):
        directory = Path(app.parts.checkpoint_of(loaded)) / kind
        directory.mkdir(parents=True)
        (directory / "0").write_text(text)
    return loaded


def admin(source: Database, statement: str) -> None:
    with source.admin() as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("happens", ["ALTER PUBLICATION tailrace DROP TABLE items", "DROP TABLE items"])
def test_a_pipeline_starts_without_a_table_that_stands_still_and_tells_of_it(
    database: Database, config: Config, happens: str
) -> None:
    assert not [finding for finding in app.check(config) if finding.severity == "error"]
    admin(database, happens)
    assert {f.table for f in app.check(config) if f.severity == "error"} == {"public.items"}
    spec = app.pipeline_spec(config)
    assert json.loads(spec.options["tables"]) == ["public.items", "public.others"]
    told = {table.table: table.problem for table in app.status(config).tables}
    assert told["public.others"] is None
    assert "stopped" in str(told["public.items"])


def test_a_pipeline_without_a_table_that_goes_on_is_refused(database: Database, config: Config) -> None:
    admin(database, "DROP PUBLICATION tailrace")
    with pytest.raises((SetupMissing, ConfigError)):
        app.pipeline_spec(config)


def test_a_table_that_was_published_again_is_told_until_it_is_read(
    database: Database, config: Config
) -> None:
    admin(database, "ALTER PUBLICATION tailrace DROP TABLE items")
    admin(database, "ALTER PUBLICATION tailrace ADD TABLE items")
    told = {table.table: table.problem for table in app.status(config).tables}
    assert "began anew" in str(told["public.items"])


def test_notices_are_found_in_the_sources_part_of_sparks_progress() -> None:
    notice = {"severity": "error", "code": "c", "message": "m", "table": "t", "remedy": "r"}
    (found,) = _notices(json.dumps({"notices": [notice]})) or []
    assert (found.code, found.table, found.remedy) == ("c", "t", "r")
    assert _notices({"notices": []}) == []
    assert _notices(None) is None
    assert _notices("12") is None
