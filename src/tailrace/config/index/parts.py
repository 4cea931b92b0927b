"""What fields of an index schema are made of: conditions, orders, junctions, transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tailrace.config.index.values import Columns, Identifier, Json, Sql, text_of, value_of

Operator = Literal[
    "is_null",
    "is_not_null",
    "eq",
    "neq",
    "lt",
    "lte",
    "gt",
    "gte",
    "like",
    "ilike",
    "in",
    "not_in",
    "between",
]
TransformName = Literal["lowercase", "trim", "uppercase", "truncate", "hash"]


class Part(BaseModel):
    """A mapping of the file: frozen, without unknown keys; a key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        return cls._taken(value) if isinstance(value, dict) else value

    @classmethod
    def _taken(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {key: inner for key, inner in value.items() if inner is not None}

    def written(self) -> dict[str, Any]:
        """The part as the file says it, without what is said by default: JSON that the models take again."""
        kept = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                kept[field.alias or name] = _plain(value)
        return kept


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.written()
    if isinstance(value, Transform):
        return value.name if value.length is None else {value.name: value.length}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class Comparison(Part):
    """A condition on one column."""

    column: Identifier = Field(description="The column that is compared.")
    op: Annotated[Operator, BeforeValidator(text_of)] = Field(description="The comparison.")
    value: Json = Field(
        default=None,
        validate_default=True,
        description="What it is compared with: a list for `in` and `not_in`, two values for `between`,"
        " none for `is_null` and `is_not_null`.",
    )

    @field_validator("value")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        operator = info.data.get("op")
        return value if operator is None else operand(operator, value)


def operand(operator: str, value: Any) -> Any:
    """What an operator may be given; anything else is told in a sentence."""
    if operator in ("is_null", "is_not_null"):
        if value is not None:
            raise ValueError(f"`{operator}` takes no `value`")
        return None
    if value is None:
        raise ValueError(f"`{operator}` needs a `value`; NULL is found with `is_null` and `is_not_null`")
    if operator in ("in", "not_in", "between"):
        if not isinstance(value, list):
            raise ValueError(f"`{operator}` needs a list: `value: [a, b]`")
        if any(not isinstance(item, str | int | float) for item in value):
            raise ValueError("must be a list of texts, numbers, `true` or `false`, without null")
        if operator == "between" and len(value) != 2:
            raise ValueError(f"`between` needs two values, the lower and the upper, not {len(value)}")
        if not value:
            raise ValueError(f"`{operator}` needs at least one value")
        return value
    if not isinstance(value, str | int | float):
        raise ValueError(f"`{operator}` needs a single value: a text, a number, `true` or `false`")
    if operator in ("like", "ilike") and not isinstance(value, str):
        raise ValueError(f"`{operator}` needs a text")
    return value


class RawFilter(Part):
    """A condition in the source's own SQL."""

    raw: Sql = Field(description="A condition in the source's SQL, over the columns of the table.")


def _filter_tag(value: Any) -> str:
    written = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return "raw" if "raw" in written else "comparison"


Filter = Annotated[
    Annotated[RawFilter, Tag("raw")] | Annotated[Comparison, Tag("comparison")], Discriminator(_filter_tag)
]
Filters = tuple[Filter, ...]


class Order(Part):
    """A column to order by."""

    column: Identifier = Field(description="The column.")
    direction: Annotated[Literal["asc", "desc"], BeforeValidator(text_of)] = Field(
        default="asc", description="Upward (`asc`) or downward (`desc`); nulls come last."
    )


class Through(Part):
    """A junction table."""

    table: Identifier = Field(description="The junction table, `schema.table` where it is in another schema.")
    left_key: Columns = Field(description="The junction's column that points at this row.")
    right_key: Columns = Field(description="The junction's column that points at the related row.")
    filters: Filters = Field(default=(), description="Only junction rows for which all of these are true.")


@dataclass(frozen=True)
class Transform:
    """A step from the column's value to the document's: a word, or `truncate` with its length."""

    name: TransformName
    length: int | None = None


def _transform(value: Any) -> Any:
    if isinstance(value, Transform):
        return value
    if isinstance(value, dict) and list(value) == ["truncate"]:
        length = value_of(value["truncate"])
        if type(length) is int and length >= 1:
            return Transform("truncate", length)
    name = text_of(value)
    if name == "truncate" or (isinstance(name, dict) and "truncate" in name):
        raise ValueError("`truncate` needs a length of at least 1: `{ truncate: 100 }`")
    if not isinstance(name, str) or name not in get_args(TransformName):
        raise ValueError("must be `lowercase`, `trim`, `uppercase`, `hash` or `{ truncate: 100 }`")
    return Transform(name)  # type: ignore[arg-type]


TRANSFORM_SCHEMA = {
    "anyOf": [
        {"enum": ["lowercase", "trim", "uppercase", "hash"]},
        {
            "type": "object",
            "properties": {"truncate": {"type": "integer", "minimum": 1}},
            "required": ["truncate"],
            "additionalProperties": False,
        },
    ]
}
Transforms = tuple[
    Annotated[
        Transform,
        BeforeValidator(_transform),
        WithJsonSchema(TRANSFORM_SCHEMA),
    ],
    ...,
]
