"""The tables that grow: in rows, in columns, in number."""

from __future__ import annotations

from collections.abc import Sequence

from bench.postgres_server import Server

DATABASE = "scaling"
_NARROW = (
    "customer integer NOT NULL, price numeric(12,2), weight double precision, paid boolean,"
    " placed timestamptz, city text, note text",
    "i % 997, (i % 1000000) * 0.37, i / 7.0::float8, i % 3 = 0,"
    " timestamptz '2026-01-01 10:00+00' + i * interval '1.000137 seconds',"
    " 'city number ' || lpad((i % 31337)::text, 8, '0'), md5(i::text) || ', a note of some 60 characters'",
)
_KINDS = (
    ("integer", "i % {n}"),
    ("text", "'value ' || (i % {n})"),
    ("double precision", "i / {n}::float8"),
    ("timestamptz", "timestamptz '2026-01-01 10:00+00' + (i % {n}) * interval '1.000137 seconds'"),
    ("bigint", "CASE WHEN i % 2 = 0 THEN i * {n} END"),
)
# Which table a row of a change goes to is its number modulo theirs.
_CHANGES = """
DO $$ BEGIN
    FOR n IN 0..{changes} - 1 LOOP
        EXECUTE format('UPDATE t%s SET note = $1 WHERE id = $2', n % {tables})
            USING 'changed ' || n, n / {tables} % {each} + 1;
        IF n % 10 = 9 THEN COMMIT; END IF;
    END LOOP;
END $$
"""


def make_rows(server: Server, sizes: Sequence[int]) -> None:
    """A narrow table of each size, and one without rows."""
    for rows in sizes:
        _table(server, f"rows_{rows}", rows, *_NARROW)
    _table(server, "nothing", 0, *_NARROW)


def make_columns(server: Server, sizes: Sequence[int], rows: int) -> None:
    """A table of each width, its key included."""
    for columns in sizes:
        kinds = [(at, *_KINDS[at % len(_KINDS)]) for at in range(1, columns)]
        declared = ", ".join(f"c{at} {kind}" for at, kind, _ in kinds)
        values = ", ".join(value.format(n=at + 7) for at, _, value in kinds)
        _table(server, f"columns_{columns}", rows, declared, values)


def make_tables(server: Server, tables: int, each: int) -> str:
    """A database of so many tables; its name."""
    name = f"tables_{tables}"
    create_database(server, name)
    with server.connect(name) as connection:
        connection.execute("SET synchronous_commit = off")
        for at in range(tables):
            connection.execute(
                f"CREATE TABLE t{at} (id bigint PRIMARY KEY, amount integer NOT NULL, note text)"
            )
            connection.execute(
                f"INSERT INTO t{at} SELECT i, i % 997, 'note ' || i FROM generate_series(1, {each}) i"
            )
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return name


def change_tables(server: Server, name: str, tables: int, each: int, changes: int) -> None:
    """Updates of all tables in turns, in transactions of ten."""
    with server.connect(name) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_CHANGES.format(changes=changes, tables=tables, each=each))
        connection.execute("CHECKPOINT")


def create_database(server: Server, name: str = DATABASE) -> None:
    """An empty one."""
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")


def _table(server: Server, name: str, rows: int, declared: str, values: str) -> None:
    with server.connect(DATABASE) as connection:
        connection.execute("SET synchronous_commit = off")
        more, filled = (f", {declared}", f", {values}") if declared else ("", "")
        connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY{more})")
        connection.execute(f"INSERT INTO {name} SELECT i{filled} FROM generate_series(1, {rows}) i")
        connection.execute(f"VACUUM (ANALYZE) {name}")
        connection.execute("CHECKPOINT")
