"""Random index schemas, and random rows for them: small tables in which everything hangs together somehow.

Everything that is drawn is legal, says the same in PostgreSQL and SQLite, and comes from few values, so that
keys meet, orders tie, filters bite and relations lead nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

TABLES = {
    "people": "id INTEGER PRIMARY KEY, name TEXT, boss BIGINT, born DATE, score DECIMAL(10,2), flag BOOLEAN,"
    " extra JSON, seen TIMESTAMP, lat DOUBLE PRECISION, lon DOUBLE PRECISION",
    "orders": "id BIGINT PRIMARY KEY, person INTEGER, state VARCHAR(20), total DECIMAL(12,3),"
    " placed TIMESTAMP",
    "items": "order_id INTEGER, line INTEGER, product TEXT, n INTEGER, PRIMARY KEY (order_id, line)",
    "notes": "id INTEGER PRIMARY KEY, order_id BIGINT, line SMALLINT, body TEXT",
    "products": "code VARCHAR(8) PRIMARY KEY, title TEXT, price DECIMAL(8,2)",
    "tags": "id BIGINT PRIMARY KEY, word TEXT, parent BIGINT",
    "tagged": "id INTEGER PRIMARY KEY, person BIGINT, tag INTEGER, weight INTEGER",
}
KEYS: dict[str, list[str]] = {"items": ["order_id", "line"], "products": ["code"]}
TEXT = ("text", "keyword", "identifier")
WHOLE = ("integer", "long", "short", "keyword")
KINDS: dict[str, dict[str, Sequence[str]]] = {
    "people": {
        "id": WHOLE,
        "name": TEXT,
        "boss": WHOLE,
        "born": ("date", "timestamp"),
        "score": ("decimal", "custom"),
        "flag": ("boolean",),
        "extra": ("json", "map"),
        "seen": ("timestamp", "date"),
        "lat": ("double", "float"),
    },
    "orders": {"id": WHOLE, "state": (*TEXT, "enum"), "total": ("decimal",), "placed": ("timestamp",)},
    "items": {"order_id": WHOLE, "line": WHOLE, "product": TEXT, "n": (*WHOLE, "boolean")},
    "notes": {"id": WHOLE, "body": TEXT},
    "products": {"code": TEXT, "title": TEXT, "price": ("decimal", "custom")},
    "tags": {"id": WHOLE, "word": TEXT},
    "tagged": {"id": WHOLE, "weight": WHOLE},
}
WORDS = ("a", "A", "ab", " b ", "é", "z'\"\\%_", "", "日本", "x\ty", "paid", "open")
DOMAINS: dict[str, Sequence[Any]] = {
    "TEXT": WORDS,
    "VARCHAR": ("a", "b", "c", "paid", "open"),
    "INTEGER": (0, 1, 2, 3, 4, 5),
    "SMALLINT": (1, 2, 3),
    "BIGINT": (0, 1, 2, 3, 4, 5, 3_000_000_000),
    "DECIMAL": ("0.00", "1.50", "-2.25", "10.00", "99.99"),
    "DOUBLE": (0.5, -1.25, 52.0, 1e-3),
    "DATE": ("2026-01-01", "1999-12-31", "2024-02-29"),
    "TIMESTAMP": ("2026-01-01 00:00:00", "2024-02-29 12:34:56.120000", "1999-12-31 23:59:59.000001"),
    "BOOLEAN": (True, False),
    "JSON": ('{"a": 1, "b": [1.50, null]}', "{}", '{"\\u00e9": "\\n\\"x"}'),
}
# From a table: kind of relation, the other table, and how the two meet.
LINKS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "people": [
        ("belongs_to", "people", {"column": "boss"}),
        ("has_many", "people", {"foreign_key": "boss"}),
        ("has_many", "orders", {"foreign_key": "person"}),
        ("has_one", "orders", {"foreign_key": "person"}),
        ("many_to_many", "tags", {"through": {"table": "tagged", "left_key": "person", "right_key": "tag"}}),
        ("has_many", "tagged", {"foreign_key": "person"}),
    ],
    "orders": [
        ("belongs_to", "people", {"column": "person"}),
        ("has_many", "items", {"foreign_key": "order_id"}),
        ("has_one", "items", {"foreign_key": "order_id"}),
    ],
    "items": [
        ("belongs_to", "products", {"column": "product"}),
        ("belongs_to", "orders", {"column": "order_id"}),
        ("has_many", "notes", {"foreign_key": ["order_id", "line"]}),
    ],
    "notes": [("belongs_to", "items", {"column": ["order_id", "line"]})],
    "products": [("has_many", "items", {"foreign_key": "product"})],
    "tags": [
        (
            "many_to_many",
            "people",
            {"through": {"table": "tagged", "left_key": "tag", "right_key": "person"}},
        ),
        ("belongs_to", "tags", {"column": "parent"}),
    ],
    "tagged": [("belongs_to", "tags", {"column": "tag"}), ("belongs_to", "people", {"column": "person"})],
}
RAW = {
    "people": ("score > 1 OR name IS NULL", "id % 2 = 0", "NULL", "name LIKE 'a%' -- of a"),
    "orders": ("total IS NULL OR total > 1",),
    "items": ("n > 1", "product <> 'a'"),
}


def columns_of(table: str) -> dict[str, str]:
    """The columns of a table and their types."""
    text = TABLES[table].partition(", PRIMARY KEY")[0]
    pairs = (part.split(" ")[:2] for part in _parts(text))
    return {name: kind.partition("(")[0] for name, kind in pairs}


def _parts(text: str) -> list[str]:
    made, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            made.append(text[start:at].strip())
            start = at + 1
    return [*made, text[start:].strip()]


def create(connection: Any) -> None:
    """The tables, empty."""
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")


# At most so many rows: few of what others hang on, so that there is something to order and to cut.
ROWS = {"people": 4, "orders": 9, "items": 12, "notes": 9, "products": 4, "tags": 4, "tagged": 12}
POINTERS = ("boss", "person", "order_id", "line", "tag", "parent")


def fill(dice: Random, connection: Any) -> None:
    """Random rows in every table; now and then one is empty."""
    for table, most in ROWS.items():
        keys: set[Any] = set()
        for number in range(0 if dice.random() < 0.03 else dice.randint(most // 2, most)):
            row = draw(dice, table, number + 1)
            key = tuple(row[name] for name in KEYS.get(table, ["id"]))
            if key not in keys:
                keys.add(key)
                insert(connection, table, row)


def draw(dice: Random, table: str, number: int) -> dict[str, Any]:
    """A random row, with this number where its key is one."""
    return {name: _value(dice, table, name, kind, number) for name, kind in columns_of(table).items()}


def _value(dice: Random, table: str, name: str, kind: str, number: int) -> Any:
    if name == "id":
        return number
    if name not in KEYS.get(table, ()) and dice.random() < 0.15:
        return None
    if name in POINTERS:
        # Some lead nowhere.
        return 3_000_000_000 if kind == "BIGINT" and dice.random() < 0.1 else dice.choice((1, 1, 2, 2, 3, 5))
    if name in ("code", "product"):
        return dice.choice(DOMAINS["VARCHAR"][:3])
    return dice.choice(DOMAINS[kind])


def insert(connection: Any, table: str, row: Mapping[str, Any]) -> None:
    connection.execute(insertion(table, row))


def insertion(table: str, row: Mapping[str, Any]) -> str:
    """The statement that inserts a row."""
    values = ", ".join(literal(value) for value in row.values())
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"


def schema(dice: Random, root: str | None = None) -> dict[str, Any]:
    """A random index schema, as a user would write it."""
    table = root or dice.choice(["people", "people", "people", "orders", "tags", *TABLES])
    made: dict[str, Any] = {"version": 1, "table": table}
    if dice.random() < 0.5:
        made["primary_key"] = _key(table)
    if dice.random() < 0.2:
        made["filters"] = _filters(dice, table)
    if table == "people" and dice.random() < 0.25:
        soft: dict[str, Any] = {"column": dice.choice(["flag", "born", "score"])}
        if dice.random() < 0.5:
            soft["when"] = _filters(dice, table)
        made["soft_delete"] = soft
    made["fields"] = _fields(dice, table, 3)
    return made


def _key(table: str) -> Any:
    keys = KEYS.get(table, ["id"])
    return keys[0] if len(keys) == 1 else keys


def _fields(dice: Random, table: str, depth: int) -> list[dict[str, Any]]:
    # Mostly the key, which tells rows apart.
    first = KEYS.get(table, ["id"])[-1] if dice.random() < 0.8 else dice.choice(sorted(KINDS[table]))
    fields = [_column(dice, table, first)]
    for _ in range(dice.randint(1, 3)):
        fields.append(_field(dice, table, depth))
    for at, field in enumerate(fields):
        # The names of columns are taken by what is drawn first.
        kind = next(iter(field))
        if kind in _ALL:
            field.setdefault("column", field[kind])
        field[kind] = f"f{at}"
    return fields


_ALL = {kind for kinds in KINDS.values() for given in kinds.values() for kind in given}


def _field(dice: Random, table: str, depth: int) -> dict[str, Any]:
    choice = dice.random()
    if depth and choice < 0.45:
        return _relation(dice, table, depth)
    if depth and choice < 0.65:
        return _aggregate(dice, table)
    if choice < 0.72:
        return {"constant": "c", "value": dice.choice([1, "x", None, [1, {"a": None}], True])}
    if choice < 0.78 and depth:
        return {"object": "o", "fields": _fields(dice, table, depth - 1)}
    if choice < 0.82 and table == "people":
        return {"geo": "g", "lat": "lat", "lon": "lon"}
    if choice < 0.86 and table == "items":
        return {"expression": "e", "sql": "n + line", "type": "integer"}
    return _column(dice, table, dice.choice(sorted(KINDS[table])))


def _column(dice: Random, table: str, name: str) -> dict[str, Any]:
    kind = _fitting(table, name, dice.choice(KINDS[table][name]))
    field: dict[str, Any] = {kind: name}
    if kind == "map":
        field["values"] = "keyword"
    if kind == "custom":
        field["opensearch"] = "double"
    if columns_of(table)[name] in ("TEXT", "VARCHAR") and kind != "enum" and dice.random() < 0.3:
        field["transforms"] = dice.sample(["trim", "lowercase", "uppercase", {"truncate": 2}, "hash"], k=2)
    if kind in (*TEXT, "decimal") and dice.random() < 0.2:
        field["default"] = 7 if kind == "decimal" else "none"
    return field


def _relation(dice: Random, table: str, depth: int) -> dict[str, Any]:
    kind, other, link = dice.choice(LINKS[table])
    field: dict[str, Any] = {kind: "r", "table": other, **json.loads(json.dumps(link))}
    if dice.random() < 0.5:
        field["primary_key"] = _key(other)
    if dice.random() < 0.2:
        field["filters"] = _filters(dice, other)
    if "through" in field and dice.random() < 0.2:
        field["through"]["filters"] = _filters(dice, "tagged")
    if kind != "belongs_to" and dice.random() < 0.5:
        names = dice.sample(sorted(set(columns_of(other)) - {"extra"}), k=dice.randint(1, 2))
        field["order_by"] = [{"column": one, "direction": dice.choice(["asc", "desc"])} for one in names]
    if kind in ("has_many", "many_to_many") and dice.random() < 0.3:
        field["limit"] = dice.randint(1, 3)
    field["fields"] = _fields(dice, other, depth - 1)
    return field


def _aggregate(dice: Random, table: str) -> dict[str, Any]:
    _, other, link = dice.choice(
        [one for one in LINKS[table] if one[0] != "belongs_to"] or LINKS["people"][1:3]
    )
    link = json.loads(json.dumps(link))
    if not any(one[1] == other and one[0] != "belongs_to" for one in LINKS[table]):
        return {"constant": "c", "value": "no relation to count"}
    kind = dice.choice(["count", "sum", "avg", "min", "max", "ids"])
    field: dict[str, Any] = {kind: "a", "table": other, **link}
    if "through" in link and dice.random() < 0.5:
        field["distinct"] = True
    if dice.random() < 0.3:
        field["filters"] = _filters(dice, other)
    if kind == "ids":
        if len(KEYS.get(other, ["id"])) > 1:
            return {"count": "a", **{key: value for key, value in field.items() if key != "ids"}}
        field["element_type"] = "keyword" if other == "products" else "long"
    elif kind in ("sum", "avg"):
        numbers = {"DECIMAL": "decimal", "INTEGER": "long", "BIGINT": "long"}
        names = {name: numbers[one] for name, one in columns_of(other).items() if one in numbers}
        name = dice.choice(sorted(names))
        field["column"] = name
        if kind == "sum":
            field["value_type"] = names[name]
    elif kind in ("min", "max"):
        kinds = {
            name: given[0] for name, given in KINDS[other].items() if given[0] not in ("json", "boolean")
        }
        name = dice.choice(sorted(kinds))
        field |= {"column": name, "value_type": _fitting(other, name, kinds[name])}
    return field


def _fitting(table: str, name: str, kind: str) -> str:
    """The kind, or a wider one where values of the column may be larger: a typed store refuses those."""
    small = columns_of(table)[name] == "BIGINT" and kind in ("integer", "short")
    return "long" if small else kind


def _filters(dice: Random, table: str) -> list[dict[str, Any]]:
    return [_filter(dice, table) for _ in range(1 if dice.random() < 0.8 else 2)]


def _filter(dice: Random, table: str) -> dict[str, Any]:
    if table in RAW and dice.random() < 0.2:
        return {"raw": dice.choice(RAW[table])}
    kinds = {name: kind for name, kind in columns_of(table).items() if kind != "JSON"}
    name = dice.choice(sorted(kinds))
    kind = kinds[name]
    domain = [float(one) if kind == "DECIMAL" else one for one in DOMAINS[kind]]
    if kind == "BOOLEAN":
        operators = ["is_null", "is_not_null", "eq", "neq"]
    elif kind == "TIMESTAMP":
        # A filter names a moment as the document shows it or as the source has it; SQLite has texts.
        operators = ["is_null", "is_not_null"]
    else:
        operators = [
            "is_null",
            "is_not_null",
            "eq",
            "neq",
            "lt",
            "lte",
            "gt",
            "gte",
            "in",
            "not_in",
            "between",
        ]
    if kind in ("TEXT", "VARCHAR"):
        operators += ["like", "ilike"]
    operator = dice.choice(operators)
    made: dict[str, Any] = {"column": name, "op": operator}
    if operator in ("in", "not_in"):
        made["value"] = dice.sample(domain, k=2)
    elif operator == "between":
        made["value"] = sorted(dice.sample(domain, k=2))
    elif operator in ("like", "ilike"):
        made["value"] = dice.choice(["a%", "%A%", "_", "p__d", "\\%", "%日_%", "É"])
    elif operator not in ("is_null", "is_not_null"):
        made["value"] = dice.choice(domain)
    return made
