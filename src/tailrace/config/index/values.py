"""The kinds of values in an index schema, as annotated types.

YAML reads an unquoted `no`, `1.10` or `0123` as something else than the text that stands there, and which
depends on its version. So the reader (`tree`) keeps the text of every unquoted scalar beside its value
(`Plain`): where the language wants a name it is the text that counts, elsewhere the value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)

from tailrace.config.values import Wrong

FIELD_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
MAX_NAME = 63
IDENTIFIER = {"type": "string", "minLength": 1}
SCALAR = {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class Plain:
    """A scalar without quotes that is no text: what stands there, and the value it has."""

    text: str
    value: bool | int | float


def text_of(value: Any) -> Any:
    """The text of a scalar, however YAML would read it."""
    return value.text if isinstance(value, Plain) else value


def value_of(value: Any) -> Any:
    """The value of a node, all the way down."""
    if isinstance(value, Plain):
        return value.value
    if isinstance(value, dict):
        return {key: value_of(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [value_of(inner) for inner in value]
    return value


def scalar_of(value: Any) -> Any:
    """The value of a scalar; nothing else is taken."""
    value = value_of(value)
    if not isinstance(value, str | int | float):
        raise ValueError("must be a single value: a text, a number, `true` or `false`")
    return value


def listed(value: Any) -> Any:
    """A list of one for a value that stands alone."""
    return value if isinstance(value, list | tuple) or value is None else [value]


def _field_name(value: str) -> str:
    value = value.strip()
    if len(value) > MAX_NAME or not re.fullmatch(FIELD_NAME, value):
        raise Wrong(
            f"must be a name of letters, digits and `_`, no digit first, at most {MAX_NAME} of them",
            "name the column with `column` where the document's key cannot be called like it",
        )
    return value


def _identifier(value: str) -> str:
    value = value.strip()
    if not value or "\0" in value:
        raise ValueError("must be the name of something in the database")
    return value


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("must name at least one column")
    if len(set(value)) < len(value):
        raise ValueError("names a column twice")
    return value


def _sql(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError("must be SQL")
    return value.strip()


Text = Annotated[StrictStr, BeforeValidator(text_of)]
FieldName = Annotated[
    StrictStr,
    BeforeValidator(text_of),
    AfterValidator(_field_name),
    WithJsonSchema({"type": "string", "pattern": FIELD_NAME, "maxLength": MAX_NAME}),
]
Identifier = Annotated[
    StrictStr, BeforeValidator(text_of), AfterValidator(_identifier), WithJsonSchema(IDENTIFIER)
]
Columns = Annotated[
    tuple[Identifier, ...],
    BeforeValidator(listed),
    AfterValidator(_not_empty),
    WithJsonSchema({"anyOf": [IDENTIFIER, {"type": "array", "items": IDENTIFIER, "minItems": 1}]}),
]
Sql = Annotated[StrictStr, BeforeValidator(text_of), AfterValidator(_sql), WithJsonSchema(IDENTIFIER)]
Flag = Annotated[StrictBool, BeforeValidator(value_of)]
Whole = Annotated[
    StrictInt, BeforeValidator(value_of), Field(ge=1), WithJsonSchema({"type": "integer", "minimum": 1})
]
Json = Annotated[Any, BeforeValidator(value_of)]
ScalarValue = Annotated[Any, BeforeValidator(scalar_of), WithJsonSchema(SCALAR)]
Options = Annotated[dict[str, Any], BeforeValidator(value_of), WithJsonSchema({"type": "object"})]
