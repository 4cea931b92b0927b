"""Whom the rows of a snapshot were read for: everybody, or one index that somebody wants filled again."""

from __future__ import annotations

from tailrace.changelog.filesystem import open_filesystem
from tailrace.sinks.contract import Progress
from tailrace.spark.plans import PlanStore


class Readers:
    """Looks it up in the plans of a state directory, once for each."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._known: dict[str, str] = {}

    def of(self, table: str, progress: Progress) -> str:
        """The index that a batch's rows of a table were read for alone; none where they are for all."""
        if table not in progress.snapshots:
            return ""
        plan_id = progress.snapshots[table][0]
        if plan_id not in self._known:
            plan = PlanStore(*open_filesystem(self._state_dir)).find(plan_id)
            if plan is None:
                return ""
            # Plans come one after the other: the table's last is all that batches ask for.
            self._known = {**dict(list(self._known.items())[-100:]), plan_id: plan.index}
        return self._known[plan_id]
