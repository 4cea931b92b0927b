"""The part of a drafted plan in which every table and every column that rows meet by is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.documents.compile import MissingTable
from tailrace.documents.plan import Aggregate, Group, Member, Place, Related
from tailrace.model.table import TableSchema


def has(table: TableSchema, columns: Sequence[str]) -> bool:
    """Whether the table is there and has all these columns."""
    names = {column.name for column in table.columns}
    return not isinstance(table, MissingTable) and names.issuperset(columns)


def sound(place: Place, parent: TableSchema | None = None) -> Place | None:
    """The place without those below that hang on something that is not there; None where it does itself."""
    link = place.link
    if link is None:
        whole = bool(place.key) and has(place.table, place.key)
    else:
        whole = parent is not None and has(parent, link.parent) and has(place.table, link.own)
        if link.through is not None:
            whole = whole and has(link.through.table, (*link.through.left, *link.through.right))
            whole = whole and len(link.through.left) == len(link.parent)
            whole = whole and len(link.through.right) == len(link.own)
        else:
            whole = whole and len(link.parent) == len(link.own)
    return replace(place, members=_members(place.members, place.table)) if whole else None


def _members(members: tuple[Member, ...], table: TableSchema) -> tuple[Member, ...]:
    kept = []
    for member in members:
        value = member.value
        if isinstance(value, Group):
            kept.append(replace(member, value=replace(value, members=_members(value.members, table))))
        elif isinstance(value, Related | Aggregate):
            place = sound(value.place, table)
            if place is not None:
                kept.append(replace(member, value=replace(value, place=place)))
        else:
            kept.append(member)
    return tuple(kept)
