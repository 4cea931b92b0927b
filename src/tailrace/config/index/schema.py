"""The JSON Schema of an index schema (`*.schema.yml`), for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tailrace.config.index.fields import KIND, MODELS, NAME, SHOWN_AS_TEXT, TRANSFORMED, Aggregate
from tailrace.config.index.models import IndexSchema
from tailrace.config.index.values import FIELD_NAME, MAX_NAME, SCALAR

_LISTS = {"fields": "field", "filters": "filter", "when": "filter"}
_NUMBERS = {"boolean": "boolean", "short": "integer", "integer": "integer", "long": "integer"}
_SCALARS = {"type": "array", "items": SCALAR, "minItems": 1}


def index_schema() -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions: every kind of field with exactly what it takes."""
    models: dict[type[BaseModel], None] = dict.fromkeys([IndexSchema, *MODELS.values()])
    _, whole = models_json_schema([(model, "validation") for model in models])
    found = {name: _cleaned(body) for name, body in whole["$defs"].items()}
    root = found.pop("IndexSchema")
    fields = {kind: _field(kind, found[model.__name__]) for kind, model in MODELS.items()}
    shared = {name: body for name, body in found.items() if name not in {m.__name__ for m in MODELS.values()}}
    shared["SoftDelete"]["oneOf"] = [{"required": ["column"]}, {"required": ["field"]}]
    shared["Comparison"]["oneOf"] = _operands()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "index schema",
        **root,
        "$defs": {
            "field": {
                "description": "A field: its kind and its name, and what the kind takes.",
                "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in MODELS],
            },
            "filter": {
                "description": "A condition.",
                "oneOf": [{"$ref": "#/$defs/RawFilter"}, {"$ref": "#/$defs/Comparison"}],
            },
            **fields,
            **shared,
        },
    }


def _field(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A kind's own definition: the kind is a key, and its value the field's name."""
    taken = {key: inner for key, inner in body["properties"].items() if key not in (KIND, NAME)}
    if kind not in TRANSFORMED:
        taken.pop("transforms", None)
    if "default" in taken:
        taken["default"] = {"description": taken["default"]["description"], **_default(kind)}
    name = {
        "type": "string",
        "pattern": FIELD_NAME,
        "maxLength": MAX_NAME,
        "description": f"{body['description']} The name of the field.",
    }
    required = [key for key in body["required"] if key not in (KIND, NAME)]
    definition = {**body, "properties": {kind: name, **taken}, "required": [kind, *required]}
    if kind == "geo":
        definition["dependentRequired"] = {"lat": ["lon"], "lon": ["lat"]}
        definition["not"] = {"required": ["lat", "column"]}
    if issubclass(MODELS[kind], Aggregate):
        definition["oneOf"] = [{"required": ["foreign_key"]}, {"required": ["through"]}]
    return definition


def _default(kind: str) -> dict[str, Any]:
    if kind in ("custom", "json"):
        return SCALAR
    if kind in SHOWN_AS_TEXT:
        # YAML reads an unquoted number or `true` as such; here it is the text that counts.
        return SCALAR if kind in TRANSFORMED else {"type": "string"}
    return {"type": _NUMBERS.get(kind, ["number", "string"])}


def _operands() -> list[dict[str, Any]]:
    """What each operator is given."""

    def variant(operators: list[str], value: dict[str, Any]) -> dict[str, Any]:
        return {"properties": {"op": {"enum": operators}, "value": value}, "required": ["op", "value"]}

    return [
        {"properties": {"op": {"enum": ["is_null", "is_not_null"]}}, "not": {"required": ["value"]}},
        variant(["eq", "neq", "lt", "lte", "gt", "gte"], SCALAR),
        variant(["like", "ilike"], {"type": "string"}),
        variant(["in", "not_in"], _SCALARS),
        variant(["between"], {**_SCALARS, "minItems": 2, "maxItems": 2}),
    ]


def _cleaned(node: Any, key: str = "") -> Any:
    """Without titles and nulls, and with one definition for all fields and one for all conditions."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node
    if key in _LISTS and node.get("type") == "array":
        node = {**node, "items": {"$ref": f"#/$defs/{_LISTS[key]}"}}
    variants = node.get("anyOf")
    if isinstance(variants, list) and {"type": "null"} in variants:
        kept = [variant for variant in variants if variant != {"type": "null"}]
        node = {name: inner for name, inner in node.items() if name != "anyOf"}
        node |= kept[0] if len(kept) == 1 else {"anyOf": kept}
    properties = {name: _cleaned(inner, name) for name, inner in node.get("properties", {}).items()}
    rest = {
        name: _cleaned(inner)
        for name, inner in node.items()
        if name not in ("title", "properties") and not (name == "default" and inner in (None, [], {}))
    }
    return {**rest, "properties": properties} if "properties" in node else rest
