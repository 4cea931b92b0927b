"""Tables that are read again because the log has a beginning of them and lacks the rest.

Their snapshot begins behind all the log there was when that was found out: an older change that came after it
would stay for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tailrace.changelog.log import Changelog
from tailrace.model.position import Position
from tailrace.model.table import TableRef
from tailrace.spark.offsets import Offset


@dataclass(frozen=True)
class Renewed:
    """Such tables, and up to where the log is not to be trusted with them."""

    tables: frozenset[str] = frozenset()
    until: int = 0

    @classmethod
    def since(
        cls,
        start: Offset,
        accepted: Mapping[TableRef, str],
        asked: Collection[str],
        head: Callable[[], Position],
    ) -> Renewed:
        """The tables whose generation is another than the offset's, or that were asked for."""
        cursors = start.snapshots
        found = frozenset(
            table
            for table, generation in ((str(ref), generation) for ref, generation in accepted.items())
            if table in cursors and (table in asked or cursors[table].generation != generation)
        )
        return cls(found, head().version) if found else cls()

    def early(self, changelog: Changelog, version: int) -> frozenset[str]:
        """The tables whose snapshot must not begin in a batch that ends here."""
        if not self.tables or version >= self.until:
            return frozenset()
        passed = changelog.end >= self.until and changelog.bound(version, up_to=self.until) == version
        return frozenset() if passed else self.tables
