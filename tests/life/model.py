"""What is known of a life without looking: which actions make sense now, and what they change.

Whoever draws actions and whoever lives them has a model each, so both pass over the same ones. A part of a
trace is a life too: what lost its precondition is passed over there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.life.trace import Action

Source = Literal["sqlite", "postgres"]
Documents = Literal["sqlite", "opensearch"]
Engine = Literal["spark", "loop"]

# Tables that get and lose columns, and those that are mirrored.
ALTERED = ("wide", "people", "orders")
MIRRORED = ("ledger", "wide", "people", "orders", "items")
# Keys of the ledger from here on are those of large transactions.
BULK = 1_000_000
MOST_COLUMNS = 4


@dataclass(frozen=True)
class Variant:
    """What a life is lived with."""

    source: Source = "sqlite"
    documents: Documents = "sqlite"
    engine: Engine = "spark"

    @property
    def name(self) -> str:
        parts = [self.source, *(["opensearch"] if self.documents == "opensearch" else [])]
        return "-".join([*parts, *(["loop"] if self.engine == "loop" else [])])

    def header(self) -> dict[str, str]:
        return {"source": self.source, "documents": self.documents, "engine": self.engine}

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Variant:
        return cls(header["source"], header["documents"], header["engine"])


@dataclass
class Model:
    """The state that actions ask for and change."""

    variant: Variant
    created: bool = False
    running: bool = False
    paused: bool = False
    bulk: bool = False
    store: str = "a"
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    columns: dict[str, list[str]] = field(default_factory=lambda: {table: [] for table in ALTERED})

    def allows(self, one: Action) -> bool:
        """Whether the action makes sense now."""
        if one.do == "create":
            return not self.created
        if not self.created:
            return False
        rule = getattr(self, f"_may_{one.do}", None)
        return rule is None or bool(rule(one))

    def _may_start(self, _: Action) -> bool:
        return not self.running

    def _may_kill(self, _: Action) -> bool:
        return self.running

    _may_term = _may_freeze = _may_wait = _may_kill

    def _may_cut(self, _: Action) -> bool:
        return self.variant.source == "postgres"

    _may_restart_server = _may_crash_server = _may_cut

    def _may_crash_store(self, _: Action) -> bool:
        return self.variant.documents == "opensearch"

    def _may_pause(self, _: Action) -> bool:
        return not self.paused

    def _may_resume(self, _: Action) -> bool:
        return self.paused

    def _may_add(self, one: Action) -> bool:
        return one["column"] not in self.columns[one["table"]]

    def _may_drop(self, one: Action) -> bool:
        return one["column"] in self.columns[one["table"]]

    def _may_grow(self, _: Action) -> bool:
        return not self.bulk

    def _may_fell(self, _: Action) -> bool:
        return self.bulk

    def _may_rest(self, one: Action) -> bool:
        return one["index"] in self.indexes

    def _may_reindex(self, one: Action) -> bool:
        return one["index"] in self.indexes and one["index"] not in self.disabled

    def take(self, one: Action) -> None:
        """What is so after the action."""
        match one.do:
            case "create":
                self.created, self.indexes = True, dict(one["indexes"])
            case "start" | "check":
                # A check wants a pipeline that runs and reads everything.
                self.running = True
                self.paused = self.paused and one.do == "start"
            case "kill" | "term":
                self.running = False
            case "pause" | "resume":
                self.paused = one.do == "pause"
            case "add":
                self.columns[one["table"]].append(one["column"])
            case "drop":
                self.columns[one["table"]].remove(one["column"])
            case "grow" | "fell":
                self.bulk = one.do == "grow"
            case "schema":
                self.indexes[one["index"]] = one["tree"]
            case "rest":
                self.disabled ^= {one["index"]}
            case "swap":
                self.store = one["store"]


def done_of(variant: Variant, actions: Iterable[Action]) -> list[bool]:
    """Which of these are done when they are lived from the beginning, and which passed over."""
    model, told = Model(variant), []
    for one in actions:
        told.append(model.allows(one))
        if told[-1]:
            model.take(one)
    return told
