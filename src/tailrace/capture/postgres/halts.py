"""The tables of a stream that cannot go on while the others do.

A table stops when it is no longer published, was published anew, dropped, renamed, or began after the
position it is read from. What the log still has of it from before is delivered; after the place where that
was seen nothing is, for it may be published again behind a gap. Whoever has a fresh snapshot of it lets it
go on, by naming the generation that it has then.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tailrace.capture.contract import TABLE_STOPPED, Finding
from tailrace.capture.postgres.messages import lsn_text
from tailrace.capture.postgres.publication import Member, Publication
from tailrace.model.errors import LogLost, NeedsOperator, SchemaDrift, SetupMissing
from tailrace.model.table import TableRef

_AGAIN = "then tailrace snapshot --table"


def unpublished(ref: TableRef) -> SetupMissing:
    """The error of a table that is not in the publication."""
    return SetupMissing(
        f"table {ref} is not set up for capture: it is not published (dropped, renamed or taken out?)",
        remedy=f"tailrace setup, {_AGAIN} {ref}",
    )


def anew(ref: TableRef, generation: str) -> SchemaDrift:
    """The error of a table that was published again, perhaps behind a gap."""
    return SchemaDrift(
        f"table {ref} was set up anew (generation {generation}): changes in between may not be in the log",
        remedy=f"tailrace snapshot --table {ref}",
    )


def changed(found: Publication, members: Mapping[TableRef, Member]) -> dict[TableRef, NeedsOperator]:
    """Which of the watched tables are not published any more as they were."""
    faults: dict[TableRef, NeedsOperator] = {}
    for ref, member in members.items():
        now = found.members.get(ref)
        if now is None:
            faults[ref] = unpublished(ref)
        elif now.generation != member.generation:
            faults[ref] = anew(ref, now.generation)
    return faults


class Halts:
    """What one capture knows of its tables, over every stream that it runs. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: tuple[TableRef, ...] = ()
        self._known: dict[TableRef, str] = {}
        self._faults: dict[TableRef, NeedsOperator] = {}
        self._after: dict[TableRef, int] = {}
        # What is about to go wrong with the slot, as it was last seen.
        self.risks: list[Finding] = []

    def begin(
        self, tables: Sequence[TableRef], found: Publication, start: int, accept: Mapping[TableRef, str]
    ) -> dict[TableRef, Member]:
        """The tables that can be read on from `start`; raises where none can."""
        members: dict[TableRef, Member] = {}
        faults: dict[TableRef, NeedsOperator] = {}
        with self._lock:
            for ref in tables:
                member = found.members.get(ref)
                if member is None or member.began is None:
                    faults[ref] = unpublished(ref)
                    continue
                accepted = accept.get(ref, self._known.get(ref))
                if member.began > start and accepted != member.generation:
                    faults[ref] = LogLost(
                        f"capture began after {lsn_text(start)}, earlier changes are not in the log: {ref}",
                        remedy=f"tailrace snapshot --table {ref}",
                    )
                elif accepted not in (None, member.generation):
                    faults[ref] = anew(ref, member.generation)
                else:
                    members[ref] = member
                    self._known[ref] = member.generation
            self._tables = tuple(tables)
            self._faults = faults
            self._after = dict.fromkeys(faults, 0)
        self.raise_if_all()
        return members

    def stop(self, ref: TableRef, fault: NeedsOperator, after: int = 0) -> None:
        """Deliver nothing of this table any more, once everything up to `after` is."""
        with self._lock:
            self._faults[ref] = fault
            self._after[ref] = min(after, self._after.get(ref, after))

    def silent(self, ref: TableRef, position: int) -> bool:
        """Whether nothing of the table that comes from `position` on is delivered."""
        after = self._after.get(ref)
        return after is not None and position > after

    def raise_if_all(self) -> None:
        """Raise where no table is left."""
        with self._lock:
            if not self._tables or len(self._faults) < len(self._tables):
                return
            first = next(iter(self._faults.values()))
            if len(self._faults) == 1:
                raise first
            told = "; ".join(fault.message for fault in self._faults.values())
            raise type(first)(f"no table can go on: {told}", remedy=first.remedy)

    def findings(self) -> list[Finding]:
        """The stopped tables and the slot's risks, for people."""
        with self._lock:
            stopped = [
                Finding("error", TABLE_STOPPED, fault.message, str(ref), fault.remedy)
                for ref, fault in self._faults.items()
            ]
        return stopped + self.risks
