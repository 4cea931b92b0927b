"""Random tables, random rows and a random plan over them, the same in PostgreSQL and in SQLite.

Everything falls by one dice (`random.Random`), so that a seed tells the whole story.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.documents.plan import (
    Aggregate,
    Comparison,
    Constant,
    Filter,
    Group,
    IndexPlan,
    Kind,
    Link,
    Member,
    Order,
    Place,
    Related,
    Scalar,
    Shape,
    SoftDelete,
    Through,
    Transform,
)
from tailrace.model.table import TableSchema
from tests.documents.rendering import Source

_LETTERS = [
    "a",
    "B",
    "é",
    "ß",
    "漢",
    "𝄞",
    '"',
    "\\",
    "'",
    "%",
    "_",
    " ",
    "\t",
    "\n",
    "\x01",
    "*",
    "[",
    "$",
    "{",
    "}",
]


@dataclass(frozen=True)
class Sort:
    """A kind of column: its type on either side, its kinds in a document, and its values.

    `make` gives the value for PostgreSQL and the one for SQLite.
    """

    postgres: str
    sqlite: str
    kinds: tuple[Kind, ...]
    make: Callable[[random.Random], tuple[Any, Any]]
    sums: bool = False
    compares: bool = True


def _same(make: Callable[[random.Random], Any]) -> Callable[[random.Random], tuple[Any, Any]]:
    def both(dice: random.Random) -> tuple[Any, Any]:
        value = make(dice)
        return value, value

    return both


def _text(dice: random.Random) -> str:
    return "".join(dice.choice(_LETTERS) for _ in range(dice.randrange(5)))


def _decimal(dice: random.Random) -> tuple[Any, Any]:
    value = Decimal(dice.randrange(-10_000, 10_000)) / 100
    return value, float(value)


def _real(dice: random.Random) -> float:
    return dice.choice([0.0, 0.1, -2.5, 1e15, 1e-5, dice.uniform(-1e3, 1e3), dice.randrange(100)]) * 1.0


def _day(dice: random.Random) -> str:
    return (date(2024, 2, 27) + timedelta(dice.randrange(5))).isoformat()


def _moment(dice: random.Random) -> str:
    fraction = dice.choice(["", ".5", ".123456", ".120000"])
    return f"{_day(dice)} {dice.randrange(24):02}:00:{dice.randrange(60):02}{fraction}"


def _zoned(dice: random.Random) -> str:
    return _moment(dice) + dice.choice(["+00:00", "+05:30", "-08:00"])


def _json(dice: random.Random) -> str:
    values: list[Any] = [None, True, 12345678901234567890, 'a"\n', [1.5, {}], {"b": 1, "a": [_text(dice)]}]
    return json.dumps(dice.choice(values), ensure_ascii=dice.random() < 0.5)


SORTS = {
    "int": Sort("int", "integer", ("integer", "keyword"), _same(lambda d: d.randrange(-3, 4)), True),
    "long": Sort(
        "bigint", "integer", ("long",), _same(lambda d: d.choice([2**62, -(2**62), 7, 2**53 + 1])), True
    ),
    "decimal": Sort("numeric(12,2)", "decimal(12,2)", ("decimal", "double"), _decimal, True),
    "real": Sort("float8", "real", ("double",), _same(_real), True),
    "text": Sort("text", "text", ("text", "keyword", "identifier"), _same(_text)),
    "boolean": Sort("boolean", "boolean", ("boolean",), lambda d: (v := d.random() < 0.5, int(v))),
    "date": Sort("date", "date", ("date",), _same(_day)),
    "local": Sort("timestamp", "text", ("timestamp",), _same(_moment), compares=False),
    "zoned": Sort("timestamptz", "text", ("timestamp",), _same(_zoned), compares=False),
    "bytes": Sort("bytea", "blob", ("binary",), _same(lambda d: d.randbytes(d.randrange(5))), compares=False),
    "uuid": Sort("uuid", "text", ("uuid",), _same(lambda d: str(uuid.UUID(int=d.randrange(3))))),
    "json": Sort("json", "text", ("json",), _same(_json), compares=False),
}
# What a key may be, and what may point at it: narrower, wider, padded.
KEYS = {
    "int": ("int", "bigint", "numeric(20,0)"),
    "long": ("bigint", "int"),
    "text": ("varchar(8)", "text", "char(8)"),
    "uuid": ("uuid",),
    "date": ("date",),
}
_KEY_VALUES: dict[str, list[Any]] = {
    "int": list(range(1, 7)),
    "long": list(range(10, 16)),
    "text": ["a", "B", "é", 'q"', "a b", "𝄞"],
    "uuid": [str(uuid.UUID(int=value)) for value in range(6)],
    "date": [f"2024-01-0{day}" for day in range(1, 7)],
}


@dataclass
class Table:
    """A table: its key's sorts, what it points at, and other columns."""

    name: str
    key: list[str]
    points: list[Table] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    keys: list[tuple[Any, ...]] = field(default_factory=list)

    def foreign(self, at: int) -> tuple[str, ...]:
        """The columns that point at another table."""
        return tuple(f"f{at}_{part}" for part in range(len(self.points[at].key)))

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(f"k{part}" for part in range(len(self.key)))


