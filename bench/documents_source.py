"""The contestants that are the source itself: the set-based SQL alone, and a loop of one query a document.

`whole` is the statement of all documents, `halves` the same by two ranges of keys at once; `psql` reads it
and `wc` counts, so nothing but the server takes time. `loop` asks for one document after the other, by the
statement that Tailrace builds documents of some keys with; `plain` by a query as one would write it by hand.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import psycopg

from bench import documents_data
from bench.contestant import Answer, serve
from bench.postgres_server import ROLE, binaries
from tailrace.app.backends import capture_for
from tailrace.config.index import parse_index
from tailrace.documents.compile import catalog_of, compile_index
from tailrace.documents.plan import IndexPlan
from tailrace.documents.render import Keys, build_query
from tailrace.documents.render.query import Range

# As Tailrace has it; a compilation of the statement costs more than it gives here.
OPTIONS = "-c jit=off"
PLAIN = """
SELECT json_build_object(
    'id', c.id, 'name', c.name, 'email', c.email, 'active', c.active, 'since', c.since,
    'orders', coalesce((
        SELECT json_agg(json_build_object(
            'id', o.id, 'total', o.total, 'placed', o.placed,
            'items', coalesce((
                SELECT json_agg(json_build_object(
                    'id', i.id, 'quantity', i.quantity,
                    'product', (
                        SELECT json_build_object('title', p.title, 'price', p.price)
                        FROM products p WHERE p.id = i.product_id
                    )
                ) ORDER BY i.id) FROM items i WHERE i.order_id = o.id
            ), '[]'),
            'item_count', (SELECT count(*) FROM items i WHERE i.order_id = o.id),
            'item_quantity', (SELECT sum(i.quantity) FROM items i WHERE i.order_id = o.id)
        ) ORDER BY o.placed DESC, o.id) FROM orders o WHERE o.customer_id = c.id
    ), '[]'),
    'order_count', (SELECT count(*) FROM orders o WHERE o.customer_id = c.id),
    'order_total', (SELECT sum(o.total) FROM orders o WHERE o.customer_id = c.id),
    'last_order', (SELECT max(o.placed) FROM orders o WHERE o.customer_id = c.id)
)::text FROM customers c WHERE c.id = %s
"""


def drain(port: int, rows: int, way: str, **_: Any) -> Answer:
    """Every document, by the source alone."""
    plan, url = _plan(port, rows), _url(port, rows)
    with psycopg.connect(url) as connection:
        bound = psycopg.ClientCursor(connection)
        if way == "whole":
            queries = [bound.mogrify(build_query(plan, "postgres").sql, ())]
        else:
            middle = [rows // 2]
            low, high = (
                build_query(plan, "postgres", scope) for scope in (Range(low=False), Range(high=False))
            )
            queries = [
                bound.mogrify(low.sql, low.bind_range(high=middle)),
                bound.mogrify(high.sql, high.bind_range(low=middle)),
            ]
    begun = time.perf_counter()
    counts = [_counted(url, query) for query in queries]
    found = [count.communicate()[0] for count in counts]
    seconds = time.perf_counter() - begun
    lines, size = (sum(column) for column in zip(*(map(int, text.split()) for text in found), strict=True))
    # Without the tab and the line's end.
    return {"seconds": seconds, "documents": lines, "bytes": size - 2 * lines}


def loop(port: int, rows: int, way: str, sample: int, **_: Any) -> Answer:
    """One document after the other, of a sample all over the table."""
    query = build_query(_plan(port, rows), "postgres", Keys())
    keys = [at * 7919 % rows + 1 for at in range(sample)]
    found = size = 0
    with psycopg.connect(_url(port, rows), options=OPTIONS, autocommit=True) as connection:
        begun = time.perf_counter()
        for key in keys:
            if way == "plain":
                row = connection.execute(PLAIN, (key,)).fetchone()
            else:
                row = connection.execute(query.sql, (f"{{{key}}}",)).fetchone()
            found += row is not None
            size += len(row[-1]) if row is not None else 0
        seconds = time.perf_counter() - begun
    return {"seconds": seconds, "documents": found, "bytes": size}


def _counted(url: str, query: str) -> subprocess.Popen[bytes]:
    command = [str(binaries() / "psql"), "-X", "-q", "-d", url, "-c", f"COPY ({query}) TO STDOUT"]
    reading = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PGOPTIONS": OPTIONS})
    assert reading.stdout is not None
    with reading.stdout as rows:
        return subprocess.Popen(["wc", "-lc"], stdin=rows, stdout=subprocess.PIPE)


def _url(port: int, rows: int) -> str:
    return f"postgresql://{ROLE}@127.0.0.1:{port}/{documents_data.database(rows)}"


def _plan(port: int, rows: int) -> IndexPlan:
    capture = capture_for(_url(port, rows))
    try:
        schema = parse_index(documents_data.SCHEMA, "customers.schema.yml")
        return compile_index(documents_data.INDEX, schema, catalog_of(capture))
    finally:
        capture.close()


if __name__ == "__main__":
    serve({"drain": drain, "loop": loop})
