"""A statement that builds documents, and how the keys that it is asked for are bound to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.documents.plan import IndexPlan
from tailrace.documents.render.binding import (
    Values,
    array_literal,
    json_list,
    json_rows,
    known,
    of_table,
    sent_json,
    sent_texts,
)
from tailrace.documents.render.dialect import Dialect
from tailrace.documents.render.frames import Bounds
from tailrace.documents.render.postgres import Postgres
from tailrace.documents.render.spark import Spark
from tailrace.documents.render.sqlite import Sqlite
from tailrace.documents.render.structure import Structure
from tailrace.model.errors import ConfigError, UsageError
from tailrace.model.table import Column, ColumnType, TableRef


@dataclass(frozen=True)
class Keys:
    """The keys that are asked for are bound to the statement; `view` holds them where Spark runs it."""

    view: str | None = None


@dataclass(frozen=True)
class Range:
    """Keys from a first one on (`low`), up to and without a second one (`high`), both bound."""

    low: bool = True
    high: bool = True


@dataclass(frozen=True)
class Query:
    """A statement with two columns: `id`, a text, and `document`, the text of one JSON object in one line.

    A root key that yields no row has no document. `columns` is what `Capture.query` wants to be told. For
    PostgreSQL it is always run with parameters, if with none: each `%` of it is doubled.
    """

    sql: str
    dialect: str
    key: tuple[Column, ...]
    scope: Keys | Range | None = None

    columns = (("id", ColumnType("string")), ("document", ColumnType("string")))

    def bind(self, keys: pa.Table | None = None) -> tuple[Any, ...]:
        """The statement's parameters for these root keys: the columns of the root's key, by name.

        A value that its type cannot hold is null; it stands tagged in a column of the name and `:exact`, or
        its text does in one of the name and `:text` (`Affected.keys`).
        """
        if not isinstance(self.scope, Keys):
            if keys is not None:
                raise UsageError("the query takes no keys")
            return ()
        if keys is None:
            raise UsageError("the query needs the keys to build")
        if self.dialect == "spark":
            if any(keys.column(column.name).null_count for column in self.key):
                raise ConfigError(
                    "some keys have values that Spark has no type for",
                    remedy="build their documents from the source",
                )
            return ()
        # A key that is null is no row's.
        row = known([of_table(keys, column.name) for column in self.key])
        if self.dialect == "postgres":
            return tuple(array_literal(sent_texts(values)) for values in row)
        texts = [sent_json(values) for values in row]
        return (json_rows(texts) if len(texts) > 1 else json_list(texts[0]),)

    def bind_range(
        self, low: Sequence[Any] | None = None, high: Sequence[Any] | None = None
    ) -> tuple[Any, ...]:
        """The parameters for a range of keys, each a value for each column of the key."""
        if not isinstance(self.scope, Range):
            raise UsageError("the query takes no range of keys")
        made: list[Any] = []
        for wanted, given in ((self.scope.low, low), (self.scope.high, high)):
            if wanted != (given is not None) or (given is not None and len(given) != len(self.key)):
                raise UsageError("the query needs a value for each column of the key, at each bound it has")
            for column, value in zip(self.key, given or (), strict=False):
                if self.dialect == "sqlite":
                    made.append(value)
                else:
                    made.append(sent_texts(Values(pa.array([value], column.type.arrow)))[0].as_py())
        return tuple(made)


def build_query(
    plan: IndexPlan,
    dialect: str,
    keys: Keys | Range | None = None,
    *,
    source: str | None = None,
    views: Mapping[TableRef, str] | None = None,
    root_view: str | None = None,
) -> Query:
    """The statement that builds documents of a plan: of some keys, of a range of them, or all.

    `dialect` is `postgres`, `sqlite` or `spark`. For Spark, `source` is the dialect of the database that the
    tables come from, `views` names the view of each, and `root_view` another one for the root's rows alone
    (some of them, while the same table is joined as a whole elsewhere).
    """
    made = _dialect(dialect, source)
    root = plan.root
    if not root.key:
        raise ConfigError(f"table {root.table.ref} has no primary key, so its documents have no id")
    if dialect == "spark" and views is None:
        raise ConfigError("Spark needs a view for each table of the plan")
    bounds = Bounds(keys.low, keys.high) if isinstance(keys, Range) else None
    structure = Structure(
        plan,
        made,
        keyed=isinstance(keys, Keys),
        bounds=bounds,
        keys_view=keys.view if isinstance(keys, Keys) else None,
        views=views,
        root_view=root_view,
    )
    key = tuple(root.table.column(name) for name in root.key)
    return Query(structure.statement(), dialect, key, keys)


def _dialect(name: str, source: str | None) -> Dialect:
    if name == "postgres":
        return Postgres()
    if name == "sqlite":
        return Sqlite()
    if name == "spark":
        if source not in ("postgres", "sqlite"):
            raise ConfigError("Spark must know which database the tables come from: postgres or sqlite")
        return Spark(source)
    raise ConfigError(f"documents cannot be built in {name!r}: postgres, sqlite and spark are known")
