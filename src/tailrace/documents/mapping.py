"""What the documents of an index look like, field by field, for whoever has to prepare for them.

It is derived from the index schema alone, without a database, and knows no sink: `type` is the kind of the
language, and each sink has its own words for it. A field that is an object or an array of objects is listed
before the fields inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.index.fields import (
    AnyField,
    Average,
    BelongsTo,
    Constant,
    Count,
    Custom,
    Enum,
    Expression,
    Geo,
    HasOne,
    Ids,
    Join,
    Map,
    Object,
    Reduction,
    Scalar,
)
from tailrace.config.index.models import IndexSchema


@dataclass(frozen=True)
class MappedField:
    """One field, by its path in the document: `orders.total`.

    `type` is a kind of scalar, or `object`, `nested` (an array of objects), `geo`, `map` or `custom`. `many`
    says that the value is an array. `native` is what a custom field is called in a sink, by the sink's kind;
    `values` is the kind of a map's values; `variants` are those of an enum, in their order.
    """

    path: str
    type: str
    nullable: bool = True
    many: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    native: dict[str, str] = field(default_factory=dict)
    values: str | None = None
    variants: tuple[str, ...] = ()

    @property
    def nested(self) -> bool:
        """Whether it is an array of objects, each of which must be searchable as a whole."""
        return self.type == "nested"

    def to_json(self) -> dict[str, Any]:
        """What is known of it, without what goes without saying."""
        return {
            "type": self.type,
            "nullable": self.nullable,
            **({"many": True} if self.many else {}),
            **({"values": self.values} if self.values else {}),
            **({"variants": list(self.variants)} if self.variants else {}),
            **({"native": self.native} if self.native else {}),
            **({"options": self.options} if self.options else {}),
        }

    def __str__(self) -> str:
        """The field in a line."""
        words = [self.path, self.type]
        if self.values:
            words.append(f"of {self.values}")
        if self.many and not self.nested:
            words.append("array")
        words += [f"({kind}: {native})" for kind, native in self.native.items()]
        words += ["nullable"] if self.nullable else []
        words += [f"{key}={value!r}" for key, value in self.options.items()]
        return " ".join(words)


@dataclass(frozen=True)
class IndexMapping:
    """The fields of all documents of an index."""

    fields: tuple[MappedField, ...]

    def to_json(self) -> dict[str, Any]:
        """Every field by its path; sinks get it so."""
        return {field.path: field.to_json() for field in self.fields}

    def __str__(self) -> str:
        """A line a field."""
        return "\n".join(map(str, self.fields))


def derive_mapping(schema: IndexSchema) -> IndexMapping:
    """The mapping of an index schema."""
    return IndexMapping(tuple(_mapped(schema.fields_, "", schema.primary_key or ())))


def _mapped(fields: tuple[AnyField, ...], prefix: str, key: tuple[str, ...]) -> Iterator[MappedField]:
    for item in fields:
        path = f"{prefix}{item.name}"
        yield _field(item, path, key)
        if isinstance(item, Object):
            yield from _mapped(item.fields_, f"{path}.", key)
        elif isinstance(item, Join):
            yield from _mapped(item.fields_, f"{path}.", item.primary_key or ())


def _field(item: AnyField, path: str, key: tuple[str, ...]) -> MappedField:
    if isinstance(item, Constant):
        kind, many = _constant(item.value)
        return MappedField(path, kind, nullable=item.value is None, many=many)
    options = dict(item.options)
    if isinstance(item, Scalar | Custom | Map | Geo):
        return _leaf(item, path, key, options)
    if isinstance(item, Object):
        return MappedField(path, "object", nullable=False, options=options)
    if isinstance(item, BelongsTo | HasOne):
        return MappedField(path, "object", nullable=not item.required, options=options)
    if isinstance(item, Expression):
        return MappedField(path, item.type, options=options)
    if isinstance(item, Count):
        return MappedField(path, "long", nullable=False, options=options)
    if isinstance(item, Ids):
        return MappedField(path, item.element_type, nullable=False, many=True, options=options)
    if isinstance(item, Average | Reduction):
        return MappedField(path, item.value_type, options=options)
    return MappedField(path, "nested", nullable=False, many=True, options=options)


def _leaf(
    item: Scalar | Custom | Map | Geo, path: str, key: tuple[str, ...], options: dict[str, Any]
) -> MappedField:
    column = item.column or item.name
    nullable = not item.required and column not in key and getattr(item, "default", None) is None
    return MappedField(
        path,
        item.kind,
        nullable,
        options=options,
        native={"opensearch": item.opensearch} if isinstance(item, Custom) else {},
        values=item.values if isinstance(item, Map) else None,
        variants=item.variants if isinstance(item, Enum) else (),
    )


def _constant(value: Any) -> tuple[str, bool]:
    """The kind of a constant, and whether it is an array of it."""
    if isinstance(value, list):
        kinds = {_constant(item) for item in value}
        return (
            (next(iter(kinds))[0], True) if len(kinds) == 1 and not next(iter(kinds))[1] else ("json", True)
        )
    for kind, python in (("boolean", bool), ("long", int), ("double", float), ("json", dict)):
        if isinstance(value, python):
            return kind, False
    return "keyword", False
