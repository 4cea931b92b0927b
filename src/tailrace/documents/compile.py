"""From index schema and catalog to a plan: all tables and columns are found, or one error names the others.

A name is looked for as it is written first, then as databases fold it: `Orders` is `orders` where there is no
`Orders`. A dotted name is schema and table; a table may also have a dot in its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from tailrace.capture.contract import Capture
from tailrace.config.hints import nearest
from tailrace.config.index import fields as written
from tailrace.config.index import parts
from tailrace.config.index.models import IndexSchema
from tailrace.config.index.names import readings, readings_in
from tailrace.config.lines import Path
from tailrace.config.problems import Problem, as_error
from tailrace.documents import plan
from tailrace.documents.mapping import derive_mapping
from tailrace.documents.schema_hash import schema_hash
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef, TableSchema, quote

Catalog = Callable[[str | None, str], TableSchema]


def compile_index(name: str, schema: IndexSchema, catalog: Catalog) -> plan.IndexPlan:
    """The plan of an index.

    `catalog` describes a table by schema and name, None for the source's default schema. It raises
    LookupError where there is no such table, or ConfigError where it has more to say about that.
    """
    made, problems = drafted(name, schema, catalog)
    if problems:
        raise as_error(problems, schema.places)
    return replace(made, schema_hash=schema_hash(made.root, made.soft_delete, derive_mapping(schema)))


def drafted(name: str, schema: IndexSchema, catalog: Catalog) -> tuple[plan.IndexPlan, list[Problem]]:
    """The plan as far as it can be told, without its hash, and everything that is wrong with it.

    It has every place of the schema. A table that is not there is a `MissingTable`, and a column that is not
    there stands as it is written.
    """
    compiler = _Compiler(schema, catalog)
    root = compiler.root()
    return plan.IndexPlan(name, root, compiler.soft_delete(root)), compiler.problems


class MissingTable(TableSchema):
    """Stands for a table that the source does not have: of its columns nothing is known."""


def catalog_of(capture: Capture) -> Catalog:
    """The catalog of a source; each table is described once."""

    @cache
    def table(schema: str | None, name: str) -> TableSchema:
        ref = TableRef(schema or "", name)
        # Quoted where it has to be: a dot or a star in a name is a part of it here.
        bare = quote(name) if name == "*" or "." in name or '"' in name else name
        (found,) = capture.resolve([bare if schema is None else str(ref)])
        return capture.describe(found)

    return table


@dataclass(frozen=True)
class _Row:
    """The row that fields belong to: of a table, with a key, at a path of the file and of the document."""

    table: TableSchema
    key: tuple[str, ...]
    path: Path = ()
    names: tuple[str, ...] = ()


class _Compiler:
    """Goes down the schema and collects what is wrong; where something is, the plan is not used."""

    def __init__(self, schema: IndexSchema, catalog: Catalog) -> None:
        self.schema = schema
        self.problems: list[Problem] = []
        self._catalog = catalog
        self._count = 0

    def root(self) -> plan.Place:
        schema = self.schema
        space = schema.schema_
        meant = readings(schema.table, None) if space is None else readings_in(space, schema.table)
        table = self._table(schema.table, ("table",), meant)
        number = self._number()
        row = _Row(table, self._key(table, schema.primary_key, ()))
        members = self._members(schema.fields_, row)
        return plan.Place(
            number, (), table, row.key, members, filters=self._filters(schema.filters, table, ("filters",))
        )

    def soft_delete(self, root: plan.Place) -> plan.SoftDelete | None:
        rule = self.schema.soft_delete
        if rule is None:
            return None
        shown = dict(_shown_columns(self.schema.fields_))
        name = rule.column or shown.get(rule.field or "", "")
        column = self._column(root.table, name, ("soft_delete", "column" if rule.column else "field"))
        return plan.SoftDelete(column, self._filters(rule.when, root.table, ("soft_delete", "when")))

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def _members(self, fields: Sequence[written.AnyField], row: _Row) -> tuple[plan.Member, ...]:
        members = []
        for index, field in enumerate(fields):
            here = replace(row, path=(*row.path, "fields", index), names=(*row.names, field.name))
            members.append(plan.Member(field.name, self._value(field, here)))
        return tuple(members)

    def _value(self, field: written.AnyField, row: _Row) -> plan.Value:
        if isinstance(field, written.Scalar | written.Custom | written.Map):
            return self._scalar(field, row)
        if isinstance(field, written.Geo):
            return self._geo(field, row)
        if isinstance(field, written.Object):
            return plan.Group(self._members(field.fields_, row))
        if isinstance(field, written.Constant):
            return plan.Constant(field.value)
        if isinstance(field, written.Expression):
            return plan.Expression(field.sql, field.type)
        if isinstance(field, written.Join):
            return self._join(field, row)
        return self._aggregate(field, row)

    def _scalar(self, field: written.Scalar | written.Custom | written.Map, row: _Row) -> plan.Scalar:
        default = None if isinstance(field, written.Map) else field.default
        steps = field.transforms if isinstance(field, written.Scalar) else ()
        return plan.Scalar(
            self._own_column(field, row),
            cast(plan.Kind, field.kind),
            tuple(plan.Transform(step.name, step.length) for step in steps),
            default,
            default is not None,
            field.required,
        )

    def _geo(self, field: written.Geo, row: _Row) -> plan.Geo:
        if field.lat is None or field.lon is None:
            return plan.Geo(column=self._own_column(field, row))
        lat = self._column(row.table, field.lat, (*row.path, "lat"))
        return plan.Geo(lat, self._column(row.table, field.lon, (*row.path, "lon")))

    def _own_column(
        self, field: written.Scalar | written.Custom | written.Map | written.Geo, row: _Row
    ) -> str:
        if field.column is not None:
            return self._column(row.table, field.column, (*row.path, "column"))
        return self._column(
            row.table, field.name, (*row.path, field.kind), "say with `column` which column it shows"
        )

    def _join(self, field: written.Join, parent: _Row) -> plan.Related:
        path = parent.path
        table = self._table(field.table, (*path, "table"), readings(field.table, self.schema.schema_))
        number = self._number()
        row = replace(parent, table=table, key=self._key(table, field.primary_key, path))
        link = self._link(field, parent, row)
        order = tuple(
            plan.Order(
                self._column(table, step.column, (*path, "order_by", at, "column")), step.direction == "desc"
            )
            for at, step in enumerate(getattr(field, "order_by", ()))
        )
        place = plan.Place(
            number,
            row.names,
            table,
            row.key,
            self._members(field.fields_, row),
            link,
            self._filters(field.filters, table, (*path, "filters")),
            order,
            getattr(field, "limit", None),
        )
        return plan.Related(place, getattr(field, "required", False))

    def _aggregate(self, field: written.Aggregate, parent: _Row) -> plan.Aggregate:
        path = parent.path
        table = self._table(field.table, (*path, "table"), readings(field.table, self.schema.schema_))
        number = self._number()
        # A table without a key can be counted; its keys cannot be listed, nor can a junction point at it.
        needs_key = isinstance(field, written.Ids) or field.through is not None
        row = replace(parent, table=table, key=self._key(table, None, path) if needs_key else table.key)
        link = self._link(field, parent, row)
        column = None
        if isinstance(field, written.Average | written.Reduction):
            column = self._column(table, field.column, (*path, "column"))
        place = plan.Place(
            number,
            row.names,
            table,
            row.key,
            link=link,
            filters=self._filters(field.filters, table, (*path, "filters")),
        )
        return plan.Aggregate(
            place, cast(plan.Function, field.kind), column, _aggregate_kind(field), field.distinct
        )

    def _link(self, field: written.Join | written.Aggregate, parent: _Row, row: _Row) -> plan.Link:
        """How the rows of `row` hang on those of `parent`."""
        path = row.path
        shape = cast(plan.Shape, field.kind if isinstance(field, written.Join) else "has_many")
        if isinstance(field, written.BelongsTo):
            at: Path = (*path, "column" if field.column else field.kind)
            columns = self._columns(parent.table, field.column or (field.name,), at)
            self._fits(columns, row, at)
            return plan.Link(shape, columns, row.key)
        through: parts.Through | None = getattr(field, "through", None)
        if through is not None:
            return plan.Link("many_to_many", parent.key, row.key, self._through(through, parent, row))
        at = (*path, "foreign_key")
        own = self._columns(row.table, getattr(field, "foreign_key", None) or (), at)
        self._fits(own, parent, at)
        return plan.Link(shape, parent.key, own)

    def _through(self, through: parts.Through, parent: _Row, row: _Row) -> plan.Through:
        at: Path = (*row.path, "through")
        table = self._table(through.table, (*at, "table"), readings(through.table, self.schema.schema_))
        left = self._columns(table, through.left_key, (*at, "left_key"))
        right = self._columns(table, through.right_key, (*at, "right_key"))
        self._fits(left, parent, (*at, "left_key"))
        self._fits(right, row, (*at, "right_key"))
        return plan.Through(table, left, right, self._filters(through.filters, table, (*at, "filters")))

    def _filters(self, filters: parts.Filters, table: TableSchema, path: Path) -> tuple[plan.Filter, ...]:
        compiled: list[plan.Filter] = []
        for index, condition in enumerate(filters):
            if isinstance(condition, parts.RawFilter):
                compiled.append(plan.Raw(condition.raw))
                continue
            column = self._column(table, condition.column, (*path, index, "column"))
            value = tuple(condition.value) if isinstance(condition.value, list) else condition.value
            compiled.append(plan.Comparison(column, condition.op, value))
        return tuple(compiled)

    def _table(self, name: str, path: Path, meant: Iterable[tuple[str | None, str]]) -> TableSchema:
        told: ConfigError | None = None
        for schema, table in meant:
            try:
                return self._catalog(schema, table)
            except ConfigError as error:
                told = told or error
            except LookupError:
                continue
        if told is not None:
            self._problem(path, told.message, told.remedy)
        else:
            self._problem(path, f"there is no table `{name}` in the source")
        return MissingTable(TableRef("", name), ())

    def _key(self, table: TableSchema, declared: tuple[str, ...] | None, path: Path) -> tuple[str, ...]:
        at: Path = (*path, "primary_key" if declared else "table")
        if isinstance(table, MissingTable):
            return declared or ()
        if not table.key:
            self._problem(
                at,
                f"{table.ref} has no primary key, so nothing tells its rows apart",
                "give the table a primary key",
            )
            return declared or ()
        if declared is None:
            return table.key
        known = _names(table)
        found = self._columns(table, declared, at)
        if found != table.key and set(found) <= set(known):
            self._problem(
                at,
                f"the primary key of {table.ref} is {_listed(table.key)}, not {_listed(found)}",
                f"write `primary_key: {_yaml(table.key)}`",
            )
        return table.key

    def _columns(self, table: TableSchema, names: Sequence[str], path: Path) -> tuple[str, ...]:
        return tuple(self._column(table, name, path) for name in names)

    def _column(self, table: TableSchema, name: str, path: Path, remedy: str | None = None) -> str:
        if isinstance(table, MissingTable):
            return name
        known = _names(table)
        alike = [column for column in known if column.lower() == name.lower()]
        if name in known or len(alike) == 1:
            return name if name in known else alike[0]
        self._problem(path, f"{table.ref} has no column `{name}`{nearest(name, known)}", remedy)
        return name

    def _fits(self, columns: Sequence[str], row: _Row, path: Path) -> None:
        """Columns that stand for a row's key are as many as it has."""
        if row.key and len(columns) != len(row.key) and not isinstance(row.table, MissingTable):
            self._problem(
                path, f"is {_listed(columns)}, but the key of {row.table.ref} is {_listed(row.key)}"
            )

    def _problem(self, path: Path, text: str, remedy: str | None = None) -> None:
        self.problems.append(Problem(path, text, remedy))


def _aggregate_kind(field: written.Aggregate) -> plan.Kind:
    if isinstance(field, written.Ids):
        return field.element_type
    if isinstance(field, written.Average | written.Reduction):
        return field.value_type
    return "long"


def _shown_columns(fields: Sequence[written.AnyField]) -> Iterator[tuple[str, str]]:
    """Fields that show a column of the row itself, those of objects in it before the others."""
    for field in fields:
        if isinstance(field, written.Object):
            yield from _shown_columns(field.fields_)
    for field in fields:
        if isinstance(field, written.Scalar | written.Custom | written.Map):
            yield field.name, field.column or field.name


def _names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns) or "nothing"


def _yaml(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"[{', '.join(columns)}]"
