"""How a table is cut into chunks, and the condition that is a chunk.

A chunk is a half-open range `[from, below)` with the first open below and the last open above, so that
together they hold every row, also one inserted later. The order is that of the primary key, else of a unique
index without NULLs. Bounds are keys the table has, taken from all of them or, in a large table, from a sample
of its blocks: gaps and skew of the key do not matter. They travel as the server's text of each value. How
many rows a chunk may have follows from their average size, so that wide rows make chunks of fewer.

A table without such an index is cut by the place of its rows (`ctid`). A rewrite (VACUUM FULL, CLUSTER)
moves them all, so the bounds remember the files they were made for. An UPDATE moves one row too, and the log
has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from tailrace.capture.contract import Chunk
from tailrace.capture.postgres.catalog import Relation, row_estimate
from tailrace.capture.postgres.client import Connection
from tailrace.model.errors import NeedsOperator, StateUnreadable
from tailrace.model.table import quote

# Up to so many rows every key is looked at, in one pass over the index: a million take the server 0.5 s.
_ALL_KEYS = 250_000
# A chunk's size is right by about a fifth then, and 2 million rows are cut in 30 ms; with 50 it were 60.
_BLOCKS_A_CHUNK = 20
_MOST_SAMPLED = 2_000_000
_MOST_COUNTED = 10_000_000
# So much of a table is counted in some milliseconds.
_BLOCKS_COUNTED = 1_000

_FILES = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::int8 / current_setting('block_size')::int8,
       coalesce(max(pg_relation_size(c.oid)), 0)::int8 / current_setting('block_size')::int8,
       coalesce(string_agg(pg_relation_filenode(c.oid)::text, ' ' ORDER BY c.oid), ''),
       coalesce(sum(pg_relation_size(c.oid)), 0)::int8
         + coalesce(sum(pg_relation_size(nullif(c.reltoastrelid, 0))), 0)::int8
FROM pg_class c
WHERE c.relkind = 'r'
AND (c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::regclass)))
"""
_TYPES = """
SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE'), current_user,
       n.nspname = ANY (current_schemas(true)), format_type(t.oid, k.typmod)
FROM unnest(%s::oid[], %s::int4[]) WITH ORDINALITY k(oid, typmod, place)
JOIN pg_type t ON t.oid = k.oid JOIN pg_namespace n ON n.oid = t.typnamespace
ORDER BY k.place
"""


@dataclass(frozen=True)
class _Files:
    """Where the rows are: blocks of all partitions and of the longest, names, bytes with TOAST's."""

    blocks: int
    longest: int
    names: str
    nbytes: int

    def of(self, rows: int, estimate: int) -> int:
        """About how many bytes so many rows are, of `estimate` in all."""
        return self.nbytes * rows // max(estimate, rows, 1)


