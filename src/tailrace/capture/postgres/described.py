"""A table as the log describes it, completed by what the catalog says now and what is remembered.

A Relation message has names, types and the replica identity as of its own position. It does not say what a
domain is made of, nor the primary key where that is not the identity, nor its order. The catalog does, as
long as it is where the log is; where it has moved on, the schema history does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.capture.postgres import catalog
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.messages import Relation, RelationColumn
from tailrace.capture.postgres.types import column_type
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema

Remembered = Sequence[TableSchema]


def schema_at(
    connection: Connection, relation: Relation, ref: TableRef, generation: str, remembered: Remembered
) -> TableSchema:
    """The table as it was where the log describes it so."""
    now = catalog.relation(connection, ref)
    if now is not None and now.oid != relation.oid:
        now = None
    columns = _Columns(connection, now, remembered)
    made = tuple(columns.column(told) for told in relation.columns)
    extra = {
        catalog.TYPES: [
            [told.name, told.type_oid, told.typmod, column.type.name]
            for told, column in zip(relation.columns, made, strict=True)
        ]
    }
    key = _key(relation, now, remembered)
    if now is not None and now.partitioned:
        # The log describes the root, and has of a row what its partition's identity says.
        key_before = not catalog.without_key(connection, now)
        unchanged: tuple[str, ...] = ()
    else:
        told = [column.name for column in relation.columns if column.key] if relation.identity == "i" else []
        key_before = relation.identity != "i" or set(told).issuperset(key)
        unchanged = tuple(name for name in told if name not in key)
    return TableSchema(
        ref, made, key, generation=generation, key_before=key_before, unchanged=unchanged, extra=extra
    )


class _Columns:
    def __init__(self, connection: Connection, now: catalog.Relation | None, remembered: Remembered) -> None:
        self._connection = connection
        self._now = {attribute.name: attribute for attribute in now.images} if now is not None else {}
        self._domains = now.domains if now is not None else catalog.domains(connection)
        # Newer ones replace older ones.
        self._types: dict[tuple[int, int], str] = {}
        self._columns: dict[tuple[str, int, int], Column] = {}
        for schema in remembered:
            for name, oid, typmod, kind in schema.extra.get(catalog.TYPES, ()):
                self._types[oid, typmod] = kind
                self._columns[name, oid, typmod] = schema.column(name)

    def column(self, told: RelationColumn) -> Column:
        kind = self._type(told)
        known = self._now.get(told.name)
        if known is not None and (known.oid, known.typmod) == (told.type_oid, told.typmod):
            return Column(
                told.name, kind, known.type_name, known.nullable, filled=known.filled, number=known.number
            )
        before = self._columns.get((told.name, told.type_oid, told.typmod))
        if before is not None:
            return replace(before, type=kind)
        row = self._connection.execute(
            "SELECT format_type(%s::int8::oid, %s)", (told.type_oid, told.typmod)
        ).fetchone()
        # Of a column that is gone nobody knows how it came.
        filled = known is None or known.filled
        return Column(told.name, kind, str(row[0]) if row else "", True, filled=filled)

    def _type(self, told: RelationColumn) -> ColumnType:
        # A domain that was dropped would be taken for a type of its own, which is text.
        known = self._types.get((told.type_oid, told.typmod))
        if known is not None and told.type_oid not in self._domains:
            return ColumnType(known)
        return column_type(told.type_oid, told.typmod, self._domains)


def _key(relation: Relation, now: catalog.Relation | None, remembered: Remembered) -> tuple[str, ...]:
    names = {told.name for told in relation.columns}
    told = {column.name for column in relation.columns if column.key}
    if relation.identity == "d" and told:
        primary = _primary(now)
        if not names.issuperset(primary) and names.intersection(primary) == told:
            # A part of it is generated, and in no image.
            return ()
        known = [primary, *(schema.key for schema in reversed(remembered))]
        in_order = tuple(column.name for column in relation.columns if column.key)
        return next((key for key in known if set(key) == told), in_order)
    if relation.identity == "d" and now is not None and _identifies(now):
        # The log would have told it: there was none.
        return ()
    current = now is not None and _shape(relation) == [list(shape) for shape in catalog.shape(now)]
    if now is not None and not current:
        for schema in reversed(remembered):
            if [told[:3] for told in schema.extra.get(catalog.TYPES, ())] == _shape(relation):
                return schema.key
    key = now.key if now is not None else ()
    return key if names.issuperset(key) else ()


def _primary(now: catalog.Relation | None) -> tuple[str, ...]:
    return next((index.columns for index in now.indexes if index.primary), ()) if now is not None else ()


def _identifies(now: catalog.Relation) -> bool:
    return any(index.primary and index.immediate for index in now.indexes) and not now.partitioned


def _shape(relation: Relation) -> list[list[str | int]]:
    return [[told.name, told.type_oid, told.typmod] for told in relation.columns]
