"""The proxy that the tests of faults rely on does what its script says, and nothing else."""

from __future__ import annotations

import gzip
import threading
import time
from typing import Any

import pytest
import urllib3

from tests.support.httpproxy import (
    Answer,
    CutAfter,
    CutBefore,
    HttpProxy,
    Item,
    Refuse,
    Request,
    Rewrite,
    Wait,
    filtered,
)
from tests.support.opensearch import Client

pytestmark = pytest.mark.long
CUT = (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError)


def bulk(*names: str, delete: bool = False) -> list[Any]:
    lines: list[Any] = []
    for name in names:
        lines += [{"delete": {"_id": name}}] if delete else [{"index": {"_id": name}}, {"v": name}]
    return lines


def there(client: Client, index: str) -> set[str]:
    client.do("POST", f"/{index}/_refresh", ignore_unavailable=True)
    return set(client.search(index))


def test_requests_pass_as_they_are_and_are_counted(opensearch: Client, prefix: str, proxy: HttpProxy) -> None:
    through = Client(proxy.url)
    index = f"{prefix}a"
    assert through.ask("HEAD", f"/{index}")[0] == 404
    assert through.do("POST", f"/{index}/_bulk", bulk("1", "2"))["errors"] is False
    packed = gzip.compress(b'{"index":{"_id":"3"}}\n{"v":"3"}\n')
    pool = urllib3.PoolManager()
    sent = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    assert pool.request("POST", f"{proxy.url}/{index}/_bulk", body=packed, headers=sent).status == 200
    pool.clear()
    assert proxy.requests[-1].items()[0].id == "3"
    assert there(opensearch, index) == {"1", "2", "3"}
    assert proxy.seen("_bulk") == 2
    through.close()


def test_a_script_answers_delays_cuts_and_loses_replies(
    opensearch: Client, prefix: str, proxy: HttpProxy
) -> None:
    through = Client(proxy.url)
    index = f"{prefix}a"
    proxy.next("_bulk", Answer(429, retry_after=3), CutBefore(), CutAfter(), CutAfter(passed=20), Wait(0.2))
    assert through.ask("POST", f"/{index}/_bulk", bulk("1"))[0] == 429
    for name in ("2", "3", "4"):
        with pytest.raises(CUT):
            through.ask("POST", f"/{index}/_bulk", bulk(name))
    # What was not meant is not touched.
    assert through.ask("GET", "/")[0] == 200
    begun = time.monotonic()
    assert through.ask("POST", f"/{index}/_bulk", bulk("5"))[0] == 200
    assert time.monotonic() - begun >= 0.2
    assert proxy.left == 0
    assert there(opensearch, index) == {"3", "4", "5"}
    through.close()


def test_a_reply_is_held_back_until_the_test_lets_it_go(
    opensearch: Client, prefix: str, proxy: HttpProxy
) -> None:
    go, done = threading.Event(), threading.Event()
    through = Client(proxy.url)
    index = f"{prefix}a"
    opensearch.create(index, {})
    proxy.next("_bulk", Wait(go, after=True))

    def write() -> None:
        through.do("POST", f"/{index}/_bulk", bulk("1"))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while there(opensearch, index) != {"1"}:
        pass
    assert not done.is_set()
    go.set()
    thread.join(30)
    assert done.is_set()
    through.close()


def test_single_items_are_refused_and_the_others_applied(
    opensearch: Client, prefix: str, proxy: HttpProxy
) -> None:
    def judge(item: Item) -> tuple[int, str, str] | None:
        return (429, "rejected", "busy") if item.id in ("2", "4") else None

    through = Client(proxy.url)
    index = f"{prefix}a"
    proxy.next("_bulk", Refuse(judge), Refuse(judge), Refuse(judge))
    said = through.do("POST", f"/{index}/_bulk", bulk("1", "2", "3", "4"))
    assert said["errors"] is True
    assert [item["index"]["status"] for item in said["items"]] == [201, 429, 201, 429]
    said = through.do(
        "POST", f"/{index}/_bulk", bulk("1", "2", delete=True), filter_path="errors,items.*.status"
    )
    assert said == {"errors": True, "items": [{"delete": {"status": 200}}, {"delete": {"status": 429}}]}
    assert through.do("POST", f"/{index}/_bulk", bulk("4"))["items"][0]["index"]["error"]["reason"] == "busy"
    assert there(opensearch, index) == {"3"}
    through.close()


def test_a_rule_decides_by_the_request_and_may_change_the_reply(
    opensearch: Client, prefix: str, proxy: HttpProxy
) -> None:
    def rule(request: Request) -> Any:
        if any(item.id == "2" for item in request.items()):
            return Rewrite(lambda said: {**said, "took": -1})
        return None

    through = Client(proxy.url)
    index = f"{prefix}a"
    proxy.always("_bulk", rule)
    assert through.do("POST", f"/{index}/_bulk", bulk("1"))["took"] >= 0
    assert through.do("POST", f"/{index}/_bulk", bulk("2"))["took"] == -1
    proxy.clear()
    assert through.do("POST", f"/{index}/_bulk", bulk("2"))["took"] >= 0
    assert there(opensearch, index) == {"1", "2"}
    through.close()


@pytest.mark.parametrize(
    "paths", ["errors", "items.*.error", "errors,items.*.status", "took,items.index._id"]
)
def test_replies_are_filtered_as_the_server_does(opensearch: Client, prefix: str, paths: str) -> None:
    index = f"{prefix}a"
    opensearch.create(index, {"mappings": {"properties": {"v": {"type": "long"}}}})
    lines = [{"index": {"_id": "1"}}, {"v": 1}, {"index": {"_id": "2"}}, {"v": "x"}, {"delete": {"_id": "9"}}]
    whole = opensearch.do("POST", f"/{index}/_bulk", lines)
    real = opensearch.do("POST", f"/{index}/_bulk", lines, filter_path=paths)
    # How long it took, and whether it was there before, is not what is filtered.
    for said in (whole, real):
        if "took" in said:
            said["took"] = 0
        for item in said.get("items", []):
            for result in item.values():
                if result.get("status") == 201:
                    result["status"] = 200
    assert filtered(whole, paths) == real
