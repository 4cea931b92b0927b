"""Changes for a mirror of orders, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tailrace.model.net import NetChanges, net
from tailrace.model.table import TableSchema
from tailrace.sinks.contract import Progress, TableSink
from tests.model.changes import batch_of, table_of

TABLE = table_of({"id": "long", "name": "string"})


def row(i: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": i, "name": name}


def change(op: str, position: int, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "op": op,
        "position": position,
        "seq": more.pop("seq", 0),
        "before": before,
        "after": after,
        **more,
    }


def changes(*items: dict[str, Any], table: TableSchema = TABLE) -> NetChanges:
    return net([batch_of(table, [{**item, "seq": i} for i, item in enumerate(items)])])


def log(start: int, end: int, **snapshots: tuple[str, int]) -> Progress:
    return Progress("p", start, end, {f"main.{name}": value for name, value in snapshots.items()})


def content(sink: TableSink, target: str = "orders") -> list[dict[str, Any]]:
    return sorted(sink.read(target).to_pylist(), key=lambda r: str(r["id"]))


def version(path: Path) -> int:
    return DeltaTable(path / "orders").version()
