"""What PostgreSQL's catalog says about one table, as plain values.

`relation` reads a `Relation`: everything that images, chunks and coverage depend on. `describe` makes the
`TableSchema` of it. Which tables there are, and what a name means, is in `names.py`; what the role may read,
in `privileges.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tailrace.capture.postgres.client import Connection
from tailrace.capture.postgres.types import column_type, overridden
from tailrace.model.errors import SchemaDrift
from tailrace.model.table import Column, TableRef, TableSchema, quote

# In `TableSchema.extra`: name, type, modifier and column type of each column; whether it is partitioned.
TYPES = "types"
PARTITIONED = "partitioned"


@dataclass(frozen=True)
class Attribute:
    """A column as the catalog has it; `type_name` casts to it in SQL.

    `filled`: rows older than the column may have got a value in it when it was added.
    """

    number: int
    name: str
    oid: int
    typmod: int
    type_name: str
    nullable: bool
    generated: bool
    filled: bool = False


@dataclass(frozen=True)
class Index:
    """A unique index that tells rows apart: whole, valid, over plain columns that are never NULL."""

    name: str
    columns: tuple[str, ...]
    primary: bool
    immediate: bool


@dataclass(frozen=True)
class Relation:
    """A table as it is now."""

    oid: int
    ref: TableRef
    partitioned: bool
    attributes: tuple[Attribute, ...]
    indexes: tuple[Index, ...]
    domains: Mapping[int, tuple[int, int]]

    @property
    def sql(self) -> str:
        """The table in a FROM: without the tables that inherit from it, whose changes are their own."""
        name = f"{quote(self.ref.schema)}.{quote(self.ref.name)}"
        return name if self.partitioned else f"ONLY {name}"

    @property
    def images(self) -> tuple[Attribute, ...]:
        """The columns of a row image. Generated ones are not in the log, so nowhere."""
        return tuple(attribute for attribute in self.attributes if not attribute.generated)

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key in key order; none where a part of it is not in the images."""
        names = {attribute.name for attribute in self.images}
        primary = next((index.columns for index in self.indexes if index.primary), ())
        return primary if names.issuperset(primary) else ()

    @property
    def ordering(self) -> tuple[Attribute, ...]:
        """The columns that cut the table into ranges: the primary key, else a unique index, else none."""
        if not self.indexes:
            return ()
        by_name = {attribute.name: attribute for attribute in self.attributes}
        return tuple(by_name[name] for name in self.indexes[0].columns)


_CLASS = """
SELECT c.oid::int8, c.relkind = 'p'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
_ATTRIBUTES = """
SELECT attnum, attname, atttypid::int8, atttypmod, pg_catalog.format_type(atttypid, atttypmod),
       NOT attnotnull, attgenerated <> '',
       attnotnull OR atthasdef OR atthasmissing OR attidentity <> '' OR EXISTS (
         SELECT FROM pg_catalog.pg_type t
         WHERE t.oid = atttypid AND t.typtype = 'd' AND (t.typdefault IS NOT NULL OR t.typnotnull))
FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_INDEXES = """
SELECT c.relname, i.indisprimary, i.indimmediate, array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND a.attnotnull
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND k.place <= i.indnkeyatts
GROUP BY c.relname, i.indisprimary, i.indimmediate
HAVING bool_and(a.attname IS NOT NULL)
ORDER BY i.indisprimary DESC, count(*), c.relname
"""
_DIGEST = """
SELECT concat_ws(' ', c.oid, c.relkind,
  (SELECT string_agg(concat_ws(' ', attnum, quote_ident(attname), atttypid, atttypmod, attnotnull,
          attgenerated, atthasdef, atthasmissing, attidentity), ',' ORDER BY attnum)
   FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
  '/',
  (SELECT string_agg(concat_ws(' ', i.indexrelid, quote_ident(x.relname), i.indkey, i.indnkeyatts,
          i.indisunique, i.indisvalid, i.indisprimary, i.indimmediate, i.indpred IS NULL), ','
          ORDER BY i.indexrelid)
   FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
   WHERE i.indrelid = c.oid))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
# As an array, for which there is an index: with OR every table of the database would be looked at.
_TABLE = "%(oid)s::oid || ARRAY(SELECT relid::oid FROM pg_partition_tree(%(oid)s::oid::regclass))"
_WITHOUT_KEY = f"""
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relreplident = 'i' AND c.oid = ANY ({_TABLE})
AND NOT %(key)s::text[] <@ ARRAY(
    SELECT a.attname::text
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisreplident AND k.place <= i.indnkeyatts)
ORDER BY 1, 2
"""


_TOLD = f"""
SELECT CASE c.relreplident WHEN 'f' THEN ARRAY(
    SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
  ELSE ARRAY(
    SELECT a.attname::text
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisvalid AND k.place <= i.indnkeyatts
    AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
        WHEN 'd' THEN i.indisprimary AND i.indimmediate ELSE false END)
  END
FROM pg_catalog.pg_class c
WHERE c.relkind = 'r' AND c.oid = ANY ({_TABLE})
"""


_PARTITIONS = """
SELECT n.nspname, c.relname
FROM pg_partition_tree(%s::oid::regclass) p
JOIN pg_catalog.pg_class c ON c.oid = p.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.isleaf AND c.relkind = 'r' ORDER BY 1, 2
"""
_SERVING = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = c.relam
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisvalid AND i.indpred IS NULL AND m.amname IN ('btree', 'hash')
AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid
"""


def domains(connection: Connection) -> dict[int, tuple[int, int]]:
    """Every domain's base type and modifier, for `types.column_type`."""
    rows = connection.execute(
        "SELECT oid::int8, typbasetype::int8, typtypmod FROM pg_catalog.pg_type WHERE typtype = 'd'"
    ).fetchall()
    return {oid: (base, typmod) for oid, base, typmod in rows}


def relation(connection: Connection, ref: TableRef) -> Relation | None:
    """The table as it is now, or None where there is no such table."""
    row = connection.execute(_CLASS, (ref.schema, ref.name)).fetchone()
    if row is None:
        return None
    oid, partitioned = row
    attributes = tuple(Attribute(*found) for found in connection.execute(_ATTRIBUTES, (oid,)).fetchall())
    rows = connection.execute(_INDEXES, (oid,)).fetchall()
    indexes = tuple(
        Index(name, tuple(columns), primary, immediate) for name, primary, immediate, columns in rows
    )
    return Relation(oid, ref, partitioned, attributes, indexes, domains(connection))


def digest(connection: Connection, ref: TableRef) -> str | None:
    """What a `Relation` follows from, but for a domain's default: one question instead of four.

    Where it is the same, the relation is. None where there is no such table.
    """
    row = connection.execute(_DIGEST, (ref.schema, ref.name)).fetchone()
    return None if row is None else str(row[0])


def without_key(connection: Connection, found: Relation) -> list[TableRef]:
    """The table, or those of its partitions, whose log has not the primary key of a row as it was."""
    rows = connection.execute(_WITHOUT_KEY, {"oid": found.oid, "key": list(found.key)}).fetchall()
    return [TableRef(schema, name) for schema, name in rows]


def told_before(connection: Connection, found: Relation) -> frozenset[str]:
    """The columns that the log has of a row as it was: of the table, or of every one of its partitions."""
    rows = connection.execute(_TOLD, {"oid": found.oid}).fetchall()
    if not rows:
        # A partitioned table without partitions has no rows either.
        return frozenset(attribute.name for attribute in found.attributes)
    return frozenset.intersection(*(frozenset(names) for (names,) in rows))


def partitions(connection: Connection, found: Relation) -> list[TableRef]:
    """The partitions that hold rows; none of a table that is not partitioned."""
    rows = connection.execute(_PARTITIONS, (found.oid,)).fetchall() if found.partitioned else []
    return [TableRef(schema, name) for schema, name in rows]


def missing_index(connection: Connection, found: Relation, columns: Sequence[str]) -> str | None:
    """The SQL of an index over these columns; None where one serves them."""
    # An expression has no name, so it never is one of the columns.
    rows = connection.execute(_SERVING, (found.oid,)).fetchall()
    if any(set(names[: len(columns)]) == set(columns) for (names,) in rows):
        return None
    # Of a partitioned table an index cannot be made while others write.
    way = "" if found.partitioned else "CONCURRENTLY "
    listed = ", ".join(quote(name) for name in columns)
    return f"CREATE INDEX {way}ON {quote(found.ref.schema)}.{quote(found.ref.name)} ({listed})"


def existing(connection: Connection, ref: TableRef) -> Relation:
    """The table as it is now; SchemaDrift where it is gone."""
    found = relation(connection, ref)
    if found is None:
        raise gone(ref)
    return found


def gone(ref: TableRef) -> SchemaDrift:
    """The error of a table that is not there."""
    return SchemaDrift(f"table {ref} is gone: it was dropped or renamed", remedy="tailrace setup")


def schema_of(
    found: Relation, types: Mapping[str, str] = MappingProxyType({}), generation: str = ""
) -> TableSchema:
    """The table's schema, as the contract describes tables; `types` overrides those of columns."""
    kinds = [column_type(a.oid, a.typmod, found.domains) for a in found.images]
    made = TableSchema(
        found.ref,
        tuple(
            Column(a.name, kind, a.type_name, a.nullable, filled=a.filled, number=a.number)
            for a, kind in zip(found.images, kinds, strict=True)
        ),
        found.key,
        generation=generation,
        extra={
            TYPES: [[*told, kind.name] for told, kind in zip(shape(found), kinds, strict=True)],
            PARTITIONED: found.partitioned,
        },
    )
    return overridden(made, types)


def shape(found: Relation) -> list[tuple[str, int, int]]:
    """Names and types of the columns of an image, as the log has them too."""
    return [(a.name, a.oid, a.typmod) for a in found.images]


def describe(
    connection: Connection,
    ref: TableRef,
    types: Mapping[str, str] = MappingProxyType({}),
    generation: str = "",
) -> TableSchema:
    """Columns, types and key of a table, now."""
    return schema_of(existing(connection, ref), types, generation)


def row_estimate(connection: Connection, found: Relation) -> int:
    """About how many rows the planner thinks the table has now; works for tables never analysed too."""
    (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {found.sql}").fetchone() or ([],)
    return int(plan[0]["Plan"]["Plan Rows"])
