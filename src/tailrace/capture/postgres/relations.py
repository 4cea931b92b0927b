"""The schema of a table at a position of the log.

The log describes a table before its first change, and again after each change of its columns. Where that is
what the catalog says now, the catalog's schema is used; otherwise the log's columns are, with what the
catalog still knows of them. Rows so are decoded by the schema of their own position.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.capture.postgres import catalog
from tailrace.capture.postgres.client import session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.halts import Halts
from tailrace.capture.postgres.messages import Relation, RelationColumn
from tailrace.capture.postgres.publication import Member
from tailrace.capture.postgres.types import column_type
from tailrace.capture.postgres.visible import Recent
from tailrace.model.errors import SchemaDrift
from tailrace.model.table import Column, ColumnType, TableRef, TableSchema


def overridden(schema: TableSchema, types: Mapping[str, str]) -> TableSchema:
    """The schema with the types that the configuration names."""
    if not types:
        return schema
    ref = schema.ref
    columns = []
    for column in schema.columns:
        place = f"{ref.name}.{column.name}"
        name = types.get(f"{ref.schema}.{place}") or types.get(place)
        kind = ColumnType(name) if name else column.type
        columns.append(Column(column.name, kind, column.native, column.nullable, column.generated))
    return TableSchema(ref, tuple(columns), schema.key, schema.row_id, schema.generation)


class Relations:
    """The watched tables of one stream, by what the log says of them."""

    def __init__(
        self, config: PostgresConfig, members: Mapping[TableRef, Member], halts: Halts, recent: Recent
    ) -> None:
        self._config, self._halts, self._recent = config, halts, recent
        self._members = dict(members)
        self._by_oid = {member.oid: member for member in members.values()}
        self._known: dict[Relation, TableSchema | None] = {}

    def watch(self, relation: Relation) -> TableSchema | None:
        """The table's schema; None where nobody asked for it, or where it cannot go on."""
        if relation not in self._known:
            self._known[relation] = self._look(relation)
        schema = self._known[relation]
        if schema is not None and self._halts.silent(schema.ref, self._recent.first):
            return None
        return schema

    def _look(self, relation: Relation) -> TableSchema | None:
        ref = TableRef(relation.namespace, relation.name)
        member = self._by_oid.get(relation.oid)
        if member is None:
            if ref in self._members:
                self._stop(
                    ref,
                    f"table {ref} was dropped and created anew",
                    f"tailrace setup, then tailrace snapshot --table {ref}",
                )
            return None
        if member.ref != ref:
            self._stop(
                member.ref,
                f"table {member.ref} was renamed to {ref}",
                f"name {ref} in the configuration, or rename it back",
            )
            return None
        return overridden(self._schema(relation, member), self._config.types)

    def _stop(self, ref: TableRef, message: str, remedy: str) -> None:
        self._halts.stop(ref, SchemaDrift(message, remedy=remedy))
        self._halts.raise_if_all()

    def _schema(self, relation: Relation, member: Member) -> TableSchema:
        with session(self._config) as connection:
            now = catalog.relation(connection, member.ref)
            attributes = (
                {a.name: a for a in now.images} if now is not None and now.oid == relation.oid else {}
            )
            domains = catalog.domains(connection)

            def column(told: RelationColumn) -> Column:
                known = attributes.get(told.name)
                kind = column_type(told.type_oid, told.typmod, domains)
                if known is not None and (known.oid, known.typmod) == (told.type_oid, told.typmod):
                    return Column(told.name, kind, known.type_name, known.nullable)
                row = connection.execute(
                    "SELECT format_type(%s::int8::oid, %s)", (told.type_oid, told.typmod)
                ).fetchone()
                return Column(told.name, kind, str(row[0]) if row else "", True)

            columns = tuple(column(told) for told in relation.columns)
        names = {told.name for told in relation.columns}
        key = now.key if now is not None and attributes else ()
        if not key or not names.issuperset(key):
            told_key = tuple(told.name for told in relation.columns if told.key)
            key = told_key if relation.identity == "d" and (not attributes or key) else ()
        return TableSchema(member.ref, columns, key, generation=member.generation)
