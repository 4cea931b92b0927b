"""Where tables meet a plan: for each place, the columns of a changed row that lead to documents.

| the changed row is         | its columns                     | are met by, and from there up to the root |
| -------------------------- | ------------------------------- | ----------------------------------------- |
| the root                   | its key                         | nothing: they are the document's key      |
| a child, an aggregated row | what equals its parent's        | rows of the parent's place                |
| a `belongs_to` target      | what its parents point at       | rows of the parent's place                |
| a junction row             | its left columns                | rows of the parent's place                |
| a far row, many-to-many    | what its junction rows point at | junction rows, and then their parents     |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.documents.plan import IndexPlan, Link, Place, Through
from tailrace.model.table import TableSchema


@dataclass(frozen=True)
class Entry:
    """Changes of `table` lead by `columns` to rows of the last place of `chain`, whose `met` equal them.

    With `junction` they meet its right columns first. An empty chain says that they are the root's key.
    `path` are the fields that lead to the place.
    """

    table: TableSchema
    columns: tuple[str, ...]
    chain: tuple[Place, ...] = ()
    met: tuple[str, ...] = ()
    junction: Through | None = None
    path: tuple[str, ...] = ()

    @property
    def way(self) -> tuple[object, ...]:
        """Equal for entries that lead to the same rows by the same columns."""
        numbers = tuple((place.table.ref, place.link and _shape(place.link)) for place in self.chain)
        junction = self.junction and (self.junction.table.ref, self.junction.left, self.junction.right)
        return (self.table.ref, self.columns, numbers, self.met, junction)


def _shape(link: Link) -> tuple[object, ...]:
    through = link.through and (link.through.table.ref, link.through.left, link.through.right)
    return (link.parent, link.own, through)


def every_entry(plan: IndexPlan) -> list[Entry]:
    """The entries of every place of a plan. The root's own is the first."""
    return [entry for chain in plan.chains() for entry in _of(chain)]


def entries(plan: IndexPlan) -> list[Entry]:
    """The same, those that lead the same way once."""
    found: dict[tuple[object, ...], Entry] = {}
    for entry in every_entry(plan):
        found.setdefault(entry.way, entry)
    return list(found.values())


def _of(chain: tuple[Place, ...]) -> Iterator[Entry]:
    *above, place = chain
    link = place.link
    if link is None:
        yield Entry(place.table, place.key)
        return
    parents = tuple(above)
    yield Entry(place.table, link.own, parents, link.parent, link.through, place.path)
    if link.through is not None:
        yield Entry(link.through.table, link.through.left, parents, link.parent, path=place.path)
