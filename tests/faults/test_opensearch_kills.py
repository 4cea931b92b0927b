"""Kills at the points of a micro-batch and of a filling, with documents beside the mirror, in either store.

Rows 1 to 5, 7 to 9, 11, 12, 18, 24, 27 and 36 for the document store and for OpenSearch.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import app
from tailrace.config import load_config
from tests.faults.databases import Postgres
from tests.faults.marks import databases
from tests.faults.oracles import snapshot_left
from tests.faults.pipe import gone
from tests.faults.rig import Rig
from tests.faults.searching import refills, search
from tests.faults.test_documents import CHUNKS, FAMILY, arrive, documents, ready
from tests.faults.test_reindex import POINTS
from tests.faults.test_state import copy, refused_or_equal, restore
from tests.support.documents.polling import Polling
from tests.support.opensearch import Client
from tests.support.postgres import Server
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
START = 300.0
CHANGES = ("DELETE FROM ledger WHERE key = 1000002", "UPDATE lines SET of = 1000059 WHERE id = 1")
pytestmark = pytest.mark.long


@pytest.fixture(params=["store", "opensearch"])
def stored(request: pytest.FixtureRequest, rig: Make) -> Make:
    """Makes rigs with documents, in the file of the store or in a cluster."""
    if request.param == "store":
        return rig
    client, prefix = request.getfixturevalue("opensearch"), request.getfixturevalue("prefix")
    return lambda *arguments, **more: rig(*arguments, search=search(client, client.url, prefix), **more)


@pytest.mark.parametrize(
    ("point", "facts"),
    [
        pytest.param("initial", {}, id="row1-initial"),
        pytest.param("read", {"kind": "chunk", "chunk": 3}, id="row2-chunk"),
        pytest.param("document.before", {}, id="row2-first-documents"),
        pytest.param("latest", {"complete": True}, id="row3-hand-over"),
        pytest.param("publish.before", {}, id="row3-before-publication"),
        pytest.param("publish.after", {}, id="row3-after-publication"),
        pytest.param("partitions", {"grown": True}, id="row4-offset-logged"),
        pytest.param("build", {}, id="row4-build"),
        pytest.param("document.after", {}, id="row7-documents-applied"),
        pytest.param("documents.flushed", {}, id="row8-documents-flushed"),
        pytest.param("flushed", {"least": {"batch": 1}}, id="row8-flushed"),
        pytest.param("written", {"least": {"batch": 1}}, id="row8-written"),
        pytest.param("commit", {}, id="row9-commit"),
    ],
)
def test_a_kill_at_this_point_leaves_the_documents_right(
    stored: Make, point: str, facts: dict[str, Any]
) -> None:
    r = stored(**CHUNKS)
    r.run(*FAMILY)
    r.points.arm(point, "kill", **facts)
    pipe = r.start()
    if facts.get("grown"):
        # Before the log is followed it would be a row of the snapshot, and nothing would grow.
        wait_until(
            lambda: snapshot_left(r.checkpoint) == 0 or pipe.process.poll() is not None,
            what="the whole snapshot",
        )
        r.run("UPDATE lines SET word = 2 WHERE id = 3")
    pipe.died()
    r.run(*CHANGES)
    r.start()
    r.settle()


def test_a_kill_after_the_commit_and_before_the_acknowledgement_writes_no_document_again(
    stored: Make,
) -> None:
    r = ready(stored(**CHUNKS))
    r.points.arm("document.after", "block")
    r.run(*CHANGES)
    r.points.arm("latest", "kill", least={"start": r.struck("document.after")["version"]})
    r.points.go("document.after")
    r.pipe.died()
    start = r.points.facts("latest")["start"]
    held = documents(r).versions()
    assert (r.cursor() or 0) < start, "it was not acknowledged"
    assert max(held.values()) == start, "the documents of the last batch are there"
    r.points.arm("document.before", "note")
    r.start()
    wait_until(lambda: (r.cursor() or 0) >= start, what="the acknowledgement")
    assert not r.points.met("document.before"), "nothing is written again"
    assert documents(r).versions() == held
    r.points.disarm("document.before")
    r.settle()


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_a_filling_that_was_asked_for_hides_no_document_and_loses_no_change(
    rig: Make, opensearch: Client, prefix: str, point: str
) -> None:
    r = ready(rig(**CHUNKS, search=search(opensearch, opensearch.url, prefix)))
    control, index = refills(r), documents(r).index
    with Polling(documents(r).read).reading() as reader:
        r.points.arm(point, "kill")
        (filling,) = control.ask([index])
        r.pipe.died()
        reader.deletes("1000002")
        r.run(*CHANGES)
        r.points.arm(point, "kill")
        r.start().died()
        r.run("UPDATE ledger SET number = 9 WHERE key = 1000003")
        r.start()
        wait_until(lambda: control.state(filling) == "complete", timeout=60, what="the new documents")
        arrive(r)
    r.settle()


def test_sigterm_inside_a_write_of_documents_ends_soon_and_well_and_nothing_is_repeated(stored: Make) -> None:
    r = ready(stored(**CHUNKS))
    r.points.arm("document.before", "block")
    r.run(*CHANGES)
    r.struck("document.before")
    pipe = r.pipe
    pipe.process.terminate()
    r.stays(lambda: pipe.process.poll() is None, 0.3)
    begun = time.monotonic()
    r.points.go("document.before")
    assert pipe.ended(timeout=60)["error"] is None
    assert time.monotonic() - begun < 30
    held = documents(r).found().to_pydict()
    r.points.arm("document.before", "block")
    r.start()
    sentinel = r.sentinel()
    # The first documents that it writes are those of the sentinel.
    assert r.struck("document.before")["documents"] == 1
    assert documents(r).found().to_pydict() == held
    r.points.go("document.before")
    r.arrived(sentinel)
    r.settle()


def test_documents_of_a_frozen_process_that_thaws_are_refused(stored: Make) -> None:
    r = stored(**CHUNKS, lease=2.0)
    r.impatient()
    first = ready(r).pipe
    r.points.arm("document.before", "block")
    r.run("UPDATE ledger SET number = 2 WHERE key = 1000004", "DELETE FROM ledger WHERE key = 1000005")
    r.struck("document.before")
    r.freeze(first)
    second = r.start()
    r.run("UPDATE ledger SET number = 3 WHERE key = 1000004")
    r.run("INSERT INTO ledger VALUES (1000005, 9, ':again')")
    r.settle()
    held = documents(r).found().to_pydict()
    r.points.go("document.before")
    first.signal(signal.SIGCONT)
    assert first.ended()["error"] is not None
    assert documents(r).found().to_pydict() == held
    assert second.process.poll() is None
    r.settle()


@pytest.mark.spark
@pytest.mark.timeout(1200)
@databases("sqlite")
def test_a_worker_of_spark_that_is_killed_while_it_writes_documents_is_replaced(stored: Make) -> None:
    r = stored("spark", master="local[2,4]", rows=6000, documents="")
    r.run(*FAMILY)
    r.points.arm("document.after", "kill")
    pipe = r.start()
    worker = r.struck("document.after", timeout=START)["pid"]
    assert worker != pipe.process.pid, "the driver wrote them itself"
    wait_until(lambda: gone(worker), what="the end of the worker")
    r.run(*CHANGES)
    r.settle(timeout=START)
    assert pipe.process.poll() is None, "it was the same run all the time"


def test_a_transaction_in_pieces_survives_kills_between_them_and_its_documents_are_right(
    stored: Make,
) -> None:
    r = ready(stored(rows=10, documents="", maxBytesPerTrigger=100_000))
    r.points.arm("document.after", "kill", least={"documents": 500})
    # More than a capture hands on at once, so that there are pieces.
    r.insert(2_000_000, 12_000, note=":" + "y" * 3000)
    r.pipe.died()
    # The mirror has the first piece: what it applies now is another one.
    r.points.arm("apply.after", "kill", skipped=False, grown=True)
    r.start().died()
    r.run(*CHANGES)
    r.start()
    r.settle(timeout=120)


def test_state_of_yesterday_converges_where_the_log_is_there_and_leaves_the_documents_right(
    stored: Make,
) -> None:
    r = stored(**CHUNKS)
    r.run(*FAMILY)
    assert r.once()["error"] is None
    yesterday = copy(r, "yesterday", state=True)
    r.points.arm("latest", "kill", least={"start": (r.cursor() or 0) + 1})
    r.run(*CHANGES)
    r.insert(2_000_000, 5)
    r.start().died()
    # The documents have the batch, Spark committed it, and the source was not told.
    restore(r, yesterday)
    r.points.disarm("latest")
    r.run("UPDATE ledger SET number = 9 WHERE key = 1000003")
    assert refused_or_equal(r, history=False) is None
    documents(r).check()


@databases("postgres")
def test_a_server_that_dies_while_documents_are_built_and_comes_again_is_waited_for(
    stored: Make, own_server: Server
) -> None:
    r = ready(stored(**CHUNKS, server=own_server))
    for number in range(2):
        r.points.arm("build", "block")
        r.run(f"UPDATE words SET text = 'w{number}'")
        r.struck("build")
        own_server.kill()
        assert own_server.pid is None, "nothing was killed"
        r.points.go("build")
        own_server.start()
        r.arrived(r.sentinel())
    assert r.pipe.process.poll() is None, "it waited for the server"
    r.settle()


@databases("postgres")
def test_a_table_of_documents_that_may_not_be_read_prints_the_grant_and_goes_on_after_it(
    stored: Make,
) -> None:
    r = ready(stored(**CHUNKS))
    assert isinstance(r.ledger, Postgres)
    r.ledger.admin("REVOKE SELECT ON words FROM tailrace")
    r.run("UPDATE ledger SET number = 2 WHERE key = 1000001")
    outcome = r.pipe.ended(timeout=60)
    assert "permission denied for table words" in outcome["message"]
    assert "`tailrace check` prints the GRANT" in outcome["message"]
    told = [finding.remedy for finding in app.check(load_config(r.directory / "tailrace.toml", environ={}))]
    assert 'GRANT SELECT ON "public"."words" TO "tailrace"' in told
    r.ledger.admin("GRANT SELECT ON words TO tailrace")
    r.start()
    r.settle()
