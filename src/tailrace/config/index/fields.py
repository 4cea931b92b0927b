"""The fields of an index schema, one model a kind; descriptions are documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag

from tailrace.config.index.parts import Filters, Order, Part, Through, Transforms
from tailrace.config.index.values import (
    Columns,
    FieldName,
    Flag,
    Identifier,
    Json,
    Options,
    ScalarValue,
    Sql,
    Text,
    Whole,
    listed,
    text_of,
)

# No key of the file: there the kind is the key, and the name its value.
KIND, NAME = "<kind>", "<name>"

ScalarKind = Literal[
    "text",
    "identifier",
    "keyword",
    "uuid",
    "boolean",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "binary",
    "json",
]
ValueKind = Literal[
    "text",
    "identifier",
    "keyword",
    "enum",
    "uuid",
    "boolean",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "binary",
    "json",
]
MapKind = Literal[
    "text",
    "identifier",
    "keyword",
    "enum",
    "uuid",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
]
# Kinds whose values are texts in a document.
SHOWN_AS_TEXT = ("text", "identifier", "keyword", "enum", "uuid", "date", "timestamp", "binary")
# Kinds whose texts may be changed on the way.
TRANSFORMED = ("text", "identifier", "keyword", "enum")
NumberKind = Literal["short", "integer", "long", "float", "double", "decimal"]
_REQUIRED = "Whether the value is never null."
_COLUMN = "The column. Default: the field's name."
_OPTIONS = "Whatever else the sink's mapping of the field shall say."
_TABLE = "The related table, `schema.table` where it is in another schema."
_OWN_KEY = "The related table's primary key, a list where it has several columns. Default: what it is."
_FOREIGN_KEY = "The related table's column that points here, a list where the key has several columns."
_FILTERS = "Only related rows for which all of these are true."
_THROUGH = "The junction table between the two."


class FieldPart(Part):
    """What every field has: its kind, and the name it has in the document."""

    kinds: ClassVar[tuple[str, ...]]

    kind: Text = Field(alias="<kind>")
    name: FieldName = Field(alias="<name>")

    @classmethod
    def _taken(cls, value: dict[str, Any]) -> dict[str, Any]:
        kind = next((key for key in value if key in cls.kinds), "")
        rest = {key: inner for key, inner in value.items() if key != kind}
        if kind in SHOWN_AS_TEXT and "default" in rest:
            rest["default"] = text_of(rest["default"])
        return {KIND: kind, NAME: value.get(kind), **super()._taken(rest)}

    def written(self) -> dict[str, Any]:
        """The field as the file says it: its kind first."""
        kept = super().written()
        kind, name = kept.pop(KIND), kept.pop(NAME)
        return {kind: name, **kept}


class Scalar(FieldPart):
    """The value of a column."""

    kinds = get_args(ScalarKind)

    column: Identifier | None = Field(default=None, description=_COLUMN)
    required: Flag = Field(default=False, description=_REQUIRED)
    default: ScalarValue = Field(default=None, description="What stands for null.")
    transforms: Transforms = Field(
        default=(),
        description="Steps from the column's text to the document's: `lowercase`, `uppercase`, `trim`,"
        " `hash`, `{ truncate: 100 }`.",
    )
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Enum(Scalar):
    """One of a few texts."""

    kinds = ("enum",)

    variants: Annotated[tuple[Text, ...], BeforeValidator(listed)] = Field(
        default=(), description="The texts there are, in the order in which they sort."
    )


class Custom(FieldPart):
    """A column whose type in the source and in the sink is named."""

    kinds = ("custom",)

    postgres: Annotated[tuple[Text, ...], BeforeValidator(listed)] = Field(
        default=(), description="The types that the column may have in PostgreSQL."
    )
    sqlite: Annotated[tuple[Text, ...], BeforeValidator(listed)] = Field(
        default=(), description="The declared types that the column may have in SQLite."
    )
    opensearch: Text = Field(min_length=1, description="The type in the sink's mapping.")
    column: Identifier | None = Field(default=None, description=_COLUMN)
    required: Flag = Field(default=False, description=_REQUIRED)
    default: ScalarValue = Field(default=None, description="What stands for null.")
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Geo(FieldPart):
    """A point: two columns, or one that holds both numbers."""

    kinds = ("geo",)

    lat: Identifier | None = Field(default=None, description="The column of the latitude.")
    lon: Identifier | None = Field(default=None, description="The column of the longitude.")
    column: Identifier | None = Field(
        default=None,
        description='A column that holds the point: JSON `{"lat": …, "lon": …}` or `[lon, lat]`, or the text'
        " `lat,lon`. Default: the field's name, where `lat` and `lon` are not given.",
    )
    required: Flag = Field(default=False, description=_REQUIRED)
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Map(FieldPart):
    """A column of JSON objects whose keys are known only when they come."""

    kinds = ("map",)

    values: Annotated[MapKind, BeforeValidator(text_of)] = Field(
        description="The kind of all values: of texts, numbers, dates or times."
    )
    column: Identifier | None = Field(default=None, description=_COLUMN)
    required: Flag = Field(default=False, description=_REQUIRED)
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Object(FieldPart):
    """A group of values of the same row."""

    kinds = ("object",)

    fields_: Fields = Field(alias="fields", description="The fields of the group.")
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Constant(FieldPart):
    """The same value in every document."""

    kinds = ("constant",)

    value: Json = Field(default=None, description="The value: anything that JSON has. Default: null.")


class Expression(FieldPart):
    """A value computed from the row's own columns."""

    kinds = ("expression",)

    sql: Sql = Field(description="The expression, in the source's SQL, over the columns of the row.")
    type: Annotated[ValueKind, BeforeValidator(text_of)] = Field(description="The kind of its value.")
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Join(FieldPart):
    """Rows of a related table."""

    table: Identifier = Field(description=_TABLE)
    primary_key: Columns | None = Field(default=None, description=_OWN_KEY)
    filters: Filters = Field(default=(), description=_FILTERS)
    fields_: Fields = Field(alias="fields", description="What the document shows of a related row.")
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class BelongsTo(Join):
    """The row that a column of this row points at, or null."""

    kinds = ("belongs_to",)

    column: Columns | None = Field(
        default=None,
        description="This table's column that points at the related row, a list where the key has several"
        " columns. Default: the field's name.",
    )
    required: Flag = Field(default=False, description=_REQUIRED)


