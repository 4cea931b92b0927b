"""`tailrace check` of a file with indexes, as a user types it: offline, and against real sources."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
from pathlib import Path

import pytest

from tailrace import app
from tailrace.capture.contract import Finding
from tailrace.cli.check import _show as show
from tailrace.config import load_config
from tests.cli.command import tailrace
from tests.support.opensearch import Client, opensearch, opensearch_server, prefix
from tests.support.postgres import Database, database, own_server, postgres

__all__ = ["database", "opensearch", "opensearch_server", "own_server", "postgres", "prefix"]

FILE = """
[source]
url = "{url}"
[sinks.store]
type = "sqlite"
path = "documents.db"
[[index]]
name = "customers"
schema = "customers.schema.yml"
"""
SCHEMA = """\
version: 1
table: customers
primary_key: id
fields:
  - { long: id, required: true }
  - keyword: email
  - has_many: orders
    table: orders
    foreign_key: customer_id
    fields:
      - decimal: total
"""
TABLES = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, email text)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, total numeric(10,2))",
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        for statement in ("PRAGMA journal_mode=WAL", *TABLES):
            connection.execute(statement)
    (tmp_path / "tailrace.toml").write_text(FILE.format(url="sqlite:shop.db"))
    (tmp_path / "customers.schema.yml").write_text(SCHEMA)
    return tmp_path


def to_opensearch(shop: Path, url: str, more: str = "", head: str = "") -> None:
    """Let the documents go to a cluster."""
    text = head + (shop / "tailrace.toml").read_text()
    own = f'type = "opensearch"\nurl = "{url}"' + more
    (shop / "tailrace.toml").write_text(text.replace('type = "sqlite"\npath = "documents.db"', own))


def found(shop: Path, *, offline: bool = False) -> list[Finding]:
    """What is found, without the cost of a process."""
    return app.check(load_config(shop / "tailrace.toml"), offline=offline)


def of_index(findings: list[Finding], *severities: str) -> list[tuple[str, str]]:
    """Code and place of the findings that are of the index."""
    return [
        (one.code, Path(one.place or "").name)
        for one in findings
        if one.index == "customers" and one.severity in severities
    ]


def test_an_index_without_errors_can_be_run_and_what_would_be_slow_is_a_warning(shop: Path) -> None:
    done = tailrace(shop, "check")
    assert done.returncode == 0
    place = "customers.schema.yml:9 (field orders, foreign_key)"
    assert f"{place}: no index of main.orders begins with `customer_id`" in done.stdout
    assert 'remedy: CREATE INDEX "orders_customer_id_idx" ON "orders" ("customer_id")' in done.stdout
    assert "can be run" in done.stdout
    assert of_index(found(shop), "error", "warning") == [("no_index", place)]


def test_all_errors_of_a_file_come_at_once_each_with_its_place_and_once(shop: Path) -> None:
    text = SCHEMA.replace("keyword: email", "keyword: emial").replace("table: orders", "table: ordrs")
    (shop / "customers.schema.yml").write_text(text)
    done = tailrace(shop, "check", "--format", "json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["errors"] == 2
    assert "mappings" not in answer
    assert [(one["code"], one["index"], Path(one["place"]).name) for one in answer["findings"][-3:-1]] == [
        ("catalog", "customers", "customers.schema.yml:6 (field emial, keyword)"),
        ("catalog", "customers", "customers.schema.yml:8 (field orders, table)"),
    ]
    # The rest of the source is judged all the same.
    assert {one["table"] for one in answer["findings"] if one["code"] == "not_set_up"} == {"main.customers"}


def test_offline_judges_the_schemas_and_prints_the_mapping_without_a_database(shop: Path) -> None:
    (shop / "shop.db").unlink()
    (shop / "customers.schema.yml").write_text(
        SCHEMA.replace("primary_key", 'filters: [{ raw: "email = (1" }]\nprimary_key')
    )
    done = tailrace(shop, "check", "--offline", "--mapping", "--format", "json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    (only,) = answer["findings"]
    assert (only["code"], Path(only["place"]).name) == ("sql", "customers.schema.yml:3 (filters[0].raw)")
    assert answer["mappings"] == {
        "customers": {
            "id": {"type": "long", "nullable": False},
            "email": {"type": "keyword", "nullable": True},
            "orders": {"type": "nested", "nullable": False, "many": True},
            "orders.total": {"type": "decimal", "nullable": True},
        }
    }
    # With a database asked for, it is told once that there is none.
    assert [one.code for one in found(shop)] == ["config", "sql"]


def test_the_mapping_is_printed_for_people_too(shop: Path) -> None:
    done = tailrace(shop, "check", "--offline", "--mapping")
    assert done.returncode == 0
    assert done.stdout.startswith("index customers\n  id long\n  email keyword nullable\n  orders nested\n")


def test_an_index_that_is_not_enabled_is_judged_by_its_file_alone(shop: Path) -> None:
    (shop / "other.schema.yml").write_text("version: 1\ntable: nothing\nfields: []\n")
    with (shop / "tailrace.toml").open("a") as file:
        file.write('[[index]]\nname = "other"\nschema = "other.schema.yml"\nenabled = false\n')
    told = [(one.code, one.severity) for one in found(shop) if one.index == "other"]
    assert told == [("empty", "warning")]


def test_a_store_that_cannot_be_written_is_an_error(shop: Path) -> None:
    (shop / "held").write_text("a file")
    text = (shop / "tailrace.toml").read_text().replace("documents.db", "held/documents.db")
    (shop / "tailrace.toml").write_text(text)
    assert [one.code for one in found(shop) if one.severity == "error"] == ["unwritable"]


def test_a_remedy_of_several_findings_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("error", "not_set_up", "is not published", table, "CREATE …") for table in ("a", "b")]
    show(findings, Path("tailrace.toml"), 2, offline=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if "remedy" in line] == ["remedy: CREATE …", "remedy: as above"]


def test_a_sink_of_documents_that_does_not_answer_is_an_error_and_is_not_waited_for(shop: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        to_opensearch(shop, url)
        (error,) = [one for one in found(shop) if one.severity == "error"]
    assert (error.code, error.place) == ("sink", url)
    assert "it cannot be reached" in error.message
    assert "[sinks." in (error.remedy or "")
    assert [one for one in found(shop, offline=True) if one.severity == "error"] == []


def test_whatever_has_the_name_of_an_index_and_is_not_tailraces_is_an_error_each(
    shop: Path, opensearch: Client, prefix: str
) -> None:
    with (shop / "tailrace.toml").open("a") as file:
        for name in ("others", "free"):
            file.write(f'[[index]]\nname = "{name}"\nschema = "customers.schema.yml"\n')
    to_opensearch(shop, opensearch.url, head=f'prefix = "{prefix}"\n')
    assert [one for one in found(shop) if one.severity == "error"] == []
    opensearch.do("PUT", f"/{prefix}customers")
    opensearch.do("PUT", f"/{prefix}foreign", {"aliases": {f"{prefix}others": {}}})
    first, second = [one for one in found(shop) if one.severity == "error"]
    assert (first.code, first.place) == (second.code, second.place) == ("sink", opensearch.url)
    assert first.message.startswith(f"index {prefix}customers: an index has the name of the alias")
    assert second.message.startswith(f"index {prefix}others: the alias leads to {prefix}foreign")
    assert f"DELETE /{prefix}customers" in (first.remedy or "")
    assert [one for one in found(shop, offline=True) if one.severity == "error"] == []


def test_a_secret_that_is_written_out_is_told_at_its_line_offline_too(shop: Path) -> None:
    to_opensearch(shop, "http://127.0.0.1:1", '\nusername = "ada"\npassword = "hidden-value"')
    done = tailrace(shop, "check", "--offline")
    assert done.returncode == 1
    assert (
        "tailrace.toml:8 (sinks.store.password): `password` of the sink store is written out" in done.stdout
    )
    assert "hidden-value" not in done.stdout
    told = [one for one in found(shop) if one.severity == "error"]
    assert [(one.code, Path(one.place or "").name) for one in told] == [
        ("config", "tailrace.toml:8 (sinks.store.password)")
    ]
    refused = tailrace(shop, "run", "--once")
    assert refused.returncode == 2
    assert "tailrace.toml:8 (sinks.store.password)" in refused.stderr


def test_postgresql_tells_what_the_index_needs_and_the_remedies_mend_it(
    shop: Path, database: Database
) -> None:
    database.sql(*TABLES, "REVOKE SELECT ON orders FROM tailrace")
    (shop / "tailrace.toml").write_text(FILE.format(url=database.url()))
    (shop / "customers.schema.yml").write_text(SCHEMA.replace("decimal: total", "uuid: total"))
    before = {one.code: one for one in found(shop) if one.severity != "info"}
    assert Path(before["type"].place or "").name == "customers.schema.yml:11 (field orders.total, uuid)"
    assert before["privilege"].table == "public.orders"
    # What the role may not read is not told a second time as SQL that is refused.
    assert before.keys() <= {"type", "privilege", "not_permitted", "no_index"}
    (shop / "customers.schema.yml").write_text(SCHEMA)
    database.sql(before["no_index"].remedy or "", before["privilege"].remedy or "")
    after = found(shop)
    assert of_index(after, "error", "warning") == []
    assert ("old_parents", "customers.schema.yml:7 (field orders)") in of_index(after, "info")
    assert {one.code for one in after if one.severity == "error"} <= {"not_permitted"}
