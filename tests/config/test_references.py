"""References to the environment, and that no secret shows."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config import HttpSink, expand
from tailrace.model.errors import ConfigError
from tests.config.conftest import MINIMAL, Load, Refuse

CANARY = "c4n4ry"
HOOK = """\
[sinks.hook]
type = "http"
url = "https://user:${PASSWORD}@example.org/?token=${PASSWORD}"
headers = { Authorization = { env = "PASSWORD" }, X-Key = "Bearer ${PASSWORD}" }
[spark]
spark.hadoop.fs.s3a.secret.key = "c4n4ry"
"spark.driver.extraJavaOptions" = "-Djavax.net.ssl.trustStorePassword=c4n4ry"
"""


def test_references_are_resolved_and_escapes_are_not(load: Load) -> None:
    text = MINIMAL.replace("shop.db", "${DIR}/$${x}-$5.db").replace(
        "[[feed]]", "consumer = { env = 'WHO' }\n[[feed]]"
    )
    config = load(text, {"DIR": "/data", "WHO": "me"})
    assert config.source.url == "sqlite:/data/${x}-$5.db"
    assert config.consumer == "me"
    assert config.reference("source", "consumer") == "${WHO}"


def test_a_missing_variable_is_named_with_its_line_and_remedy(refuse: Refuse) -> None:
    error = refuse(MINIMAL.replace("shop.db", "${DB}"))
    assert error.place == "file:2 (source.url)"
    assert error.message == "the environment variable `DB` is not set"
    assert error.remedy == "export DB=…"


def test_an_open_reference_is_refused(refuse: Refuse) -> None:
    assert "write `$${`" in refuse(MINIMAL.replace("shop.db", "${D B}")).message


def test_a_header_may_be_called_env(load: Load) -> None:
    config = load(MINIMAL + '[sinks.h]\ntype = "http"\nurl = "http://h"\nheaders = { env = "x" }\n')
    hook = config.sinks["h"]
    assert isinstance(hook, HttpSink)
    assert hook.headers["env"].reveal() == "x"


def test_a_secret_is_there_for_the_call_that_needs_it(load: Load) -> None:
    config = load(MINIMAL + HOOK, {"PASSWORD": CANARY})
    hook = config.sinks["hook"]
    assert isinstance(hook, HttpSink)
    assert hook.url == f"https://user:{CANARY}@example.org/?token={CANARY}"
    assert hook.headers["X-Key"].reveal() == f"Bearer {CANARY}"
    assert config.spark.settings["spark.hadoop.fs.s3a.secret.key"] == CANARY


def test_no_output_shows_a_secret(load: Load) -> None:
    config = load(MINIMAL + HOOK, {"PASSWORD": CANARY})
    hook = config.sinks["hook"]
    outputs = [
        repr(config),
        str(config),
        repr(hook),
        f"{hook}",
        repr(config.spark),
        json.dumps(config.shown()),
        config.model_dump_json(),
        str(config.model_dump()),
        str(config.spark.model_dump()),
    ]
    assert [text for text in outputs if CANARY in text] == []


def test_what_is_shown_keeps_references_as_written(load: Load) -> None:
    shown = load(MINIMAL + HOOK, {"PASSWORD": CANARY}).shown()
    assert shown["sinks"]["hook"]["headers"] == {
        "Authorization": "${PASSWORD}",
        "X-Key": "Bearer ${PASSWORD}",
    }
    assert shown["sinks"]["hook"]["url"] == "https://user:***@example.org/?token=***"
    assert shown["spark"]["spark.hadoop.fs.s3a.secret.key"] == "***"


def test_no_error_shows_a_secret(refuse: Refuse) -> None:
    bad = (
        HOOK.replace("https:", "gopher:").replace("X-Key", "'X Key'")
        + "master = 3\n[batch]\nmax_rows = '${PASSWORD}'\n"
    )
    error = refuse(MINIMAL + bad, {"PASSWORD": CANARY + "\n", "TAILRACE_STATE__RETENTION": CANARY})
    assert len(error.message.splitlines()) == 5
    assert CANARY not in str(error)
    assert CANARY.encode() not in pickle.dumps(error)


def test_expand_names_the_missing_variable() -> None:
    assert expand("a${B}c", {"B": "-"}) == "a-c"
    with pytest.raises(ConfigError, match="`B` is not set") as raised:
        expand("a${B}c", {})
    assert raised.value.remedy == "export B=…"


@given(st.text())
def test_any_text_can_be_written_with_escapes(text: str) -> None:
    # `$` before `${` would be read with it, so such a text is the one thing that cannot be written.
    written = text.replace("${", "$${")
    if "$$$" not in written:
        assert expand(written, {}) == text


def test_a_list_or_table_with_an_unset_variable_in_it_is_told_of_that_alone(refuse: Refuse) -> None:
    error = refuse(MINIMAL + 'tables = ["a", "${T}"]\n[source.types]\n"a.b" = "${KIND}"\n')
    assert [line.partition(": ")[2] for line in str(error).splitlines()] == [
        "the environment variable `T` is not set (remedy: export T=…)",
        "the environment variable `KIND` is not set (remedy: export KIND=…)",
    ]
