"""Filters and soft deletes as SQL conditions, with the logic of three values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.documents.plan import Comparison, Filter, Raw, SoftDelete
from tailrace.documents.render.dialect import Dialect, Sql
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema

_SIGNS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def conditions(filters: Sequence[Filter], table: TableSchema, dialect: Dialect) -> list[Sql]:
    """What must be true of a row, in a scope that has the table's columns by their own names."""
    return [_condition(one, table, dialect) for one in filters]


def kept(delete: SoftDelete, table: TableSchema, dialect: Dialect) -> Sql:
    """Whether a row of the root is not deleted softly: whatever is not true deletes nothing."""
    column = table.column(delete.column)
    x = dialect.column(dialect.quote(column.name), column)
    boolean = dialect.family(column) == "boolean"
    # As a document would show it: SQLite may keep it as a number or as a word.
    marked = [f"({dialect.boolean(x, column)}) = 'true'" if boolean else f"{x} IS NOT NULL"]
    marked += [f"({one})" for one in conditions(delete.when, table, dialect)]
    return f"({' AND '.join(marked)}) IS NOT TRUE"


def _condition(one: Filter, table: TableSchema, dialect: Dialect) -> Sql:
    return dialect.own(one.sql, table) if isinstance(one, Raw) else _compared(one, table, dialect)


def _compared(one: Comparison, table: TableSchema, dialect: Dialect) -> Sql:
    column = table.column(one.column)
    x = dialect.column(dialect.quote(column.name), column)
    if one.operator in ("is_null", "is_not_null"):
        return f"{x} IS {'NOT ' if one.operator == 'is_not_null' else ''}NULL"
    if one.operator in ("like", "ilike"):
        if one.value is None:
            return "NULL"
        return dialect.like(x, column, str(one.value), folded=one.operator == "ilike")
    if one.operator in ("in", "not_in"):
        values = [dialect.comparable(x, column, value, ordered=False) for value in _listed(one.value)]
        if not values:
            return "1 = 0" if one.operator == "in" else "1 = 1"
        listed = ", ".join(value for _, value in values)
        compared = next((side for side, value in values if value != "NULL"), x)
        return f"{compared} {'NOT ' if one.operator == 'not_in' else ''}IN ({listed})"
    if one.operator == "between":
        bounds = _listed(one.value)
        if len(bounds) != 2:
            raise ConfigError(f"the filter on {table.ref}.{one.column} needs two values between which to be")
        (low, at_least), (high, at_most) = (
            dialect.comparable(x, column, value, ordered=True) for value in bounds
        )
        return f"{low} >= {at_least} AND {high} <= {at_most}"
    sign = _SIGNS[one.operator]
    compared, value = dialect.comparable(x, column, one.value, ordered=sign not in ("=", "<>"))
    return f"{compared} {sign} {value}"


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
