"""Setup, teardown and coverage: what capture needs of the server, and the exact SQL where the role may not.

Setup publishes the tables; slots are made for consumers (`slots.py`), never before the publication, for a
slot older than its publication cannot be decoded. A table that the log cannot tell rows of apart is refused
before it is published: PostgreSQL would refuse the application's own updates and deletes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors

from tailrace.capture.contract import KEY_UNTOLD, Finding
from tailrace.capture.postgres import catalog, privileges, publication, slots
from tailrace.capture.postgres.client import Connection, session
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import NeedsOperator, SetupMissing, TailraceError, Transient
from tailrace.model.table import TableRef, quote

OLDEST = 140000
_LEAVES = """
SELECT n.nspname, c.relname, c.relreplident::text, EXISTS (
    SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (
    c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass)))
AND CASE c.relreplident
    WHEN 'n' THEN true
    WHEN 'f' THEN false
    WHEN 'i' THEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
    ELSE NOT EXISTS (
        SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)
    END
ORDER BY 1, 2
"""
_SERVER = """
SELECT current_setting('wal_level'), pg_is_in_recovery(),
       (SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)
       OR EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'rds_replication'
                  AND pg_has_role(r.oid, 'MEMBER')),
       EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'), current_user,
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots), current_setting('max_slot_wal_keep_size'),
       has_database_privilege(current_database(), 'CREATE')
