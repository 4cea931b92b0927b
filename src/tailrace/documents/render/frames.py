"""The parts of a statement that `structure` puts together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tailrace.documents.plan import Aggregate, Expression, Group, Member, Place, Related
from tailrace.documents.render.dialect import Sql
from tailrace.model.table import Column

# A member that is an aggregate.
Asked = tuple[Member, Aggregate]
# The column that numbers the rows of one parent.
RANK = "n"


@dataclass
class Frame:
    """The rows of a place as a common table expression: its columns by their names in the source."""

    name: str
    place: Place
    columns: dict[str, str]
    expressions: dict[Expression, str]
    links: tuple[Column, ...] = ()
    ranked: bool = False
    # No row is there twice.
    unique: bool = True
    # Their links are the parent's own values, not columns that equal them.
    parental: bool = True

    def column(self, name: str, alias: str) -> tuple[Sql, Column]:
        """A column of the source, as SQL over the frame."""
        return f"{alias}.{self.columns[name]}", self.place.table.column(name)


@dataclass
class Joined:
    """What hangs on the rows of a frame: tables to join, and the JSON text of each value."""

    joins: list[tuple[str, str, Sql]] = field(default_factory=list)
    values: dict[int, Sql] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """A range of the root's keys: from the first bound on, up to and without the second."""

    low: bool = False
    high: bool = False


def alike(one: Aggregate, other: Aggregate) -> bool:
    """Whether two aggregates are over the same rows."""
    a, b = one.place, other.place
    return (a.table.ref, a.key, a.link, a.filters, one.distinct) == (
        b.table.ref,
        b.key,
        b.link,
        b.filters,
        other.distinct,
    )


def over(value: Aggregate, shown: Related) -> bool:
    """Whether an aggregate is over the rows that are shown, all of them and each as often."""
    a, b = value.place, shown.place
    if a.link is None or b.link is None or b.limit is not None:
        return False
    if b.link.shape not in ("has_many", "many_to_many") or (value.distinct and a.link.through is not None):
        return False
    return (a.table.ref, a.key, replace(a.link, shape=b.link.shape), a.filters) == (
        b.table.ref,
        b.key,
        b.link,
        b.filters,
    )


def leaves(members: Sequence[Member]) -> Iterator[Member]:
    """The members of one row, those of groups included."""
    for member in members:
        if isinstance(member.value, Group):
            yield from leaves(member.value.members)
        else:
            yield member


def where(conditions: Sequence[Sql]) -> Sql:
    """All of the conditions as a clause, or nothing."""
    return f" WHERE {' AND '.join(f'({one})' for one in conditions)}" if conditions else ""
