"""The tables of a database, and what a written name means.

A table can be captured when it is an ordinary permanent table or a partitioned one; a partition is captured
through its root, in whose name its changes come. Names are taken as written, then as PostgreSQL folds them
(`Orders` means `orders` where there is no `"Orders"`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from tailrace.capture.postgres.client import Connection
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableRef

_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_TABLES = f"""
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' AND {_OURS}
ORDER BY n.nspname, c.relname
"""
_OTHER = """
SELECT c.relkind::text, c.relpersistence::text, r.nspname, r.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT rn.nspname, rc.relname
    FROM pg_catalog.pg_class rc JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
    WHERE c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
) r ON true
WHERE c.relname = %s AND (n.nspname = %s OR %s::text IS NULL) AND c.relkind NOT IN ('i', 'I', 'S', 't', 'c')
LIMIT 1
"""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def tables(connection: Connection) -> list[TableRef]:
    """Every table that could be captured, in name order."""
    return [TableRef(schema, name) for schema, name in connection.execute(_TABLES).fetchall()]


def roots(connection: Connection) -> dict[TableRef, TableRef]:
    """Every partition's root, at any depth."""
    rows = connection.execute(
        "SELECT n.nspname, c.relname, rn.nspname, rc.relname "
        "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_class rc ON rc.oid = pg_catalog.pg_partition_root(c.oid) "
        "JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace "
        "WHERE c.relispartition AND c.relkind IN ('r', 'p', 'f')"
    ).fetchall()
    return {TableRef(schema, name): TableRef(root_schema, root) for schema, name, root_schema, root in rows}


def resolve(connection: Connection, names: Sequence[str]) -> list[TableRef]:
    """The tables these names mean (`orders`, `sales.orders`, `sales."Odd.Name"`, `sales.*`, `*`).

    A name without a schema is looked for along the search path, then anywhere; ConfigError where it then
    means several tables, or none (and names the nearest one).
    """
    there = tables(connection)
    path = [row[0] for row in connection.execute("SELECT unnest(current_schemas(false))").fetchall()]
    found: dict[TableRef, None] = {}
    for name in names:
        found.update(dict.fromkeys(_meant(connection, name, there, path)))
    return list(found)


def _meant(connection: Connection, name: str, there: list[TableRef], path: list[str]) -> list[TableRef]:
    if name == "*":
        return there
    readings = list(_readings(name))
    for schema, table in readings:
        if table == "*" and schema is not None:
            if inside := [ref for ref in there if ref.schema == schema]:
                return inside
            continue
        same = [ref for ref in there if ref.name == table and schema in (None, ref.schema)]
        if len(same) > 1:
            same = (
                sorted((r for r in same if r.schema in path), key=lambda r: path.index(r.schema))[:1] or same
            )
        if len(same) > 1:
            raise ConfigError(
                f"the name {name} means several tables: {', '.join(map(str, same))}",
                remedy=f"write {' or '.join(map(str, same))}",
            )
        if same:
            return same
    for schema, table in readings:
        if (row := connection.execute(_OTHER, (table, schema, schema)).fetchone()) is not None:
            raise _refused(name, *row)
    raise _unknown(name, there, path)


def _readings(name: str) -> Iterator[tuple[str | None, str]]:
    """What a written name may mean, best first: schema and table, or a table whose name has a dot."""
    parts = _split(name)
    if parts is not None and len(parts) <= 2:
        spelled = [text for text, _ in parts]
        yield (None, spelled[0]) if len(parts) == 1 else (spelled[0], spelled[1])
        folded = [text if quoted else text.lower() for text, quoted in parts]
        if folded != spelled:
            yield (None, folded[0]) if len(parts) == 1 else (folded[0], folded[1])
    yield None, name


def _split(name: str) -> list[tuple[str, bool]] | None:
    """The parts of a dotted name, and whether each was quoted; None where the quotes do not match."""
    parts: list[tuple[str, bool]] = []
    rest = name
    while True:
        if rest.startswith('"'):
            end = 1
            while (end := rest.find('"', end)) >= 0 and rest[end + 1 : end + 2] == '"':
                end += 2
            if end < 2:
                return None
            parts.append((rest[1:end].replace('""', '"'), True))
            rest = rest[end + 1 :]
            if rest and not rest.startswith("."):
                return None
        else:
            text, _, _ = rest.partition(".")
            parts.append((text, False))
            rest = rest[len(text) :]
        if not rest:
            return parts if all(text for text, _ in parts) else None
        rest = rest[1:]


def _refused(name: str, kind: str, persistence: str, schema: str | None, root: str | None) -> ConfigError:
    if schema is not None and root is not None:
        whole = TableRef(schema, root)
        return ConfigError(f"{name} is a partition of {whole}", remedy=f"name {whole} instead")
    what = _KINDS.get(kind)
    if what is None:
        what = {"t": "a temporary table", "u": "an unlogged table"}.get(persistence, "a table of the system")
    remedy = "leave it out of the tables"
    if persistence == "u" and kind == "r":
        remedy = "ALTER TABLE … SET LOGGED, or leave it out of the tables"
    return ConfigError(f"{name} is {what} and cannot be captured", remedy=remedy)


def _unknown(name: str, there: list[TableRef], path: list[str]) -> ConfigError:
    spelled: dict[str, TableRef] = {str(ref).lower(): ref for ref in there}
    spelled |= {ref.name.lower(): ref for ref in there if ref.schema in path}
    near = difflib.get_close_matches(name.replace('"', "").lower(), list(spelled), n=1)
    remedy = f"did you mean {spelled[near[0]]}?" if near else "name a table of this database, or *"
    return ConfigError(f"there is no table {name}", remedy=remedy)
