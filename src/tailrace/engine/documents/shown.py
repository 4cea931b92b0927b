"""The generation that readers see while another is filled beside it.

Changes are written to it too, so that nobody looks at an index that stands still for hours. It cannot follow
where its schema is no longer the file's: then it is written down since when it stands still, and it never
counts as complete again, whatever becomes of the schema.

Only where somebody asked for the filling, and nothing was missed since, is it as good as the new one: then it
takes its place again when the filling is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tailrace.engine.documents.state import IndexState, Still
from tailrace.engine.spec import Index


def kept(index: Index, state: IndexState, position: int, why: str) -> IndexState | None:
    """What readers see once a filling begins, or is to begin, in place of `state`; None where nobody knows.

    `position` is where changes are written up to. `why` says what it lacks, nothing where it is as good.
    """
    own = state.complete or state.before is None
    found = state if state.generation and own else state.before
    if found is None:
        return None
    still = found.still
    if still is None and found.schema_hash != index.plan.schema_hash:
        still = Still(position, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
    return replace(found, before=None, asked=False, copied=0, still=still, again=found.again or why)


def as_good(index: Index, before: IndexState) -> bool:
    """Whether it has everything that a new filling would have."""
    there = set(index.sinks) <= set(before.sinks)
    return before.complete and before.still is None and not before.again and there


def watched(
    state: IndexState, tables: Mapping[str, str], horizon: int, anew: list[str]
) -> tuple[IndexState, str]:
    """The state after a batch, and why changes may have been missed with it, if they may.

    `tables` are the generations of capture by the batch's end, `anew` the tables of which columns were
    dropped and added again.
    """
    now = {**state.tables, **tables}
    if now == state.tables and horizon <= state.horizon and not anew:
        return state, ""
    # One that stands still has no generation: once it goes on, it is another one than before.
    changed = sorted(name for name, found in tables.items() if found != state.tables.get(name, found))
    missed = [name for name in changed if tables[name]]
    why = ""
    if missed:
        why = f"changes of {', '.join(missed)} may have been missed"
    elif horizon > state.horizon:
        why = "old parents of rows were not known for a while"
    elif anew:
        why = f"columns of {', '.join(anew)} were dropped and added again"
    state = replace(state, again=why or state.again, horizon=max(horizon, state.horizon), tables=now)
    return state, why
