"""Traffic in the shop: another process that trades until it is told to stop (SIGTERM, SIGINT).

`python -m tailrace.demo.traffic URL [--seed N] [--pause SECONDS]`. Each act is one transaction; one in
twelve is rolled back. The acts are those that change feeds get wrong most easily: a line moved to another
order (its key changes), a customer removed with everything that hangs on it, a row
displaced by another (REPLACE), or deleted and made again.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

from tailrace.demo.database import connect
from tailrace.demo.shop import LOOKS, WARES, add_customer, add_order

Act = Callable[["Trader"], None]
ROLLED_BACK = 1 / 12


class Trader:
    """One connection that writes like the shop's application would."""

    def __init__(self, url: str, seed: int) -> None:
        self.database = connect(url)
        self.dice = random.Random(seed)  # noqa: S311
        self.committed = 0
        self.rolled_back = 0

    def act(self) -> None:
        """One transaction, committed or rolled back."""
        act = self.dice.choices([act for act, _ in ACTS], [weight for _, weight in ACTS])[0]
        self.database.begin()
        try:
            act(self)
        except Exception:
            self.database.rollback()
            raise
        if self.dice.random() < ROLLED_BACK:
            self.database.rollback()
            self.rolled_back += 1
        else:
            self.database.commit()
            self.committed += 1

    def close(self) -> None:
        """End the connection."""
        self.database.close()

    def pick(self, table: str, columns: str = "id") -> tuple[Any, ...] | None:
        """A row at random; None where the table is empty."""
        (rows,) = self.database.one(f"SELECT count(*) FROM {table}")
        row: tuple[Any, ...] | None = self.database.one(
            f"SELECT {columns} FROM {table} LIMIT 1 OFFSET ?", self.dice.randrange(max(1, rows))
        )
        return row

    def next_id(self, table: str) -> int:
        """A number that no row has."""
        (number,) = self.database.one(f"SELECT coalesce(max(id), 0) + 1 FROM {table}")
        return int(number)


def order(trader: Trader) -> None:
    """Somebody orders."""
    customer = trader.pick("customers")
    skus = [row["sku"] for row in trader.database.rows("SELECT sku FROM products ORDER BY sku")]
    if customer and skus:
        add_order(trader.database, trader.dice, trader.next_id("orders"), customer[0], skus)


def ship(trader: Trader) -> None:
    """An order goes on, and a product's stock falls."""
    if row := trader.pick("orders"):
        status = trader.dice.choice(("paid", "packed", "shipped"))
        trader.database.execute("UPDATE orders SET status = ? WHERE id = ?", status, row[0])
    if row := trader.pick("products", "sku"):
        trader.database.execute("UPDATE products SET stock = stock - 1 WHERE sku = ?", *row)


def move_line(trader: Trader) -> None:
    """A line moves to another order: its key changes."""
    line, target = trader.pick("items", "order_id, line"), trader.pick("orders")
    if line and target:
        trader.database.execute(
            "UPDATE items SET order_id = ?,"
            " line = (SELECT coalesce(max(line), 0) + 1 FROM items WHERE order_id = ?)"
            " WHERE order_id = ? AND line = ?",
            *(target[0], target[0], *line),
        )


def new_customer(trader: Trader) -> None:
    """Somebody signs up."""
    add_customer(trader.database, trader.dice, trader.next_id("customers"))


def lose_customer(trader: Trader) -> None:
    """A customer leaves, and orders and lines go along."""
    if row := trader.pick("customers"):
        trader.database.execute("DELETE FROM customers WHERE id = ?", *row)


def renumber(trader: Trader) -> None:
    """A customer gets another number: the key changes, and the orders follow."""
    if row := trader.pick("customers"):
        number = trader.next_id("customers")
        trader.database.execute("UPDATE customers SET id = ? WHERE id = ?", number, row[0])


def rejoin(trader: Trader) -> None:
    """Somebody leaves and is back at once, under the same number and without orders."""
    if row := trader.pick("customers"):
        trader.database.execute("DELETE FROM customers WHERE id = ?", *row)
        add_customer(trader.database, trader.dice, row[0])


def cancel(trader: Trader) -> None:
    """An order is cancelled."""
    if row := trader.pick("orders"):
        trader.database.execute("DELETE FROM orders WHERE id = ?", *row)


def note(trader: Trader) -> None:
    """A note comes, or goes."""
    if row := trader.pick("orders"):
        text = trader.dice.choice((None, "leave at the door", "gift: “für Zoë”", ""))
        trader.database.execute("UPDATE orders SET note = ? WHERE id = ?", text, row[0])


def restock(trader: Trader) -> None:
    """REPLACE: an old row is displaced, or a new one comes."""
    ware, look = trader.dice.choice(WARES), trader.dice.choice(LOOKS)
    sku = f"{ware[:3].upper()}-{trader.dice.randint(1, 120):03d}"
    price = f"{trader.dice.randint(300, 19999) / 100:.2f}"
    # Without this a product that is on order cannot be displaced, as it should be.
    trader.database.defer()
    trader.database.replace("products", "sku", (sku, f"{look} {ware}", price, 100))


def retag(trader: Trader) -> None:
    """A product gets one tag and loses another."""
    if row := trader.pick("products", "sku"):
        tag = trader.dice.randint(1, 8)
        trader.database.execute("INSERT INTO product_tags VALUES (?, ?) ON CONFLICT DO NOTHING", row[0], tag)
        trader.database.execute("DELETE FROM product_tags WHERE sku = ? AND tag_id = ?", row[0], tag % 8 + 1)


def rename_tag(trader: Trader) -> None:
    """A tag is written anew: deleted and inserted with the same key."""
    if row := trader.pick("tags", "id, label"):
        trader.database.defer()
        tagged = trader.database.rows("SELECT sku FROM product_tags WHERE tag_id = ?", row[0])
        trader.database.execute("DELETE FROM tags WHERE id = ?", row[0])
        trader.database.execute("INSERT INTO tags VALUES (?, ?)", *row)
        trader.database.many(
            "INSERT INTO product_tags VALUES (?, ?)", [(found["sku"], row[0]) for found in tagged]
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
    (renumber, 1),
    (rejoin, 1),
    (rename_tag, 1),
)


def main() -> None:
    """Trade until told to stop."""
    parser = argparse.ArgumentParser(
        prog="tailrace.demo.traffic", description="Trade in the demonstration's shop."
    )
    parser.add_argument("shop", help="sqlite:PATH or postgresql://…")
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
