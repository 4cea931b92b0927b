"""Are the documents what somebody would get by rebuilding them now?

One query a row, and no code of Tailrace's. This is the naive way: for each customer its orders, for each
order its lines, for each line its product.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from tailrace.demo.compare import Difference

INDEX = "customers"


def compare(shop: Path, store: Path) -> Difference:
    """Compare every document of the store with one that is rebuilt, at one moment of the source."""
    wanted, kept = rebuilt(shop), documents(store)
    return Difference(
        f"documents: {INDEX}",
        rows=len(wanted),
        missing=len(wanted.keys() - kept.keys()),
        extra=len(kept.keys() - wanted.keys()),
        different=sum(wanted[id_] != kept[id_] for id_ in wanted.keys() & kept.keys()),
    )


def rebuilt(shop: Path) -> dict[str, Any]:
    """The documents that there should be, by id, at one moment of the source."""
    with _reading(shop) as source:
        source.execute("BEGIN")
        return {str(row["id"]): _customer(source, row) for row in _rows(source, "customers", "1")}


def documents(store: Path) -> dict[str, Any]:
    """The documents in the store, by id."""
    if not store.exists():
        return {}
    with _reading(store) as kept:
        rows = kept.execute('SELECT id, document FROM documents WHERE "index" = ?', (INDEX,))
        return {row["id"]: json.loads(row["document"]) for row in rows}


def count(store: Path) -> int | None:
    """How many documents the store has; None before there is one."""
    if not store.exists():
        return None
    try:
        with _reading(store) as kept:
            row = kept.execute('SELECT count(*) FROM documents WHERE "index" = ?', (INDEX,)).fetchone()
            return int(row[0])
    except sqlite3.OperationalError:
        # It is being created at this very moment.
        return None


class _reading:
    """A connection that only reads, closed at the end."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5, isolation_level=None)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _rows(source: sqlite3.Connection, table: str, where: str, *values: Any) -> list[sqlite3.Row]:
    return source.execute(f'SELECT * FROM "{table}" WHERE {where}', values).fetchall()


def _customer(source: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    orders = _rows(source, "orders", "customer_id = ? ORDER BY ordered_at DESC, id", row["id"])
    return {
        "name": row["name"],
        "email": row["email"],
        "city": row["city"],
        "vip": bool(row["vip"]),
        "order_count": len(orders),
        "orders": [_order(source, order) for order in orders],
    }


def _order(source: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    items = _rows(source, "items", "order_id = ? ORDER BY line", row["id"])
    return {
        **{name: row[name] for name in ("id", "status", "note", "ordered_at")},
        "pieces": sum(item["quantity"] for item in items) if items else None,
        "items": [_item(source, item) for item in items],
    }


def _item(source: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    found = _rows(source, "products", "sku = ?", row["sku"])
    product = {name: found[0][name] for name in ("sku", "title", "price")} if found else None
    return {**{name: row[name] for name in ("line", "quantity", "discount")}, "product": product}
