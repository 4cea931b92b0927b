"""The publication: which tables the log is decoded for, and since when.

A table's generation is made of its own oid, that of its entry in the publication, and the transaction that
last changed the publication's options: for a while some operations may not have been published. So dropping
and making either again, or changing the options, makes a new one, and nothing of ours is written to say so.
When a generation began is written as the publication's comment, where this role owns the publication: only
what commits after that position is whole in the log. Where someone else owns it nothing is written, and a
table counts as begun from the start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from tailrace.capture.postgres.client import Connection
from tailrace.model.errors import Transient
from tailrace.model.table import TableRef, quote

MARK = "tailrace "
_LOCK = 1
_POLL = 0.02
_PUBLICATION = """
SELECT p.oid::int8, pg_has_role(p.pubowner, 'USAGE'), p.puballtables,
       p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot,
       obj_description(p.oid, 'pg_publication'), p.xmin::text
FROM pg_catalog.pg_publication p WHERE p.pubname = %s
"""
_MEMBERS = """
SELECT n.nspname, c.relname, c.oid::int8, 'r' || m.oid, {filtered}, {columns}
FROM pg_catalog.pg_publication_rel m
JOIN pg_catalog.pg_class c ON c.oid = m.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE m.prpubid = %(oid)s
"""
_COLUMNS = """
CASE WHEN m.prattrs IS NOT NULL THEN (
    SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum = ANY (m.prattrs::int2[])) END
"""
_BY_SCHEMA = """
UNION ALL
SELECT n.nspname, c.relname, c.oid::int8, 's' || m.oid, false, NULL
FROM pg_catalog.pg_publication_namespace m
JOIN pg_catalog.pg_namespace n ON n.oid = m.pnnspid JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid
WHERE m.pnpubid = %(oid)s AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
"""
_ALL = """
SELECT n.nspname, c.relname, c.oid::int8, 'a' || %(oid)s::int8, false, NULL::text[]
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname !~ '^pg_'
AND n.nspname <> 'information_schema'
"""
_ONE = """
SELECT * FROM ({members}) AS member (schema, name, oid, entry, filtered, columns)
WHERE schema = %(schema)s AND name = %(table)s
"""
_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid()
AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
AND relation IN (SELECT %(oid)s::oid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass))
"""


@dataclass(frozen=True)
class Member:
    """A published table. `began` is None where setup of it has not ended.

    `named` tells one that the publication names from one that comes with a schema or with all tables.
    """

    ref: TableRef
    oid: int
    generation: str
    filtered: bool
    began: int | None
    columns: tuple[str, ...] | None = None
    named: bool = True


@dataclass(frozen=True)
class Publication:
    """The publication as it is now."""

    oid: int
    owned: bool
    all_tables: bool
    all_operations: bool
    via_root: bool
    comment: str | None
    members: Mapping[TableRef, Member]

    @property
    def ours(self) -> bool:
        """Whether Tailrace made it."""
        return self.comment is not None and self.comment.startswith(MARK)

    @property
    def complete(self) -> bool:
        """Whether it publishes every operation, in the name of the root."""
        return self.all_operations and self.via_root

    def began(self) -> dict[str, int]:
        """The recorded beginnings, by generation."""
        if not self.ours or self.comment is None:
            return {}
        try:
            body = json.loads(self.comment.removeprefix(MARK))
            return {str(generation): int(version) for generation, version in body.items()}
        except (ValueError, AttributeError, TypeError):
            return {}


def read(connection: Connection, name: str, only: TableRef | None = None) -> Publication | None:
    """The publication, or None where there is none of that name; with `only` no more of its members."""
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    if row is None:
        return None
    oid, owned, all_tables, all_operations, via_root, comment, changed = row
    found = Publication(oid, owned, all_tables, all_operations, via_root, comment, {})
    recorded = found.began()
    newer = connection.info.server_version >= 150000
    query = _ALL
    if not found.all_tables:
        query = _MEMBERS.format(
            filtered="m.prqual IS NOT NULL" if newer else "false",
            columns=_COLUMNS if newer else "NULL::text[]",
        )
        query += _BY_SCHEMA if newer else ""
    given: dict[str, object] = {"oid": found.oid}
    if only is not None:
        query = _ONE.format(members=query)
        given |= {"schema": only.schema, "table": only.name}
    members: dict[TableRef, Member] = {}
    rows = connection.execute(query, given).fetchall()
    for schema, table, oid, entry, filtered, listed in rows:
        generation = f"{oid}-{entry}-{changed}"
        began = recorded.get(generation, None if found.ours and found.owned else 0)
        columns = None if listed is None else tuple(listed)
        named = entry.startswith("r")
        member = Member(TableRef(schema, table), oid, generation, filtered, began, columns, named)
        members.setdefault(member.ref, member)
    return replace(found, members=members)


def names(tables: Iterable[TableRef]) -> str:
    """Tables as SQL names them."""
    return ", ".join(f"{quote(ref.schema)}.{quote(ref.name)}" for ref in tables)


def changes(found: Publication | None, name: str, tables: Sequence[TableRef]) -> list[str]:
    """The statements that make the publication hold these tables; none where it does."""
    options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
    if found is None:
        listed = f" FOR TABLE {names(tables)}" if tables else ""
        return [f"CREATE PUBLICATION {quote(name)}{listed} WITH ({options})"]
    statements = []
    if not found.complete:
        statements.append(f"ALTER PUBLICATION {quote(name)} SET ({options})")
    if lacking := [ref for ref in tables if ref not in found.members]:
        statements.append(f"ALTER PUBLICATION {quote(name)} ADD TABLE {names(lacking)}")
    return statements


def wait_for_writers(connection: Connection, tables: Iterable[Member], timeout: float) -> None:
    """Return when the transactions that write to these tables now have ended.

    What they wrote before the table was published is not in the log, though they commit after it.
    """
    deadline = time.monotonic() + timeout
    for member in tables:
        waiting = _writers(connection, member)
        while waiting:
            if time.monotonic() >= deadline:
                raise Transient(
                    f"a transaction that writes to {member.ref} has not ended in {timeout:g} seconds, "
                    "and what it wrote before setup is not in the log",
                    remedy="end that transaction, then run setup again",
                )
            time.sleep(_POLL)
            waiting &= _writers(connection, member)


def _writers(connection: Connection, member: Member) -> set[str]:
    return {name for (name,) in connection.execute(_WRITERS, {"oid": member.oid}).fetchall()}


def mark(connection: Connection, name: str) -> None:
    """Say that the publication is ours; nothing in it has begun."""
    _comment(connection, name, {})


def record(connection: Connection, name: str, settled: Iterable[Member], version: int) -> None:
    """Write down that these members of the publication begin at `version`."""
    new = {member.generation for member in settled}
    with connection.transaction():
        lock(connection, name)
        found = read(connection, name)
        if found is None:
            return
        recorded = found.began()
        body = {
            m.generation: recorded.get(m.generation, version)
            for m in found.members.values()
            if m.generation in recorded or m.generation in new
        }
        _comment(connection, name, body)


def lock(connection: Connection, name: str) -> None:
    """Until the transaction ends nobody else of ours changes the publication: what is read next stays."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (MARK + name, _LOCK))


def _comment(connection: Connection, name: str, body: dict[str, int]) -> None:
    comment = sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(
        sql.Identifier(name), sql.Literal(MARK + json.dumps(body))
    )
    connection.execute(comment)
