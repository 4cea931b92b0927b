"""A configured pipeline over its life: mended types, added tables, another source, another pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tailrace import app
from tailrace.app.belonging import claim
from tailrace.app.parts import captured_tables
from tailrace.changelog.filesystem import open_filesystem
from tailrace.config import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.model.errors import ConfigError, DataError, IdentityMismatch
from tailrace.model.table import TableRef
from tailrace.spark.plans import Plan, PlanStore
from tests.support.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE = """
[source]
url = "sqlite:shop.db"
{types}
[sinks.lake]
type = "delta"
path = "lake"
"""


class Configured:
    """A tailrace.toml beside a shop, and runs of it."""

    def __init__(self, directory: Path, spark: SparkSession | None = None) -> None:
        self.directory = directory
        self.shop = Shop(directory)
        self._spark = spark

    def write(self, *tables: str, types: str = "", name: str = "tailrace.toml") -> Path:
        path = self.directory / name
        path.write_text(BASE.format(types=types) + "".join(f'[[table]]\nname = "{t}"\n' for t in tables))
        return path

    def run(self, path: Path) -> None:
        assert self._spark is not None
        config = load_config(path)
        spec = app.pipeline_spec(config)
        with app.opened(config) as capture:
            claim(config, captured_tables(config, capture))
        Pipeline(spec, self._spark, release=app.release(config)).run(once=True)

    def mirrored(self, table: str) -> list[tuple[object, ...]]:
        rows = DeltaTable(str(self.directory / "lake" / table)).to_pyarrow_table().to_pylist()
        return sorted(tuple(row.values()) for row in rows)


def test_a_run_goes_on_after_a_loss_where_it_is_told_to(tmp_path: Path) -> None:
    configured = Configured(tmp_path)
    config = load_config(configured.write("orders"))
    assert "failOnDataLoss" not in app.pipeline_spec(config).options
    assert app.pipeline_spec(config, on_data_loss="snapshot").options["failOnDataLoss"] == "false"


@pytest.mark.spark
def test_the_printed_remedies_work_from_mended_types_to_a_source_set_up_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    here = Configured(tmp_path, spark)
    here.shop.run("INSERT INTO orders VALUES (1, 'Oslo', 'abc')", "CREATE TABLE tags (name TEXT PRIMARY KEY)")
    with pytest.raises(DataError) as caught:
        here.run(here.write("orders"))
    assert caught.value.remedy == 'types = { "orders.price" = "string" } in [source]'

    # The batch that failed comes again as it was; the fresh snapshot that the new type asks for replaces it.
    here.run(here.write("orders", types='types = { "orders.price" = "string" }'))
    assert here.mirrored("orders") == [(1, "Oslo", "abc")]

    # A table that is added later is set up by the run, as `setup = "auto"` says.
    here.shop.run("INSERT INTO tags VALUES ('new')")
    both = here.write("orders", "tags", types='types = { "orders.price" = "string" }')
    assert [f.severity for f in app.check(load_config(both)) if f.code == "not_set_up"] == ["info"]
    here.run(both)
    assert here.mirrored("tags") == [("new",)]

    # Everything torn down and set up again is another source, which is told before Spark is asked.
    config = load_config(both)
    app.teardown(config)
    app.setup(config)
    assert [finding.code for finding in app.check(config)] == ["other_source"]
    with pytest.raises(IdentityMismatch) as other:
        app.pipeline_spec(config)
    assert str(tmp_path / ".tailrace") in str(other.value.remedy)


def test_a_state_directory_belongs_to_one_pipeline(tmp_path: Path) -> None:
    here = Configured(tmp_path)
    first, second = load_config(here.write("orders")), load_config(here.write("orders", name="other.toml"))
    with app.opened(first) as capture:
        assert claim(first, captured_tables(first, capture)) == []
        assert claim(first, captured_tables(first, capture)) == []
    assert [finding.code for finding in app.check(first)] == ["not_set_up"]
    assert [finding.code for finding in app.check(second)] == ["state_of_another"]
    with pytest.raises(ConfigError, match="belongs to the pipeline") as caught:
        app.pipeline_spec(second)
    assert 'directory = ".tailrace-other"' in str(caught.value.remedy)


def test_changed_types_ask_for_a_fresh_snapshot_of_just_that_table(tmp_path: Path) -> None:
    here = Configured(tmp_path)
    here.shop.run("CREATE TABLE tags (name TEXT PRIMARY KEY)")
    path = here.write("orders", "tags")
    for types, fresh in (("", []), ('types = { "orders.price" = "string" }', ["orders"]), ("", ["orders"])):
        config = load_config(here.write("orders", "tags", types=types))
        with app.opened(config) as capture:
            assert [ref.name for ref in claim(config, captured_tables(config, capture))] == fresh
    assert app.control(load_config(path)).waiting() == ["orders"]


def test_changed_types_are_not_left_to_a_snapshot_that_has_begun_with_the_former_ones(tmp_path: Path) -> None:
    here = Configured(tmp_path)
    orders, plans = TableRef("main", "orders"), PlanStore(*open_filesystem(str(tmp_path / ".tailrace")))
    begun = ""
    for types in ("", 'types = { "orders.price" = "string" }'):
        config = load_config(here.write("orders", types=types))
        with app.opened(config) as capture:
            claim(config, captured_tables(config, capture))
            if not begun:
                begun = plans.request(orders)
                plans.save(Plan(begun, capture.describe(orders), ()))
    assert len(plans.requests().keys() - {begun}) == 1
