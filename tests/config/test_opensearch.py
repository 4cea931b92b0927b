"""The section of an OpenSearch sink: what it takes, what it refuses, and that its secrets stay hidden."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tailrace.app import check, document_sink_for, opensearch_bodies
from tailrace.config import Config, build_lock, load_config
from tailrace.model.errors import ConfigError

SCHEMA = "version: 1\ntable: customers\nprimary_key: id\nfields:\n  - keyword: name\n"
ENVIRON = {"SEARCH_PASSWORD": "pa55word"}


@pytest.fixture
def load(tmp_path: Path) -> Any:
    (tmp_path / "customers.schema.yml").write_text(SCHEMA)

    def one(lines: str, *, name: str = "customers", prefix: str = "") -> Config:
        (tmp_path / "tailrace.toml").write_text(
            f'prefix = "{prefix}"\n[source]\nurl = "sqlite:shop.db"\n[sinks.search]\ntype = "opensearch"\n'
            f'{lines}\n[[index]]\nname = "{name}"\nschema = "customers.schema.yml"\n'
        )
        return load_config(tmp_path / "tailrace.toml", environ=ENVIRON)

    return one


URL = 'url = "https://search.example.com:9200"\n'
USER = 'username = "ada"\n'


def test_documents_go_to_it_by_default_and_its_secrets_travel_as_references(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(URL + USER + 'password = { env = "SEARCH_PASSWORD" }\nsettings = { sort.field = "name" }')
    assert config.indexes[0].sinks == ("search",)
    assert config.sinks["search"].settings == {"sort.field": "name"}
    sink = document_sink_for(config, "search")
    sent = pickle.dumps(sink)
    for shown in (repr(config), str(config.shown()), repr(sink), sent.decode("latin-1")):
        assert "pa55word" not in shown
    monkeypatch.setenv("SEARCH_PASSWORD", "pa55word")
    assert pickle.loads(sent)._config.password.reveal() == "pa55word"  # noqa: S301


def test_check_tells_how_opensearch_is_told_of_an_index_and_what_it_would_refuse(
    load: Any, tmp_path: Path
) -> None:
    config = load(URL + "shards = 3")
    body = opensearch_bodies(config)["customers"]["search"]
    assert body["settings"]["index"]["number_of_shards"] == 3
    assert body["mappings"]["properties"]["name"]["type"] == "keyword"
    assert [one for one in check(config, offline=True) if one.severity == "error"] == []
    (tmp_path / "customers.schema.yml").write_text(SCHEMA.replace("name", "_id\n    column: name"))
    (only,) = [one for one in check(load(URL), offline=True) if one.severity == "error"]
    assert "keeps the name _id for itself" in only.message


@pytest.mark.parametrize("key", ["password", "api_key"])
def test_a_secret_that_is_written_out_is_refused_before_it_could_travel(
    load: Any, tmp_path: Path, key: str
) -> None:
    config = load(URL + (USER if key == "password" else "") + f'{key} = "hidden-value"')
    with pytest.raises(ConfigError, match="written out") as error:
        document_sink_for(config, "search")
    place = f"tailrace.toml:{8 if key == 'password' else 7} (sinks.search.{key})"
    assert (error.value.place or "").endswith(place)
    assert "hidden-value" not in str(error.value)
    with pytest.raises(ConfigError, match="written out") as error:
        build_lock(tmp_path / "tailrace.toml", output=tmp_path / "tailrace.lock", version="1")
    assert "hidden-value" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('url = "https://ada:pw@search.example.com"', "without user"),
        ('url = "search.example.com:9200"', "must be"),
        (URL + USER + 'aws_region = "eu-north-1"', "needs one"),
        (URL + 'password = { env = "SEARCH_PASSWORD" }', "no `username`"),
        (URL + 'client_key = "key.pem"', "no `client_cert`"),
        (URL + "parallel = 0", "parallel"),
        (URL + 'analysis = "french"', "analysis"),
        (URL + 'pasword = "x"', "password"),
    ],
)
def test_what_cannot_work_is_told_with_its_place(load: Any, lines: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        load(lines)
    assert "tailrace.toml:" in (error.value.place or "")
    assert "pw@" not in str(error.value)


@pytest.mark.parametrize(("name", "prefix"), [("Customers", ""), ("customers", "Shop-"), ("_customers", "")])
def test_a_name_that_opensearch_refuses_is_told_at_its_line(load: Any, name: str, prefix: str) -> None:
    with pytest.raises(ConfigError, match=f"takes no index of the name `{prefix}{name}`") as error:
        load(URL, name=name, prefix=prefix)
    assert "index" in (error.value.place or "")
