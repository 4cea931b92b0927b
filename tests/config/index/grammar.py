"""Index schemas at random, by the grammar of the language."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_args

from tailrace.config.index.fields import TRANSFORMED, MapKind, NumberKind, ScalarKind, ValueKind

Body = dict[str, Any]
NAMES = ("a", "b", "id", "no", "on", "true", "orderCount", "x_1", "null_", "Z")
COLUMNS = ("a", "id", "no", "Order Id", "1.10", "select", 'quo"te', "ö", "0123")
TABLES = ("orders", "shop.orders", "2024", "yes", "a b")
SCALARS = (True, False, 0, -7, 10**30, 1.5, "x", "no", "1.5", "", "ö", "a: b", "# c", "true", "null", "~")
TRANSFORMS = ("lowercase", "trim", "uppercase", "hash", {"truncate": 3})


class Grammar:
    """Makes schemas from a seed: the same ones from the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def schema(self) -> Body:
        body = {
            "version": 1,
            "table": self.one(TABLES),
            "fields": self.fields(3),
            "schema": "shop",
            "primary_key": self.one(COLUMNS),
            "filters": self.filters(),
            "soft_delete": {"column": self.one(COLUMNS), "when": self.filters()},
        }
        return self.some(body, "version", "table", "fields")

    def one(self, choices: Any) -> Any:
        return self.dice.choice(choices)

    def several(self, make: Any, least: int = 0) -> list[Any]:
        return [make() for _ in range(self.dice.randint(least, 3))]

    def some(self, body: Body, *needed: str) -> Body:
        """The keys that are needed, and some of the others, in any order."""
        keys = [key for key in body if key in needed or self.dice.random() < 0.4]
        self.dice.shuffle(keys)
        return {key: body[key] for key in keys}

    def scalar(self) -> Any:
        return self.one(SCALARS)

    def json(self, depth: int = 2) -> Any:
        shape = self.dice.randrange(4) if depth else 0
        if shape == 1:
            return self.several(lambda: self.json(depth - 1))
        if shape == 2:
            return {self.one(NAMES): self.json(depth - 1) for _ in range(2)}
        return None if shape == 3 else self.scalar()

    def filters(self) -> list[Body]:
        return self.several(self.filter)

    def filter(self) -> Body:
        column = self.one(COLUMNS)
        choices: list[Body] = [
            {"raw": "a > 1"},
            {"column": column, "op": self.one(["is_null", "is_not_null"])},
            {
                "column": column,
                "op": self.one(["eq", "neq", "lt", "lte", "gt", "gte"]),
                "value": self.scalar(),
            },
            {"column": column, "op": self.one(["like", "ilike"]), "value": "a%"},
            {"column": column, "op": self.one(["in", "not_in"]), "value": self.several(self.scalar, 1)},
            {"column": column, "op": "between", "value": [self.scalar(), self.scalar()]},
        ]
        return choices[self.dice.randrange(len(choices))]

    def order(self) -> Body:
        return self.some({"column": self.one(COLUMNS), "direction": self.one(["asc", "desc"])}, "column")

    def through(self) -> Body:
        body = {
            "table": self.one(TABLES),
            "left_key": self.one(COLUMNS),
            "right_key": self.one(COLUMNS),
            "filters": self.filters(),
        }
        return self.some(body, "table", "left_key", "right_key")

    def fields(self, depth: int) -> list[Body]:
        names = self.dice.sample(NAMES, self.dice.randint(0, 4))
        return [self.field(name, depth) for name in names]

    def field(self, name: str, depth: int) -> Body:
        makers: list[Callable[[str, int], Body]] = [
            self.scalar_field,
            self.text_field,
            self.odd_field,
            self.aggregate,
        ]
        makers += [self.join, self.join] if depth else []
        return makers[self.dice.randrange(len(makers))](name, depth)

    def scalar_field(self, name: str, _depth: int) -> Body:
        kind = self.one(get_args(ScalarKind))
        defaults = {"long": 3, "boolean": False, "decimal": 1.5, "date": "2024-12-31", "json": "x"}
        body = {kind: name, "column": self.one(COLUMNS), "required": self.one([True, False])}
        body["options"] = {self.one(NAMES): self.json()}
        if kind in defaults:
            body["default"] = defaults[kind]
        return self.some(body, kind)

    def text_field(self, name: str, _depth: int) -> Body:
        kind = self.one(TRANSFORMED)
        body = {kind: name, "transforms": self.several(lambda: self.one(TRANSFORMS)), "default": "no"}
        if kind == "enum":
            body["variants"] = self.dice.sample(COLUMNS, 2)
        return self.some(body, kind)

    def odd_field(self, name: str, _depth: int) -> Body:
        column = {"column": self.one(COLUMNS), "required": True}
        choices: list[Body] = [
            self.some(
                {"custom": name, "opensearch": "ip", "postgres": ["inet"], **column},
                "custom",
                "opensearch",
            ),
            self.some({"geo": name, **column}, "geo"),
            {"geo": name, "lat": self.one(COLUMNS), "lon": self.one(COLUMNS)},
            self.some({"map": name, "values": self.one(get_args(MapKind)), **column}, "map", "values"),
            self.some({"constant": name, "value": self.json()}, "constant"),
            {"expression": name, "sql": "a + 1", "type": self.one(get_args(ValueKind))},
        ]
        return choices[self.dice.randrange(len(choices))]

    def aggregate(self, name: str, _depth: int) -> Body:
        kind = self.one(["count", "avg", "sum", "min", "max", "ids"])
        body = {kind: name, "table": self.one(TABLES), "filters": self.filters()}
        needed = [kind, "table", "column", "foreign_key", "through"]
        if kind not in ("count", "ids"):
            body["column"] = self.one(COLUMNS)
        if kind in ("sum", "min", "max"):
            body["value_type"] = self.one(get_args(ValueKind))
            needed.append("value_type")
        if kind == "avg":
            body["value_type"] = self.one(get_args(NumberKind))
        if kind == "ids":
            body["element_type"] = self.one(get_args(ValueKind))
            needed.append("element_type")
        if self.dice.random() < 0.5:
            body["foreign_key"] = self.one(COLUMNS)
        else:
            body |= {"through": self.through(), "distinct": True}
        return self.some(body, *needed)

    def join(self, name: str, depth: int) -> Body:
        kind = self.one(["object", "belongs_to", "has_one", "has_many", "many_to_many"])
        body: Body = {kind: name, "fields": self.fields(depth - 1), "options": {"x": 1}}
        if kind != "object":
            body |= {"table": self.one(TABLES), "primary_key": self.one(COLUMNS), "filters": self.filters()}
        if kind == "belongs_to":
            body |= {"column": self.one(COLUMNS), "required": True}
        if kind in ("has_one", "has_many"):
            body |= {"foreign_key": self.one(COLUMNS), "order_by": self.several(self.order)}
        if kind == "has_many":
            body["limit"] = self.dice.randint(1, 9)
        if kind == "many_to_many":
            body |= {"through": self.through(), "order_by": self.several(self.order), "limit": 2}
        return self.some(body, kind, "fields", "table", "foreign_key", "through")

    def change(self, body: Body) -> None:
        """One change at any place of a schema: a key more or less, or another value."""
        node = self.one(list(_nodes(body)))
        value = self.one([self.scalar(), [self.scalar()], {self.one(NAMES): 1}, "eq", [], {}, self.filter()])
        if isinstance(node, list):
            node.append(value)
            return
        key = self.one([*node, *KEYS])
        if key in node and self.dice.random() < 0.4:
            del node[key]
        else:
            node[key] = value


KEYS = (
    *("column", "limit", "fields", "table", "through", "foreign_key", "keyword", "value", "op", "raw", "lat"),
    *("default", "required", "transforms", "distinct", "value_type", "version", "when", "field", "nothing"),
)


def _nodes(node: Any) -> list[Any]:
    """Every mapping and list of a tree."""
    inside = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else None
    return [] if inside is None else [node, *(found for inner in inside for found in _nodes(inner))]
