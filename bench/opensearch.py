"""Bulk speed of the OpenSearch sink against a plain loop that posts the same requests, and latency.

One server, and as many connections for both. Documents are customers with their orders, nested, typed and
analysed as the sink derives it. Both fill new indexes of the same form, one after the other, with the same
batches: the sink is given Arrow arrays, the loop the very bodies that the sink would send, made beforehand,
and does nothing with the answers but read them. Ratios are those of each round, and the one in the middle
counts.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

import pyarrow as pa
import urllib3
from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Figure, Outcome, at_least
from bench.opensearch_latency import latency
from tailrace.sinks.contract import DocumentBatch
from tailrace.sinks.opensearch import OpenSearchConfig, OpenSearchSink
from tailrace.sinks.opensearch.encode import encode, pieces
from tailrace.sinks.opensearch.generations import write_alias
from tests.support.opensearch import Server, unavailable

DOCUMENTS, QUICK_DOCUMENTS = 200_000, 20_000
# As the engine gives them to a sink, and larger ones.
BATCH, CONNECTIONS, ROUNDS = 2_000, 2, 5
SINK, LOOP = "tailrace", "loop"
BAR = 0.8
CHANGES, QUICK_CHANGES = 80, 16
_ORDERS = 3
MAPPING: dict[str, Any] = {
    "id": {"type": "long", "nullable": False},
    "name": {"type": "text", "nullable": False},
    "email": {"type": "keyword", "nullable": False},
    "status": {"type": "enum", "nullable": False, "variants": ["new", "active", "gone"]},
    "created": {"type": "timestamp", "nullable": False},
    "orders": {"type": "nested", "nullable": False, "many": True},
    "orders.id": {"type": "long", "nullable": False},
    "orders.code": {"type": "identifier", "nullable": False},
    "orders.total": {"type": "decimal", "nullable": False},
    "orders.note": {"type": "text", "nullable": True},
    "spent": {"type": "decimal", "nullable": True},
}


@dataclass(frozen=True)
class Result:
    """What one contestant did once, from the first request to the last answer; its CPU is this process's."""

    contestant: str
    turn: int
    documents: int
    megabytes: float
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.documents / self.seconds


