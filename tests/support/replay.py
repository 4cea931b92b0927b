"""The final state that a stream of envelopes describes: a plain loop, no code of the product."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def replay(rows: Iterable[Mapping[str, Any]], table: str = "orders") -> dict[str, dict[str, Any]]:
    """Rows by key after all changes, in (position, seq) order."""
    state: dict[str, dict[str, Any]] = {}
    ordered = sorted(
        (row for row in rows if row["table"] == table), key=lambda row: (row["position"], row["seq"])
    )
    for row in ordered:
        if row["op"] in ("s", "t"):
            state.clear()
        elif row["op"] == "d":
            state.pop(row["key"], None)
        else:
            if row["op"] == "u" and row["before"] is not None:
                state.pop(_key(row["before"], row["key"]), None)
            state[row["key"]] = json.loads(row["after"])
    return state


def _key(image: str, like: str) -> str:
    """The key of an image, in the shape of another key."""
    values = json.loads(image)
    return json.dumps(
        {name: values[name] for name in json.loads(like)}, separators=(",", ":"), ensure_ascii=False
    )
