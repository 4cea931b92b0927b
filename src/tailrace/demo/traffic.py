"""Traffic in the shop: another process that trades until it is told to stop (SIGTERM, SIGINT).

`python -m tailrace.demo.traffic SHOP [--seed N] [--pause SECONDS]`. Each act is one transaction; one in
twelve is rolled back. The acts are those that change feeds get wrong most easily: a line moved to another
order (its key changes), a customer removed with everything that hangs on it, REPLACE, a key changed, a row
deleted and made again.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from tailrace.demo.shop import LOOKS, WARES, add_customer, add_order

Act = Callable[["Trader"], None]
ROLLED_BACK = 1 / 12


class Trader:
    """One connection that writes like the shop's application would."""

    def __init__(self, path: Path, seed: int) -> None:
        self.connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        self.connection.execute("PRAGMA foreign_keys=ON")
        self.dice = random.Random(seed)  # noqa: S311
        self.committed = 0
        self.rolled_back = 0

    def act(self) -> None:
        """One transaction, committed or rolled back."""
        act = self.dice.choices([act for act, _ in ACTS], [weight for _, weight in ACTS])[0]
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            act(self)
        except sqlite3.Error:
            self.connection.execute("ROLLBACK")
            raise
        if self.dice.random() < ROLLED_BACK:
            self.connection.execute("ROLLBACK")
            self.rolled_back += 1
        else:
            self.connection.execute("COMMIT")
            self.committed += 1

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def pick(self, table: str, columns: str = "id") -> tuple[int, ...] | None:
        """A row at random; None where the table is empty."""
        row: tuple[int, ...] | None = self.connection.execute(
            f"SELECT {columns} FROM {table} LIMIT 1"
            f" OFFSET abs(random()) % max(1, (SELECT count(*) FROM {table}))"
        ).fetchone()
        return row

    def next_id(self, table: str) -> int:
        """A number that no row has."""
        (number,) = self.connection.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()
        return int(number)


def order(trader: Trader) -> None:
    """Somebody orders."""
    customer = trader.pick("customers")
    skus = [sku for (sku,) in trader.connection.execute("SELECT sku FROM products")]
    if customer and skus:
        add_order(trader.connection, trader.dice, trader.next_id("orders"), customer[0], skus)


def ship(trader: Trader) -> None:
    """An order goes on, and a product's stock falls."""
    if row := trader.pick("orders"):
        status = trader.dice.choice(("paid", "packed", "shipped"))
        trader.connection.execute("UPDATE orders SET status = ? WHERE id = ?", (status, row[0]))
    if row := trader.pick("products", "sku"):
        trader.connection.execute("UPDATE products SET stock = stock - 1 WHERE sku = ?", row)


def move_line(trader: Trader) -> None:
    """A line moves to another order: its key changes."""
    line, target = trader.pick("items", "order_id, line"), trader.pick("orders")
    if line and target:
        trader.connection.execute(
            "UPDATE items SET order_id = ?1,"
            " line = (SELECT coalesce(max(line), 0) + 1 FROM items WHERE order_id = ?1)"
            " WHERE order_id = ?2 AND line = ?3",
            (target[0], *line),
        )


def new_customer(trader: Trader) -> None:
    """Somebody signs up."""
    add_customer(trader.connection, trader.dice, trader.next_id("customers"))


def lose_customer(trader: Trader) -> None:
    """A customer leaves, and orders and lines go along."""
    if row := trader.pick("customers"):
        trader.connection.execute("DELETE FROM customers WHERE id = ?", row)


def cancel(trader: Trader) -> None:
    """An order is cancelled."""
    if row := trader.pick("orders"):
        trader.connection.execute("DELETE FROM orders WHERE id = ?", row)


def note(trader: Trader) -> None:
    """A note comes, or goes."""
    if row := trader.pick("orders"):
        text = trader.dice.choice((None, "leave at the door", "gift: “für Zoë”", ""))
        trader.connection.execute("UPDATE orders SET note = ? WHERE id = ?", (text, row[0]))


def restock(trader: Trader) -> None:
    """REPLACE: an old row is displaced, or a new one comes."""
    ware, look = trader.dice.choice(WARES), trader.dice.choice(LOOKS)
    sku = f"{ware[:3].upper()}-{trader.dice.randint(1, 120):03d}"
    price = f"{trader.dice.randint(300, 19999) / 100:.2f}"
    # Without this a REPLACE of a product that is on order fails, as it should.
    trader.connection.execute("PRAGMA defer_foreign_keys=ON")
    trader.connection.execute("REPLACE INTO products VALUES (?, ?, ?, 100)", (sku, f"{look} {ware}", price))


def retag(trader: Trader) -> None:
    """A product gets one tag and loses another."""
    if row := trader.pick("products", "sku"):
        tag = trader.dice.randint(1, 8)
        trader.connection.execute("INSERT OR IGNORE INTO product_tags VALUES (?, ?)", (row[0], tag))
        trader.connection.execute(
            "DELETE FROM product_tags WHERE sku = ? AND tag_id = ?", (row[0], tag % 8 + 1)
        )


def rename_tag(trader: Trader) -> None:
    """A tag is written anew: deleted and inserted with the same key."""
    if row := trader.pick("tags", "id, label"):
        trader.connection.execute("PRAGMA defer_foreign_keys=ON")
        tagged = trader.connection.execute(
            "SELECT sku FROM product_tags WHERE tag_id = ?", (row[0],)
        ).fetchall()
        trader.connection.execute("DELETE FROM tags WHERE id = ?", (row[0],))
        trader.connection.execute("INSERT INTO tags VALUES (?, ?)", row)
        trader.connection.executemany(
            "INSERT INTO product_tags VALUES (?, ?)", [(sku, row[0]) for (sku,) in tagged]
        )


ACTS: tuple[tuple[Act, int], ...] = (
    (order, 30),
    (ship, 30),
    (move_line, 12),
    (new_customer, 8),
    (note, 8),
    (restock, 6),
    (retag, 6),
    (cancel, 4),
    (lose_customer, 1),
    (rename_tag, 1),
)


def main() -> None:
    """Trade until told to stop."""
    parser = argparse.ArgumentParser(
        prog="tailrace.demo.traffic", description="Trade in the demonstration's shop."
    )
    parser.add_argument("shop", type=Path)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two transactions")
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    trader = Trader(arguments.shop, arguments.seed)
    parent = os.getppid()
    try:
        # Whoever started the traffic may be killed; nobody else would end it then.
        while not stop.wait(arguments.pause) and os.getppid() == parent:
            trader.act()
    finally:
        trader.close()


if __name__ == "__main__":
    main()
