"""Are the documents what somebody would get by rebuilding them now?

One query a row, and no code of Tailrace's. This is the naive way: for each customer its orders, for each
order its lines, for each line its product.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tailrace.demo.compare import Difference
from tailrace.demo.database import Database, connect
from tailrace.demo.store import INDEX, Store


def compare(shop: str, store: Store) -> Difference:
    """Compare every document of the store with one that is rebuilt, at one moment of the source."""
    wanted, kept = rebuilt(shop), store.documents()
    return Difference(
        f"documents: {INDEX}",
        rows=len(wanted),
        missing=len(wanted.keys() - kept.keys()),
        extra=len(kept.keys() - wanted.keys()),
        different=sum(wanted[id_] != kept[id_] for id_ in wanted.keys() & kept.keys()),
    )


def rebuilt(shop: str) -> dict[str, Any]:
    """The documents that there should be, by id, at one moment of the source."""
    with connect(shop, reading=True) as source:
        source.begin_reading()
        return {str(row["id"]): _customer(source, row) for row in source.rows("SELECT * FROM customers")}


def _customer(source: Database, row: dict[str, Any]) -> dict[str, Any]:
    orders = source.rows("SELECT * FROM orders WHERE customer_id = ?", row["id"])
    orders.sort(key=lambda order: order["id"])
    orders.sort(key=lambda order: order["ordered_at"], reverse=True)
    return {
        "name": row["name"],
        "email": row["email"],
        "city": row["city"],
        "vip": bool(row["vip"]),
        "order_count": len(orders),
        "orders": [_order(source, order) for order in orders],
    }


def _order(source: Database, row: dict[str, Any]) -> dict[str, Any]:
    items = source.rows("SELECT * FROM items WHERE order_id = ? ORDER BY line", row["id"])
    return {
        **{name: row[name] for name in ("id", "status", "note", "ordered_at")},
        "pieces": sum(item["quantity"] for item in items) if items else None,
        "items": [_item(source, item) for item in items],
    }


def _item(source: Database, row: dict[str, Any]) -> dict[str, Any]:
    found = source.rows("SELECT sku, title, price FROM products WHERE sku = ?", row["sku"])
    product = {name: _plain(value) for name, value in found[0].items()} if found else None
    return {**{name: row[name] for name in ("line", "quantity", "discount")}, "product": product}


def _plain(value: Any) -> Any:
    """PostgreSQL has decimals; JSON has numbers."""
    return float(value) if isinstance(value, Decimal) else value