class World:
    """Tables with rows, made in both sources."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tables: list[Table] = []
        self.junctions: list[Table] = []
        self._numbers = 0
        dice = self.dice
        for at in range(dice.randint(2, 4)):
            key = [dice.choice(list(KEYS)) for _ in range(dice.choice([1, 1, 1, 2]))]
            self.tables.append(Table(f"t{at}", key))
        for table in self.tables:
            table.points = [dice.choice(self.tables) for _ in range(dice.randint(1, 2))]
            table.columns = [dice.choice(list(SORTS)) for _ in range(dice.randint(1, 5))]
        for at in range(dice.randint(0, 2)):
            sides = [dice.choice(self.tables), dice.choice(self.tables)]
            self.junctions.append(Table(f"j{at}", [], sides, ["int"]))

    def make(self, *sources: Source) -> None:
        """Create and fill the tables."""
        dice = self.dice
        for table in self.tables:
            size = dice.randint(1, 6)
            parts = [dice.sample(_KEY_VALUES[sort], size) for sort in table.key]
            table.keys = list(zip(*parts, strict=True))
        for table in [*self.tables, *self.junctions]:
            declared = self._declared(table)
            rows = [self._row(table, key) for key in table.keys or [()] * dice.randint(0, 8)]
            for source in sources:
                side = 0 if source.dialect == "postgres" else 1
                body = ", ".join(f"{name} {types[side]}" for name, types in declared)
                if table.key:
                    body += f", PRIMARY KEY ({', '.join(table.named)})"
                source.sql(f"CREATE TABLE {table.name} ({body})")
                if rows:
                    source.insert(table.name, *([value[side] for value in row] for row in rows))

    def _declared(self, table: Table) -> list[tuple[str, tuple[str, str]]]:
        dice = self.dice
        made = [
            (name, (KEYS[sort][0], SORTS[sort].sqlite))
            for name, sort in zip(table.named, table.key, strict=True)
        ]
        for at, other in enumerate(table.points):
            for name, sort in zip(table.foreign(at), other.key, strict=True):
                made.append((name, (dice.choice(KEYS[sort]), SORTS[sort].sqlite)))
        made += [
            (f"c{at}", (SORTS[sort].postgres, SORTS[sort].sqlite)) for at, sort in enumerate(table.columns)
        ]
        return made

    def _row(self, table: Table, key: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        dice = self.dice
        row = [(value, value) for value in key]
        for other in table.points:
            if dice.random() < 0.8:
                found = dice.choice(other.keys)
            else:
                found = tuple(dice.choice([None, *_KEY_VALUES[sort]]) for sort in other.key)
            row += [(value, value) for value in found]
        for sort in table.columns:
            row.append((None, None) if dice.random() < 0.2 else SORTS[sort].make(dice))
        return row

    def plan(self, schemas: dict[str, TableSchema]) -> IndexPlan:
        """A random index over the tables as a source describes them."""
        dice = self.dice
        self._schemas, self._numbers = schemas, 0
        table = dice.choice(self.tables)
        place = Place(
            0,
            (),
            schemas[table.name],
            table.named,
            self._members(table, dice.randint(1, 3)),
            None,
            self._filters(table),
        )
        marks = [f"c{at}" for at, sort in enumerate(table.columns) if sort in ("boolean", "date")]
        mark = SoftDelete(dice.choice(marks), self._filters(table)) if marks and dice.random() < 0.3 else None
        return IndexPlan("generated", place, mark)

    def asked(self, table: Table) -> pa.Table:
        """Some keys of a table, and some that it has not."""
        dice = self.dice
        picked = dice.choices(table.keys, k=dice.randint(0, 4))
        picked.append(tuple(dice.choice(_KEY_VALUES[sort]) for sort in table.key))
        types = {"int": pa.int32(), "long": pa.int64(), "date": pa.date32()}
        columns = {}
        for at, (name, sort) in enumerate(zip(table.named, table.key, strict=True)):
            values: list[Any] = [key[at] for key in picked]
            columns[name] = (
                pa.array(map(date.fromisoformat, values), pa.date32())
                if sort == "date"
                else pa.array(values, types.get(sort, pa.string()))
            )
        return pa.table(columns)

    def _members(self, table: Table, depth: int) -> tuple[Member, ...]:
        dice, made = self.dice, []
        for at, sort in enumerate(table.columns):
            if dice.random() < 0.7:
                made.append(Member(f"c{at}", self._scalar(f"c{at}", sort)))
        for name, sort in zip(table.named, table.key, strict=True):
            made.append(Member(name, Scalar(name, dice.choice(SORTS[sort].kinds))))
        if dice.random() < 0.2:
            made.append(Member("constant", Constant(dice.choice([None, 1.5, "x'\\%", [True, {"a": []}]]))))
        if depth:
            for at in range(dice.randint(1, 3)):
                if (member := self._relation(table, f"r{at}", depth - 1)) is not None:
                    made.append(member)
                    made += self._beside(member)
        if dice.random() < 0.3:
            made = [made[0], Member("group", Group(tuple(made[1:])))]
        return tuple(made)

    def _scalar(self, name: str, sort: str) -> Scalar:
        dice = self.dice
        kind = dice.choice(SORTS[sort].kinds)
        steps: tuple[Transform, ...] = ()
        if sort == "text" and dice.random() < 0.4:
            every = [Transform("trim"), Transform("lowercase"), Transform("uppercase"), Transform("hash")]
            steps = tuple(dice.sample([*every, Transform("truncate", 2)], dice.randint(1, 3)))
        if dice.random() < 0.2:
            return Scalar(name, kind, steps, dice.choice([0, "none", [1]]), True)
        return Scalar(name, kind, steps)

    def _relation(self, table: Table, name: str, depth: int) -> Member | None:
        dice = self.dice
        ways: list[tuple[Table, Link]] = []
        for at, other in enumerate(table.points):
            ways.append((other, Link("belongs_to", table.foreign(at), other.named)))
        for other in self.tables:
            for at, target in enumerate(other.points):
                if target is table:
                    shape: Shape = "has_one" if dice.random() < 0.3 else "has_many"
                    ways.append((other, Link(shape, table.named, other.foreign(at))))
        ways += [self._far(table, one) for one in self.junctions if one.points[0] is table]
        if not ways:
            return None
        other, link = dice.choice(ways)
        self._numbers += 1
        number, schema = self._numbers, self._schemas[other.name]
        if link.shape != "belongs_to" and dice.random() < 0.4:
            place = Place(number, (name,), schema, other.named, (), link, self._filters(other))
            return Member(name, self._aggregate(other, place))
        order = tuple(
            Order(f"c{at}", dice.random() < 0.5)
            for at, sort in enumerate(other.columns)
            if SORTS[sort].compares and link.shape != "belongs_to" and dice.random() < 0.4
        )
        many = link.shape in ("has_many", "many_to_many")
        limit = dice.randint(1, 3) if many and dice.random() < 0.4 else None
        members = self._members(other, depth)
        return Member(
            name,
            Related(
                Place(number, (name,), schema, other.named, members, link, self._filters(other), order, limit)
            ),
        )

    def _beside(self, member: Member) -> list[Member]:
        """Aggregates over the very rows that a member shows, or all that it would without its limit."""
        shown = member.value
        if not isinstance(shown, Related) or shown.place.link is None or self.dice.random() < 0.5:
            return []
        if shown.place.link.shape not in ("has_many", "many_to_many"):
            return []
        table = next(one for one in self.tables if one.name == shown.place.table.ref.name)
        bare = replace(shown.place, members=(), order=(), limit=None)
        return [
            Member(f"{member.name}_{at}", self._aggregate(table, bare))
            for at in range(self.dice.randint(1, 3))
        ]

    def _far(self, table: Table, junction: Table) -> tuple[Table, Link]:
        other = junction.points[1]
        filters = (Comparison("c0", "gt", -2),) if self.dice.random() < 0.3 else ()
        through = Through(self._schemas[junction.name], junction.foreign(0), junction.foreign(1), filters)
        return other, Link("many_to_many", table.named, other.named, through)

    def _aggregate(self, table: Table, place: Place) -> Aggregate:
        dice = self.dice
        distinct = dice.random() < 0.3
        functions: list[tuple[Any, str | None, Any]] = [("count", None, None)]
        if len(table.key) == 1:
            functions.append(("ids", None, SORTS[table.key[0]].kinds[0]))
        for at, sort in enumerate(table.columns):
            kinds = SORTS[sort]
            if kinds.sums:
                functions += [("sum", f"c{at}", kinds.kinds[0]), ("avg", f"c{at}", "double")]
            if kinds.compares:
                functions += [("min", f"c{at}", kinds.kinds[0]), ("max", f"c{at}", kinds.kinds[0])]
        function, column, kind = dice.choice(functions)
        return Aggregate(place, function, column, kind, distinct)

    def _filters(self, table: Table) -> tuple[Filter, ...]:
        dice = self.dice
        usable = [at for at, sort in enumerate(table.columns) if SORTS[sort].compares]
        if not usable or dice.random() < 0.7:
            return ()
        at = dice.choice(usable)
        sort = SORTS[table.columns[at]]
        value = sort.make(dice)[0]
        operators: list[Any] = ["is_null", "is_not_null", "eq", "neq", "in", "not_in"]
        if table.columns[at] not in ("boolean", "uuid"):
            operators += ["lt", "lte", "gt", "gte", "between"]
        if table.columns[at] == "text":
            operators += ["like", "ilike"]
        operator = dice.choice(operators)
        if operator in ("in", "not_in"):
            return (Comparison(f"c{at}", operator, [value, sort.make(dice)[0]]),)
        if operator == "between":
            return (Comparison(f"c{at}", operator, [value, sort.make(dice)[0]]),)
        if operator in ("like", "ilike"):
            value = "%" + str(value).replace("\\", "\\\\")
        return (Comparison(f"c{at}", operator, value),)


def difference(one: Any, two: Any, path: str = "") -> str | None:
    """Where two JSON values differ, if they do: fields have an order, reals may have digits to spare."""
    if isinstance(one, dict) and isinstance(two, dict):
        if list(one) != list(two):
            return f"{path}: {list(one)} and {list(two)}"
        found = (difference(one[name], two[name], f"{path}.{name}") for name in one)
        return next((where for where in found if where is not None), None)
    if isinstance(one, list) and isinstance(two, list):
        if len(one) != len(two):
            return f"{path}: {len(one)} and {len(two)} elements"
        found = (difference(*pair, f"{path}[{at}]") for at, pair in enumerate(zip(one, two, strict=True)))
        return next((where for where in found if where is not None), None)
    if isinstance(one, bool) or isinstance(two, bool):
        same = one is two
    elif isinstance(one, Decimal) and isinstance(two, Decimal) and len(one.as_tuple().digits) > 15:
        same = float(one) == float(two)
    else:
        same = bool(one == two)
    return None if same else f"{path}: {one!r} and {two!r}"
