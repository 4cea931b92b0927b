"""From a commit in PostgreSQL to whoever waits for it: a bare client, Tailrace in Spark, and Debezium.

One row a transaction, on an idle server and an idle consumer, one contestant after the other, each in a
process of its own. Beside them a micro-batch of Spark's that holds nothing, which is the least a stream in
Spark can take.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import peers
from bench.contestant import Contestant, Failed
from bench.measure import Figure, Outcome, p50, p90
from bench.postgres_data import PEER_PUBLICATION, PUBLICATION
from bench.postgres_server import Server, running
from bench.usage import Machine, Sampler, Watch

CHANGES, QUICK_CHANGES = 150, 16
CLIENT, TAILRACE, DEBEZIUM, EMPTY = "client", "tailrace", "debezium", "empty micro-batch"
MODULES = {
    CLIENT: "bench.latency_client",
    TAILRACE: "bench.latency_spark",
    DEBEZIUM: "bench.latency_debezium",
}
DATABASE = "latency"
PREPARE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, city text)",
    "INSERT INTO orders VALUES (0, 'before')",
    *(f"CREATE PUBLICATION {name} FOR TABLE orders" for name in (PUBLICATION, PEER_PUBLICATION)),
)


def run(console: Console, arguments: list[str]) -> Outcome:
    """All contestants."""
    options = _options(arguments)
    details: list[dict[str, Any]] = []
    problems: list[str] = []
    kinds = list(MODULES)
    if missing := peers.install(lambda text: console.print(text, highlight=False)):
        problems.append(missing)
        kinds.remove(DEBEZIUM)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running() as server:
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        with server.connect(DATABASE) as connection:
            for statement in PREPARE:
                connection.execute(statement)
        first = 1
        for kind in kinds:
            try:
                details += _measured(server, kind, Path(name), range(first, first + options.changes))
            except Failed as error:
                problems.append(f"{kind}: {error}")
                continue
            finally:
                first += options.changes
            console.print(f"{kind}: p50 {p50(details[-1]['waits']) * 1000:.1f} ms", highlight=False)
    return Outcome(_figures(details), details, problems, bars=not options.no_bars)


def _measured(server: Server, kind: str, home: Path, keys: range) -> list[dict[str, Any]]:
    """The waits of one contestant, and those of an empty micro-batch where it has Spark."""
    told = {"port": server.port, "database": DATABASE}
    with _started(kind, home) as contestant, server.connect(DATABASE) as connection:
        contestant.ask("listen", **told)
        # Warm, and certainly listening.
        waits: list[float] = []
        whole, machine = Watch(contestant.pid), Machine()
        with Sampler(whole):
            for key in keys:
                time.sleep(random.uniform(0.02, 0.1))
                connection.execute("INSERT INTO orders VALUES (%s, 'a city')", (key,))
                begun = time.perf_counter()
                # What is there before this process has taken note of the commit took no time.
                waits.append(max(0.0, contestant.ask("wait", key=key)["moment"] - begun))
        result = {
            "what": kind,
            "waits": waits[len(waits) // 4 :],
            "cpu_seconds": whole.cpu,
            "tree_peak_mb": whole.peak_sum / 1e6,
            "others": machine.others(whole.cpu),
        }
        answer = contestant.ask("rest", count=2 * len(keys))
    return [*([{"what": EMPTY, "waits": answer["empty"]}] if "empty" in answer else []), result]


@contextmanager
def _started(kind: str, home: Path) -> Iterator[Contestant]:
    contestant = Contestant(kind, MODULES[kind], home)
    try:
        yield contestant
    finally:
        contestant.close()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make bench BENCH="latency …"', description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"commits to wait for ({CHANGES})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_CHANGES}")
    parser.add_argument("--no-bars", action="store_true", help="there are none")
    options = parser.parse_args(arguments)
    if options.quick:
        options.changes = QUICK_CHANGES
    if options.changes < 8:
        parser.error("--changes must be at least 8")
    return options


def _figures(details: list[dict[str, Any]]) -> list[Figure]:
    waits = {one["what"]: one["waits"] for one in details}
    figures = []
    for what, mine in waits.items():
        figures += [
            Figure(f"{what}, p50", p50(mine) * 1000, "ms"),
            Figure(f"{what}, p90", p90(mine) * 1000, "ms"),
        ]
    for other in (EMPTY, DEBEZIUM):
        if other in waits and TAILRACE in waits:
            ratio = p50(waits[TAILRACE]) / p50(waits[other])
            figures.append(Figure(f"{TAILRACE} against {other}, p50", ratio, "×", lower=True))
    return figures
