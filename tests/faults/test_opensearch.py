"""OpenSearch as a target of faults: a real server, a proxy before it that goes wrong, and kills.

Rows 6, 7, 15, 16, 29, 35 and 37 to 40. Readers ask the alias; the end is judged by a naive rebuild.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.faults.marks import databases
from tests.faults.rig import Rig
from tests.faults.searching import refills, search
from tests.faults.test_delivery import MEGABYTE, changelog_bytes, full
from tests.faults.test_documents import CHUNKS, MIXED, ROWS, arrive, documents, ready
from tests.support.documents.polling import Polling
from tests.support.httpproxy import Action, Answer, CutAfter, CutBefore, HttpProxy, Item, Refuse, Wait
from tests.support.opensearch import Client, Server
from tests.support.waiting import wait_until

Make = Callable[..., Rig]
MOVE = "UPDATE lines SET of = 1000002 WHERE of = 1000001"


@pytest.fixture
def searched(opensearch: Client, prefix: str, cluster: HttpProxy, rig: Make) -> Make:
    """Makes rigs whose documents go through the proxy."""

    def make(settings: dict[str, Any] | None = None, **more: Any) -> Rig:
        return rig(search=search(opensearch, cluster.url, prefix, **(settings or {})), **more)

    return make


def version_of(r: Rig, client: Client, id_: str) -> int:
    """The version of a document as the cluster has it now, found or not."""
    status, answer = client.ask("GET", f"/{documents(r).index}/_doc/{id_}")
    return int(answer["_version"]) if status == 200 else -1


def places(r: Rig, client: Client) -> set[str]:
    """The indexes behind the alias."""
    status, answer = client.ask("GET", f"/_alias/{documents(r).index}")
    return set(answer) if status == 200 else set()


@databases(long="postgres")
def test_a_kill_when_the_cluster_has_the_documents_and_its_reply_is_on_the_way_changes_nothing(
    searched: Make, cluster: HttpProxy, opensearch: Client
) -> None:
    r = ready(searched(rows=10, documents=""))
    before, lost = version_of(r, opensearch, "1000001"), threading.Event()
    cluster.next("_bulk", Wait(lost, after=True))
    r.run(MOVE)
    wait_until(lambda: version_of(r, opensearch, "1000001") > before, what="the write")
    r.pipe.kill()
    lost.set()
    version = version_of(r, opensearch, "1000001")
    assert (r.cursor() or 0) < version, "it was not acknowledged"
    opensearch.do("POST", f"/{documents(r).index}/_refresh")
    held = documents(r).found().to_pydict()
    r.points.arm("flushed", "block")
    r.start()
    r.struck("flushed")
    assert documents(r).found().to_pydict() == held
    r.points.go("flushed")
    r.settle()


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
def test_a_kill_during_the_swap_of_the_alias_never_shows_fewer_documents(
    searched: Make, cluster: HttpProxy, opensearch: Client, after: bool
) -> None:
    r = ready(searched(**CHUNKS))
    control, old, late = refills(r), places(r, opensearch), threading.Event()
    with Polling(documents(r).read).reading() as reader:
        cluster.next("_aliases", Wait(late, after=after))
        (filling,) = control.ask([documents(r).index])
        wait_until(lambda: cluster.left == 0, what="the swap")
        if after:
            wait_until(lambda: places(r, opensearch).isdisjoint(old), what="the new one behind the alias")
        assert control.state(filling) == "filling"
        r.pipe.kill()
        # What the dead process asked for comes to the cluster all the same.
        late.set()
        reader.deletes("1000002")
        r.run("DELETE FROM ledger WHERE key = 1000002", "UPDATE lines SET of = 1000059 WHERE id = 1")
        r.start()
        wait_until(lambda: control.state(filling) == "complete", what="the new documents")
        arrive(r)
    assert len(places(r, opensearch)) == 1
    assert places(r, opensearch).isdisjoint(old)
    r.settle()


@pytest.mark.long
def test_rows_that_change_between_resolve_and_build_give_documents_at_least_as_new(searched: Make) -> None:
    r = ready(searched(rows=10, documents=""))
    r.points.arm("build", "block")
    r.run("UPDATE lines SET word = 3 WHERE of = 1000001")
    assert r.struck("build")["documents"] == 1
    r.run("UPDATE lines SET of = 1000004 WHERE id = 1", "DELETE FROM ledger WHERE key = 1000001")
    r.run("UPDATE words SET text = 'drei' WHERE id = 3")
    r.points.arm("flushed", "block")
    r.points.go("build")
    r.struck("flushed")
    assert "1000001" not in documents(r).versions()
    r.points.go("flushed")
    r.settle()


@pytest.mark.long
def test_all_that_can_happen_to_rows_in_one_batch_leaves_the_right_documents(
    searched: Make, kind: str
) -> None:
    r = ready(searched(rows=10, documents=""))
    r.run(*MIXED)
    arrive(r)
    documents(r).check()
    for table, row in ROWS.items():
        emptied = f"TRUNCATE {table}" if kind == "postgres" else f"DELETE FROM {table}"
        r.run(row.format(number=1), emptied, row.format(number=2))
        arrive(r)
        documents(r).check()
    assert r.pipe.terminate()["error"] is None


@pytest.mark.long
def test_an_outage_acknowledges_nothing_while_it_lasts_and_nothing_is_lost(
    searched: Make, cluster: HttpProxy
) -> None:
    # The sink gives up within a second, and the engine comes again.
    r = ready(searched({"max_elapsed": 0.5}, rows=10, documents=""))
    before, held = r.cursor(), documents(r).found().to_pydict()
    cluster.next("_bulk", Answer(429, retry_after=0.2), Answer(429), Answer(503))
    cluster.always("", Answer(503))
    r.run(MOVE)
    r.write(limit=30)
    r.finish()
    wait_until(lambda: cluster.left == 0, what="the refusals")
    asked = cluster.seen("_bulk")
    wait_until(lambda: cluster.seen("_bulk") > asked + 3, what="more attempts")
    r.stays(lambda: r.cursor() == before, 1.5)
    assert documents(r).found().to_pydict() == held
    assert r.pipe.process.poll() is None, "it waits"
    assert cluster.seen("_bulk") - asked < 200, "it does not hammer"
    cluster.clear()
    r.settle()


@pytest.mark.long
def test_a_cluster_that_is_killed_and_started_again_is_waited_for(own_opensearch: Server, rig: Make) -> None:
    with_client = own_opensearch.client()
    r = ready(rig(**CHUNKS, search=search(with_client, own_opensearch.url, "own_")))
    before, pid = r.cursor(), own_opensearch.pid
    own_opensearch.kill()
    assert pid is not None
    assert own_opensearch.pid is None, "nothing was killed"
    r.run(MOVE, "DELETE FROM ledger WHERE key = 1000003")
    r.write(limit=50)
    r.finish()
    r.stays(lambda: r.cursor() == before, 7.0)
    assert r.pipe.process.poll() is None, "it waits"
    own_opensearch.start()
    r.settle(timeout=120)
    with_client.close()


@pytest.mark.long
def test_a_frozen_cluster_is_given_up_in_time_and_taken_up_again(own_opensearch: Server, rig: Make) -> None:
    client = own_opensearch.client()
    r = ready(rig(rows=10, documents="", search=search(client, own_opensearch.url, "own_", timeout=1.0)))
    before = r.cursor()
    own_opensearch.freeze()
    try:
        # The second attempt: the first was given up.
        r.points.arm("document.before", "note")
        r.run(MOVE)
        first = r.struck("document.before")["version"]
        r.points.arm("document.before", "note", version=first)
        r.struck("document.before", timeout=60)
        assert r.cursor() == before
    finally:
        own_opensearch.thaw()
    r.settle(timeout=120)
    client.close()


@pytest.mark.long
def test_a_cluster_a_hundred_times_slower_pauses_capture_within_its_bounds_and_nothing_is_lost(
    searched: Make, cluster: HttpProxy
) -> None:
    limit = 100_000
    r = searched(rows=10, documents="", maxChangelogBytes=limit)
    ready(r)
    process, slow = psutil.Process(r.pipe.process.pid), threading.Event()
    begin = process.memory_info().rss
    cluster.always("_bulk", lambda _: Wait(slow) if not slow.is_set() else None)
    sizes, tops = [], []
    for number in range(40):
        r.insert(2_000_000 + 10_000 * number, 300, note=":" + "y" * 200)
        sizes.append(changelog_bytes(r))
        tops.append(process.memory_info().rss)
    paused = wait_until(lambda: full(r, limit), timeout=120, what="a full changelog that grows no more")
    head = len(r.ledger.rows())
    r.insert(3_000_000, 300, note=":" + "z" * 200)
    r.stays(lambda: changelog_bytes(r) == paused, 1.0)
    assert len(r.ledger.rows()) == head + 300, "the application is not held up"
    assert max(*sizes, paused) < 20 * limit
    assert max(tops) - begin < 100 * MEGABYTE
    cluster.clear()
    cluster.always("_bulk", Wait(0.2))
    slow.set()
    r.settle(timeout=120)


@pytest.mark.long
def test_a_cluster_whose_disk_is_full_is_waited_for_and_healed_by_space(
    searched: Make, cluster: HttpProxy, opensearch: Client
) -> None:
    r = ready(searched({"max_elapsed": 0.5}, rows=10, documents=""))
    before, block = r.cursor(), "index.blocks.read_only_allow_delete"
    # What the server does by itself at its flood-stage watermark.
    opensearch.do("PUT", f"/{documents(r).index}/_settings", {block: True})
    asked = cluster.seen("_bulk")
    r.run(MOVE)
    wait_until(lambda: cluster.seen("_bulk") > asked + 1, what="a write that was refused, and another try")
    r.stays(lambda: r.cursor() == before, 2.0)
    assert r.pipe.process.poll() is None, "it waits"
    opensearch.do("PUT", f"/{documents(r).index}/_settings", {block: None})
    r.settle()


@pytest.mark.long
def test_of_mixed_answers_only_the_passing_are_sent_again_and_the_poison_is_written_down(
    searched: Make, cluster: HttpProxy
) -> None:
    r = ready(searched(rows=10, documents='on_error = "skip"'))
    before = documents(r).versions()
    tried: dict[str, int] = {}

    def judge(item: Item) -> tuple[int, str, str] | None:
        tried[item.id] = tried.get(item.id, 0) + 1
        if item.id == "1000003":
            return 400, "mapper_parsing_exception", "failed to parse field [note] of type [text]"
        busy = item.id in ("1000004", "1000005") and tried[item.id] == 1
        return (429, "rejected_execution_exception", "queue is full") if busy else None

    cluster.always("_bulk", Refuse(judge))
    r.run(
        "UPDATE ledger SET number = 7 WHERE key IN (1000003, 1000004, 1000006)",
        "INSERT INTO ledger VALUES (3000005, 1, ':never seen')",
        "DELETE FROM ledger WHERE key = 3000005",
        "DELETE FROM ledger WHERE key = 1000005",
    )
    arrive(r)
    cluster.clear()
    assert (tried["1000004"], tried["1000005"], tried["1000006"], tried["1000003"]) == (2, 2, 1, 1)
    now = documents(r).versions()
    assert now["1000004"] == now["1000006"] > before["1000004"]
    assert now["1000003"] == before["1000003"], "it has its last good one"
    assert not {"3000005", "1000005"} & now.keys()
    assert documents(r).letters() == ("1000003",)
    documents(r).check(without=documents(r).letters())
    r.run("UPDATE ledger SET number = 8 WHERE key = 1000003")
    r.settle()


@pytest.mark.long
def test_requests_that_are_cut_and_answers_that_are_lost_change_nothing(
    searched: Make, cluster: HttpProxy
) -> None:
    r = searched(**CHUNKS)
    cuts: list[Action] = [CutAfter(), CutBefore(), CutAfter(passed=30)]
    cluster.next("_bulk", *cuts)
    cluster.next("_aliases", CutAfter(), CutBefore())
    ready(r)
    cluster.next("_bulk", *cuts)
    r.run(MOVE, "DELETE FROM ledger WHERE key = 1000003")
    r.settle()
    assert cluster.left <= 2, "there may be no swap in a first filling"


@pytest.mark.long
def test_writes_of_old_batches_that_arrive_after_newer_ones_change_no_document(searched: Make) -> None:
    r = ready(searched(**CHUNKS, late=True))
    for number in range(6):
        r.run(
            f"UPDATE lines SET of = {1_000_001 + number % 3} WHERE id = 1",
            f"DELETE FROM ledger WHERE key = {1_000_001 + number}",
        )
        r.arrived(r.sentinel())
    r.settle()


@pytest.mark.long
def test_documents_of_batches_delivered_three_times_and_shuffled_are_the_same(searched: Make) -> None:
    manners = {"times": 3, "shuffled": True, "twins": True}
    r = ready(searched(**CHUNKS, numPartitions=4, manners=manners))
    r.write(limit=100, keys=5)
    r.run(*MIXED)
    r.finish()
    r.settle()
