"""Where the old values of each relation come from, for `check` and for link state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tailrace.capture.contract import Capture, Finding
from tailrace.documents.plan import IndexPlan
from tailrace.documents.resolve.entries import Entry, every_entry
from tailrace.documents.resolve.values import identity_remedy
from tailrace.model.errors import NeedsOperator
from tailrace.model.table import TableRef, TableSchema, quote

Way = Literal["before image", "link state", "nothing"]


@dataclass(frozen=True)
class OldParents:
    """How the old values of some columns of a table come, which a relation (`path`) needs.

    `remedy` is the SQL that makes them come with the log: cheaper than link state, and needed where there is
    nothing else.
    """

    path: tuple[str, ...]
    table: TableRef
    columns: tuple[str, ...]
    way: Way
    remedy: str | None = None

    @property
    def finding(self) -> Finding:
        """The same for people."""
        relation = f"relation {'.'.join(self.path)}" if self.path else "the document's key"
        names = f"{', '.join(self.columns)} of table {self.table}"
        if self.way == "nothing":
            return Finding(
                "error",
                "old_parents_unknown",
                f"{relation}: neither the log nor link state can tell what {names} was before a change",
                str(self.table),
                self.remedy,
            )
        told = {
            "before image": "comes with the log",
            "link state": "is remembered in link state, which is read from the source once",
        }[self.way]
        return Finding(
            "info",
            "old_parents",
            f"{relation}: what {names} was before a change {told}",
            str(self.table),
            self.remedy,
        )


def old_parents(plan: IndexPlan, capture: Capture) -> list[OldParents]:
    """For every relation of the plan the way its old values come now. Asks the catalog only."""
    found = every_entry(plan)
    told = {
        table.ref: capture.told_before(table)
        for table in {entry.table.ref: entry.table for entry in found}.values()
    }
    return [_way(entry, told[entry.table.ref]) for entry in found]


def needed(plans: Iterable[IndexPlan], capture: Capture) -> Mapping[TableRef, tuple[str, ...]]:
    """The tables that need link state, and the columns of each that it must remember.

    NeedsOperator where neither the log nor link state could tell old values: the first change would stop it.
    """
    wanted: dict[TableRef, dict[str, None]] = {}
    for plan in plans:
        for entry, way in zip(every_entry(plan), old_parents(plan, capture), strict=True):
            if way.way == "nothing":
                raise NeedsOperator(way.finding.message, remedy=way.remedy, place=str(way.table))
            if way.way == "link state":
                names = [name for name in entry.columns if name not in entry.table.key]
                wanted.setdefault(way.table, {}).update(dict.fromkeys(names))
    return {ref: tuple(sorted(names)) for ref, names in wanted.items()}


def _way(entry: Entry, told: frozenset[str]) -> OldParents:
    table = entry.table
    if told.issuperset(entry.columns):
        return OldParents(entry.path, table.ref, entry.columns, "before image")
    # Link state is by key: the log must tell which row it was.
    keyed = bool(table.key) and told.issuperset(table.key) and not set(table.key).issuperset(entry.columns)
    remedy = _cheaper(table, entry.columns)
    return OldParents(entry.path, table.ref, entry.columns, "link state" if keyed else "nothing", remedy)


def _cheaper(table: TableSchema, columns: tuple[str, ...]) -> str:
    """An identity that carries the columns: an index where none of them can be NULL, else the whole row."""
    names = [*table.key, *(name for name in columns if name not in table.key)]
    if not table.key or any(table.column(name).nullable for name in names):
        return identity_remedy(table.ref)
    index = quote(f"{table.ref.name}_identity")
    place = f"{quote(table.ref.schema)}.{quote(table.ref.name)}"
    listed = ", ".join(quote(name) for name in names)
    return (
        f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON {place} ({listed}); "
        f"ALTER TABLE {place} REPLICA IDENTITY USING INDEX {index}"
    )
