"""The schema of a table at a position of the log.

The log describes a table before its first change, and again after each change of its columns. What it leaves
open the catalog says, and the history where the catalog has moved on (`described.py`). Rows so are decoded by
the schema of their own position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tailrace.capture.postgres import publication
from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.capture.postgres.described import schema_at
from tailrace.capture.postgres.halts import Halts, changed
from tailrace.capture.postgres.messages import Relation
from tailrace.capture.postgres.publication import Member
from tailrace.capture.postgres.types import overridden
from tailrace.capture.postgres.visible import Recent
from tailrace.model.errors import NeedsOperator, SchemaDrift
from tailrace.model.table import TableRef, TableSchema

Answer = tuple[TableSchema, NeedsOperator | None]
# Puts a question to the server over a connection that is open already.
Ask = Callable[[Callable[[Connection], Answer]], Answer]


class Relations:
    """The watched tables of one stream, by what the log says of them."""

    def __init__(
        self,
        config: PostgresConfig,
        members: Mapping[TableRef, Member],
        halts: Halts,
        recent: Recent,
        remembered: Mapping[TableRef, Sequence[TableSchema]],
        *,
        ask: Ask,
    ) -> None:
        self._ask = ask
        self._config, self._halts, self._recent, self._remembered = config, halts, recent, remembered
        self._members = dict(members)
        self._by_oid = {member.oid: member for member in members.values()}
        self._known: dict[int, tuple[Relation, TableSchema | None]] = {}

    def watch(self, relation: Relation) -> TableSchema | None:
        """The table's schema; None where nobody asked for it, or where it cannot go on."""
        known = self._known.get(relation.oid)
        # By the message itself: one that says the same again may follow a change that it does not tell of.
        if known is None or known[0] is not relation:
            known = self._known[relation.oid] = relation, self._look(relation)
        schema = known[1]
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
        schema, fault = self._ask(lambda connection: self._asked(connection, relation, member))
        if fault is not None:
            self._halts.stop(ref, fault)
            self._halts.raise_if_all()
            return None
        return overridden(schema, self._config.types)

    def _stop(self, ref: TableRef, message: str, remedy: str) -> None:
        self._halts.stop(ref, SchemaDrift(message, remedy=remedy))
        self._halts.raise_if_all()

    def _asked(self, connection: Connection, relation: Relation, member: Member) -> Answer:
        """The schema; and the fault of a table that is published anew, perhaps with fewer columns.

        The log describes a table again after such a change, so it is found before any row behind it.
        """
        ref = member.ref
        schema = schema_at(connection, relation, ref, member.generation, self._remembered.get(ref, ()))
        found = publication.read(connection, self._config.publication, only=ref)
        if found is None or ref not in found.members:
            # These rows are from before it was taken out; that it was, the sentinel tells.
            return schema, None
        return schema, changed(found, {ref: member}).get(ref)
