"""What a pipeline remembers of its indexes: `documents.json` in the state directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.changelog.filesystem import make_directory, open_filesystem
from tailrace.changelog.statefile import read_state, write_state
from tailrace.model.errors import StateUnreadable
from tailrace.sinks.contract import Marker

FILE, KIND = "documents.json", "documents"


@dataclass(frozen=True)
class Still:
    """What stands still: it has the changes up to `position`, and none since this time (ISO 8601, UTC)."""

    position: int
    time: str


@dataclass(frozen=True)
class IndexState:
    """One index, whose `root` is a table. Without a generation it waits for the root's snapshot to begin.

    `sinks` are the names of those that have its documents, `plan` is that snapshot's, `tables` are the
    generations of capture of the other tables at that time, and `copied` is the position of the copies that
    it is filled from, 0 where it is filled from the source, and `horizon` is that of link state: where one of
    these changes, changes may have been missed. `again` says why it is to be filled again, from the next
    snapshot of its root on.

    `begun` is the position and time that its filling began at, and `asked` says that it is filled because
    somebody asked for it, by a snapshot for it alone. `before` is the generation that readers see until this
    one is complete. It gets the changes too, unless it stands `still`.
    """

    root: str
    schema_hash: str
    generation: str = ""
    plan: str = ""
    complete: bool = False
    horizon: int = 0
    copied: int = 0
    tables: Mapping[str, str] = field(default_factory=dict)
    marker: Marker | None = None
    again: str = ""
    sinks: tuple[str, ...] = ()
    begun: tuple[int, str] = (0, "")
    asked: bool = False
    before: IndexState | None = None
    still: Still | None = None


class States:
    """The indexes of one pipeline, by name. Written before what depends on it is done."""

    def __init__(self, state_dir: str) -> None:
        self._fs, self._root = open_filesystem(state_dir)
        self._path = f"{self._root}/{FILE}"
        self._known: dict[str, IndexState] | None = None

    @property
    def names(self) -> list[str]:
        """The indexes that are known."""
        return sorted(self._all())

    def get(self, index: str) -> IndexState | None:
        """An index that is known."""
        return self._all().get(index)

    def put(self, index: str, state: IndexState) -> None:
        """Remember an index, durably."""
        self._save({**self._all(), index: state})

    def keep_only(self, names: set[str]) -> None:
        """Forget the others: what they miss from now on nobody can tell."""
        known = {name: one for name, one in self._all().items() if name in names}
        if known != self._all():
            self._save(known)

    def _save(self, known: dict[str, IndexState]) -> None:
        make_directory(self._fs, self._root)
        body = {name: asdict(one) for name, one in known.items()}
        write_state(self._fs, self._path, KIND, {"indexes": body})
        self._known = known

    def _all(self) -> dict[str, IndexState]:
        if self._known is None:
            body = read_state(self._fs, self._path, KIND)
            try:
                found = {} if body is None else dict(body["indexes"])
                self._known = {name: _state(one) for name, one in found.items()}
            except (TypeError, KeyError, ValueError):
                raise StateUnreadable("the state of the indexes lacks fields", place=self._path) from None
        return self._known


def _state(body: dict[str, Any]) -> IndexState:
    marker, before, still = body.pop("marker"), body.pop("before", None), body.pop("still", None)
    return IndexState(
        **{**body, "sinks": tuple(body.get("sinks", ())), "begun": tuple(body.get("begun", (0, "")))},
        marker=None if marker is None else Marker(**marker),
        before=None if before is None else _state(before),
        still=None if still is None else Still(**still),
    )