def run(console: Console, arguments: list[str]) -> Outcome:
    """Measure and compare."""
    options = _options(arguments)
    if (reason := unavailable()) is not None:
        return Outcome([], problems=[f"{reason}: scripts/opensearch"])
    results: list[Result] = []
    # A small heap looks full whenever its garbage was not collected yet, and the loop knows no second try.
    settings = {"indices.breaker.total.use_real_memory": "false", "indices.memory.index_buffer_size": "20%"}
    server = Server(**settings)
    try:
        batches = list(_batches(options.documents, options.batch))
        for turn in range(-1, options.rounds):
            # Who comes first changes; the first round warms the server and does not count.
            order = (SINK, LOOP) if turn % 2 else (LOOP, SINK)
            for name in order:
                found = _measured(server.url, name, turn, batches, options.connections)
                if turn >= 0:
                    results.append(found)
                console.print(f"round {turn + 1}: {name} {found.rate:,.0f} documents/s", highlight=False)
        waited, waits = latency(server.url, options.changes)
    finally:
        server.remove()
    _show(console, results)
    ratios = _ratios(results)
    figures = [
        at_least(f"bulk, {SINK} against {LOOP}, {options.connections} connections", median(ratios), BAR),
        Figure("the lowest round", min(ratios), "×", compared=False),
        Figure("the highest round", max(ratios), "×", compared=False),
        *waited,
    ]
    details: list[dict[str, object]] = [{**asdict(one), "rate": one.rate} for one in results]
    details.append(waits)
    return Outcome(figures, details, bars=not options.no_bars)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="opensearch …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help=f"documents ({DOCUMENTS})")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"documents of a batch ({BATCH})")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help=f"connections ({CONNECTIONS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often both are measured ({ROUNDS})")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes to wait for ({CHANGES})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_DOCUMENTS} documents, one round")
    parser.add_argument("--no-bars", action="store_true", help="end with 0 also when a bar was missed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.documents, options.rounds, options.changes = QUICK_DOCUMENTS, 1, QUICK_CHANGES
    if min(options.documents, options.batch, options.connections, options.rounds) < 1 or options.changes < 8:
        parser.error("numbers must be at least 1, --changes 8")
    return options


def _batches(documents: int, size: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Ids and texts, as the engine builds them."""
    for start in range(0, documents, size):
        numbers = range(start, min(start + size, documents))
        yield (
            pa.array([str(number) for number in numbers], pa.string()),
            pa.array([_document(number) for number in numbers], pa.string()),
        )


def _document(number: int) -> str:
    orders = [
        {
            "id": number * 10 + at,
            "code": f"C-{number % 9973:05}-{at}",
            "total": number % 1000 + at / 4,
            "note": f"order {at} of a customer whose number is {number}, to be sent with the next ship",
        }
        for at in range(_ORDERS)
    ]
    body = {
        "id": number,
        "name": f"Customer number {number} of {number % 97} in the street of the {number % 31} lanterns",
        "email": f"customer{number}@example.com",
        "status": ("new", "active", "gone")[number % 3],
        "created": f"2026-0{number % 9 + 1}-1{number % 9}T12:00:00.{number % 1000:03}Z",
        "orders": orders,
        "spent": sum(order["total"] for order in orders),  # type: ignore[misc]
    }
    return json.dumps(body, separators=(",", ":"))


def _measured(
    url: str, name: str, turn: int, batches: Sequence[tuple[pa.Array, pa.Array]], connections: int
) -> Result:
    index, generation = f"bench_{name}_{turn + 1}", "g"
    config = OpenSearchConfig(url, replicas=0, parallel=connections)
    sink = OpenSearchSink(config)
    try:
        sink.ensure(index, generation, MAPPING)
        made = [DocumentBatch(index, generation, ids, texts, 1) for ids, texts in batches]
        bodies = _bodies(made, config)
        size = sum(len(body) for body in bodies)
        if name == SINK:
            bodies = []
            seconds, cpu = _timed(lambda: _write(sink, made))
        else:
            path = f"{url}/{write_alias(index, generation)}/_bulk?require_alias=true"
            path += "&filter_path=errors,items.*.status,items.*.error"
            seconds, cpu = _timed(lambda: _post(path, bodies, connections))
        # By the alias it is written through: there is one to read by only once a filling is complete.
        count = _count(url, write_alias(index, generation))
        documents = sum(len(one) for one in made)
        assert count == documents, f"{name} left {count} documents instead of {documents}"
        return Result(name, turn, documents, size / 1e6, seconds, cpu)
    finally:
        sink.drop(index)
        sink.close()


def _bodies(batches: Sequence[DocumentBatch], config: OpenSearchConfig) -> list[memoryview]:
    limits = {"max_bytes": config.bulk_bytes, "max_items": config.bulk_actions, "parallel": config.parallel}
    return [
        piece.body
        for one in batches
        for piece in pieces(
            encode(one.ids.cast(pa.large_string()), one.documents.cast(pa.large_string()), one.version),
            **limits,
        )
    ]


def _write(sink: OpenSearchSink, batches: Sequence[DocumentBatch]) -> None:
    for batch in batches:
        report = sink.write(batch)
        assert report.written == len(batch)
    sink.flush()


def _post(url: str, bodies: Sequence[memoryview], connections: int) -> None:
    """As many threads as connections, each of which posts the next body when it has its answer."""
    waiting: SimpleQueue[Any] = SimpleQueue()
    for body in bodies:
        waiting.put(body)
    failed: list[int] = []
    pool = urllib3.PoolManager(maxsize=connections, retries=False)

    def post() -> None:
        while not failed:
            try:
                body = waiting.get_nowait()
            except Empty:
                return
            answer = pool.request("POST", url, body=body, headers={"Content-Type": "application/x-ndjson"})
            if answer.status != 200 or b'"errors":true' in answer.data[:100]:
                failed.append(answer.status)

    threads = [threading.Thread(target=post) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, f"the loop was answered with {failed}"


def _timed(call: Callable[[], None]) -> tuple[float, float]:
    begun, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begun, time.process_time() - cpu


def _count(url: str, index: str) -> int:
    http = urllib3.PoolManager(retries=False)
    http.request("POST", f"{url}/{index}/_refresh")
    return int(http.request("GET", f"{url}/{index}/_count").json()["count"])


def _ratios(results: Sequence[Result]) -> list[float]:
    rates = {(one.contestant, one.turn): one.rate for one in results}
    return [rates[SINK, turn] / rates[LOOP, turn] for name, turn in rates if name == SINK]


def _show(console: Console, results: Sequence[Result]) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("", "s", "documents/s", "MB/s", "µs CPU"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in (SINK, LOOP):
        mine = sorted((one for one in results if one.contestant == name), key=lambda one: one.seconds)
        one = mine[len(mine) // 2]
        table.add_row(
            name,
            f"{one.seconds:.2f}",
            f"{one.rate:,.0f}",
            f"{one.megabytes / one.seconds:.1f}",
            f"{one.cpu_seconds / one.documents * 1e6:.1f}",
        )
    console.print(table)
