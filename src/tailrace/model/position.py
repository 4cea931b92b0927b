"""Where a consumer stands in a source's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.model.errors import IdentityMismatch, StateUnreadable

MAX_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Position:
    """Everything of `source` up to and including `version` is consumed; what comes next is not.

    `version` is a 63-bit integer that grows with every commit of the source. Positions of two sources are
    never compared: asking for it raises IdentityMismatch.
    """

    source: str
    version: int

    def __post_init__(self) -> None:
        if not 0 <= self.version <= MAX_VERSION:
            raise StateUnreadable(f"position {self.version} is not a 63-bit integer")

    def _other(self, other: Position) -> int:
        if self.source != other.source:
            raise IdentityMismatch(
                f"a position of source {other.source} was compared with one of source {self.source}",
                remedy="point the pipeline at the source its state belongs to, or begin with new state",
            )
        return other.version

    def __lt__(self, other: Position) -> bool:
        return self.version < self._other(other)

    def __le__(self, other: Position) -> bool:
        return self.version <= self._other(other)

    def __gt__(self, other: Position) -> bool:
        return self.version > self._other(other)

    def __ge__(self, other: Position) -> bool:
        return self.version >= self._other(other)

    def at(self, version: int) -> Position:
        """The position of the same source at another version."""
        return Position(self.source, version)

    def to_json(self) -> dict[str, Any]:
        """A JSON object, for Spark's offset log and for state files."""
        return {"source": self.source, "version": self.version}

    @classmethod
    def from_json(cls, body: object) -> Position:
        """The position a JSON object holds; anything else is refused."""
        match body:
            case {"source": str(source), "version": int(version)} if not isinstance(version, bool):
                return cls(source, version)
        raise StateUnreadable('a position must be {"source": "…", "version": a number}')
