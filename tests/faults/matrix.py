"""The fault matrix as data: every fault, where it strikes, what must come of it, and which tests prove it.

A fault has six targets: the captures SQLite and PostgreSQL, the mirror in Delta, a feed, the document store
and OpenSearch. For each of them a row names tests (`Proof`), or says why the fault does not concern it
(`apart`), or that it is not proved, and why (`open`). `docs/faults.md` is made of this and of `results.json`.

Points: P provision, S snapshot, H hand-over, R read, O Spark's offset log, V resolve, B build, W write,
F flush, L Spark's commit log, A acknowledge, T state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SQLITE, POSTGRES, DELTA, FEED, STORE, OPENSEARCH = TARGETS = (
    "sqlite",
    "postgres",
    "delta",
    "feed",
    "store",
    "opensearch",
)
TITLES = {
    SQLITE: "SQLite",
    POSTGRES: "PostgreSQL",
    DELTA: "Delta",
    FEED: "feed",
    STORE: "document store",
    OPENSEARCH: "OpenSearch",
}
CAPTURES = (SQLITE, POSTGRES)


@dataclass(frozen=True)
class Proof:
    """A test, and the targets that it proves a row for.

    A test of a rig runs once for each capture (its ids say which), and then proves a capture by the runs on
    it; `fixed` are tests of one capture, whose ids do not say it.
    """

    test: str
    targets: tuple[str, ...]
    fixed: bool = False

    @property
    def function(self) -> str:
        """Its id without parameters."""
        return f"tests/{self.test}" if "/" in self.test else f"tests/faults/{self.test}"

    def runs(self, ids: Iterable[str], target: str) -> list[str]:
        """Those of these ids that are runs of the test for a target."""
        own = [id_ for id_ in ids if function_of(id_) == self.function]
        if target in (STORE, OPENSEARCH) and any({STORE, OPENSEARCH} & {*parameters_of(id_)} for id_ in own):
            # It has a run for each of them.
            return [id_ for id_ in own if target in parameters_of(id_)]
        if target not in CAPTURES or self.fixed:
            return own
        return [id_ for id_ in own if target in parameters_of(id_)]


@dataclass(frozen=True)
class Row:
    """A fault, where it strikes, what must come of it, and what speaks for that."""

    number: int
    fault: str
    point: str
    outcome: str
    proofs: tuple[Proof, ...]
    apart: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)

    def proofs_of(self, target: str) -> list[Proof]:
        """The tests that prove it for a target."""
        return [proof for proof in self.proofs if target in proof.targets]

    def runs(self, proof: Proof, ids: Iterable[str], target: str) -> list[str]:
        """The runs of a test that prove this row for a target: a test of many rows says which in its ids."""
        found = []
        for id_ in proof.runs(ids, target):
            rows = [word for word in parameters_of(id_) if re.fullmatch(r"row\d+", word)]
            if not rows or f"row{self.number}" in rows:
                found.append(id_)
        return found


@dataclass(frozen=True)
class Bug:
    """A seeded bug, the oracle that must catch it, and the test that it does."""

    name: str
    what: str
    oracle: str
    test: str

    @property
    def function(self) -> str:
        return f"tests/faults/test_oracles.py::{self.test}"


def function_of(id_: str) -> str:
    """A test's id without its parameters."""
    return id_.partition("[")[0]


def parameters_of(id_: str) -> list[str]:
    """The parameters of a test's id, as it shows them."""
    return id_.partition("[")[2].removesuffix("]").split("-")


# Who judges: a rig compares its mirror and its feed, and its documents where it has some.
RIG = (*CAPTURES, DELTA, FEED)
FED = (*CAPTURES, FEED)
IN_STORE, IN_CLUSTER = (*CAPTURES, STORE), (*CAPTURES, OPENSEARCH)
IN_BOTH = (*CAPTURES, STORE, OPENSEARCH)
POSTGRES_RIG, SQLITE_RIG = (POSTGRES, DELTA, FEED), (SQLITE, DELTA, FEED)


def rig(*tests: str, on: tuple[str, ...] = RIG) -> tuple[Proof, ...]:
    """Tests of a rig that prove a row for these targets."""
    return tuple(Proof(test, on) for test in tests)


def alone(*tests: str, on: tuple[str, ...]) -> tuple[Proof, ...]:
    """Tests whose ids do not say on which capture they run."""
    return tuple(Proof(test, on, fixed=True) for test in tests)


def same(reason: str, *targets: str) -> dict[str, str]:
    """One reason for some targets."""
    return dict.fromkeys(targets, reason)


BEFORE = "it strikes before a batch is formed; a sink of documents gets what rows 7, 8 and 40 are about"
