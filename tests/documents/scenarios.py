"""The scenario suite: for each kind of key the same tables, the same index and the same steps.

    l0 ─┬─ l1 ─┬─ l2 ─┬─ l3      children: has_many, has_one, aggregates, at depth 1 to 3
        ├─ t   ├─ t   ├─ t       what rows point at: belongs_to
        ├─ j0  ├─ j1  └─ j2      junctions, and f behind them: many_to_many
        └─ l0 (its boss; who reports to it)

A step is one of the rows of "Which documents a change touches", at every depth at once, for documents that no
other depth of it touches. Keys are numbers here; a kind of key says what a number is to the database.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

Statements = list[str]
# Columns that hold keys of other rows, or the row's own.
KEYED = ("id", "parent", "target", "boss", "left", "right")
LEVELS = 4
MOST = 130


@dataclass(frozen=True)
class Kind:
    """A kind of key: the types of its columns, of those that point at it, and a number's value as SQL."""

    name: str
    types: tuple[str, ...]
    pointers: tuple[str, ...]
    make: Callable[[int], tuple[str, ...]]
    before: tuple[str, ...] = ()

    def columns(self, name: str) -> list[str]:
        """The columns that hold a key."""
        return [name] if len(self.types) == 1 else [f"{name}_{at}" for at in range(len(self.types))]

    def listed(self, name: str) -> Any:
        """The same, as an index schema has it."""
        columns = self.columns(name)
        return columns[0] if len(columns) == 1 else columns

    def table(self, name: str) -> str:
        return f"{self.name}_{name}"


def _text(number: int) -> str:
    return f"'k {number} \"\\é'" if number % 2 else f"'K{number}'"


def _day(number: int) -> str:
    return f"'{date(2026, 1, 1) + timedelta(number)}'"


def _uuid(number: int) -> str:
    return f"'{uuid.UUID(int=number << 64 | 0xABC)}'"


