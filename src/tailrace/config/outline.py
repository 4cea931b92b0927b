"""The outline of the models: which keys stand where, of what type, with which default.

The documentation, the hint at the nearest key, and overrides by variables all read it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tailrace.config.models import Config, Spark
from tailrace.config.sinks import DeltaSink, HttpSink, OpenSearchSink, SqliteSink, StdoutSink
from tailrace.model.units import show_duration, show_size

SINKS: dict[str, type[BaseModel]] = {
    "delta": DeltaSink,
    "http": HttpSink,
    "opensearch": OpenSearchSink,
    "sqlite": SqliteSink,
    "stdout": StdoutSink,
}
_FREE = {("source", "types"), ("spark",), ("sinks",)}


@dataclass(frozen=True)
class Key:
    """A key of the file: `section` is its table as one writes it, `[sinks.<name>]` or `[[feed]]`."""

    section: str
    name: str
    type: str
    default: str
    required: bool
    description: str


def keys() -> list[Key]:
    """Every key, section by section, in the order of the models."""
    return list(_keys())


def _keys() -> Iterator[Key]:
    sections: list[tuple[str, type[BaseModel]]] = []
    for name, field in _fields(Config).items():
        kind = _kind(field)
        if kind == "sinks":
            sections += [(f'[sinks.<name>] type = "{tag}"', model) for tag, model in SINKS.items()]
        elif kind in ("table", "tables"):
            model = _model(field.annotation)
            assert model is not None  # noqa: S101 (a table of the file is a model)
            sections.append((f"[[{name}]]" if kind == "tables" else f"[{name}]", model))
        else:
            yield _key("", name, field)
    for section, model in sections:
        for name, field in _fields(model).items():
            yield _key(section, name, field)
        if model is Spark:
            yield Key(section, '"spark.…"', "string", "", False, "Any setting of Spark, under its own name.")


def children(path: Sequence[str | int], loc: Sequence[str | int] = ()) -> dict[str, FieldInfo]:
    """The keys that may stand in the table at a path; for a sink `loc` says its type, as pydantic does."""
    if not path:
        return _fields(Config)
    if path[0] == "sinks":
        if len(path) != 2:
            return {}
        known = [SINKS[str(loc[2])]] if len(loc) > 2 and loc[2] in SINKS else list(SINKS.values())
        return {name: field for model in known for name, field in _fields(model).items()}
    field = _fields(Config).get(str(path[0]))
    model = _model(field.annotation) if field else None
    depth = 2 if field and _kind(field) == "tables" else 1
    return _fields(model) if model and len(path) == depth else {}


def takes_list(path: Sequence[str | int]) -> bool:
    """Whether an array belongs at a path."""
    field = children(path[:-1]).get(str(path[-1]))
    return field is not None and get_origin(field.annotation) is tuple


def takes_boolean(path: Sequence[str | int]) -> bool:
    """Whether `true` or `false` belongs at a path."""
    field = children(path[:-1]).get(str(path[-1]))
    return field is not None and field.annotation is bool


def has_free_keys(path: Sequence[str | int]) -> bool:
    """Whether a table whose keys are the user's own belongs at a path."""
    return tuple(path) in _FREE or (
        len(path) == 3 and path[0] == "sinks" and path[2] in ("headers", "settings")
    )


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = get_args(annotation)
    return _model(inner[0]) if get_origin(annotation) is tuple and inner else None


def _kind(field: FieldInfo) -> Literal["value", "table", "tables", "sinks"]:
    if _model(field.annotation) is not None:
        return "tables" if get_origin(field.annotation) is tuple else "table"
    arguments = get_args(field.annotation)
    return (
        "sinks" if get_origin(field.annotation) is dict and get_origin(arguments[1]) is Annotated else "value"
    )


def _key(section: str, name: str, field: FieldInfo) -> Key:
    kind = _type(field.annotation, field.metadata)
    default = "" if field.is_required() else _default(field.get_default(call_default_factory=True), kind)
    return Key(section, name, kind, default, field.is_required(), field.description or "")


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    for mark in metadata:
        schema = getattr(mark, "json_schema", None)
        if isinstance(schema, dict) and "title" in schema:
            return str(schema["title"])
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], arguments[1:])
    if origin is Literal:
        return " or ".join(f'`"{choice}"`' for choice in arguments)
    if origin in (Union, types.UnionType):
        return _type(arguments[0])
    if origin is tuple:
        return f"array of {_type(arguments[0])}s"
    if origin is dict:
        return f"table of {_type(arguments[1])}s"
    return {str: "string", int: "integer", bool: "boolean"}.get(annotation, str(annotation))


def _default(value: Any, kind: str) -> str:
    if value in (None, "", (), {}):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if kind == "duration":
        return f'`"{show_duration(value)}"`'
    if kind == "size":
        return f'`"{show_size(value)}"`'
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{item}"' for item in value) + "]`"
    return f"`{value}`" if isinstance(value, int) else f'`"{value}"`'
