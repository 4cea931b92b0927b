"""Random filters, and what Spark says of them: the oracle for sources that filter by themselves."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

from tailrace.model.filters import Filter, Test

Row = dict[str, Any]
TESTS: tuple[Test, ...] = get_args(Test)
OF_TEXT = ("prefix", "suffix", "contains")


def passes(row: Row, one: Filter) -> bool:
    """Whether the filter is true of the row, by Spark's rules: neither false nor NULL."""
    found = _truth(row[one.column], one)
    return found is not None and found is not one.negated


def _truth(value: Any, one: Filter) -> bool | None:
    if one.test == "null":
        return value is None
    if one.test == "<=>":
        if value is None or one.value is None:
            return value is one.value
        return bool(_order(value) == _order(one.value))
    if value is None:
        return None
    if one.test == "in":
        if any(_order(value) == _order(each) for each in one.value if each is not None):
            return True
        return None if None in one.value else False
    if one.value is None:
        return None
    if one.test == "prefix":
        return bool(value.startswith(one.value))
    if one.test == "suffix":
        return bool(value.endswith(one.value))
    if one.test == "contains":
        return one.value in value
    left, right = _order(value), _order(one.value)
    return bool(
        {
            "=": left == right,
            "<": left < right,
            "<=": left <= right,
            ">": left > right,
            ">=": left >= right,
        }[one.test]
    )


def _order(value: Any) -> Any:
    """What Spark compares: the bytes of text; NaN is itself and above every number."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


class Filters:
    """Random filters on the columns of some rows, near what is in them."""

    def __init__(self, rows: Sequence[Row], dice: random.Random) -> None:
        self._dice = dice
        self._values = {
            name: [row[name] for row in rows if row[name] is not None] or [None] for name in rows[0]
        }

    def some(self) -> list[Filter]:
        return [self.one() for _ in range(self._dice.choice((1, 1, 2, 3)))]

    def one(self) -> Filter:
        column = self._dice.choice(list(self._values))
        text = isinstance(self._values[column][0], str)
        test = self._dice.choice([test for test in TESTS if text or test not in OF_TEXT])
        return Filter(column, test, self._value(column, test), self._dice.random() < 0.3)

    def _value(self, column: str, test: Test) -> Any:
        if test == "null":
            return None
        if test == "in":
            values = [self._near(column) for _ in range(self._dice.randrange(1, 5))]
            return (*values, None) if self._dice.random() < 0.1 else tuple(values)
        if test in OF_TEXT:
            text = self._near(column)
            begin = self._dice.randrange(len(text) + 1)
            return {"prefix": text[:begin], "suffix": text[begin:]}.get(test, text[begin : begin + 3])
        return None if test == "<=>" and self._dice.random() < 0.1 else self._near(column)

    def _near(self, column: str) -> Any:
        value = self._dice.choice(self._values[column])
        if self._dice.random() < 0.6:
            return value
        match value:
            case bool():
                return not value
            case int():
                return value + self._dice.choice((-1, 1)) if abs(value) < 2**62 else value
            case float():
                return math.nextafter(value, self._dice.choice((-math.inf, math.inf)))
            case Decimal():
                return value + self._dice.choice(
                    (Decimal("0.01"), Decimal("-1"), Decimal("1e-25"), Decimal("1e-7"))
                )
            case str():
                return self._dice.choice(
                    (value.swapcase(), value + " ", value[:-1], "0" + value, value + "%", "\\" + value, "'")
                )
            case bytes():
                return value + b"\0" if self._dice.random() < 0.5 else value[:-1]
            case date() if not 1 < value.year < 9999:
                return value
            case datetime():
                return value + timedelta(microseconds=self._dice.choice((-1, 1)))
            case date():
                return value + timedelta(days=self._dice.choice((-1, 1)))
        return value
