"""The documents that an index should have, rebuilt from the source row by row, the slow and obvious way.

It knows neither plans nor renderers: it reads the index schema as the YAML tree that a user writes, and asks
one small question for each row and relation. What values look like is in `values`, what is asked in
`sources`.

    rebuild(yaml.safe_load(text), connection)  →  {"1": {"name": "Ada", "orders": [...]}, ...}

Numbers are exact (int, Decimal), or `Near` where reals are added up. `compare` compares with a sink.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import MAX_PREC, localcontext
from fractions import Fraction
from typing import Any

from tests.support.documents.compare import Near
from tests.support.documents.sources import Condition, Junction, Row, Source, source_of
from tests.support.documents.values import NUMBERS, TEXTS, Cell, located, number, plain, point, shown

Tree = Mapping[str, Any]
COLUMNS = (*TEXTS, *NUMBERS, "uuid", "boolean", "date", "timestamp", "binary", "json", "map", "custom")
RELATIONS = ("belongs_to", "has_one", "has_many", "many_to_many")
AGGREGATES = ("count", "avg", "sum", "min", "max", "ids")
KINDS = (*COLUMNS, *RELATIONS, *AGGREGATES, "geo", "object", "constant", "expression")


def rebuild(schema: Tree, connection: Any, *, prepared: bool = False) -> dict[str, Any]:
    """Every document of an index by its id, as it should be now."""
    return Oracle(schema, source_of(connection, prepared=prepared)).documents()


def listed(value: Any) -> list[str]:
    return list(value) if isinstance(value, list | tuple) else [value]


class Oracle:
    """One index over one source."""

    def __init__(self, schema: Tree, source: Source) -> None:
        self._schema = schema
        self._source = source

    def documents(self) -> dict[str, Any]:
        schema, source = self._schema, self._source
        table, key = self._place(schema)
        found: dict[str, Any] = {}
        for row in source.rows(table, key, self._filters(table, schema)):
            if self._is_deleted(row):
                continue
            cells = source.read(row)
            texts = [None if (cell := cells[column]) is None else plain(cell) for column in key]
            id_ = (
                str(texts[0])
                if len(key) == 1
                else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
            )
            assert id_ not in found, f"two rows have the id {id_}"
            found[id_] = self._object(schema["fields"], row)
        return found

    def _place(self, part: Tree) -> tuple[str, list[str]]:
        """The table of a part of the schema, and its key."""
        table = self._table(part["table"])
        given = part.get("primary_key")
        return table, listed(given) if given else self._source.primary_key(table)

    def _table(self, name: str) -> str:
        schema, dot, rest = name.partition(".")
        if dot:
            return self._source.table(rest, schema)
        return self._source.table(name, self._schema.get("schema"))

    def _is_deleted(self, row: Row) -> bool:
        soft = self._schema.get("soft_delete")
        if not soft:
            return False
        column = soft.get("column")
        if column is None:
            (field,) = [one for one in self._schema["fields"] if _named(one)[1] == soft["field"]]
            column = field.get("column") or soft["field"]
        cell = self._source.read(row)[column]
        if cell is None or (cell.family == "boolean" and shown("boolean", cell) is not True):
            return False
        when = [self._source.condition(row.table, one) for one in soft.get("when") or ()]
        return self._source.count(row.table, [self._source.matching(row), *when]) > 0

    # One row

    def _object(self, fields: Sequence[Tree], row: Row) -> dict[str, Any]:
        cells = self._source.read(row)
        return {_named(field)[1]: self._value(field, row, cells) for field in fields}

    def _value(self, field: Tree, row: Row, cells: Mapping[str, Cell | None]) -> Any:
        kind, name = _named(field)
        if kind in COLUMNS:
            return shown(kind, cells[field.get("column") or name], field)
        if kind == "constant":
            return field.get("value")
        if kind == "geo":
            if "lat" in field:
                return located(cells[field["lat"]], cells[field["lon"]])
            return point(cells[field.get("column") or name])
        if kind == "object":
            return self._object(field["fields"], row)
        if kind == "expression":
            return shown(field["type"], self._source.compute(row, field["sql"]))
        if kind in AGGREGATES:
            return self._aggregate(kind, field, row)
        return self._related(kind, field, row)

    # Rows of other tables

    def _related(self, kind: str, field: Tree, row: Row) -> Any:
        table, key = self._place(field)
        if kind == "belongs_to":
            columns = listed(field.get("column") or field[kind])
            where = self._joined(table, key, row, columns)
            rows = self._source.rows(table, key, [*where, *self._filters(table, field)])
        else:
            rows = self._children(field, table, key, row, field.get("order_by") or ())
        single = kind in ("belongs_to", "has_one")
        made = [self._object(field["fields"], one) for one in rows[: 1 if single else field.get("limit")]]
        if single:
            return made[0] if made else None
        return made

    def _joined(self, table: str, columns: Sequence[str], row: Row, others: Sequence[str]) -> list[Condition]:
        """The columns of the table equal those others of that row."""
        pairs = zip(columns, others, strict=True)
        return [self._source.equal(table, one, row, other) for one, other in pairs]

    def _filters(self, table: str, part: Tree) -> list[Condition]:
        return [self._source.condition(table, one) for one in part.get("filters") or ()]

    def _children(
        self, field: Tree, table: str, key: Sequence[str], parent: Row, order: Sequence[Tree]
    ) -> list[Row]:
        """The rows that hang on a row, in order; through a junction as often as it leads to them."""
        filters = self._filters(table, field)
        through = field.get("through")
        if not through:
            where = self._joined(table, listed(field["foreign_key"]), parent, parent.columns)
            return self._source.rows(table, key, [*where, *filters], order)
        junction = self._table(through["table"])
        left = self._joined(junction, listed(through["left_key"]), parent, parent.columns)
        left += self._filters(junction, through)
        links = Junction(junction, left, listed(through["right_key"]))
        found: list[Row] = []
        for row, times in self._source.linked(links, table, key, filters, order):
            found += [row] * (min(times, 1) if field.get("distinct") else times)
        return found

    def _aggregate(self, kind: str, field: Tree, parent: Row) -> Any:
        table = self._table(field["table"])
        key = self._source.primary_key(table)
        column = field.get("column")
        order = [{"column": column}] if kind in ("min", "max") else []
        rows = [self._source.read(row) for row in self._children(field, table, key, parent, order)]
        if kind == "count":
            return len(rows)
        if kind == "ids":
            keys = [[shown(field["element_type"], cells[one]) for one in key] for cells in rows]
            return [one[0] if len(one) == 1 else one for one in keys]
        assert column is not None
        cells = [cell for one in rows if (cell := one[column]) is not None]
        if kind in ("min", "max"):
            values = [one for cell in cells if (one := shown(field["value_type"], cell)) is not None]
            return None if not values else values[0] if kind == "min" else values[-1]
        return _total(kind, cells)


def _total(kind: str, cells: Sequence[Cell]) -> Any:
    """The sum or average of numbers; what is no number does not count."""
    numbers = [one for cell in cells if (one := number(cell)) is not None]
    if not numbers:
        return None
    if kind == "avg":
        return Near(float(sum(map(Fraction, numbers)) / len(numbers)))
    if any(cell.family == "real" for cell in cells):
        return Near(math.fsum(map(float, numbers)))
    # Decimals are added with as many digits as they have.
    with localcontext(prec=MAX_PREC):
        return sum(numbers)


def _named(field: Tree) -> tuple[str, str]:
    """The kind and the name of a field: the one key that is a kind, and its value."""
    (kind,) = [one for one in field if one in KINDS]
    return kind, field[kind]
