"""One point in time for reads of several processes: a snapshot that one transaction exports.

`moment` holds the transaction; `enter` puts another one into its snapshot, for as long as it is held. The id
names the snapshot and has a seal: what the snapshot sees, so that an id which the server gave away again,
after a restart, is never taken for ours.

A snapshot has no say over files. To a transaction that began before it, a table that was truncated or
rewritten looks empty, and an attached partition looks as if it had always been there. `unchanged` compares
what the snapshot knows of the table's files with what is there: the catalog's rows are read by the snapshot,
the server's own functions see the present. It is asked before the rows are read, for an early word, and after
them, when all that was read is locked.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tailrace.capture.postgres.catalog import Relation
from tailrace.capture.postgres.client import Connection, connect, translated
from tailrace.capture.postgres.config import PostgresConfig
from tailrace.model.errors import SchemaDrift, TailraceError, UsageError

_ID = re.compile(r"([0-9A-Fa-f]+-[0-9A-Fa-f]+-[0-9]+)/([0-9a-f]{16})")
_FILES = """
WITH RECURSIVE known AS (
  SELECT %(oid)s::oid AS oid
  UNION ALL
  SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN known k ON i.inhparent = k.oid WHERE %(tree)s)
SELECT (SELECT string_agg(c.oid || ':' || c.relfilenode, ' ' ORDER BY c.oid)
        FROM pg_catalog.pg_class c JOIN known k ON k.oid = c.oid),
       (SELECT string_agg(n.oid || ':' || coalesce(pg_relation_filenode(n.oid), 0), ' ' ORDER BY n.oid)
        FROM (SELECT relid::oid AS oid FROM pg_partition_tree(%(oid)s::oid::regclass) WHERE %(tree)s
              UNION SELECT %(oid)s::oid) n)
"""


@contextmanager
def moment(config: PostgresConfig) -> Iterator[str]:
    """Hold a snapshot of now; its id. The transaction ends with the block, whatever happens in it."""
    connection = connect(config, patient=True)
    try:
        with translated(config):
            # Of a host that is gone the server learns soon: what a moment holds, VACUUM must keep.
            connection.execute(
                "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
            )
            # Nobody else's patience ends it.
            connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0;"
                " SET LOCAL idle_in_transaction_session_timeout = 0"
            )
            if connection.info.server_version >= 170_000:
                connection.execute("SET LOCAL transaction_timeout = 0")
            (name,) = connection.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
            made = f"{name}/{_seal(connection)}"
        yield made
        with contextlib.suppress(psycopg.Error, TailraceError):
            connection.execute("ROLLBACK")
    finally:
        connection.close()


def enter(connection: Connection, held: str) -> None:
    """Let the transaction that just began see what the moment sees. UsageError where it is held no more."""
    match = _ID.fullmatch(held)
    if match is None:
        raise UsageError("this is not the id of a moment", remedy="leave option `moment` to tailrace.moment")
    try:
        connection.execute(f"SET TRANSACTION SNAPSHOT '{match[1]}'")
    except (
        psycopg.errors.InvalidParameterValue,
        psycopg.errors.UndefinedObject,
        psycopg.errors.ObjectNotInPrerequisiteState,
        psycopg.errors.FeatureNotSupported,
    ):
        raise _ended() from None
    if _seal(connection) != match[2]:
        raise _ended()


def unchanged(connection: Connection, found: Relation) -> None:
    """SchemaDrift where the table's files are not those that the transaction's snapshot knows."""
    row = connection.execute(_FILES, {"oid": found.oid, "tree": found.partitioned}).fetchone()
    if row is None or row[0] != row[1]:
        raise SchemaDrift(
            f"table {found.ref} was truncated or rewritten, or got or lost a partition, since its moment",
            remedy="read it in another tailrace.moment",
        )


def _seal(connection: Connection) -> str:
    (text,) = connection.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
    return hashlib.sha256(str(text).encode()).hexdigest()[:16]


def _ended() -> UsageError:
    return UsageError(
        "the moment of this DataFrame has ended: its block was left, or its connection was lost",
        remedy="run what reads it (an action: count, write, …) inside `with tailrace.moment(…)`",
    )
