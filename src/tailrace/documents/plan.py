"""What the documents of one index are made of: a tree of places, each a table in a role.

    customers ─┬─ orders (has_many) ─┬─ items (has_many) ─── product (belongs_to)
               │                     └─ count of items
               └─ tags (many_to_many, through customer_tags)

A place is one occurrence of a table: a table may have several, in one index, and be the root as well.
Everything is resolved: tables are as the catalog describes them, keys and columns exist, kinds are what the
document shows. A plan knows no dialect.

Rows of a place hang on rows of its parent by equal values (`Link`): `parent` are columns of the parent's row,
`own` columns of the place's. With `through` the two meet in a junction row instead: its `left` columns equal
the parent's, its `right` columns the place's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tailrace.config.index.fields import ValueKind
from tailrace.config.index.parts import Operator, TransformName
from tailrace.model.table import TableSchema

Kind = Literal[ValueKind, "map", "custom"]
Shape = Literal["belongs_to", "has_one", "has_many", "many_to_many"]
Function = Literal["count", "avg", "sum", "min", "max", "ids"]


@dataclass(frozen=True)
class Transform:
    """A step from a column's value to the document's: `lowercase`, `trim`, `uppercase`, `truncate`, `hash`.

    They work on the value's text, one after the other. `trim` takes spaces, tabs and line ends (ASCII) from
    both ends, letters are folded as Unicode says in every dialect, `length` is that of `truncate`, in
    characters, and `hash` is the SHA-256 of the text's UTF-8 in hexadecimal digits.
    """

    name: TransformName
    length: int | None = None


@dataclass(frozen=True)
class Scalar:
    """A column of the place's own row.

    `default` stands for NULL where `defaulted` says there is one, as it is: transforms do not touch it.
    """

    column: str
    kind: Kind
    transforms: tuple[Transform, ...] = ()
    default: Any = None
    defaulted: bool = False
    required: bool = False


@dataclass(frozen=True)
class Geo:
    """`{lat, lon}`, null if either is: of two columns, or of one that holds a point."""

    lat: str | None = None
    lon: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Group:
    """An object of values of the same row, never null."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Constant:
    """The same JSON value in every document."""

    value: Any


@dataclass(frozen=True)
class Expression:
    """SQL over the row's own columns."""

    sql: str
    kind: Kind


@dataclass(frozen=True)
class Related:
    """Rows of another place: an object or null (`belongs_to`, `has_one`), or an array (the others)."""

    place: Place
    required: bool = False


@dataclass(frozen=True)
class Aggregate:
    """One value over the rows of another place, which has no members of its own.

    `column` is what is summed, averaged or compared; `ids` are the place's keys. `kind` is what the document
    shows; of `ids` that of each element. Through a junction a row counts once for each junction row that
    leads to it; with `distinct` it counts once.
    """

    place: Place
    function: Function
    column: str | None = None
    kind: Kind | None = None
    distinct: bool = False


Value = Scalar | Geo | Group | Constant | Expression | Related | Aggregate


@dataclass(frozen=True)
class Member:
    """A field of a document or of an object in it."""

    name: str
    value: Value


@dataclass(frozen=True)
class Comparison:
    """A condition on one column, with SQL's logic of three values."""

    column: str
    operator: Operator
    value: Any = None


@dataclass(frozen=True)
class Raw:
    """A condition in the source's own SQL, over the place's columns."""

    sql: str


Filter = Comparison | Raw


@dataclass(frozen=True)
class Order:
    """A column to order by; NULLs come last, either way. Ties, and no order at all, go by the primary key."""

    column: str
    descending: bool = False


@dataclass(frozen=True)
class SoftDelete:
    """A row of the root for which this is true has no document: NULL is not true.

    The column counts as true where it is not NULL, a boolean one where it is true. With `when` all of these
    must be true as well.
    """

    column: str
    when: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Through:
    """The junction of a many-to-many link. Only junction rows that pass `filters` link anything."""

    table: TableSchema
    left: tuple[str, ...]
    right: tuple[str, ...]
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Link:
    """How rows of a place hang on rows of its parent (see the module's text)."""

    shape: Shape
    parent: tuple[str, ...]
    own: tuple[str, ...]
    through: Through | None = None


@dataclass(frozen=True)
class Place:
    """One occurrence of a table.

    `number` is unique in its plan, the root's is 0. `path` are the fields that lead to it.
    """

    number: int
    path: tuple[str, ...]
    table: TableSchema
    key: tuple[str, ...]
    members: tuple[Member, ...] = ()
    link: Link | None = None
    filters: tuple[Filter, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int | None = None

    def below(self) -> Iterator[Place]:
        """The places that hang on this one, in the order of the fields, aggregated ones too."""
        yield from _places(self.members)


def _places(members: tuple[Member, ...]) -> Iterator[Place]:
    for member in members:
        if isinstance(member.value, Group):
            yield from _places(member.value.members)
        elif isinstance(member.value, Related | Aggregate):
            yield member.value.place


@dataclass(frozen=True)
class IndexPlan:
    """The whole plan. `schema_hash` changes whenever documents may look different."""

    index: str
    root: Place
    soft_delete: SoftDelete | None = None
    schema_hash: str = field(default="", compare=False)

    def chains(self) -> Iterator[tuple[Place, ...]]:
        """Every place with all those above it: from the root, which is alone in the first, down to it."""
        waiting: list[tuple[Place, ...]] = [(self.root,)]
        while waiting:
            chain = waiting.pop(0)
            yield chain
            waiting += [(*chain, place) for place in chain[-1].below()]
