"""The tables that snapshots are taken of: the narrow one of 2 million rows, and two wide ones."""

from __future__ import annotations

from dataclasses import dataclass

from bench.postgres_server import Server

DATABASE = "snapshots"
_NARROW = (
    "customer integer NOT NULL, price numeric(12,2), weight double precision, paid boolean,"
    " placed timestamptz, city text, note text",
    "i % 997, (i % 1000000) * 0.37, i / 7.0::float8, i % 3 = 0,"
    " timestamptz '2026-01-01 10:00+00' + i * interval '1.000137 seconds',"
    " 'city number ' || lpad((i % 31337)::text, 8, '0'), md5(i::text) || ', a note of some 60 characters'",
)
# A wide table has these again and again.
_KINDS = (
    ("integer", "i % {n}"),
    ("text", "'value ' || (i % {n})"),
    ("numeric(12,2)", "(i % 100000) * 0.37 + {n}"),
    ("double precision", "i / {n}::float8"),
    ("timestamptz", "timestamptz '2026-01-01 10:00+00' + (i % {n}) * interval '1.000137 seconds'"),
    ("boolean", "i % {n} = 0"),
    ("date", "date '2026-01-01' + (i % {n})::int"),
    ("bigint", "CASE WHEN i % 2 = 0 THEN i * {n} END"),
)


@dataclass(frozen=True)
class Table:
    """A table of `rows` rows with the key `id`, from 1 on without gaps."""

    name: str
    rows: int
    columns: int

    @property
    def title(self) -> str:
        """What it is called in the report."""
        return f"{self.rows:,} rows of {self.columns} columns"

    @property
    def declared(self) -> tuple[str, str]:
        """The columns beside the key, and what is put into them."""
        if self.columns == 8:
            return _NARROW
        places = range(1, self.columns)
        kinds = [_KINDS[place % len(_KINDS)] for place in places]
        return (
            ", ".join(f"c{place} {kind}" for place, (kind, _) in zip(places, kinds, strict=True)),
            ", ".join(value.format(n=place + 7) for place, (_, value) in zip(places, kinds, strict=True)),
        )


def tables(rows: int) -> tuple[Table, ...]:
    """The one that the bars are on, two wide ones of about as many values each, and one to warm up with.

    `nothing` is empty: what a read of it costs is what a read costs before its first row.
    """
    return (
        Table("warm", max(1, rows // 4), 8),
        Table("orders", rows, 8),
        Table("wide60", max(1, rows // 10), 60),
        Table("wide200", max(1, rows // 33), 200),
    )


def make(server: Server, wanted: tuple[Table, ...]) -> None:
    """A database with all of them, read once and written out: nobody meets the aftermath of the writing."""
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    with server.connect(DATABASE) as connection:
        connection.execute("SET synchronous_commit = off")
        for table in (*wanted, Table("nothing", 0, 8)):
            columns, values = table.declared
            connection.execute(f"CREATE TABLE {table.name} (id bigint PRIMARY KEY, {columns})")
            connection.execute(
                f"INSERT INTO {table.name} SELECT i, {values} FROM generate_series(1, {table.rows}) i"
            )
            connection.execute(f"VACUUM (ANALYZE) {table.name}")
        connection.execute("CHECKPOINT")