def plan(
    connection: Connection,
    found: Relation,
    rows: int,
    *,
    nbytes: int | None = None,
    all_keys: int = _ALL_KEYS,
) -> list[Chunk]:
    """Ranges of about `rows` rows, or `nbytes` bytes if those are fewer rows, that hold every row."""
    files = _files(connection, found)
    blocks = files.blocks
    # A block has a row at least: statistics may be from when the table was empty.
    estimate = max(row_estimate(connection, found), blocks)
    if nbytes is not None and files.nbytes > nbytes and blocks <= _BLOCKS_COUNTED:
        # What the planner thinks of a table without statistics is far too much where each row is a pointer to
        # large values: a chunk of a few megabytes would be all of them.
        estimate = max(_count(connection, found), 1)
    if nbytes is not None and files.nbytes:
        # By the files: they know of large values, which stand apart, and need no statistics.
        rows = max(1, min(rows, nbytes * estimate // files.nbytes))
    if not found.ordering:
        return _by_place(found, rows, estimate, files)
    percent = 100 * _BLOCKS_A_CHUNK * max(estimate, 1) / max(blocks, 1) / rows
    percent = min(percent, 100 * _MOST_SAMPLED / max(estimate, 1))
    bounds: list[list[str]]
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        # A key may be no text that JSON can carry.
        bounds, sizes = [], [estimate]
    elif estimate <= all_keys or percent > 50:
        bounds = _every(connection, found, rows)
        sizes = [rows] * len(bounds)
        rest = max(0, estimate - rows * len(bounds))
        sizes.append(rest if rows > _MOST_COUNTED else _tail(connection, found, bounds[-1:], rows))
    else:
        bounds, counted = _sampled(connection, found, rows, percent)
        sizes = [counted // (len(bounds) + 1)] * (len(bounds) + 1)
    begins = [None, *bounds]
    ends = [*bounds, None]
    return [
        Chunk(found.ref, index, {"from": begin, "below": end}, size, nbytes=files.of(size, estimate))
        for index, (begin, end, size) in enumerate(zip(begins, ends, sizes, strict=True))
    ]


def condition(connection: Connection, found: Relation, chunk: Chunk) -> str:
    """The chunk as SQL, empty for a whole table. Sets the search path that its operators need."""
    if "files" in chunk.bounds:
        return _place(connection, found, chunk.bounds)
    casts = _casts(connection, found)
    return _range(connection, found, casts, chunk.bounds.get("from"), chunk.bounds.get("below"))


def _names(found: Relation) -> str:
    return ", ".join(quote(attribute.name) for attribute in found.ordering)


def _aliased(found: Relation) -> tuple[str, str]:
    """The key under names of ours, which no column's name can hide, and the text of each."""
    columns = [(quote(attribute.name), f"k{place}") for place, attribute in enumerate(found.ordering)]
    return (
        ", ".join(f"{name} AS {alias}" for name, alias in columns),
        ", ".join(f"{alias}::text" for _, alias in columns),
    )


def _every(connection: Connection, found: Relation, rows: int) -> list[list[str]]:
    """The first key of every range but the first."""
    key, texts = _aliased(found)
    numbered = f"SELECT {key}, row_number() OVER (ORDER BY {_names(found)}) - 1 AS place FROM {found.sql}"
    # No parameters: a percent sign in a name is none.
    query = f"SELECT {texts} FROM ({numbered}) n WHERE place > 0 AND place % {int(rows)} = 0 ORDER BY place"
    return [list(row) for row in connection.execute(query).fetchall()]


def _sampled(
    connection: Connection, found: Relation, rows: int, percent: float
) -> tuple[list[list[str]], int]:
    """The same from a sample of the table's blocks, and how many rows the table has by it."""
    key, texts = _aliased(found)
    numbered = (
        f"SELECT {key}, row_number() OVER (ORDER BY {_names(found)}) - 1 AS place, count(*) OVER () AS total"
        f" FROM {found.sql} TABLESAMPLE SYSTEM ({percent!r})"
    )
    ranges = f"greatest(1, ceil(total * {100 / percent / rows!r}))::int8"
    taken = connection.execute(
        f"SELECT {texts}, total FROM ({numbered}) n"
        f" WHERE place > 0 AND place * {ranges} / total <> (place - 1) * {ranges} / total ORDER BY place"
    ).fetchall()
    counted = int(taken[0][-1] * 100 / percent) if taken else rows
    return [list(row[:-1]) for row in taken], counted


def _count(connection: Connection, found: Relation) -> int:
    row = connection.execute(f"SELECT count(*) FROM {found.sql}").fetchone()
    return int(row[0]) if row else 0


def _tail(connection: Connection, found: Relation, begin: list[list[str]], rows: int) -> int:
    """How many rows there are from `begin` on, counted up to `rows`: small tables share a batch by it."""
    where = _range(connection, found, _casts(connection, found), begin[0] if begin else None, None)
    inner = f"SELECT FROM {found.sql}" + (f" WHERE {where}" if where else "") + f" LIMIT {int(rows)}"
    row = connection.execute(f"SELECT count(*) FROM ({inner}) rest").fetchone()
    return int(row[0]) if row else 0


def _casts(connection: Connection, found: Relation) -> list[str]:
    """The base types of the key's columns, to cast bounds to; their operators are in the search path then.

    Without them PostgreSQL would compare an extension's type by way of text: another order than the index's.
    """
    bases = []
    for attribute in found.ordering:
        oid, typmod = attribute.oid, attribute.typmod
        while oid in found.domains:
            oid, typmod = found.domains[oid]
        bases.append((oid, typmod))
    asked = [oid for oid, _ in bases], [typmod for _, typmod in bases]
    rows = connection.execute(_TYPES, asked).fetchall()
    for schema, usable, role, *_ in rows:
        if not usable:
            raise NeedsOperator(
                f"{role} may not use schema {schema}, where a type of the key of table {found.ref} is",
                remedy=f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(role)}",
            )
    path = dict.fromkeys(quote(schema) for schema, _, _, there, _ in rows if not there)
    if path:
        connection.execute(
            "SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''),"
            " %s::text), true)",
            (", ".join(path),),
        )
        # A type has a shorter name now.
        rows = connection.execute(_TYPES, asked).fetchall()
    return [str(name) for *_, name in rows]


def _range(
    connection: Connection,
    found: Relation,
    casts: Sequence[str],
    begin: list[str] | None,
    end: list[str] | None,
) -> str:
    conditions = []
    for sign, bound in ((">=", begin), ("<", end)):
        if bound is not None:
            if len(bound) != len(casts) or not all(isinstance(text, str) for text in bound):
                raise StateUnreadable(f"a chunk of table {found.ref} has another key than the table")
            values = ", ".join(
                f"CAST({sql.Literal(text).as_string(connection)} AS {cast})"
                for text, cast in zip(bound, casts, strict=True)
            )
            conditions.append(f"({_names(found)}) {sign} ({values})")
    return " AND ".join(conditions)


def _files(connection: Connection, found: Relation) -> _Files:
    row = connection.execute(_FILES, {"oid": found.oid}).fetchone()
    return _Files(*(row or (0, 0, "", 0)))


def _by_place(found: Relation, rows: int, estimate: int, files: _Files) -> list[Chunk]:
    # A range holds the same blocks of every partition.
    step = max(1, round(rows * files.longest / max(estimate, 1)))
    begins: list[int | None] = [None, *range(step, files.longest, step)]
    ends = [*begins[1:], None]
    share = estimate // len(begins) if files.blocks else 0
    return [
        Chunk(
            found.ref,
            index,
            {"files": files.names, "from": begin, "below": end},
            share,
            nbytes=files.of(share, estimate),
        )
        for index, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]


def _place(connection: Connection, found: Relation, bounds: dict[str, Any]) -> str:
    begin, end = bounds.get("from"), bounds.get("below")
    if begin is None and end is None:
        return ""
    if _files(connection, found).names != bounds["files"]:
        raise NeedsOperator(
            f"table {found.ref} was rewritten during its snapshot, which goes by the place of rows"
            " because the table has no key",
            remedy=f"tailrace snapshot --table {found.ref}, or give the table a primary key",
        )
    conditions = []
    for sign, block in ((">=", begin), ("<", end)):
        if block is not None:
            conditions.append(f"ctid {sign} '({int(block)},0)'::tid")
    return " AND ".join(conditions)
