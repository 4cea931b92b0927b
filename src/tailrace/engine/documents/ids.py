"""Keys again from the ids of documents, for those that were written down by their ids."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pyarrow as pa

from tailrace.documents.plan import Place
from tailrace.sinks.contract import Rejection

NO_KEY = "the id is not a key of the table: was the index's key another one when it was written down?"


def keys_of(root: Place, ids: Sequence[str]) -> tuple[pa.Table, list[Rejection]]:
    """The keys that these ids are of, as `Affected.keys` has them, and the ids that are of none."""
    rows: list[list[str]] = []
    odd: list[Rejection] = []
    for id_ in ids:
        parts = _parts(id_, len(root.key))
        if parts is None or not all(_fits(root, at, part) for at, part in enumerate(parts)):
            odd.append(Rejection(id_, NO_KEY))
        else:
            rows.append(parts)
    made: dict[str, pa.Array] = {}
    for at, name in enumerate(root.key):
        texts = [row[at] for row in rows]
        made[name] = _typed(texts, root.table.column(name).type.arrow)
        made[f"{name}:text"] = pa.array(texts, pa.string())
    return pa.table(made), odd


def _parts(id_: str, columns: int) -> list[str] | None:
    """The texts of the key's columns; None where the id is not one of so many."""
    if columns == 1:
        return [id_]
    try:
        parts = json.loads(id_)
    except ValueError:
        return None
    whole = isinstance(parts, list) and len(parts) == columns and all(isinstance(one, str) for one in parts)
    return parts if whole else None


def _fits(root: Place, at: int, text: str) -> bool:
    try:
        _typed([text], root.table.column(root.key[at]).type.arrow)
    except (pa.ArrowInvalid, ValueError):
        return False
    return True


def _typed(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([base64.b64decode(text, validate=True) for text in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)
