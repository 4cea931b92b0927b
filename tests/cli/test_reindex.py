"""`tailrace indexes` and `tailrace reindex`, as a user types them."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import tailrace as api
from tailrace import app
from tailrace.cli.root import _run
from tailrace.engine.heldup import HoldUps
from tailrace.model.errors import DataError, UsageError
from tests.engine.documenting import FEW, SCHEMA, Documents, filling
from tests.support.opensearch import Client, opensearch, opensearch_server, prefix
from tests.support.waiting import wait_until

__all__ = ["opensearch", "opensearch_server", "prefix"]

SHORT = SCHEMA.split("  - many_to_many", maxsplit=1)[0]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Documents:
    """A source and an index over it that was never filled."""
    monkeypatch.chdir(tmp_path)
    made = Documents(tmp_path)
    made.transaction(*filling(*FEW))
    made.index("customers")
    return made


def to_opensearch(shop: Documents, url: str, prefix: str) -> None:
    """Let the documents go to a cluster."""
    shop.head = f'prefix = "{prefix}"\n'
    shop.kept = f'[sinks.store]\ntype = "opensearch"\nurl = "{url}"\nreplicas = 0\n'
    shop.config()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = _run(arguments)
    said = capsys.readouterr()
    return code, said.out + said.err


def look(capsys: pytest.CaptureFixture[str], at: int = 0) -> dict[str, Any]:
    code, said = run(capsys, "indexes", "--format", "json")
    assert code == 0
    found: dict[str, Any] = json.loads(said)["indexes"][at]
    return found


def test_an_index_that_was_never_filled_is_new_and_looking_makes_no_file(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    found = look(capsys)
    assert (found["index"], found["state"], found["shown"]) == ("customers", "new", None)
    assert found["sinks"] == [
        {
            "sink": "store",
            "type": "sqlite",
            "shown": None,
            "complete": False,
            "in_step": False,
            "position": None,
            "schema_hash": None,
            "documents": None,
            "problem": None,
            "keeps": True,
            "gone": False,
        }
    ]
    assert run(capsys, "indexes")[1].splitlines()[:3] == [
        "customers",
        "  state       not filled yet: the next run does it",
        "  sink store  nothing yet",
    ]
    assert not shop.store.exists()
    assert run(capsys, "reindex", "customers") == (0, "customers is being filled, or is to be\n")


def test_a_complete_index_is_shown_with_what_its_sink_has(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run()
    shop.transaction("DELETE FROM customers WHERE id = 3")
    shop.run()
    found = look(capsys)
    status = shop.status()
    assert (found["state"], found["position"], found["filling"]) == ("complete", status.position, None)
    assert (found["outdated"], found["schema_hash"]) == (False, found["served_hash"])
    (sink,) = found["sinks"]
    assert (sink["shown"], sink["complete"], sink["in_step"]) == (found["shown"], True, True)
    assert sink["documents"] == FEW[0] - 1
    said = run(capsys, "indexes")[1].splitlines()
    assert said[1] == f"  state       complete, as of position {status.position}"
    assert said[2] == f"  sink store  shows {found['shown']}, 19 documents, complete, in step"
    assert said[3] == f"  schema      {found['schema_hash']}"


def test_another_schema_in_the_file_is_told_before_the_run_and_since_when_readers_see_the_old_one(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run()
    shop.index("customers", SHORT)
    found = look(capsys)
    assert (found["state"], found["outdated"]) == ("complete", True)
    assert "it is filled again by a run" in run(capsys, "indexes")[1]
    app.control(shop.config()).pause("customers")
    shop.run()
    waits = look(capsys)
    assert (waits["state"], waits["outdated"], waits["shown"]) == ("waiting", True, found["shown"])
    assert waits["waits_for"] == "the snapshot of main.customers, which is paused"
    assert waits["still"]["position"] == found["position"]
    assert not waits["sinks"][0]["in_step"]
    said = run(capsys, "indexes")[1]
    assert f"stands still since {waits['still']['time']}" in said
    assert "(its schema changed)" in said
    assert "readers see what stands still since" in run(capsys, "status")[1]


def test_a_sink_that_is_down_is_not_waited_for_and_the_state_says_that_it_does_not_tell(
    shop: Documents, opensearch: Client, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.index("others")
    to_opensearch(shop, opensearch.url, prefix)
    shop.run()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        to_opensearch(shop, f"http://127.0.0.1:{nobody.getsockname()[1]}", prefix)
        begun = time.monotonic()
        code, said = run(capsys, "indexes")
        assert time.monotonic() - begun < 20
        found = look(capsys)
    assert code == 0
    position = found["position"]
    lines = said.splitlines()
    state = f"complete, as of position {position}, by the state directory: the sink store does not tell"
    assert lines[1] == f"  state       {state}"
    assert lines[2].startswith("  sink store  ")
    assert "it cannot be reached" in lines[2]
    assert said.count("it cannot be reached") == 2
    assert (found["state"], "it cannot be reached" in found["sinks"][0]["problem"]) == ("complete", True)


def test_an_index_that_somebody_deleted_is_gone_until_a_run_fills_it_again(
    shop: Documents, opensearch: Client, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to_opensearch(shop, opensearch.url, prefix)
    shop.run()
    assert look(capsys)["state"] == "complete"
    opensearch.drop(f"{prefix}customers")
    found = look(capsys)
    assert (found["state"], found["sinks"][0]["gone"], found["served_hash"]) == ("gone", True, None)
    said = run(capsys, "indexes")[1].splitlines()
    assert said[1:3] == [
        "  state       gone from the sink store: the next run fills it again",
        "  sink store  nothing any more",
    ]
    shop.run()
    found = look(capsys)
    assert (found["state"], found["sinks"][0]["documents"]) == ("complete", FEW[0])


def test_what_holds_the_pipeline_up_is_told_while_it_runs_and_what_it_stopped_on_afterwards(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run()
    hold_ups = HoldUps(str(shop.config().state.directory))
    with shop.running() as error:
        wait_until(lambda: shop.status().running is not None)
        hold_ups.waiting("other", "nobody answers")
        assert look(capsys)["held_up"] is None
        hold_ups.over({"other"})
        hold_ups.waiting("store", "the disk is full")
        held = look(capsys)["held_up"]
        assert (held["sink"], held["reason"]) == ("store", "the disk is full")
        told = f"waits for the sink store since {held['since']}: the disk is full"
        assert f"held up     {told}" in run(capsys, "indexes")[1]
        assert "20 documents, complete, held up" in run(capsys, "indexes")[1]
        assert told in run(capsys, "status")[1]
        assert error() is None
    # Whoever has ended waits no longer.
    assert "held up" not in run(capsys, "status")[1] + run(capsys, "indexes")[1]
    hold_ups.stopped(DataError("7 was refused", place="index customers"))
    for command in ("status", "indexes"):
        assert "index customers: 7 was refused" in run(capsys, command)[1]
    shop.run()
    assert "7 was refused" not in run(capsys, "status")[1]


def test_an_index_that_is_disabled_says_so(shop: Documents, capsys: pytest.CaptureFixture[str]) -> None:
    shop.index("customers", SCHEMA, enabled="false")
    shop.index("other")
    shop.config()
    assert look(capsys)["state"] == "disabled"
    assert "disabled in the file" in run(capsys, "indexes")[1]
    code, said = run(capsys, "reindex", "customers")
    assert (code, "no index customers" in said) == (2, True)


def test_a_file_without_an_index_has_none_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Documents(tmp_path)
    (tmp_path / "tailrace.toml").write_text(
        '[source]\nurl = "sqlite:shop.db"\n[sinks.out]\ntype = "stdout"\n'
        '[[feed]]\ntables = ["customers"]\nsink = "out"\n'
    )
    file = ("-c", str(made.directory / "tailrace.toml"))
    assert run(capsys, *file, "indexes") == (0, "the file has no index\n")
    code, said = run(capsys, *file, "reindex", "--all")
    assert (code, "the file has no index" in said) == (2, True)


def test_a_request_is_told_shown_and_withdrawn(shop: Documents, capsys: pytest.CaptureFixture[str]) -> None:
    shop.run()
    code, said = run(capsys, "reindex", "customers")
    assert code == 0
    assert said.startswith("requested a filling of customers (r")
    assert said.endswith("): the next `tailrace run` takes it up\n")
    assert look(capsys)["requested"]
    assert "to be filled again: somebody asked for it" in run(capsys, "status")[1]
    assert run(capsys, "snapshot", "--list")[1] == "customers for the index customers\n"
    code, said = run(capsys, "reindex", "customers", "--cancel")
    assert said.startswith("cancelled the filling of customers: the next `tailrace run` ends it")
    assert run(capsys, "reindex", "--all", "--cancel") == (0, "no filling was asked for\n")
    assert not look(capsys)["requested"]


def test_what_cannot_be_meant_is_refused(shop: Documents, capsys: pytest.CaptureFixture[str]) -> None:
    shop.run()
    for arguments, told in (
        (["custmers"], "no index custmers; did you mean `customers`?"),
        ([], "which index?"),
        (["customers", "--all"], "which index?"),
        (["customers", "--cancel", "--wait"], "cannot be given together"),
    ):
        code, said = run(capsys, "reindex", *arguments)
        assert (code, told in said) == (2, True), said
    assert not look(capsys)["requested"]


def test_waiting_ends_when_readers_see_the_new_documents(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run()
    before = look(capsys)["shown"]
    with shop.running():
        shop.settles()
        code, said = run(capsys, "reindex", "customers", "--wait")
    assert code == 0, said
    assert said.endswith("customers: readers see the new documents\n")
    assert look(capsys)["shown"] != before
    shop.check()


def test_waiting_for_a_pipeline_that_does_not_run_is_refused_and_the_request_waits(
    shop: Documents, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run()
    code, said = run(capsys, "reindex", "--all", "--wait")
    assert code == 3
    assert "the pipeline does not run" in said
    assert look(capsys)["requested"]


def test_the_same_from_python(shop: Documents) -> None:
    shop.run()
    control = api.control("tailrace.toml")
    (request,) = control.reindex("customers").values()
    assert control.reindex("*") == {"customers": request}
    assert control.status().indexes[0].requested
    assert control.cancel_reindex("customers") == ["customers"]
    query = api.control(url="sqlite:shop.db", tables="customers", state_dir="state")
    with pytest.raises(UsageError, match="a query has no indexes"):
        query.reindex("customers")


def test_a_prefix_may_be_given_or_left_out(shop: Documents, capsys: pytest.CaptureFixture[str]) -> None:
    text = (shop.directory / "tailrace.toml").read_text()
    (shop.directory / "tailrace.toml").write_text(f'prefix = "eu_"\n{text}')
    for name in ("customers", "eu_customers"):
        assert run(capsys, "reindex", name) == (0, "eu_customers is being filled, or is to be\n")
    found = look(capsys)
    assert (found["index"], found["name"]) == ("customers", "eu_customers")
