"""`tailrace search`, as a user types it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.sinks.sqlite import SqliteSink, SqliteStoreConfig
from tests.cli.command import COMMAND, environment
from tests.sinks.documents import FIRST, batch_of

CONFIG = """
[source]
url = "sqlite:shop.db"

[sinks.documents]
type = "sqlite"
path = "documents.db"

[[feed]]
tables = ["*"]
"""
ADA = '{"name": "Ada Lovelace",\n "born": 1815, "likes": ["engines", "\\u001b[31mred"]}'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text(CONFIG)
    sink = SqliteSink(SqliteStoreConfig("documents.db"))
    for index in ("customers", "orders"):
        sink.ensure(index, FIRST, {})
    people = {"1": ADA, "2": {"name": "Grace Hopper", "likes": ["ships", "engines"]}, "3": {"name": "OR"}}
    sink.write(batch_of(5, people))
    sink.close()
    return tmp_path


def search(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["search", *arguments])
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def test_documents_are_shown_by_id_with_their_matches(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown, _ = search(capsys, "customers", "ADA", "engines")
    assert code == 0
    assert shown == "1  [Ada] Lovelace [engines]  [31mred\n"
    assert search(capsys, "customers", "engines", "-n", "1")[1].count("\n") == 1


def test_programs_get_a_line_of_json_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = search(capsys, "customers", "engines", "--format", "json")
    assert code == 0
    hits = [json.loads(line) for line in shown.splitlines()]
    assert {hit["id"] for hit in hits} == {"1", "2"}
    (ada,) = [hit for hit in hits if hit["id"] == "1"]
    assert ada["document"] == json.loads(ADA)
    assert ada["version"] == 5
    assert ada["score"] > 0
    assert "[engines]" in ada["excerpt"]


def test_words_are_literal_unless_raw(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(capsys, "customers", "OR")[1] == "3  [OR]\n"
    assert search(capsys, "customers", "ada", "OR", "grace")[1] == ""
    assert search(capsys, "customers", "--raw", "ada OR grac*")[1].count("\n") == 2
    code, _, errors = search(capsys, "customers", "--raw", "ada OR")
    assert code == 2
    assert "full-text search" in errors
    assert "--raw" in errors


def test_nothing_found_says_so_and_is_no_failure(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(capsys, "customers", "zebra") == (
        0,
        "",
        "no document of customers has all of these words\n",
    )
    assert search(capsys, "customers", "zebra", "--format", "json")[:2] == (0, "")


def test_an_unknown_index_is_told_with_those_there_are(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = search(capsys, "custmers", "ada")
    assert code == 2
    assert "no index custmers" in errors
    assert "customers, orders" in errors


def test_which_store_must_be_clear(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = '[sinks.other]\ntype = "sqlite"\npath = "other.db"\n'
    (place / "tailrace.toml").write_text(CONFIG + other)
    code, _, errors = search(capsys, "customers", "ada")
    assert (code, "documents, other" in errors) == (2, True)
    assert search(capsys, "customers", "ada", "--sink", "documents")[0] == 0
    assert "no document store" in search(capsys, "customers", "ada", "--sink", "else")[2]
    code, _, errors = search(capsys, "customers", "ada", "--sink", "other")
    assert (code, "tailrace run" in errors) == (2, True)
    (place / "tailrace.toml").write_text(
        CONFIG.replace("[sinks.documents]", "[sinks.d]").split("[sinks")[0] + "[[feed]]"
    )
    code, _, errors = search(capsys, "customers", "ada")
    assert (code, "no document store" in errors) == (2, True)


def test_who_has_opensearch_is_told_to_search_there(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search_sink = '[sinks.s]\ntype = "opensearch"\nurl = "http://127.0.0.1:9"\n'
    (place / "tailrace.toml").write_text(
        f'{CONFIG.split("[sinks", maxsplit=1)[0]}{search_sink}[[feed]]\ntables = ["*"]\n'
    )
    code, _, errors = search(capsys, "customers", "ada")
    assert (code, "GET /customers/_search" in errors) == (2, True), errors


def test_a_person_at_a_terminal_sees_matches_in_bold(place: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "search", "customers", "ada"],
        cwd=place,
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
    if process.stderr:
        process.stderr.close()
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "\x1b[1;33mAda\x1b[0m" in shown
    assert "\x1b[31m" not in shown


def test_a_document_store_takes_no_feed_and_no_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for work in ("[[feed]]", '[[table]]\nname = "a"'):
        (place / "tailrace.toml").write_text(CONFIG + f'\n{work}\nsink = "documents"\n')
        code, _, errors = search(capsys, "customers", "ada")
        assert code == 2
        assert "holds documents" in errors


def test_an_index_is_known_by_its_name_and_by_the_one_with_the_prefix(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = '[[index]]\nname = "tomers"\nschema = "s.schema.yml"\n'
    (place / "tailrace.toml").write_text('prefix = "cus"\n' + CONFIG + index)
    (place / "s.schema.yml").write_text("version: 1\ntable: t\nfields:\n  - long: id\n")
    for name in ("tomers", "customers"):
        assert search(capsys, name, "hopper")[1].startswith("2  ")
