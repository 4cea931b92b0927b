"""A statement that builds documents, and how the keys that it is asked for are bound to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.documents.plan import IndexPlan
from tailrace.documents.render.dialect import Dialect
from tailrace.documents.render.frames import Bounds
from tailrace.documents.render.postgres import Postgres
from tailrace.documents.render.spark import Spark
from tailrace.documents.render.sqlite import Sqlite
from tailrace.documents.render.structure import Structure
from tailrace.model.errors import ConfigError, UsageError
from tailrace.model.table import Column, ColumnType, TableRef
from tailrace.model.text import json_values, quoted


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

        A value that its type cannot hold is null, and its text stands in a column of the name and `:text`.
        """
        if not isinstance(self.scope, Keys):
            if keys is not None:
                raise UsageError("the query takes no keys")
            return ()
        if keys is None:
            raise UsageError("the query needs the keys to build")
        if self.dialect == "spark":
            return ()
        render = _json_texts if self.dialect == "sqlite" else _texts
        parts = [_with_odd(keys, column.name, render) for column in self.key]
        if self.dialect == "sqlite":
            return (_json(parts),)
        return tuple(part.to_pylist() for part in parts)

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
                    made.append(_texts(pa.array([value], column.type.arrow))[0].as_py())
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


def _texts(values: pa.Array) -> pa.StringArray:
    """Texts that PostgreSQL reads as the same values."""
    if pa.types.is_binary(values.type):
        return pa.array(["\\x" + one.hex() if one is not None else None for one in values.to_pylist()])
    if pa.types.is_floating(values.type) or pa.types.is_string(values.type):
        return values.cast(pa.string())
    return json_values(values)[0]


def _with_odd(keys: pa.Table, name: str, render: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A key column as the engine takes it; what has no value of its type goes by its text."""
    typed = keys.column(name).combine_chunks()
    made = render(typed)
    if not typed.null_count or f"{name}:text" not in keys.column_names:
        return made
    return pc.if_else(typed.is_valid(), made, render(keys.column(f"{name}:text").combine_chunks()))


def _json(parts: Sequence[pa.Array]) -> str:
    """One JSON array of the keys; composite ones are arrays."""
    if len(parts) > 1:
        separated = [piece for part in parts for piece in (",", part)][1:]
        whole = pc.binary_join_element_wise("[", *separated, "]", "")
    else:
        whole = parts[0]
    return "[" + ",".join(whole.to_pylist()) + "]"


def _json_texts(values: pa.Array) -> pa.StringArray:
    if pa.types.is_binary(values.type):
        return pa.array([f'"{one.hex()}"' if one is not None else "null" for one in values.to_pylist()])
    if pa.types.is_boolean(values.type):
        # It keeps booleans as numbers.
        return values.cast(pa.int8()).cast(pa.string())
    texts, is_text = json_values(values)
    return pc.fill_null(quoted(texts) if is_text else texts, "null")