"""
_OWNED = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = %s"


def setup(config: PostgresConfig, tables: Sequence[TableRef]) -> list[str]:
    """Publish what is not published yet."""
    wanted = list(dict.fromkeys(tables))
    with session(config, patient=True) as connection:
        for ref in wanted:
            for finding in _identity(connection, ref):
                raise NeedsOperator(finding.message, remedy=finding.remedy)
        done = _publish(connection, config, wanted)
        now = publication.read(connection, config.publication)
        if now is not None and now.ours and now.owned:
            unsettled = [m for m in now.members.values() if m.began is None and m.ref in wanted]
            if unsettled:
                publication.wait_for_writers(connection, unsettled, config.timeout)
                publication.record(connection, config.publication, unsettled, slots.written(connection))
                done = done or [f"finished the setup of {', '.join(str(m.ref) for m in unsettled)}"]
    return done


def _publish(connection: Connection, config: PostgresConfig, wanted: list[TableRef]) -> list[str]:
    statements: list[str] = []
    with _told_to_owner(config, statements), connection.transaction():
        publication.lock(connection, config.publication)
        found = publication.read(connection, config.publication)
        statements += publication.changes(found, config.publication, wanted)
        for statement in statements:
            connection.execute(statement)
        if found is None:
            publication.mark(connection, config.publication)
    return _told(found, config, wanted) if statements else []


def _told(found: publication.Publication | None, config: PostgresConfig, tables: list[TableRef]) -> list[str]:
    if found is None:
        return [
            f"created publication {config.publication}",
            *(f"published table {ref}" for ref in tables),
        ]
    done = [f"published table {ref}" for ref in tables if ref not in found.members]
    if not found.complete:
        done.append(
            f"corrected the options of publication {config.publication}: what was not published until now is "
            "not in the log, and its tables need a snapshot"
        )
    return done


@contextmanager
def _told_to_owner(config: PostgresConfig, statements: Sequence[str]) -> Iterator[None]:
    """Where the role may not run the statements, they are told to who may."""
    try:
        yield
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
        raise _refused(config, str(error.diag.message_primary), statements) from None
    except (errors.DuplicateObject, errors.UniqueViolation, errors.UndefinedObject):
        raise Transient(
            f"{config.name}: somebody changed the publication at the same time", remedy="run it again"
        ) from None


def _execute(connection: Connection, config: PostgresConfig, statement: str) -> None:
    with _told_to_owner(config, [statement]), connection.transaction():
        publication.lock(connection, config.publication)
        connection.execute(statement)


def _refused(config: PostgresConfig, reason: str, statements: Sequence[str]) -> SetupMissing:
    return SetupMissing(f"{config.name}: {reason}", remedy=script(statements))


def script(statements: Sequence[str]) -> str:
    """Statements as an operator runs them."""
    return " ".join(f"{statement};" for statement in statements)


def teardown(config: PostgresConfig, tables: Sequence[TableRef] | None) -> list[str]:
    """Take these tables out of the publication; with None drop it, and every slot of ours."""
    with session(config, patient=True) as connection:
        found = publication.read(connection, config.publication)
        if tables is not None:
            gone = [ref for ref in tables if found is not None and ref in found.members]
            if gone:
                names = publication.names(gone)
                _execute(
                    connection, config, f"ALTER PUBLICATION {quote(config.publication)} DROP TABLE {names}"
                )
            return [f"stopped publishing table {ref}" for ref in gone]
        drop = f"DROP PUBLICATION {quote(config.publication)}"
        # In one transaction, and the publication first: a role that may not drop it has dropped no slot then.
        ours = [slot.name for slot in slots.ours(connection, config)]
        statements = [f"SELECT pg_drop_replication_slot('{name}')" for name in ours]
        statements += [drop] if found is not None else []
        with _told_to_owner(config, statements), connection.transaction():
            if found is not None:
                publication.lock(connection, config.publication)
                connection.execute(drop)
            done = [f"dropped replication slot {name}" for name in ours if slots.drop(connection, name)]
        return [*done, *([f"dropped publication {config.publication}"] if found is not None else [])]


def coverage(config: PostgresConfig, tables: Sequence[TableRef]) -> list[Finding]:
    """What stands between these tables and being captured."""
    with session(config, patient=True) as connection:
        found, may_create = _server(connection, config)
        known = publication.read(connection, config.publication)
        for ref in tables:
            found += _identity(connection, ref)
            found += _table(connection, ref, known)
        found += _published(connection, config, tables, known=known, may_create=may_create)
        for lacking in privileges.missing(connection, tables):
            found.append(Finding("error", "privilege", lacking.message, str(lacking.table), lacking.sql))
        for slot in slots.ours(connection, config):
            found += _slot(connection, config, slot)
    return found


def _server(connection: Connection, config: PostgresConfig) -> tuple[list[Finding], bool]:
    found: list[Finding] = []
    row = connection.execute(_SERVER).fetchone()
    level, recovering, may_replicate, managed, user, most, used, keep, may_create = row or ("",) * 9
    if connection.info.server_version < OLDEST:
        message = f"the server has version {connection.info.server_version // 10000}, the oldest known is 14"
        found.append(Finding("error", "version", message, remedy="upgrade the server"))
    if level != "logical":
        remedy = "ALTER SYSTEM SET wal_level = logical; then restart the server"
        found.append(Finding("error", "wal_level", f"the server's wal_level is {level}", remedy=remedy))
    if recovering:
        message = f"{config.name} is a standby, which cannot be captured from"
        found.append(Finding("error", "standby", message, remedy="name the primary in the URL"))
    if not may_replicate:
        message = f"the role {user} may not replicate"
        role = quote(str(user))
        remedy = f"GRANT rds_replication TO {role}" if managed else f"ALTER ROLE {role} REPLICATION"
        found.append(Finding("error", "role", message, remedy=remedy))
    if used >= most and not slots.ours(connection, config):
        remedy = "raise max_replication_slots and restart the server, or drop a slot nobody needs"
        found.append(Finding("error", "no_slot", f"all {most} replication slots are in use", remedy=remedy))
    if keep == "-1":
        message = "max_slot_wal_keep_size is unlimited: a stopped pipeline keeps log until the disk is full"
        remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()"
        found.append(Finding("info", "unlimited_wal", message, remedy=remedy))
    return found, bool(may_create)


def _identity(connection: Connection, ref: TableRef) -> list[Finding]:
    """The tables (partitions, of a partitioned one) whose updates the log could not tell apart."""
    there = catalog.relation(connection, ref)
    if there is None:
        message = f"there is no table {ref}"
        return [Finding("error", "no_table", message, str(ref), "correct the table's name")]
    found = []
    for schema, name, _, has_key in connection.execute(_LEAVES, {"oid": there.oid}).fetchall():
        table = TableRef(schema, name)
        identity = "DEFAULT" if has_key else "FULL"
        message = (
            f"table {table} has no replica identity: once it is published, PostgreSQL refuses UPDATE and "
            "DELETE of it"
        )
        remedy = f"ALTER TABLE {publication.names([table])} REPLICA IDENTITY {identity}"
        found.append(Finding("error", "identity", message, str(ref), remedy))
    return found


def _table(connection: Connection, ref: TableRef, known: publication.Publication | None) -> list[Finding]:
    there = catalog.relation(connection, ref)
    found = []
    if there is not None and not there.key:
        message = f"table {ref} has no primary key: its changes can be fed, but not mirrored"
        found.append(Finding("warning", "no_key", message, str(ref), "give the table a primary key"))
    if there is not None and there.partitioned:
        message = f"TRUNCATE of a single partition of {ref} is not in the log; that of the table itself is"
        remedy = f"DELETE the partition's rows instead, or run tailrace snapshot --table {ref} after it"
        found.append(Finding("info", "partition_truncate", message, str(ref), remedy))
    if there is not None:
        found += _key_untold(connection, there)
    member = known.members.get(ref) if known is not None else None
    if member is not None and not member.named:
        message = (
            f"the publication does not name table {ref}, so the server allows ALTER TABLE … SET UNLOGGED: "
            "what is written to the table until SET LOGGED is not in the log"
        )
        remedy = "use a publication that names its tables (FOR TABLE …), or take a snapshot after SET LOGGED"
        found.append(Finding("warning", "unlogged_unseen", message, str(ref), remedy))
    if member is not None and member.filtered:
        message = (
            f"the publication has a row filter for table {ref}: the log has the rows that pass it, "
            "a snapshot has all"
        )
        remedy = "publish the table without WHERE, or filter behind Tailrace"
        found.append(Finding("warning", "row_filter", message, str(ref), remedy))
    if member is not None and member.columns is not None and there is not None:
        unpublished = [column.name for column in there.images if column.name not in member.columns]
        if unpublished:
            message = (
                f"the publication has a column list for table {ref}: changes come without "
                f"{', '.join(unpublished)}, a snapshot comes with all columns"
            )
            remedy = "publish the table without a column list"
            found.append(Finding("warning", "column_list", message, str(ref), remedy))
    return found


def _key_untold(connection: Connection, there: catalog.Relation) -> list[Finding]:
    identity = "DEFAULT" if any(index.primary and index.immediate for index in there.indexes) else "FULL"
    return [
        Finding(
            "warning",
            KEY_UNTOLD,
            f"the replica identity of table {table} is an index that lacks columns of the primary key: its "
            "changes can be fed, but not mirrored, for the log does not tell which row they are of",
            str(there.ref),
            f"ALTER TABLE {publication.names([table])} REPLICA IDENTITY {identity}",
        )
        for table in catalog.without_key(connection, there)
    ]


def _published(
    connection: Connection,
    config: PostgresConfig,
    tables: Sequence[TableRef],
    *,
    known: publication.Publication | None,
    may_create: bool,
) -> list[Finding]:
    if not tables:
        return []
    statements = publication.changes(known, config.publication, tables)
    unfinished = [m for m in known.members.values() if m.began is None] if known is not None else []
    if not statements and not any(m.ref in tables for m in unfinished):
        return []
    lacking = [ref for ref in tables if known is None or ref not in known.members]
    oids = [there.oid for ref in lacking if (there := catalog.relation(connection, ref)) is not None]
    owned = all((connection.execute(_OWNED, (oid,)).fetchone() or (False,))[0] for oid in oids)
    allowed = owned and (may_create if known is None else known.owned)
    code, remedy = ("not_set_up", "tailrace setup") if allowed else ("not_permitted", script(statements))
    if not lacking:
        message = f"setup of publication {config.publication} is not complete"
        return [Finding("error", code, message, None, remedy)]
    why = "" if allowed else ", and this role may not publish it"
    return [
        Finding("error", code, f"table {ref} is not published for capture{why}", str(ref), remedy)
        for ref in lacking
    ]


def _slot(connection: Connection, config: PostgresConfig, slot: slots.Slot) -> list[Finding]:
    try:
        slots.checked(slot, connection)
    except TailraceError as error:
        return [Finding("error", "slot", error.message, None, error.remedy)]
    return slots.risks(slot, config)
