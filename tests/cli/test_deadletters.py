"""`tailrace deadletters`, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.engine.deadletters import DIRECTORY, DeadLetters
from tailrace.sinks.contract import Rejection
from tests.cli.command import make_shop

CONFIG = """
[source]
url = "sqlite:shop.db"

[sinks.documents]
type = "sqlite"
path = "documents.db"

[[index]]
name = "customers"
schema = "customers.schema.yml"
on_error = "skip"
"""
SCHEMA = "version: 1\ntable: customers\nfields:\n  - long: id\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_shop(tmp_path / "shop.db")
    (tmp_path / "tailrace.toml").write_text(CONFIG)
    (tmp_path / "customers.schema.yml").write_text(SCHEMA)
    return tmp_path


def deadletters(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["deadletters", *arguments])
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def test_that_there_are_none_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert deadletters(capsys, "list") == (0, "", "no document was passed over\n")
    assert deadletters(capsys, "list", "--format", "json") == (0, "", "")


def test_an_id_that_is_no_dead_letter_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, said = deadletters(capsys, "retry", "customers", "--id", "77")
    assert (code, shown) == (0, "")
    assert said == "77 is no dead letter of customers\n0 documents written, 0 rejected again\n"


def test_they_are_listed_with_their_reason(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeadLetters(place / ".tailrace" / DIRECTORY).append("customers", 7, [Rejection("3", "too deep")])
    code, shown, said = deadletters(capsys, "list", "customers")
    assert (code, said) == (0, "")
    assert [line.split()[:2] for line in shown.splitlines()] == [["index", "id"], ["customers", "3"]]
    assert shown.rstrip().endswith("too deep")


def test_an_index_is_known_by_its_name_and_by_the_one_with_the_prefix(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "tailrace.toml").write_text('prefix = "shop-"\n' + CONFIG)
    DeadLetters(place / ".tailrace" / DIRECTORY).append("shop-customers", 7, [Rejection("3", "too deep")])
    for name in ("customers", "shop-customers"):
        assert "too deep" in deadletters(capsys, "list", name)[1]
    code, _, said = deadletters(capsys, "list", "shop")
    assert code == 2
    assert "its indexes: customers" in said