POSTGRES = (
    Kind("int", ("int",), ("int",), lambda n: (str(n),)),
    Kind("bigint", ("bigint",), ("bigint",), lambda n: (str(n + 5_000_000_000),)),
    # Narrower and wider than the key they point at.
    Kind("wide", ("bigint",), ("int",), lambda n: (str(n),)),
    Kind("narrow", ("int",), ("numeric(12)",), lambda n: (str(n),)),
    Kind("text", ("varchar(40)",), ("text",), lambda n: (_text(n),)),
    Kind("uuid", ("uuid",), ("uuid",), lambda n: (_uuid(n),)),
    Kind("date", ("date",), ("date",), lambda n: (_day(n),)),
    Kind(
        "enum",
        ("label",),
        ("label",),
        lambda n: (f"'e{n}'",),
        # Not in the order of their texts.
        (f"CREATE TYPE label AS ENUM ({', '.join(repr(f'e{n}') for n in reversed(range(MOST)))})",),
    ),
    Kind(
        "composite",
        ("int", "text"),
        ("bigint", "varchar(40)"),
        lambda n: (str(n // 3), _text(n % 3)),
    ),
)
SQLITE = (
    Kind("int", ("INTEGER",), ("INTEGER",), lambda n: (str(n),)),
    Kind("bigint", ("BIGINT",), ("BIGINT",), lambda n: (str(n + 5_000_000_000),)),
    Kind("text", ("TEXT",), ("VARCHAR(40)",), lambda n: (_text(n),)),
    Kind("uuid", ("UUID",), ("UUID",), lambda n: (_uuid(n),)),
    Kind("date", ("DATE",), ("DATE",), lambda n: (_day(n),)),
    Kind("composite", ("INTEGER", "TEXT"), ("INTEGER", "TEXT"), lambda n: (str(n // 3), _text(n % 3))),
)


class Tables:
    """The tables of one kind of key: their definitions, their index, and statements that change them."""

    def __init__(self, kind: Kind, *, identity: str = "", truncates: bool = True) -> None:
        self.kind, self.identity, self.truncates = kind, identity, truncates

    def ddl(self) -> Iterator[str]:
        """Every table, with its replica identity."""
        yield from self.kind.before
        # Which columns the log has of an old row, where an index says so: the key, and some parents.
        told: dict[str, list[str]] = {"l0": ["n", "id"], "l1": ["id", "parent"], "l2": ["id", "n"]}
        told |= {"l3": ["parent", "id"], "t": ["id", "n"], "f": ["n", "id"]}
        told |= {"j0": ["right", "left"], "j1": ["link", "left"], "j2": ["n", "link"]}
        columns = {f"l{at}": ["id", "parent" if at else "boss", "target"] for at in range(LEVELS)}
        columns |= {"t": ["id"], "f": ["id"]}
        for name, keyed in columns.items():
            yield from self._create(name, keyed, "id", told[name])
        yield from self._create("j0", ["left", "right"], "left right", told["j0"])
        for name in ("j1", "j2"):
            yield from self._create(name, ["link", "left", "right"], "link", told[name])

    def _create(self, name: str, keyed: Sequence[str], key: str, told: Sequence[str]) -> Iterator[str]:
        kind, table = self.kind, self.kind.table(name)
        key_columns = [column for part in key.split() for column in self._columns(part)]
        told_columns = [column for part in told for column in self._columns(part)]
        fixed = {*key_columns, *(told_columns if self.identity == "INDEX" else ())}
        parts = []
        for part in keyed:
            types = ("integer",) if part == "link" else kind.types if part == "id" else kind.pointers
            for column, native in zip(self._columns(part), types, strict=True):
                parts.append(f'"{column}" {native}{" NOT NULL" if column in fixed else ""}')
        parts += ["name text", "n integer NOT NULL DEFAULT 0"]
        quoted = ", ".join(f'"{column}"' for column in key_columns)
        yield f"CREATE TABLE {table} ({', '.join(parts)}, PRIMARY KEY ({quoted}))"
        for part in ("parent", "boss", "target", "left", "right"):
            if part in keyed:
                listed = ", ".join(f'"{column}"' for column in self._columns(part))
                yield f"CREATE INDEX {table}_{part} ON {table} ({listed})"
        if self.identity == "INDEX":
            listed = ", ".join(f'"{column}"' for column in told_columns)
            yield f"CREATE UNIQUE INDEX {table}_told ON {table} ({listed})"
            yield f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {table}_told"
        elif self.identity:
            yield f"ALTER TABLE {table} REPLICA IDENTITY {self.identity}"

    def _columns(self, name: str) -> list[str]:
        return self.kind.columns(name) if name in KEYED else [name]

    def schema(self) -> dict[str, Any]:
        """The index over these tables."""
        key = self.kind.listed("id")
        boss = {
            "belongs_to": "boss",
            "table": self.kind.table("l0"),
            "primary_key": key,
            "column": self.kind.listed("boss"),
            "fields": [{"keyword": "name"}, self._target()],
        }
        reports = {
            "has_many": "reports",
            "table": self.kind.table("l0"),
            "primary_key": key,
            "foreign_key": self.kind.listed("boss"),
            "fields": [{"keyword": "name"}],
        }
        fields = [*self._fields(0), boss, reports]
        return {"version": 1, "table": self.kind.table("l0"), "primary_key": key, "fields": fields}

    def _target(self) -> dict[str, Any]:
        return {
            "belongs_to": "aim",
            "table": self.kind.table("t"),
            "primary_key": self.kind.listed("id"),
            "column": self.kind.listed("target"),
            "fields": [{"keyword": "name"}],
        }

    def _fields(self, level: int) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = [{"keyword": "name"}, {"integer": "n"}, self._target()]
        if level + 1 == LEVELS:
            return fields
        below = {"table": self.kind.table(f"l{level + 1}"), "foreign_key": self.kind.listed("parent")}
        through = {
            "table": self.kind.table(f"j{level}"),
            "left_key": self.kind.listed("left"),
            "right_key": self.kind.listed("right"),
        }
        far = {"table": self.kind.table("f"), "through": through}
        key = {"primary_key": self.kind.listed("id")}
        first = {
            "order_by": [{"column": "n", "direction": "desc"}],
            "fields": [{"keyword": "name"}, self._target()],
        }
        ids = {"ids": "kid_ids", **below, "element_type": "keyword"}
        return [
            *fields,
            # Of composite keys there are none.
            *([ids] if len(self.kind.types) == 1 else []),
            {"has_many": "kids", **below, **key, "fields": self._fields(level + 1)},
            {"has_one": "first", **below, **key, **first},
            {"count": "kid_count", **below},
            {"sum": "kid_sum", **below, "column": "n", "value_type": "long"},
            {"many_to_many": "tags", **far, **key, "fields": [{"keyword": "name"}]},
            {"max": "tag_max", **far, "column": "n", "value_type": "long"},
        ]

    # Statements

    def insert(self, table: str, **values: Any) -> str:
        pairs = dict(self._pairs(values))
        names = ", ".join(f'"{name}"' for name in pairs)
        return f"INSERT INTO {self.kind.table(table)} ({names}) VALUES ({', '.join(pairs.values())})"

    def update(self, table: str, row: dict[str, Any], **values: Any) -> str:
        sets = ", ".join(f'"{name}" = {value}' for name, value in self._pairs(values))
        return f"UPDATE {self.kind.table(table)} SET {sets} WHERE {self._where(row)}"

    def delete(self, table: str, **row: Any) -> str:
        return f"DELETE FROM {self.kind.table(table)} WHERE {self._where(row)}"

    def truncate(self, *tables: str) -> Statements:
        names = [self.kind.table(table) for table in tables]
        if self.truncates:
            return [f"TRUNCATE {', '.join(names)}"]
        return [f"DELETE FROM {name}" for name in names]

    def _pairs(self, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            if name not in KEYED:
                yield name, repr(value)
            elif value is None:
                yield from ((column, "NULL") for column in self.kind.columns(name))
            else:
                yield from zip(self.kind.columns(name), self.kind.make(value), strict=True)

    def _where(self, row: dict[str, Any]) -> str:
        return " AND ".join(f'"{name}" = {value}' for name, value in self._pairs(row))


ROOTS = (1, 2, 3, 4)


def fill(t: Tables) -> Statements:
    """The rows to begin with.

    Below the root r hang rows 10 r + 1 and 2 of each level. They point at r, 10 + r, 20 + r and 30 + r, and
    have the tags r, 10 + r and 20 + r. Those of root 4 come late.
    """
    made = [
        t.insert("l0", id=7, name="boss", n=7),
        t.insert("l0", id=8, name="boss too", n=8),
        # Of parents that are not there yet.
        t.insert("l1", id=65, parent=6, name="waits for a root", n=1),
        t.insert("l2", id=66, parent=19, name="waits for a child", n=1),
        t.insert("l3", id=67, parent=29, name="waits for a grandchild", n=1),
    ]
    for r in ROOTS:
        made.append(t.insert("l0", id=r, boss=7 if r in (2, 3) else None, target=r, name=f"root {r}", n=r))
        for level in (1, 2, 3):
            above = r if level == 1 else 10 * r + 1
            for at in (1, 2):
                target = 10 * level + r if at == 1 else r
                row = {"id": 10 * r + at, "parent": above, "target": target, "n": at}
                made.append(t.insert(f"l{level}", name=f"row {level} {r} {at}", **row))
        for aim in (0, 10, 20, 30) if r != 4 else ():
            made.append(t.insert("t", id=aim + r, name=f"aim {aim + r}", n=r))
        for level in (0, 1, 2):
            left = 10 * r + 1 if level else r
            made.append(t.insert(f"j{level}", **_link(level, r), left=left, right=10 * level + r))
            if r != 4:
                made.append(t.insert("f", id=10 * level + r, name=f"tag {level} {r}", n=10 * level + r))
    made += [t.insert("f", id=id_, name=f"tag {id_}", n=id_) for id_ in (50, 51)]
    return made


def _link(level: int, number: int) -> dict[str, Any]:
    """The key of a junction row that has one of its own."""
    return {"link": number, "n": number} if level else {}


# In each of these: the level, and a row of it that a change of a depth is made to. Every depth has its root.
CHILDREN = ((1, 1), (2, 21), (3, 31))


def root_inserted(t: Tables) -> Statements:
    return [t.insert("l0", id=5, boss=1, target=1, name="new", n=5)]


def root_updated(t: Tables) -> Statements:
    return [t.update("l0", {"id": 5}, name="newer", target=2), t.update("l0", {"id": 4}, n=44)]


def root_key_changed(t: Tables) -> Statements:
    return [t.update("l0", {"id": 5}, id=6)]


def root_replaced(t: Tables) -> Statements:
    return [t.delete("l0", id=6), t.insert("l0", id=6, name="again", n=6)]


def root_deleted(t: Tables) -> Statements:
    return [t.delete("l0", id=6)]


def boss_updated(t: Tables) -> Statements:
    return [t.update("l0", {"id": 7}, name="promoted", target=3)]


def boss_changed(t: Tables) -> Statements:
    return [t.update("l0", {"id": 3}, boss=8)]


def boss_key_changed(t: Tables) -> Statements:
    return [t.update("l0", {"id": 7}, id=9)]


def boss_late(t: Tables) -> Statements:
    return [t.insert("l0", id=7, boss=9, name="the next", n=70)]


def boss_deleted(t: Tables) -> Statements:
    return [t.delete("l0", id=8), t.delete("l0", id=9)]


def child_inserted(t: Tables) -> Statements:
    return [t.insert(f"l{at}", id=5, parent=above, target=1, name="kid", n=5) for at, above in CHILDREN]


def child_updated(t: Tables) -> Statements:
    return [t.update(f"l{at}", {"id": 5}, name="other kid", n=-5) for at, _ in CHILDREN]


def child_moved(t: Tables) -> Statements:
    return [t.update(f"l{at}", {"id": 5}, parent=4 if at == 1 else 41) for at, _ in CHILDREN]


def child_moved_twice(t: Tables) -> Statements:
    """Through a parent that it never has when others look."""
    steps = ((2, 3), (11, 31), (11, 21))
    pairs = zip(CHILDREN, steps, strict=True)
    return [t.update(f"l{at}", {"id": 5}, parent=where) for (at, _), places in pairs for where in places]


def child_key_changed(t: Tables) -> Statements:
    return [t.update(f"l{at}", {"id": 5}, id=9 + 10 * at) for at, _ in CHILDREN]


def child_key_and_parent_changed(t: Tables) -> Statements:
    return [
        t.update(f"l{at}", {"id": 9 + 10 * at}, id=5, parent=above, name="home again")
        for at, above in CHILDREN
    ]


def child_deleted(t: Tables) -> Statements:
    return [t.delete(f"l{at}", id=5) for at, _ in CHILDREN]


def child_moved_and_deleted(t: Tables) -> Statements:
    """Of the documents that had it, those of the second rows."""
    moves = [(1, 12, 2), (2, 32, 41), (3, 42, 11)]
    return [
        line
        for at, id_, to in moves
        for line in (t.update(f"l{at}", {"id": id_}, parent=to), t.delete(f"l{at}", id=id_))
    ]


def child_inserted_and_deleted(t: Tables) -> Statements:
    return [*child_inserted(t), *child_deleted(t), t.insert("l1", id=12, parent=1, name="back", n=12)]


def target_updated(t: Tables) -> Statements:
    return [t.update("t", {"id": id_}, name="moved aim") for id_ in (1, 12, 23)]


def deep_target_updated(t: Tables) -> Statements:
    return [t.update("t", {"id": 31}, name="deep aim")]


def target_late(t: Tables) -> Statements:
    return [t.insert("t", id=id_, name="late aim", n=id_) for id_ in (4, 14, 24, 34)]


def target_key_changed(t: Tables) -> Statements:
    return [t.update("t", {"id": id_}, id=id_ + 60) for id_ in (1, 12, 23)]


def target_key_changed_back(t: Tables) -> Statements:
    return [t.update("t", {"id": id_ + 60}, id=id_) for id_ in (1, 12, 23)]


def target_deleted(t: Tables) -> Statements:
    return [t.delete("t", id=id_) for id_ in (2, 13, 21, 34)]


def pointer_changed(t: Tables) -> Statements:
    rows = ((0, 1), (1, 21), (2, 31), (3, 41))
    return [t.update(f"l{at}", {"id": id_}, target=4) for at, id_ in rows]


LINKS = ((0, 1), (1, 21), (2, 31))


def link_added(t: Tables) -> Statements:
    return [t.insert(f"j{at}", **_link(at, 90), left=left, right=50) for at, left in LINKS]


def link_updated(t: Tables) -> Statements:
    return [t.update(f"j{at}", {"left": left, "right": 50}, name="touched") for at, left in LINKS]


def link_moved(t: Tables) -> Statements:
    return [t.update(f"j{at}", {"left": left, "right": 50}, left=4 if at == 0 else 41) for at, left in LINKS]


def link_turned(t: Tables) -> Statements:
    return [t.update(f"j{at}", {"left": 4 if at == 0 else 41, "right": 50}, right=51) for at, _ in LINKS]


def link_removed(t: Tables) -> Statements:
    return [t.delete(f"j{at}", left=4 if at == 0 else 41, right=51) for at, _ in LINKS]


def far_updated(t: Tables) -> Statements:
    return [t.update("f", {"id": id_}, name="other tag", n=-id_) for id_ in (1, 12, 23)]


def far_late(t: Tables) -> Statements:
    return [t.insert("f", id=id_, name="late tag", n=id_) for id_ in (4, 14, 24)]


def far_key_changed(t: Tables) -> Statements:
    return [t.update("f", {"id": id_}, id=id_ + 60) for id_ in (1, 12, 23)]


def far_deleted(t: Tables) -> Statements:
    return [t.delete("f", id=id_) for id_ in (2, 13, 24)]


def everything_at_once(t: Tables) -> Statements:
    """Of all of the above something, whose ways cross."""
    return [
        t.update("l0", {"id": 1}, id=5),
        t.update("l1", {"id": 11}, parent=5, id=19),
        t.update("l2", {"id": 11}, parent=21),
        t.delete("l1", id=21),
        t.update("l2", {"id": 12}, parent=19),
        t.update("l3", {"id": 31}, parent=41),
        t.insert("j0", left=5, right=3),
        t.delete("t", id=3),
        t.insert("t", id=13, name="there again", n=1),
        t.delete("f", id=3),
        t.update("l0", {"id": 2}, boss=5),
        t.delete("l0", id=3),
    ]


def grandchildren_truncated(t: Tables) -> Statements:
    return t.truncate("l3")


def targets_truncated(t: Tables) -> Statements:
    return t.truncate("t")


def links_truncated(t: Tables) -> Statements:
    return t.truncate("j1")


def far_truncated(t: Tables) -> Statements:
    return [*t.truncate("f"), t.insert("f", id=2, name="after", n=1)]


def children_truncated(t: Tables) -> Statements:
    kept = t.insert("l1", id=5, parent=2, name="after", n=1)
    return [t.update("l1", {"id": 41}, parent=2), *t.truncate("l1", "l2"), kept]


def roots_truncated(t: Tables) -> Statements:
    return [
        t.insert("l0", id=100, name="gone", n=1),
        *t.truncate("l0"),
        t.insert("l0", id=2, name="left", n=1),
    ]


STEPS = (
    root_inserted,
    root_updated,
    root_key_changed,
    root_replaced,
    root_deleted,
    boss_updated,
    boss_changed,
    boss_key_changed,
    boss_late,
    boss_deleted,
    child_inserted,
    child_updated,
    child_moved,
    child_moved_twice,
    child_key_changed,
    child_key_and_parent_changed,
    child_deleted,
    child_moved_and_deleted,
    child_inserted_and_deleted,
    target_updated,
    deep_target_updated,
    target_late,
    target_key_changed,
    target_key_changed_back,
    target_deleted,
    pointer_changed,
    link_added,
    link_updated,
    link_moved,
    link_turned,
    link_removed,
    far_updated,
    far_late,
    far_key_changed,
    far_deleted,
    everything_at_once,
    grandchildren_truncated,
    targets_truncated,
    links_truncated,
    far_truncated,
    children_truncated,
    roots_truncated,
)
