"""The JSON Schema of `tailrace.toml`, for editors."""

from __future__ import annotations

from typing import Any

from tailrace.config.models import Config

_REFERENCE = {
    "type": "object",
    "description": "The value of an environment variable.",
    "properties": {"env": {"type": "string", "description": "The variable's name."}},
    "required": ["env"],
    "additionalProperties": False,
}


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions; any string may be a reference to the environment."""
    schema = Config.model_json_schema(by_alias=True, mode="validation")
    for definition in [schema, *schema.get("$defs", {}).values()]:
        definition["properties"] = {
            name: _with_reference(body, is_tag=name == "type")
            for name, body in definition["properties"].items()
        }
    schema["$defs"]["Reference"] = _REFERENCE
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tailrace.toml", **schema}


def _with_reference(body: dict[str, Any], *, is_tag: bool) -> dict[str, Any]:
    # An editor tells the sinks apart by their type, so the type itself is written out.
    if is_tag:
        return body
    if body.get("type") == "string" or "enum" in body:
        kept: dict[str, Any] = {key: body[key] for key in ("description", "default", "title") if key in body}
        inner = {key: value for key, value in body.items() if key not in kept}
        return {**kept, "anyOf": [inner, {"$ref": "#/$defs/Reference"}]}
    for place in ("items", "additionalProperties"):
        if isinstance(body.get(place), dict):
            body = {**body, place: _with_reference(body[place], is_tag=False)}
    return body
