"""Filters of a batch read, as values that no engine and no database is part of.

Spark hands over the conditions of a query; a capture turns those it can into its own SQL. Spark's rules
decide what is true: strings are compared by the bytes of their UTF-8, NaN equals itself and is above every
number, a comparison with NULL is not true. SQL of a source may let more rows pass than the filters, never
fewer: Spark tests again every filter that is not known to be `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Test = Literal["=", "<=>", "<", "<=", ">", ">=", "in", "null", "prefix", "suffix", "contains"]

# A longer list is not worth the text that every task would carry.
MOST_VALUES = 1000
_OPPOSITE = {"=": "<>", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Filter:
    """What must be true of a row's column.

    `value` is a bool, int, float, Decimal, str, bytes, date or datetime (one with a zone for a timestamp,
    without for a timestamp_ntz); a tuple of them for `in`. `null` has none.
    """

    column: str
    test: Test
    value: Any = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """What a source makes of filters: `sql` is true wherever all of them are, None where it helps with none.

    `exact` are those that are true wherever `sql` is, so that nobody need test them again.
    """

    sql: str | None = None
    exact: tuple[Filter, ...] = ()


Rendered = tuple[str, bool]


def conjunction(filters: Sequence[Filter], render: Callable[[Filter], Rendered | None]) -> Condition:
    """The condition of all filters that `render` has SQL for, and says of whether that is exact."""
    made = [(one, found) for one in filters if (found := render(one)) is not None]
    if not made:
        return Condition()
    sql = " AND ".join(f"({text})" for _, (text, _) in made)
    return Condition(sql, tuple(one for one, (_, exact) in made if exact))


def compared(column: str, one: Filter, literal: Callable[[Any], str | None]) -> str | None:
    """A comparison as any SQL has it, or None where a value has no literal.

    `column` is SQL, and `literal` gives the SQL of a value. Only where the whole is true matters, so NULL and
    false are the same here.
    """
    if one.test == "in":
        return _listed(column, one, literal)
    if one.value is None or (text := literal(one.value)) is None:
        return None
    if one.test == "<=>":
        return f"{column} <> {text} OR {column} IS NULL" if one.negated else f"{column} = {text}"
    if one.test in _OPPOSITE:
        return f"{column} {_OPPOSITE[one.test] if one.negated else one.test} {text}"
    return None


def _listed(column: str, one: Filter, literal: Callable[[Any], str | None]) -> str | None:
    values = [value for value in one.value if value is not None]
    # Nothing is surely outside a list with a NULL in it.
    if not 0 < len(values) <= MOST_VALUES or (one.negated and len(values) < len(one.value)):
        return None
    texts = [text for value in values if (text := literal(value)) is not None]
    if len(texts) < len(values):
        return None
    return f"{column} {'NOT IN' if one.negated else 'IN'} ({', '.join(texts)})"


def null_test(one: Filter) -> bool | None:
    """Whether the filter asks for NULL (true) or for anything else (false); None where it asks for more."""
    if one.test == "null" or (one.test == "<=>" and one.value is None):
        return not one.negated
    return None
