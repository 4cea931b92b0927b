"""A hash of everything that decides how the documents of an index look.

It is the same in every process and on every machine. It covers the plan, the types of the columns that the
plan reads, and the mapping; a column that no document shows may change as it likes. That a value is promised
not to be null makes no document different, so that an index need not be built anew for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tailrace.documents import plan
from tailrace.documents.mapping import IndexMapping
from tailrace.model.table import TableSchema

# Changes whenever the same plan comes to mean other documents.
_FORMAT = 1


def schema_hash(root: plan.Place, soft_delete: plan.SoftDelete | None, mapping: IndexMapping) -> str:
    """The hash of an index, 32 hexadecimal digits."""
    marker = _type(root.table, soft_delete.column) if soft_delete is not None else None
    shown = {
        path: {key: value for key, value in field.items() if key != "nullable"}
        for path, field in mapping.to_json().items()
    }
    body = [_FORMAT, _plain(root), _plain(soft_delete), marker, shown]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, TableSchema):
        return [value.ref.schema, value.ref.name]
    if is_dataclass(value):
        body = {
            field.name: _plain(getattr(value, field.name))
            for field in fields(value)
            if field.name != "required"
        }
        if isinstance(value, plan.Place):
            body["types"] = {name: _type(value.table, name) for name in sorted(set(_read(value)))}
        if isinstance(value, plan.Aggregate) and value.column is not None:
            body["type"] = _type(value.place.table, value.column)
        return {type(value).__name__: body}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _type(table: TableSchema, name: str) -> list[str]:
    column = table.column(name)
    # A longer `varchar` holds the same texts.
    return [column.type.name, column.native.partition("(")[0].strip().lower()]


def _read(place: plan.Place) -> Iterator[str]:
    """The columns of a place that its documents depend on, as far as the plan names them."""
    yield from place.key
    yield from place.link.own if place.link else ()
    yield from (order.column for order in place.order)
    yield from (item.column for item in place.filters if isinstance(item, plan.Comparison))
    yield from _shown(place.members)


def _shown(members: Sequence[plan.Member]) -> Iterator[str]:
    for member in members:
        value = member.value
        if isinstance(value, plan.Scalar):
            yield value.column
        elif isinstance(value, plan.Geo):
            yield from (name for name in (value.lat, value.lon, value.column) if name is not None)
        elif isinstance(value, plan.Group):
            yield from _shown(value.members)
        elif isinstance(value, plan.Related | plan.Aggregate) and value.place.link is not None:
            yield from value.place.link.parent
