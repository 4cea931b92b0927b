"""Link state on a real server: two tables are fed the same statements, one under each identity.

What link state completes of the one must be what the log carries of the other, whatever happened, and
wherever the reader was killed and began again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.documents.resolve import Resolver, needed
from tailrace.model.change import ChangeBatch, Part
from tailrace.model.position import Position
from tailrace.runtime.links import Links
from tests.capture.postgres.streaming import Source
from tests.documents.resolving import Node, PostgresWorld, differing, names
from tests.support.postgres import Database, database, postgres

__all__ = ["database", "postgres"]

COLUMNS = "id int8 PRIMARY KEY, parent int4, code text, n int"
NEEDED = ("code", "parent")
SEEDS = [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 140))]


def statements(dice: random.Random) -> Iterator[str]:
    """One transaction on a table; what it says of `{t}` is done to both."""
    for _ in range(dice.randint(1, 6)):
        key, parent = dice.randint(1, 8), dice.choice(["NULL", "1", "2", "2147483647"])
        # Large ones stand apart from their row, and the log leaves them out where they are as before.
        code = dice.choice(["NULL", "''", "'it''s'", f"repeat('{dice.randint(0, 9)}x', 3000)"])
        yield dice.choice(
            [
                f"INSERT INTO {{t}} VALUES ({key}, {parent}, {code}, 0) ON CONFLICT DO NOTHING",
                f"INSERT INTO {{t}} VALUES ({key}, {parent}, {code}, 0)"
                f" ON CONFLICT (id) DO UPDATE SET parent = {parent}",
                f"UPDATE {{t}} SET parent = {parent} WHERE id = {key}",
                f"UPDATE {{t}} SET n = n + 1 WHERE id <= {key}",
                f"UPDATE {{t}} SET code = {code} WHERE id = {key}",
                f"UPDATE {{t}} SET id = id + 100, n = 0 WHERE id = {key} AND NOT EXISTS"
                f" (SELECT FROM {{t}} WHERE id = {key + 100})",
                f"UPDATE {{t}} SET id = {key} WHERE id = {key + 100} AND NOT EXISTS"
                f" (SELECT FROM {{t}} WHERE id = {key})",
                f"DELETE FROM {{t}} WHERE id IN ({key}, {key + 101})",
                "TRUNCATE {t}" if dice.random() < 0.1 else f"DELETE FROM {{t}} WHERE parent = {parent}",
            ]
        )


def olds(batches: Sequence[ChangeBatch], table: str) -> list[tuple[int, int, str, Any]]:
    """Place, kind and old values of each change of a table, in order; `absent` for what an image lacks."""
    found = []
    for batch in batches:
        if batch.table.ref.name != table:
            continue
        batch.data.validate(full=True)
        for row in batch.data.to_pylist():
            image, lacks = row["before"], row.get("before_absent") or ()
            values = image and {n: "absent" if n in lacks else image[n] for n in ("id", *NEEDED)}
            found.append((row["position"], row["seq"], row["op"], values))
    return sorted(found, key=lambda one: one[:2])


class Replays:
    """Transactions of a log, completed one after the other, with kills in between."""

    def __init__(self, source: Source, path: Path, transactions: list[Part]) -> None:
        self.source, self.path, self.transactions = source, path, transactions
        self.answers: dict[int, list[Any]] = {}

    def links(self) -> Links:
        return Links(self.path, {self.source.ref("d"): NEEDED})

    def live(self, start: Position, count: int, links: Links | None = None) -> Position:
        """A life from a position for some transactions; its answers must be those of earlier lives."""
        links = links or self.links()
        links.begin(self.source.capture, start)
        at = start
        for part in [one for one in self.transactions if one.position > start][:count]:
            answer = olds(links.complete(part).batches, "d")
            assert self.answers.setdefault(part.position.version, answer) == answer
            at = part.position
        links.sync()
        links.close()
        return at


@pytest.mark.parametrize("seed", SEEDS)
def test_completed_images_are_those_of_the_full_identity(
    database: Database, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    ddl = [f"CREATE TABLE {t} ({COLUMNS}); ALTER TABLE {t} ALTER code SET STORAGE EXTERNAL" for t in "df"]
    fill = [
        f"INSERT INTO {t} SELECT i, i % 3, repeat('y', 3000), 0 FROM generate_series(1, 5) i" for t in "df"
    ]
    source = Source(database, *ddl, "ALTER TABLE f REPLICA IDENTITY FULL", *fill)
    start = source.head()
    seeding = Replays(source, tmp_path / "links.db", [])
    seeding.live(start, 0)
    for _ in range(40):
        source.transaction(*(text.format(t=t) for text in statements(dice) for t in "df"))
    parts = source.parts(start)
    whole = [part for part in parts if part.rows]
    log = Replays(source, tmp_path / "links.db", [one for part in whole for one in part.transactions()])
    at = start
    while at < log.transactions[-1].position:
        at = log.live(at, dice.randint(1, 12))
        if dice.random() < 0.5:
            # Not acknowledged yet, so that it is read again.
            earlier = [start, *(one.position for one in log.transactions if one.position < at)]
            at = dice.choice(earlier[-10:])
    expected = olds([batch for part in whole for batch in part.batches], "f")
    completed = [one for version in sorted(log.answers) for one in log.answers[version]]
    assert len(expected) > 50
    assert [(op, image) for _, _, op, image in completed] == [(op, image) for _, _, op, image in expected]


def test_whole_parts_of_many_transactions_are_completed_alike(database: Database, tmp_path: Path) -> None:
    dice = random.Random(5)
    ddl = [f"CREATE TABLE {t} ({COLUMNS})" for t in "df"]
    source = Source(database, *ddl, "ALTER TABLE f REPLICA IDENTITY FULL")
    start = source.head()
    links = Links(tmp_path / "links.db", {source.ref("d"): NEEDED})
    links.begin(source.capture, start)
    for _ in range(30):
        source.transaction(*(text.format(t=t) for text in statements(dice) for t in "df"))
    parts = [part for part in source.parts(start) if part.rows]
    completed = olds([batch for part in parts for batch in links.complete(part).batches], "d")
    expected = olds([batch for part in parts for batch in part.batches], "f")
    assert [(op, image) for _, _, op, image in completed] == [(op, image) for _, _, op, image in expected]
    links.close()


def test_a_child_that_moved_or_went_leaves_its_old_parents_document_under_the_default_identity(
    database: Database, tmp_path: Path
) -> None:
    world = PostgresWorld(
        database,
        "CREATE TABLE a (id int4 PRIMARY KEY, name text)",
        "CREATE TABLE b (id int4 PRIMARY KEY, a int8, name text)",
        "INSERT INTO a SELECT i, 'n' FROM generate_series(1, 5) i",
        "INSERT INTO b VALUES (1, 1, 'x'), (2, 2, 'x'), (3, NULL, 'x')",
    )
    node = Node("a", below=(Node("b", ("id",), ("a",)),))
    plan = world.plan(node)
    columns = needed([plan], world.capture)
    assert [*columns.values()] == [("a",)]
    links = Links(tmp_path / "links.db", columns)
    links.begin(world.capture, world.head())
    world.skip()
    resolver = Resolver(plan, world.capture.dialect)
    before = world.documents(node)
    world.sql(
        "UPDATE b SET a = 3 WHERE id = 1", "DELETE FROM b WHERE id = 2", "UPDATE b SET a = 4 WHERE id = 3"
    )
    batches = links.complete(Part(tuple(world.changes()), world.position)).batches
    found = set(names(resolver.resolve(batches, world.capture).ids.to_pylist()))
    assert found == {"1", "2", "3", "4"} == differing(before, world.documents(node))
    links.close()
    world.capture.close()
    if world.live is not None:
        world.live.close()  # type: ignore[attr-defined]
