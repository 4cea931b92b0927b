"""The outline of the language: every part of a file with its keys, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.config.index.fields import (
    MODELS,
    Aggregate,
    Constant,
    Custom,
    Expression,
    FieldPart,
    Geo,
    Join,
    Map,
    Object,
    Scalar,
)
from tailrace.config.index.schema import index_schema

_PARTS = {
    "SoftDelete": "`soft_delete`",
    "Comparison": "A condition on a column",
    "RawFilter": "A condition in SQL",
    "Order": "`order_by`, each of them",
    "Through": "`through`",
}
_REFERENCES = {
    "field": "list of fields",
    "filter": "list of conditions",
    "Order": "list of columns with direction",
}


@dataclass(frozen=True)
class Key:
    """A key of a part of the file; `kinds` are those that take it, where not all of the section do."""

    name: str
    kinds: tuple[str, ...]
    type: str
    required: bool
    default: str
    description: str


@dataclass(frozen=True)
class Section:
    """A part of the file, or some kinds of fields."""

    title: str
    kinds: tuple[str, ...]
    keys: tuple[Key, ...]


def sections() -> list[Section]:
    """Every part of a file: the top level, the kinds of fields, and what they are made of."""
    schema = index_schema()
    definitions = schema["$defs"]
    return [
        Section("Top level", (), _keys({"": schema})),
        *(
            Section(title, kinds, _keys({kind: definitions[kind] for kind in kinds}))
            for title, kinds in _groups()
        ),
        *(Section(title, (), _keys({"": definitions[name]})) for name, title in _PARTS.items()),
    ]


def _groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    titles: dict[str, tuple[type[FieldPart], ...]] = {
        "Columns": (Scalar, Custom, Geo, Map),
        "The row": (Object, Constant, Expression),
        "Joins": (Join,),
        "Aggregates": (Aggregate,),
    }
    for title, models in titles.items():
        yield title, tuple(kind for kind, model in MODELS.items() if issubclass(model, models))


def _keys(bodies: dict[str, dict[str, Any]]) -> tuple[Key, ...]:
    """The keys of several kinds; one that means the same for several stands there once."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for kind, body in bodies.items():
        for name, inner in body["properties"].items():
            if name != kind:
                found.setdefault((name, inner["description"]), {})[kind] = inner
    keys = []
    for (name, description), inners in found.items():
        first, inner = next(iter(inners.items()))
        types = {_type(each) for each in inners.values()}
        keys.append(
            Key(
                name,
                tuple(inners) if len(inners) < len(bodies) else (),
                types.pop() if len(types) == 1 else "value of the kind",
                name in bodies[first].get("required", []),
                _default(inner),
                description,
            )
        )
    return tuple(keys)


def _type(body: dict[str, Any]) -> str:
    if (reference := body.get("$ref")) is not None:
        return f"mapping, see {_PARTS[str(reference).rpartition('/')[2]]}"
    if "const" in body:
        return f"`{body['const']}`"
    if len(body.get("enum", ())) > 10:
        return "kind of scalar" if "long" in body["enum"] else "operator"
    if "enum" in body:
        return " ".join(f"`{word}`" for word in body["enum"])
    if "anyOf" in body:
        return "column or list of columns"
    kind = body.get("type")
    if kind == "array":
        reference = str(body["items"].get("$ref", "")).rpartition("/")[2]
        return _REFERENCES.get(reference) or ("list of texts" if "type" in body["items"] else "list")
    if isinstance(kind, list):
        return "single value" if len(kind) > 2 else " or ".join(_WORDS[each] for each in kind)
    return _WORDS.get(kind or "", "any value")


def _default(body: dict[str, Any]) -> str:
    default = body.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{str(default).lower()}`"


_WORDS = {
    "string": "text",
    "boolean": "`true` or `false`",
    "integer": "whole number",
    "number": "number",
    "object": "mapping",
}
