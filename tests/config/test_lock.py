"""The lock file: it means what its files mean, holds no secret, and is trusted as a whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.config import Config, build_lock, inputs_of, load_config, load_lock, read_lock, reload
from tailrace.model.errors import ConfigError
from tests.config.conftest import MINIMAL
from tests.config.test_indexes import CITIES, CUSTOMERS, HOOK, INDEX, LAKE, OTHER, OUT, SOURCE, STORE
from tests.config.test_load import FULL

EXAMPLES = Path(__file__).parent / "index" / "examples"
REFERENCES = (
    '[source]\nurl = "postgresql://tailrace:${PASSWORD}@${HOST}/shop"\n'
    'options = { publication = { env = "PUB" } }\n'
    '[sinks.hook]\ntype = "http"\nurl = { env = "HOOK" }\n'
    'headers = { Authorization = "Bearer ${TOKEN}", Literal = { env = "TOKEN" } }\n'
    '[spark]\n"spark.hadoop.fs.s3a.secret.key" = "${KEY}"\n[[feed]]\ntables = ["a", "${TABLE}"]\n'
)
ENVIRON = {
    "PASSWORD": "hunter2",
    "HOST": "db.internal",
    "PUB": "shop",
    "HOOK": "https://u:hunter2@example.org/x",
    "TOKEN": "hunter2",
    "KEY": "hunter2",
    "TABLE": "orders",
    "WHICH": "cities",
}
FILES = {
    "minimal": MINIMAL,
    "full": FULL.replace('"Bearer abc"', '"${TOKEN}"'),
    "references": REFERENCES,
    "one index": SOURCE + STORE + INDEX,
    "sinks in their order": SOURCE + STORE.replace("store", "z") + OUT + STORE.replace("store", "a") + INDEX,
    "several": 'prefix = "x-"\non_error = "skip"\nname = "n"\n'
    + SOURCE
    + LAKE
    + HOOK
    + INDEX
    + OTHER
    + 'on_error = "stop"\nenabled = false\n[[index]]\nname = "again"\nschema = "./cities.schema.yml"\n'
    + '[[table]]\nname = "x"\n',
    "everything": SOURCE + '[[index]]\nname = "all"\nschema = "deep/everything.schema.yml"\n',
    "schema by reference": SOURCE + INDEX.replace("customers.schema", "${WHICH}.schema"),
    "escapes": SOURCE
    + 'types = { "a.b" = "string" }\n[spark]\nspark.x = "$${NOT}"\nspark.y.z = 1.5\nspark.y.on = true\n'
    + "[[feed]]\n",
}


@pytest.fixture
def place(file: Path) -> Path:
    """The directory of a configuration, with schemas in it."""
    (file.parent / "customers.schema.yml").write_text(CUSTOMERS)
    (file.parent / "cities.schema.yml").write_text(CITIES)
    shutil.copytree(EXAMPLES, file.parent / "deep")
    return file.parent


def build(
    place: Path, text: str, output: str = "tailrace.lock", environ: Mapping[str, str] = ENVIRON
) -> Path:
    """Write a configuration, and its lock file."""
    (place / "tailrace.toml").write_text(text)
    lock = build_lock(place / "tailrace.toml", output=place / output, version="1.2.3", environ=environ)
    (place / output).write_text(lock.text())
    return place / output


def meaning(config: Config) -> dict[str, Any]:
    """All of a configuration, secrets too, but where it was read."""
    return {
        **{name: getattr(config, name) for name in type(config).model_fields},
        # Where a schema is counts no more once it was read.
        "references": {path: text for path, text in config._references.items() if path[0] != "index"},
        "schemas": [json.dumps(index.schema_.written()) for index in config.indexes],
        "captured": config.captured,
        "order": list(config.sinks),
    }


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize(
    "environ", [{}, {"TAILRACE_BATCH__MAX_ROWS": "7", "TAILRACE_NAME": "other"}], ids=["", "overridden"]
)
def test_a_lock_file_means_what_its_files_mean(place: Path, text: str, environ: dict[str, str]) -> None:
    lock = build(place, text)
    environ = {**ENVIRON, **environ}
    expected = load_config(place / "tailrace.toml", environ=environ, overrides={"state.ack": "changelog"})
    for file in [*place.rglob("*.yml"), place / "tailrace.toml"]:
        file.unlink()
    found = load_lock(lock, environ=environ, overrides={"state.ack": "changelog"})
    assert meaning(found) == meaning(expected)
    assert (found.path, found.locked, expected.locked) == (lock, True, False)


_NAMES = st.text("abcdefgh-_", min_size=1, max_size=6).filter(lambda name: name[0] not in "-.")


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sinks=st.lists(
        st.tuples(_NAMES, st.sampled_from([STORE, OUT])), max_size=4, unique_by=lambda one: one[0]
    ),
    indexes=st.lists(
        st.tuples(
            _NAMES, st.sampled_from(["customers", "cities", "./deep/../cities", "deep/shop"]), st.booleans()
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda one: one[0],
    ),
    top=st.lists(st.sampled_from(['on_error = "skip"', 'prefix = "a.b-"', 'name = "${NAME}"']), unique=True),
    value=st.text(min_size=1, max_size=12).filter(lambda text: "\0" not in text),
)
def test_any_lock_file_means_what_its_files_mean_and_holds_no_value_of_the_environment(
    tmp_path_factory: pytest.TempPathFactory,
    sinks: list[tuple[str, str]],
    indexes: list[tuple[str, str, bool]],
    top: list[str],
    value: str,
) -> None:
    place = tmp_path_factory.mktemp("lock")
    (place / "customers.schema.yml").write_text(CUSTOMERS)
    (place / "cities.schema.yml").write_text(CITIES)
    shutil.copytree(EXAMPLES, place / "deep")
    text = "\n".join(top) + '\n[source]\nurl = "postgresql://u:${SECRET}@h/d"\n'
    text += "".join(sink.replace("store", name).replace("out", name, 1) for name, sink in sinks)
    for name, schema, enabled in indexes:
        text += (
            f'[[index]]\nname = "{name}"\nschema = "{schema}.schema.yml"\nenabled = {str(enabled).lower()}\n'
        )
    text += "[[feed]]\nsink = 'tail'\n[sinks.tail]\ntype = 'stdout'\n"
    secret = f"<{value}>"
    lock = build(place, text, environ={})
    assert json.dumps(secret) not in lock.read_text()
    environ = {"SECRET": secret, "NAME": "n"}
    expected = load_config(place / "tailrace.toml", environ=environ)
    assert meaning(load_lock(lock, environ=environ)) == meaning(expected)
    assert build(place, text, environ=environ).read_text() == lock.read_text()


def test_no_secret_is_in_a_lock_file_and_references_stay(place: Path) -> None:
    text = build(place, REFERENCES).read_text()
    assert "hunter2" not in text
    assert "db.internal" not in text
    assert "postgresql://tailrace:${PASSWORD}@${HOST}/shop" in text
    assert json.loads(text)["configuration"]["sinks"]["hook"]["url"] == {"env": "HOOK"}


def test_variables_of_the_build_stay_where_they_are(place: Path) -> None:
    environ = {"TAILRACE_SOURCE__URL": "sqlite:elsewhere.db", "TAILRACE_NAME": "built"}
    lock = build(place, MINIMAL, environ=environ)
    assert load_lock(lock, environ={}).source.url == f"sqlite:{place}/shop.db"
    assert load_lock(lock, environ={}).name == "shop"
    assert load_lock(lock, environ=environ).name == "built"


def test_a_build_needs_no_variable_but_those_that_say_where_a_schema_is(place: Path) -> None:
    assert build(place, REFERENCES, environ={}) == place / "tailrace.lock"
    with pytest.raises(ConfigError, match="`WHICH` is not set"):
        build(place, FILES["schema by reference"], environ={})
    with pytest.raises(ConfigError, match="`TOKEN` is not set") as raised:
        load_lock(build(place, FILES["full"], environ={}), environ={})
    assert raised.value.place == f"{place}/tailrace.lock (sinks.hook.headers.Authorization)"


def test_everything_else_is_checked_at_the_build(place: Path) -> None:
    (place / "cities.schema.yml").write_text("version: 1\n")
    with pytest.raises(ConfigError) as raised:
        build(place, REFERENCES + "sink = 'hok'\n[batch]\nmax_rows = 0\n" + OTHER, environ={})
    told = str(raised.value).replace(f"{place}/", "").splitlines()
    assert told[0].startswith("tailrace.toml:12 (feed[0].sink): there is no sink `hok`")
    assert told[1].startswith("tailrace.toml:14 (batch.max_rows)")
    assert [line.partition(":")[0] for line in told[2:]] == ["cities.schema.yml"] * 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MINIMAL.replace("sqlite:shop.db", "postgresql://u:hunter2@h/d"), "2 (source.url)"),
        (MINIMAL.replace("sqlite:shop.db", "postgresql://u@h/d?password=hunter2"), "2 (source.url)"),
        (MINIMAL.replace("sqlite:shop.db", "postgresql://u:hunter2${X}@h/d"), "2 (source.url)"),
        (MINIMAL.replace("sqlite:shop.db", "postgresql://u:$${hunter2}@h/d"), "2 (source.url)"),
        (MINIMAL + HOOK.replace("//127", "//u:hunter2@127"), "6 (sinks.hook.url)"),
        (
            MINIMAL + HOOK + 'headers = { Authorization = "hunter2" }\n',
            "7 (sinks.hook.headers.Authorization)",
        ),
        (MINIMAL + HOOK + 'headers = { env = "hunter2" }\n', "7 (sinks.hook.headers.env)"),
        (MINIMAL + LAKE.replace('"lake"', '"s3://u:hunter2@bucket/x"'), "6 (sinks.lake.path)"),
        (MINIMAL + '[spark]\n"spark.x.password" = "hunter2"\n', '5 (spark."spark.x.password")'),
        (MINIMAL + "[spark]\nspark.x.password = 4711\n", "5 (spark.spark.x.password)"),
        (MINIMAL + '[source.options]\nsslpassword = "hunter2"\n', "5 (source.options.sslpassword)"),
    ],
)
def test_a_secret_that_is_written_out_is_refused_and_not_told(place: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build(place, text)
    assert raised.value.place == f"{place}/tailrace.toml:{key}"
    assert "{ env =" in (raised.value.remedy or "")
    assert "hunter2" not in str(raised.value)


def test_a_secret_in_a_schema_is_refused_too(place: Path) -> None:
    (place / "cities.schema.yml").write_text(
        CITIES.replace("[{ text: name }]", '\n  - constant: link\n    value: "https://u:hunter2@h/x"')
    )
    with pytest.raises(ConfigError) as raised:
        build(place, SOURCE + OTHER)
    assert raised.value.place == f"{place}/cities.schema.yml:5 (field link, value)"


def test_settings_that_only_sound_secret_may_be_switches(place: Path) -> None:
    text = MINIMAL + '[spark]\nspark.security.credentials.hive.enabled = false\n"spark.x.token.on" = "true"\n'
    assert load_lock(build(place, text), environ={}).spark.settings["spark.x.token.on"] == "true"


@pytest.mark.parametrize("value", ["2026-01-01", "12:00:00", "nan", "inf"])
def test_what_json_cannot_hold_is_refused(place: Path, value: str) -> None:
    with pytest.raises(ConfigError):
        build(place, MINIMAL + f"[source.options]\nx = {value}\n")


def test_relative_paths_start_where_the_lock_file_is(place: Path, tmp_path: Path) -> None:
    lock = build(place, 'name = "shop"\n' + SOURCE + STORE + LAKE + INDEX + '[[table]]\nname = "a"\n')
    there = tmp_path / "there"
    there.mkdir()
    shutil.move(lock, there / "moved.lock")
    config = load_lock(there / "moved.lock", environ={})
    assert config.source.url == f"sqlite:{there}/shop.db"
    assert config.state.directory == there / ".tailrace"
    assert config.sinks["lake"].model_dump()["path"] == f"{there}/lake"
    assert config.sinks["store"].model_dump()["path"] == f"{there}/documents.db"


def test_a_pipeline_without_a_name_keeps_the_one_it_had_where_it_was_built(
    place: Path, tmp_path: Path
) -> None:
    lock = build(place, MINIMAL)
    shutil.move(lock, tmp_path / "other.lock")
    assert load_lock(tmp_path / "other.lock", environ={}).name == "shop"


def test_the_same_files_give_the_same_lock_file(place: Path) -> None:
    first = build(place, FILES["several"]).read_bytes()
    assert build(place, FILES["several"]).read_bytes() == first
    body = json.loads(first)
    assert list(body) == sorted(body)
    assert (body["format"], body["kind"], body["tailrace"]) == (1, "tailrace lock", "1.2.3")
    assert list(body["inputs"]) == ["cities.schema.yml", "customers.schema.yml", "tailrace.toml"]
    assert str(place).encode() not in first


def test_errors_of_a_locked_schema_name_its_file_and_field(place: Path) -> None:
    config = load_lock(build(place, SOURCE + INDEX), environ={})
    places = config.indexes[0].schema_.places
    assert places.place(("fields", 1, "table")) == "customers.schema.yml (field orders, table)"


def test_a_schema_that_the_lock_file_has_not_is_told(place: Path) -> None:
    lock = build(place, SOURCE + INDEX)
    with pytest.raises(ConfigError) as raised:
        load_lock(lock, environ={"TAILRACE_INDEX__0__SCHEMA": "cities.schema.yml"})
    assert raised.value.message == "the lock file holds no schema cities.schema.yml"


@pytest.mark.parametrize(
    "text", ["", "[]", "null", MINIMAL, '{"format": 1}', '{"kind": "other"}', "[" * 100_000]
)
def test_what_is_no_lock_file_is_refused(place: Path, text: str) -> None:
    (place / "x.lock").write_text(text)
    with pytest.raises(ConfigError, match="is not a lock file") as raised:
        load_lock(place / "x.lock")
    assert "--config" in (raised.value.remedy or "")


def test_a_lock_file_of_a_newer_format_is_refused(place: Path) -> None:
    lock = build(place, MINIMAL)
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "format": 2, "configuration": []}))
    with pytest.raises(ConfigError, match="its format is 2, this one reads 1") as raised:
        load_lock(lock)
    assert "upgrade tailrace" in (raised.value.remedy or "")


@pytest.mark.parametrize("part", ["checksum", "configuration", "inputs", "schemas", "tailrace", "format"])
def test_a_lock_file_without_a_part_is_damaged(place: Path, part: str) -> None:
    lock = build(place, MINIMAL)
    body = json.loads(lock.read_text())
    del body[part]
    lock.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="is damaged"):
        load_lock(lock)


def test_a_lock_file_that_was_cut_or_edited_anywhere_is_damaged_and_never_taken(place: Path) -> None:
    lock = build(place, SOURCE + OTHER)
    text = lock.read_text()
    whole = json.loads(text)
    for at in range(0, len(text) - 2, 7):
        for changed in (text[:at], text[:at] + "x" + text[at + 1 :]):
            lock.write_text(changed)
            try:
                read_lock(lock)
            except ConfigError as error:
                assert error.remedy  # noqa: PT017
            else:
                assert json.loads(changed) == whole


def test_a_missing_lock_file_comes_with_the_command_that_builds_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_lock(tmp_path / "x.lock")
    assert raised.value.remedy == "tailrace build"


def test_inputs_are_compared_where_they_are(place: Path) -> None:
    lock = build(place, SOURCE + INDEX + OTHER, output="deep/x.lock")
    names = ("../cities.schema.yml", "../customers.schema.yml", "../tailrace.toml")
    assert inputs_of(lock).same == names
    (place / "cities.schema.yml").write_text(CITIES + "# more\n")
    (place / "customers.schema.yml").unlink()
    found = inputs_of(lock)
    assert (found.changed, found.missing, found.same) == (names[:1], names[1:2], names[2:])


def test_a_configuration_is_read_again_from_the_file_that_it_came_from(place: Path) -> None:
    lock = build(place, MINIMAL)
    (place / "tailrace.toml").write_text("name = 'changed'\n" + MINIMAL)
    assert reload(load_lock(lock)).name == "shop"
    assert reload(load_config(place / "tailrace.toml")).name == "changed"