class HasOne(Join):
    """The one row that points at this row, or null: the first by `order_by`."""

    kinds = ("has_one",)

    foreign_key: Columns = Field(description=_FOREIGN_KEY)
    order_by: tuple[Order, ...] = Field(default=(), description="Which row is the first one.")
    required: Flag = Field(default=False, description=_REQUIRED)


class HasMany(Join):
    """All rows that point at this row."""

    kinds = ("has_many",)

    foreign_key: Columns = Field(description=_FOREIGN_KEY)
    order_by: tuple[Order, ...] = Field(default=(), description="The order of the array.")
    limit: Whole | None = Field(default=None, description="At most so many rows.")


class ManyToMany(Join):
    """All rows that a junction table links to this row."""

    kinds = ("many_to_many",)

    through: Through = Field(description=_THROUGH)
    order_by: tuple[Order, ...] = Field(default=(), description="The order of the array.")
    limit: Whole | None = Field(default=None, description="At most so many rows.")


class Aggregate(FieldPart):
    """One value over related rows."""

    table: Identifier = Field(description=_TABLE)
    foreign_key: Columns | None = Field(default=None, description=_FOREIGN_KEY + " Or `through`.")
    through: Through | None = Field(default=None, description=_THROUGH + " Or `foreign_key`.")
    distinct: Flag = Field(
        default=False,
        description="With `through`: whether a related row counts once, however many junction rows lead to"
        " it.",
    )
    filters: Filters = Field(default=(), description=_FILTERS)
    options: Options = Field(default_factory=dict, description=_OPTIONS)


class Count(Aggregate):
    """How many related rows there are; 0 where there are none."""

    kinds = ("count",)


class Average(Aggregate):
    """The average of a column; null over no rows."""

    kinds = ("avg",)

    column: Identifier = Field(description="The related table's column.")
    value_type: Annotated[NumberKind, BeforeValidator(text_of)] = Field(
        default="double", description="The kind of the average."
    )


class Reduction(Aggregate):
    """The sum, the smallest or the largest value of a column; null over no rows."""

    kinds = ("sum", "min", "max")

    column: Identifier = Field(description="The related table's column.")
    value_type: Annotated[ValueKind, BeforeValidator(text_of)] = Field(description="The kind of the value.")


class Ids(Aggregate):
    """The related rows' keys, ascending; keys of several columns are arrays themselves."""

    kinds = ("ids",)

    element_type: Annotated[ValueKind, BeforeValidator(text_of)] = Field(
        description="The kind of a key; of one with several columns that of each of them."
    )


AnyField = (
    Scalar
    | Enum
    | Custom
    | Geo
    | Map
    | Object
    | Constant
    | Expression
    | BelongsTo
    | HasOne
    | HasMany
    | ManyToMany
    | Count
    | Average
    | Reduction
    | Ids
)
MODELS: dict[str, type[FieldPart]] = {kind: model for model in get_args(AnyField) for kind in model.kinds}


def kinds_in(value: Mapping[str, Any]) -> list[str]:
    """The keys of a field that say its kind; there must be one."""
    return [key for key in value if key in MODELS]


def _field_tag(value: Any) -> str | None:
    if isinstance(value, FieldPart):
        return type(value).__name__
    if not isinstance(value, dict):
        return None
    found = kinds_in(value)
    return MODELS[found[0]].__name__ if len(found) == 1 else None


Fields = tuple[
    Annotated[
        Annotated[Scalar, Tag("Scalar")]
        | Annotated[Enum, Tag("Enum")]
        | Annotated[Custom, Tag("Custom")]
        | Annotated[Geo, Tag("Geo")]
        | Annotated[Map, Tag("Map")]
        | Annotated[Object, Tag("Object")]
        | Annotated[Constant, Tag("Constant")]
        | Annotated[Expression, Tag("Expression")]
        | Annotated[BelongsTo, Tag("BelongsTo")]
        | Annotated[HasOne, Tag("HasOne")]
        | Annotated[HasMany, Tag("HasMany")]
        | Annotated[ManyToMany, Tag("ManyToMany")]
        | Annotated[Count, Tag("Count")]
        | Annotated[Average, Tag("Average")]
        | Annotated[Reduction, Tag("Reduction")]
        | Annotated[Ids, Tag("Ids")],
        Discriminator(_field_tag),
    ],
    ...,
]

for _model in (Object, BelongsTo, HasOne, HasMany, ManyToMany):
    _model.model_rebuild()
