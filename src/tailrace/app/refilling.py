"""Indexes filled again because somebody asks for it, and what became of that.

A request is a durable file, like that for a snapshot: the root's rows are read for the index alone, beside
whatever runs. To cancel it is to withdraw the request, or to stop that snapshot; the engine then keeps what
readers see, which had every change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailrace.changelog.filesystem import make_directory, open_filesystem
from tailrace.model.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tailrace.engine.documents.state import IndexState
    from tailrace.model.table import TableRef
    from tailrace.spark.orders import Orders
    from tailrace.spark.plans import PlanStore

State = Literal["requested", "filling", "complete", "cancelled"]


@dataclass(frozen=True)
class Refill:
    """A filling: its request, `None` where one was due or under way anyway, and what readers saw before."""

    index: str
    request: str | None
    before: str | None = None


class Refills:
    """The fillings of one pipeline's indexes. `roots` are their root tables, by their names at the sinks."""

    def __init__(
        self,
        roots: Callable[[], Mapping[str, TableRef]],
        state_dir: str,
        checkpoint: str | None,
        *,
        prefix: str = "",
    ) -> None:
        self._roots, self._prefix = roots, prefix
        self._state_dir, self._checkpoint = state_dir, checkpoint

    def ask(self, indexes: Sequence[str]) -> list[Refill]:
        """Ask for fillings of these indexes, or of all by `*`."""
        made = []
        for name, root in self._chosen(indexes).items():
            state, request = self._state(name), None
            if state is not None and state.generation and (state.complete or self._over(root)):
                request = self._plans(make=True).request(root, index=name)
            made.append(Refill(name, request, _shown(state)))
        return made

    def cancel(self, indexes: Sequence[str]) -> list[str]:
        """End fillings that were asked for; those of which. ConfigError where one is needed."""
        ended = []
        for name, root in self._chosen(indexes).items():
            plans = self._plans()
            waiting = {one.id for one in plans.requests().values() if one.index == name}
            for request in waiting:
                plans.served(request)
            # Only now: what has begun by then is to be stopped, also where no offset shows it yet.
            state = self._state(name)
            filled = state is not None and state.asked and not state.complete
            mine = waiting | ({state.plan} if state is not None and filled else set())
            if self._running(root) in mine or any(plans.find(request) is not None for request in waiting):
                self._orders().stop(root, waiting)
            if mine:
                ended.append(name)
            elif state is not None and not state.complete and list(indexes) != ["*"]:
                raise ConfigError(
                    f"the index {name} is filled for a reason: {state.again or 'it has no complete one'}",
                    remedy="tailrace indexes; only a filling that was asked for can be cancelled",
                )
        return ended

    def state(self, refill: Refill) -> State:
        """What became of a filling."""
        if refill.request is not None and refill.request in self._plans().requests():
            return "requested"
        state = self._state(refill.index)
        if state is None or not state.complete:
            return "filling" if state is not None and state.generation else "requested"
        return "cancelled" if refill.before is not None and state.generation == refill.before else "complete"

    def _chosen(self, names: Sequence[str]) -> dict[str, TableRef]:
        if not names:
            raise UsageError("which index?", remedy="name some, or `*` for all of the pipeline's")
        roots = self._roots()
        if not roots:
            raise ConfigError("the file has no index", remedy="add an [[index]]")
        if list(names) == ["*"]:
            return dict(roots)
        # As the file names them, or as the sinks do.
        known = {**{name: name for name in roots}, **{n.removeprefix(self._prefix): n for n in roots}}
        for name in names:
            if name not in known:
                # Workers load this module, and have no use for the configuration.
                from tailrace.config.hints import nearest

                raise ConfigError(
                    f"the pipeline has no index {name}{nearest(name, known)}",
                    remedy=f"its indexes: {', '.join(n.removeprefix(self._prefix) for n in roots)}",
                )
        return {known[name]: roots[known[name]] for name in names}

    def _state(self, name: str) -> IndexState | None:
        from tailrace.engine.documents.state import States

        return States(self._state_dir).get(name)

    def _running(self, root: TableRef) -> str | None:
        """The plan of the root's snapshot by the newest offset."""
        from tailrace.engine.progress import logged

        offset = logged(self._checkpoint) if self._checkpoint is not None else None
        cursor = None if offset is None else offset.snapshots.get(str(root))
        return None if cursor is None else cursor.plan

    def _over(self, root: TableRef) -> bool:
        """Whether no snapshot of the root runs: then nothing fills the index."""
        from tailrace.engine.progress import logged

        offset = logged(self._checkpoint) if self._checkpoint is not None else None
        cursor = None if offset is None else offset.snapshots.get(str(root))
        return cursor is not None and cursor.over

    def _plans(self, *, make: bool = False) -> PlanStore:
        from tailrace.spark.plans import PlanStore

        fs, root = open_filesystem(self._state_dir)
        if make:
            make_directory(fs, root)
        return PlanStore(fs, root)

    def _orders(self) -> Orders:
        from tailrace.spark.orders import Orders

        return Orders(*open_filesystem(self._state_dir))


def _shown(state: IndexState | None) -> str | None:
    """The complete generation that readers see."""
    found = state if state is None or state.complete else state.before
    return (found.generation or None) if found is not None and found.complete else None
