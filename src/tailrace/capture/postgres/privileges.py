"""What the role may read of the tables, and the exact GRANT for what it may not.

Row security counts too: it would hide rows from a snapshot that the log shows all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.capture.postgres.client import Connection
from tailrace.model.table import TableRef, quote

_ASKED = """
SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (
           SELECT FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
           AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')),
       pg_catalog.row_security_active(c.oid),
       current_user
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


@dataclass(frozen=True)
class Missing:
    """Something the role may not do with a table, and the SQL that lets it."""

    table: TableRef
    message: str
    sql: str


def missing(connection: Connection, tables: Sequence[TableRef]) -> list[Missing]:
    """What a snapshot of these tables lacks. Tables that are not there are left out."""
    found: list[Missing] = []
    for ref in tables:
        row = connection.execute(_ASKED, (ref.schema, ref.name)).fetchone()
        if row is None:
            continue
        usage, select, hidden, role = row
        schema, name, to = quote(ref.schema), quote(ref.name), quote(role)
        if not usage:
            found.append(
                Missing(
                    ref, f"{role} may not use schema {ref.schema}", f"GRANT USAGE ON SCHEMA {schema} TO {to}"
                )
            )
        if not select:
            found.append(
                Missing(ref, f"{role} may not read table {ref}", f"GRANT SELECT ON {schema}.{name} TO {to}")
            )
        if hidden:
            found.append(
                Missing(
                    ref, f"row security hides rows of table {ref} from {role}", f"ALTER ROLE {to} BYPASSRLS"
                )
            )
    return found
