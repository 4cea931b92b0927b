"""The contestant Debezium: its initial snapshot and nothing after it, by the engine of `debezium.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.contestant import Answer, serve
from bench.debezium import SETTINGS, Debezium
from bench.postgres_server import ROLE

SNAPSHOT = {
    "snapshot.mode": "initial_only",
    "snapshot.max.threads": "2",
    "snapshot.fetch.size": "20480",
    "slot.drop.on.stop": "true",
    "publication.autocreate.mode": "filtered",
}


class Snapshots:
    """An engine for each table and round."""

    def __init__(self, home: Path) -> None:
        self._home, self._engine = home, Debezium(home)
        self._start = 0.0

    def drain(
        self, *, port: int, database: str, table: str, rows: int, sink: str, turn: int, **_: Any
    ) -> Answer:
        """Run the engine until every row was counted."""
        name = f"{table}_{turn}{sink}"
        settings = (
            SETTINGS
            | SNAPSHOT
            | {
                "name": name,
                "offset.storage.file.filename": str(self._home / f"{name}.offsets"),
                "publication.name": f"peer_{name}",
                "slot.name": f"peer_{name}",
                "table.include.list": f"public.{table}",
                "database.hostname": "127.0.0.1",
                "database.port": str(port),
                "database.user": ROLE,
                "database.password": "",
                "database.dbname": database,
            }
        )
        answer = self._engine.run(settings, rows, lean=sink == "lean")
        self._start = answer["seconds"] - answer["sustained"]
        return answer

    def finish(self, **_: Any) -> Answer:
        """Stop the engine."""
        self._engine.finish()
        return {"empty": self._start}


if __name__ == "__main__":
    contestant = Snapshots(Path(sys.argv[2]))
    serve({"drain": contestant.drain, "finish": contestant.finish})
