"""Draws actions: by weight, among those that make sense now, all of them from one dice.

Nothing here looks at the product or at a clock: a seed gives the same actions on every machine, for as
long as whoever draws them says the same of the weather.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.documents.living import IDENTITIES, Noted, Writing
from tests.life.model import ALTERED, BULK, MIRRORED, MOST_COLUMNS, Model, Variant
from tests.life.trace import Action, action
from tests.support.documents import grammar
from tests.support.documents.pipelines import MARKS_TABLE

LEDGER = "CREATE TABLE ledger (key BIGINT PRIMARY KEY, number BIGINT NOT NULL, note TEXT)"
WIDE = "CREATE TABLE wide (id INTEGER PRIMARY KEY, v TEXT)"
INDEXES = 3
LEDGER_KEYS = 25
# In a calm stretch nobody ends the pipeline or its servers: what grows has time to.
CALM = {
    "write": 30,
    "ledger": 24,
    "grow": 2,
    "fell": 3,
    "wait": 6,
    "cut": 4,
    "freeze": 1,
    "request": 4,
    "reindex": 2,
    "pause": 2,
    "resume": 3,
}
STORM = {
    **CALM,
    "freeze": 4,
    "kill": 8,
    "term": 6,
    "start": 25,
    "add": 3,
    "drop": 3,
    "restart_server": 2,
    "crash_server": 2,
    "crash_store": 1,
    "schema": 4,
    "rest": 1,
    "swap": 1,
}
# The steady part of a life that is judged by what it uses: everything happens but the end of the run.
STEADY = {name: weight for name, weight in STORM.items() if name not in ("kill", "term", "start")}
# What was not done yet is drawn so much sooner, so that a life of minutes has some of everything.
EAGER = 4


def possible(variant: Variant) -> set[str]:
    """What can be done in a life of this variant, sooner or later."""
    found = {"create", "check", *STORM}
    if variant.source == "sqlite":
        found -= {"cut", "restart_server", "crash_server"}
    return found if variant.documents == "opensearch" else found - {"crash_store"}


class Statements(Writing):
    """Random statements, without a database at hand."""

    def __init__(self, dice: random.Random, *, truncates: bool) -> None:
        self._dice, self._truncates = dice, truncates


class Fate:
    """Draws a life of a variant from a seed."""

    def __init__(self, seed: int | str, variant: Variant) -> None:
        self.dice = random.Random(f"{seed} {variant.name}")
        self.model = Model(variant)
        self._statements = Statements(self.dice, truncates=variant.source == "postgres")
        self._numbers = dict.fromkeys(range(1, LEDGER_KEYS + 1), 0)
        self._columns = 0
        self._former: list[dict[str, Any]] = []
        self._done: set[str] = set()
        # Asked at the beginning of a stretch: nobody ends the run then.
        self.steady = False

    def actions(self) -> Iterator[Action]:
        """One after the other, without end: stretches that each end with a check."""
        yield self._take(self._create())
        yield self._take(action("start"))
        yield self._take(action("check"))
        while True:
            calm = self.dice.random() < 0.45
            weights = STEADY if self.steady else CALM if calm else STORM
            for _ in range(self.dice.randint(2, 9)):
                if (one := self._draw(weights)) is not None:
                    yield self._take(one)
            yield self._take(action("check"))

    def _take(self, one: Action) -> Action:
        self.model.take(one)
        self._done.add(one.do)
        return one

    def _draw(self, weights: dict[str, int]) -> Action | None:
        for _ in range(20):
            eager = [weight * (1 if name in self._done else EAGER) for name, weight in weights.items()]
            name = self.dice.choices(list(weights), eager)[0]
            one: Action | None = getattr(self, f"_{name}")()
            if one is not None and self.model.allows(one):
                return one
        return None

    def _create(self) -> Action:
        """Tables, rows, indexes."""
        dice = self.dice
        made = [f"CREATE TABLE {table} ({columns})" for table, columns in grammar.TABLES.items()]
        if self.model.variant.source == "postgres":
            made += [
                f"ALTER TABLE {table} REPLICA IDENTITY {dice.choice(IDENTITIES)}" for table in grammar.TABLES
            ]
        made += [MARKS_TABLE, LEDGER, WIDE]
        rows = Noted()
        grammar.fill(dice, rows)
        indexes = {f"i{at}": self._tree() for at in range(INDEXES)}
        return action("create", tables=made, rows=rows.statements, indexes=indexes)

    def _tree(self) -> dict[str, Any]:
        made = grammar.schema(self.dice)
        self._former.append(made)
        return made

    def _start(self) -> Action:
        return action("start")

    def _kill(self) -> Action:
        # Also in its start, which takes a while.
        dice = self.dice
        return action("kill", after=round(dice.choice((0, dice.uniform(0, 1), dice.uniform(0, 12))), 2))

    def _term(self) -> Action:
        return action("term", after=round(self.dice.choice((0, self.dice.uniform(0, 8))), 2))

    def _freeze(self) -> Action:
        return action("freeze", seconds=round(self.dice.uniform(0.1, 4), 2))

    def _wait(self) -> Action:
        return action("wait", seconds=round(self.dice.uniform(0.1, 3), 2))

    def _cut(self) -> Action:
        # Now, or inside of what comes next.
        return action("cut", after=self.dice.choice((0, 1, 17, 500, 20_000)))

    def _restart_server(self) -> Action:
        return action("restart_server", seconds=round(self.dice.uniform(0, 3), 2))

    def _crash_server(self) -> Action:
        return action("crash_server", seconds=round(self.dice.uniform(0, 3), 2))

    def _crash_store(self) -> Action:
        return action("crash_store", seconds=round(self.dice.uniform(0, 3), 2))

    def _pause(self) -> Action:
        return action("pause")

    def _resume(self) -> Action:
        return action("resume")

    def _request(self) -> Action:
        table = self.dice.choice(MIRRORED)
        where = {"ledger": "key > 3", "items": "line > 1"}.get(table, "id > 1")
        return action("request", table=table, where=where if self.dice.random() < 0.3 else None)

    def _reindex(self) -> Action:
        return action("reindex", index=self.dice.choice(sorted(self.model.indexes)))

    def _schema(self) -> Action:
        dice = self.dice
        tree = dice.choice(self._former) if dice.random() < 0.4 else self._tree()
        return action("schema", index=dice.choice(sorted(self.model.indexes)), tree=tree, how=self._how())

    def _rest(self) -> Action:
        return action("rest", index=self.dice.choice(sorted(self.model.indexes)), how=self._how())

    def _swap(self) -> Action:
        return action("swap", store="b" if self.model.store == "a" else "a", how=self._how())

    def _how(self) -> str:
        """How a running pipeline hears of another configuration."""
        return self.dice.choice(("signal",) if self.steady else ("signal", "restart", "kill"))

    def _add(self) -> Action | None:
        table = self.dice.choice(ALTERED)
        if len(self.model.columns[table]) >= MOST_COLUMNS or self._drift_ends():
            return None
        self._columns += 1
        return action("add", table=table, column=f"x{self._columns}")

    def _drop(self) -> Action | None:
        tables = [table for table in ALTERED if self.model.columns[table]]
        if not tables or self._drift_ends():
            return None
        table = self.dice.choice(tables)
        return action("drop", table=table, column=self.dice.choice(self.model.columns[table]))

    def _drift_ends(self) -> bool:
        """Whether an altered table would end a run that is to go on."""
        return self.steady and self.model.variant.source == "sqlite"

    def _write(self) -> Action:
        """Transactions of every kind on the tables that documents are made of, and on the wide one."""
        dice = self.dice
        made = []
        for _ in range(dice.randint(1, 12)):
            statements = self._statements.transaction()
            if dice.random() < 0.5:
                statements.insert(dice.randint(0, len(statements)), self._widely())
            made.append({"statements": statements, "end": "rollback" if dice.random() < 0.08 else "commit"})
        return action("write", transactions=made)

    def _widely(self) -> str:
        """A write into what was added, or a row of the wide table."""
        dice = self.dice
        table = dice.choice(ALTERED)
        key = dice.randint(1, 9)
        if self.model.columns[table] and dice.random() < 0.6:
            column = dice.choice(self.model.columns[table])
            value = dice.choice(grammar.WORDS)
            return f"UPDATE {table} SET {column} = {grammar.literal(value)} WHERE id = {key}"
        value = grammar.literal("v" * dice.choice((1, 30, 3000)))
        if dice.random() < 0.25:
            return f"DELETE FROM wide WHERE id = {key}"
        return f"INSERT INTO wide (id, v) VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = {value}"

    def _ledger(self) -> Action:
        """Writes whose numbers rise by key, also those that are taken back."""
        dice = self.dice
        made = []
        for _ in range(dice.randint(1, 10)):
            ops: list[list[Any]] = []
            for _ in range(dice.randint(1, 6)):
                key = dice.randint(1, LEDGER_KEYS)
                self._numbers[key] += 1
                ops.append(["del" if dice.random() < 0.2 else "put", key, self._numbers[key]])
            end = dice.choices(("commit", "rollback", "savepoint"), (80, 10, 10))[0]
            made.append({"ops": ops, "end": end})
        return action("ledger", transactions=made)

    def _grow(self) -> Action:
        return action("grow", rows=self.dice.choice((500, 5000, 20_000)), first=BULK)

    def _fell(self) -> Action:
        return action("fell")
