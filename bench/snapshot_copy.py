"""The contestant that throws everything away: `COPY … TO STDOUT` by psql, a process for each partition."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from bench.contestant import Answer, serve
from bench.postgres_server import ROLE, binaries


def drain(port: int, database: str, table: str, rows: int, parts: int, **_: Any) -> Answer:
    """Every row, by ranges of the key, all at once."""
    begun = time.perf_counter()
    queries = [_query(table, rows, part, parts) for part in range(parts)]
    processes = [
        subprocess.Popen(_command(port, database, query), stdout=subprocess.DEVNULL) for query in queries
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError("psql failed")
    # A COPY without an error is whole.
    return {"rows": rows, "seconds": time.perf_counter() - begun}


def _query(table: str, rows: int, part: int, parts: int) -> str:
    first, end = part * rows // parts + 1, (part + 1) * rows // parts
    return f"COPY (SELECT * FROM {table} WHERE id BETWEEN {first} AND {end}) TO STDOUT"


def _command(port: int, database: str, query: str) -> list[str]:
    address = ["-h", "127.0.0.1", "-p", str(port), "-U", ROLE, "-d", database]
    return [str(binaries() / "psql"), "-X", "-q", *address, "-c", query]


if __name__ == "__main__":
    serve({"drain": drain})
