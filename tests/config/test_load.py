"""What a right file means: defaults, paths, kinds of values, precedence."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from tailrace.app.backends import capture_for
from tailrace.capture.postgres import PostgresCapture
from tailrace.config import DeltaSink, HttpSink, StdoutSink, load_config
from tailrace.model.errors import ConfigError
from tests.config.conftest import MINIMAL, Load

FULL = """\
name = "orders-to-lake"
on_error = "skip"

[source]
type = "sqlite"
url = "sqlite:data/shop.db"
tables = ["orders", "items"]
consumer = "lake"
setup = "manual"
types = { "orders.price" = "string", items.weight = "decimal(10,2)" }

[state]
directory = "state"
ack = "changelog"
retention = "7d"
max_size = "512MB"

[batch]
max_rows = 1000
max_bytes = 4096

[spark]
master = "local[4]"
"spark.sql.shuffle.partitions" = 2
spark.ui.enabled = false

[sinks.lake]
type = "delta"
path = "lake"

[sinks.hook]
type = "http"
url = "https://example.org/changes"
headers = { Authorization = "Bearer abc" }
timeout = "500ms"
max_batch_bytes = "64KB"

[[table]]
name = "orders"
as = "orders_now"

[[feed]]
tables = ["items"]
snapshot = false
"""


def test_a_minimal_file_is_completed_by_defaults(load: Load, file: Path) -> None:
    config = load(MINIMAL)
    assert config.name == config.consumer == "shop"
    assert config.path == file
    assert config.directory == file.parent
    assert config.source.url == f"sqlite:{file.parent}/shop.db"
    assert config.state.directory == file.parent / ".tailrace"
    assert config.state.max_size == 4 * 1024**3
    assert (config.batch.max_rows, config.batch.max_bytes) == (200_000, 64 * 1024**2)
    assert config.spark.master == "local[2]"
    assert config.captured == ("*",)
    assert isinstance(config.sinks[config.feeds[0].sink], StdoutSink)


def test_settings_of_the_kind_of_source_reach_it(load: Load) -> None:
    config = load(
        '[source]\nurl = "postgresql://tailrace@db/shop"\ntables = ["orders"]\non_data_loss = "snapshot"\n'
        '[source.options]\npublication = "shop"\nwal_budget = 1000000\n[[feed]]\ntables = ["orders"]\n'
    )
    assert config.source.on_data_loss == "snapshot"
    assert config.source.options == {"publication": "shop", "wal_budget": 1_000_000}
    capture = capture_for(config.source.url, options=config.source.options)
    assert isinstance(capture, PostgresCapture)
    assert capture._config.publication == "shop"
    assert capture._config.wal_budget == 1_000_000
    capture.close()
    with pytest.raises(ConfigError, match="publicaton"):
        capture_for(config.source.url, options={"publicaton": "shop"})


def test_every_key_of_a_full_file_arrives(load: Load, file: Path) -> None:
    config = load(FULL)
    assert (config.name, config.on_error, config.consumer) == ("orders-to-lake", "skip", "lake")
    assert config.source.url == f"sqlite:{file.parent}/data/shop.db"
    assert config.source.types == {"orders.price": "string", "items.weight": "decimal(10,2)"}
    assert (config.source.setup, config.captured) == ("manual", ("orders", "items"))
    assert config.state.directory == file.parent / "state"
    assert (config.state.ack, config.state.retention) == ("changelog", 7 * 86400)
    assert (config.state.max_size, config.batch.max_bytes) == (512 * 1024**2, 4096)
    assert config.spark.settings == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    lake, hook = config.sinks["lake"], config.sinks["hook"]
    assert isinstance(lake, DeltaSink)
    assert lake.path == str(file.parent / "lake")
    assert isinstance(hook, HttpSink)
    assert (hook.timeout, hook.max_batch_bytes) == (0.5, 65536)
    assert hook.headers["Authorization"].reveal() == "Bearer abc"
    assert (config.tables[0].sink, config.tables[0].target) == ("lake", "orders_now")
    assert (config.feeds[0].sink, config.feeds[0].snapshot) == ("hook", False)


def test_what_is_captured_is_what_feeds_and_tables_name(load: Load) -> None:
    text = '[source]\nurl = "sqlite:a.db"\n[sinks.lake]\ntype = "delta"\npath = "x"\n'
    text += '[[table]]\nname = "a"\n[[table]]\nname = "main.b"\n[[feed]]\ntables = ["a", "c"]\n'
    config = load(text)
    assert config.captured == ("a", "main.b", "c")


def test_absolute_paths_and_uris_stay_as_they_are(load: Load) -> None:
    text = '[source]\nurl = "sqlite:///data/a.db"\n[state]\ndirectory = "/var/lib/x"\n'
    text += '[sinks.lake]\ntype = "delta"\npath = "s3://bucket/lake"\n[[table]]\nname = "*"\n'
    config = load(text)
    assert config.source.url == "sqlite:/data/a.db"
    assert config.state.directory == Path("/var/lib/x")
    assert config.sinks["lake"].model_dump() == {"type": "delta", "path": "s3://bucket/lake"}


def test_a_directory_with_special_characters_survives_in_the_url(tmp_path: Path) -> None:
    place = tmp_path / "a b%20?#"
    place.mkdir()
    (place / "tailrace.toml").write_text(MINIMAL)
    url = load_config(place / "tailrace.toml", environ={}).source.url
    assert url == f"sqlite:{tmp_path}/a%20b%2520%3F%23/shop.db"


def test_a_file_of_another_name_names_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "my shop.toml").write_text(MINIMAL)
    assert load_config(tmp_path / "my shop.toml", environ={}).name == "my-shop"


def test_a_byte_order_mark_does_no_harm(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_config(file, environ={}).name == "shop"


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(load: Load) -> None:
    variables = {"TAILRACE_BATCH__MAX_ROWS": "7", "TAILRACE_STATE__ACK": "changelog"}
    config = load(FULL, variables, batch__max_rows="9")
    assert (config.batch.max_rows, config.state.ack, config.name) == (9, "changelog", "orders-to-lake")


def test_variables_reach_names_entries_and_arrays(load: Load) -> None:
    variables = {
        "TAILRACE_NAME": "other",
        "TAILRACE_SINKS__LAKE__PATH": "elsewhere",
        "TAILRACE_TABLE__0__AS": "t",
        "TAILRACE_FEED__0__TABLES": "items, orders",
        "TAILRACE_SOURCE__TABLES": '["orders", "items"]',
        "TAILRACE_SINKS__HOOK__HEADERS__AUTHORIZATION": "token",
        "TAILRACE_SPARK__SPARK__SQL__SHUFFLE__PARTITIONS": "8",
        "TAILRACE_LOG": "not a key, and none of ours",
    }
    config = load(FULL, variables)
    assert (config.name, config.tables[0].target) == ("other", "t")
    assert (config.feeds[0].tables, config.source.tables) == (("items", "orders"), ("orders", "items"))
    hook = config.sinks["hook"]
    assert isinstance(hook, HttpSink)
    assert {name: value.reveal() for name, value in hook.headers.items()} == {"Authorization": "token"}
    assert config.spark.settings["spark.sql.shuffle.partitions"] == "8"


def test_a_flag_keeps_the_case_of_a_setting(load: Load) -> None:
    config = load(MINIMAL, spark__spark__sql__autoBroadcastJoinThreshold="-1")
    assert config.spark.settings == {"spark.sql.autoBroadcastJoinThreshold": "-1"}


def test_an_overridden_reference_need_not_resolve(load: Load) -> None:
    text = MINIMAL.replace("shop.db", "${DB}")
    config = load(text, source__url="sqlite:/x.db")
    assert config.source.url == "sqlite:/x.db"
    assert config.reference("source", "url") is None


def test_a_variable_the_file_refers_to_is_no_override(load: Load) -> None:
    text = MINIMAL.replace("shop.db", "${TAILRACE_MY__DB}")
    assert load(text, {"TAILRACE_MY__DB": "/x.db"}).source.url == "sqlite:/x.db"


def test_a_configuration_cannot_be_changed(load: Load) -> None:
    config = load(MINIMAL)
    with pytest.raises(ValidationError):
        config.name = "other"


def test_a_pickled_configuration_carries_no_header(load: Load) -> None:
    assert b"Bearer abc" not in pickle.dumps(load(FULL))
