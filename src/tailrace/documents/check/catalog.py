"""The schema beside its plan, place by place: columns, relations, orders and soft deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tailrace.capture.contract import Capture
from tailrace.config.index import fields as written
from tailrace.config.index.models import IndexSchema
from tailrace.config.lines import Path
from tailrace.documents import plan
from tailrace.documents.check import kinds
from tailrace.documents.check.found import Found, typed
from tailrace.documents.check.relations import Relations
from tailrace.documents.check.statements import Statements
from tailrace.documents.render.families import NUMBERS, family
from tailrace.model.table import Column, TableRef, TableSchema, quote


class Walk:
    """Goes down a plan. `paths` then has the path in the file of every place, by the fields that lead there.

    What is not there is told by the compiler, and passed over here.
    """

    def __init__(self, found: Found, schema: IndexSchema, capture: Capture, statements: Statements) -> None:
        self.paths: dict[tuple[str, ...], Path] = {}
        self._found = found
        self._schema = schema
        self._source = capture.kind
        self._statements = statements
        self._relations = Relations(found, capture)

    def index(self, made: plan.IndexPlan) -> None:
        """Judge the whole plan."""
        schema = self._schema
        self._place(made.root, schema.fields_, ())
        if made.soft_delete is not None:
            self._soft_delete(made.soft_delete, made.root.table)

    def _place(self, place: plan.Place, fields: Sequence[written.AnyField], path: Path) -> None:
        self.paths[place.path] = path
        self._statements.filters(place.filters, place.table, (*path, "filters"))
        for at, order in enumerate(place.order):
            self._order(order, place.table, (*path, "order_by", at, "column"))
        self._members(place.members, fields, place.table, path)

    def _members(
        self,
        members: Sequence[plan.Member],
        fields: Sequence[written.AnyField],
        table: TableSchema,
        path: Path,
    ) -> None:
        for at, (member, field) in enumerate(zip(members, fields, strict=True)):
            here = (*path, "fields", at)
            value = member.value
            if isinstance(value, plan.Scalar):
                self._scalar(value, cast("written.Scalar | written.Custom | written.Map", field), table, here)
            elif isinstance(value, plan.Geo):
                self._geo(value, cast(written.Geo, field), table, here)
            elif isinstance(value, plan.Group):
                self._members(value.members, cast(written.Object, field).fields_, table, here)
            elif isinstance(value, plan.Expression):
                self._statements.expression(value, table, (*here, "sql"))
            elif isinstance(value, plan.Related):
                join = cast(written.Join, field)
                self._relation(value.place, join, table, here)
                self._place(value.place, join.fields_, here)
            elif isinstance(value, plan.Aggregate):
                aggregate = cast(written.Aggregate, field)
                self._relation(value.place, aggregate, table, here)
                self._place(value.place, (), here)
                self._aggregate(value, here)

    # Columns

    def _scalar(
        self,
        value: plan.Scalar,
        field: written.Scalar | written.Custom | written.Map,
        table: TableSchema,
        path: Path,
    ) -> None:
        column = _column(table, value.column)
        if column is None:
            return
        at = (*path, "column" if field.column else field.kind)
        if isinstance(field, written.Custom):
            declared = field.sqlite if self._source == "sqlite" else field.postgres
            found = kinds.custom_misfit(column, declared, self._source)
            self._misfit(found, column, table, at, remedy=f"add it to the types of `{self._source}`")
        else:
            self._kind(value.kind, column, table, at, f"- {{}}: {field.name}")
        if field.required and not value.defaulted:
            self._nullable(table, (column,), (*path, "required"))

    def _kind(self, kind: plan.Kind, column: Column, table: TableSchema, path: Path, written_as: str) -> None:
        found = kinds.misfit(kind, column, self._source)
        better = kinds.better_kind(kind, column, self._source)
        remedy = f"write `{written_as.format(better)}`" if better else None
        self._misfit(found, column, table, path, remedy=remedy, kind=kind)

    def _misfit(
        self,
        found: kinds.Misfit | None,
        column: Column,
        table: TableSchema,
        path: Path,
        *,
        remedy: str | None,
        kind: str = "",
    ) -> None:
        if found is None:
            return
        shown = f", and the field a `{kind}`" if kind else ""
        message = f"{table.ref}.{column.name} is {typed(column)}{shown}: {found.why}"
        self._found.add(found.severity, "type", path, message, remedy=remedy, table=table.ref)

    def _geo(self, value: plan.Geo, field: written.Geo, table: TableSchema, path: Path) -> None:
        shown = []
        for name, key in ((value.lat, "lat"), (value.lon, "lon")):
            if name is not None and (column := _column(table, name)) is not None:
                shown.append(column)
                found = kinds.misfit("double", column, self._source)
                self._misfit(found, column, table, (*path, key), remedy="name a column of numbers")
        if value.column is not None and (column := _column(table, value.column)) is not None:
            shown.append(column)
            at = (*path, "column" if field.column else field.kind)
            remedy = "name a column that holds JSON or the text `lat,lon`, or `lat` and `lon`"
            self._misfit(kinds.point_misfit(column, self._source), column, table, at, remedy=remedy)
        if field.required:
            self._nullable(table, shown, (*path, "required"))

    def _nullable(self, table: TableSchema, columns: Sequence[Column], path: Path) -> None:
        """A promise that the database does not keep."""
        for column in columns:
            # SQLite lets keys be NULL, and nobody does.
            if not column.nullable or column.name in table.key:
                continue
            name = f"{table.ref}.{column.name}"
            remedy = "leave out `required`, or give the field a `default`"
            if self._source == "postgres":
                remedy = f"{_alter(table.ref, column)} SET NOT NULL; or {remedy}"
            message = f"{name} can be NULL, and the field is `required`: it would be null all the same"
            self._found.add("warning", "nullable", path, message, remedy=remedy, table=table.ref)

    def _order(self, order: plan.Order, table: TableSchema, path: Path) -> None:
        column = _column(table, order.column)
        if column is None:
            return
        if self._source == "postgres" and family(column, self._source) in ("json", "other"):
            message = f"{table.ref}.{column.name} is `{column.native}`: rows are ordered by its text"
            self._found.add("info", "order", path, message, table=table.ref)

    def _soft_delete(self, delete: plan.SoftDelete, table: TableSchema) -> None:
        self._statements.filters(delete.when, table, ("soft_delete", "when"))
        column = _column(table, delete.column)
        if column is None or delete.when or (of := family(column, self._source)) == "boolean":
            return
        rule = self._schema.soft_delete
        path: Path = ("soft_delete", "column" if rule is not None and rule.column else "field")
        name = f"{table.ref}.{column.name}"
        remedy = f"add `when: [{{ column: {column.name}, op: eq, value: … }}]`, or name a boolean column"
        if not column.nullable:
            message = f"{name} is never NULL and no boolean, so every row counts as deleted"
            self._found.add("error", "soft_delete", path, message, remedy=remedy, table=table.ref)
        elif of in NUMBERS:
            message = f"{name} is a number: a row counts as deleted wherever it is not NULL, at 0 too"
            self._found.add("warning", "soft_delete", path, message, remedy=remedy, table=table.ref)

    def _relation(
        self, place: plan.Place, field: written.Join | written.Aggregate, parent: TableSchema, path: Path
    ) -> None:
        if place.link is not None and place.link.through is not None:
            through = place.link.through
            self._statements.filters(through.filters, through.table, (*path, "through", "filters"))
        self._relations.judge(place, field, parent, path)
        if isinstance(field, written.BelongsTo) and field.required and place.link is not None:
            shown = [column for name in place.link.parent if (column := _column(parent, name)) is not None]
            self._nullable(parent, shown, (*path, "required"))

    def _aggregate(self, value: plan.Aggregate, path: Path) -> None:
        table = value.place.table
        if value.function == "ids":
            kind = value.kind
            for name in value.place.key:
                if kind is not None and (column := _column(table, name)) is not None:
                    at = (*path, "element_type")
                    self._kind(kind, column, table, at, "element_type: {}")
            return
        column = _column(table, value.column) if value.column is not None else None
        if column is None:
            return
        if value.function in ("sum", "avg"):
            found = kinds.sum_misfit(column, self._source)
            self._misfit(found, column, table, (*path, "column"), remedy="name a column of numbers")
            return
        if value.kind is not None:
            self._kind(value.kind, column, table, (*path, "value_type"), "value_type: {}")


def _column(table: TableSchema, name: str) -> Column | None:
    return next((column for column in table.columns if column.name == name), None)


def _alter(ref: TableRef, column: Column) -> str:
    return f"ALTER TABLE {quote(ref.schema)}.{quote(ref.name)} ALTER COLUMN {quote(column.name)}"
