"""From a commit in PostgreSQL to a hit in OpenSearch, on an idle pipeline.

Beside it, in the same session and on the same server: an empty micro-batch, and a refresh that shows one
document. A change is looked for by a query, all the time.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3

import tailrace
from bench.empty import empty_batches
from bench.measure import Figure, at_most, p50, p90
from bench.postgres_server import ROLE, Server, running
from tailrace import app
from tailrace.config.load import load_config
from tailrace.engine.pipeline import Pipeline
from tailrace.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000
PATIENCE = 120.0
INDEX = "people"
_SCHEMA = """\
version: 1
table: people
primary_key: id
fields:
  - long: id
  - text: name
  - keyword: mark
"""
_CONFIG = """\
name = "latency"
[source]
url = "{source}"
[sinks.search]
type = "opensearch"
url = "{search}"
replicas = 0
[[index]]
name = "people"
schema = "people.schema.yml"
"""


def latency(search: str, changes: int) -> tuple[list[Figure], dict[str, Any]]:
    """So many changes, one after the other; the figures, and all waits."""
    http = urllib3.PoolManager(retries=False)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running() as server:
        home = Path(name)
        _fill(server)
        url = f"postgresql://{ROLE}@127.0.0.1:{server.port}/postgres"
        (home / "people.schema.yml").write_text(_SCHEMA)
        file = home / "tailrace.toml"
        file.write_text(_CONFIG.format(source=url, search=search))
        spark = open_session("bench", log=home / "spark.log")
        try:
            tailrace.register(spark)
            with _pipeline(spark, file) as alive:
                _until(lambda: _count(http, search, "first") == ROWS, alive)
                waits = list(_waits(http, search, server, changes, alive))
            empty = empty_batches(spark, home, 2 * changes)
        finally:
            spark.stop()
    refreshes = _refreshes(http, search, changes)
    # The first quarter warms everybody.
    waits, refreshes = waits[changes // 4 :], refreshes[changes // 4 :]
    allowed = 3 * p50(empty) + p50(refreshes)
    figures = [
        Figure("empty micro-batch, p50", p50(empty) * 1000, "ms"),
        Figure("refresh of one document, p50", p50(refreshes) * 1000, "ms"),
        Figure("commit → hit, p50", p50(waits) * 1000, "ms"),
        Figure("commit → hit, p90", p90(waits) * 1000, "ms"),
        at_most("commit → hit, p50, against 3 empty micro-batches and a refresh", p50(waits) / allowed, 1.0),
    ]
    return figures, {"waits": waits, "empty": empty, "refreshes": refreshes}


def _fill(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL, mark text)")
        connection.execute(
            f"INSERT INTO people SELECT i, 'number ' || i, 'first' FROM generate_series(1, {ROWS}) i"
        )


@contextmanager
def _pipeline(spark: SparkSession, file: Path) -> Iterator[Callable[[], None]]:
    """A pipeline that runs as long as the block; what is yielded raises its error, if it has ended by one."""
    failed: list[BaseException] = []
    config = load_config(file)
    pipeline = Pipeline(app.pipeline_spec(config), spark, release=lambda _: None)

    def run() -> None:
        try:
            pipeline.run()
        except BaseException as error:
            failed.append(error)

    def alive() -> None:
        if failed:
            raise failed[0]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield alive
    finally:
        pipeline.request_stop()
        thread.join(PATIENCE)
    alive()


def _waits(
    http: urllib3.PoolManager, search: str, server: Server, changes: int, alive: Callable[[], None]
) -> Iterator[float]:
    with server.connect() as connection:
        for number in range(changes):
            time.sleep(random.uniform(0.2, 0.5))
            mark = f"mark-{number}"
            connection.execute("UPDATE people SET mark = %s WHERE id = %s", (mark, number % ROWS + 1))
            begun = time.perf_counter()
            _until(lambda mark=mark: _count(http, search, mark) == 1, alive)  # type: ignore[misc]
            yield time.perf_counter() - begun


def _until(condition: Callable[[], bool], alive: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        alive()
        if time.monotonic() > deadline:
            raise RuntimeError(f"a change was not found within {PATIENCE:.0f} s")
        time.sleep(0.002)


def _count(http: urllib3.PoolManager, search: str, mark: str) -> int:
    query = {"query": {"term": {"mark": mark}}}
    answer = http.request("POST", f"{search}/{INDEX}/_count?ignore_unavailable=true", json=query)
    return int(answer.json().get("count", 0)) if answer.status == 200 else 0


def _refreshes(http: urllib3.PoolManager, search: str, count: int) -> list[float]:
    """Seconds of refreshes, each after one document was written to the index of the pipeline."""
    found: list[float] = []
    for number in range(count):
        body = {"id": number, "name": "refreshed", "mark": f"refresh-{number}"}
        http.request("PUT", f"{search}/{INDEX}/_doc/refreshed", json=body)
        begun = time.perf_counter()
        http.request("POST", f"{search}/{INDEX}/_refresh")
        found.append(time.perf_counter() - begun)
    return found
