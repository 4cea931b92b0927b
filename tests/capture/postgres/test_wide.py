"""Tables of many columns: a row is the same by snapshot and by the log, and by plain SQL."""

from __future__ import annotations

import pytest

from tailrace.capture.postgres.config import PostgresConfig
from tests.capture.postgres.reading import read_all
from tests.capture.postgres.streaming import Source
from tests.support.postgres import Database

pytestmark = pytest.mark.timeout(120)
# Types and values in turns; a row of a thousand of them still fits the server's page.
KINDS = (
    ("int4", "i + {n}"),
    ("text", "CASE WHEN i % 3 > 0 THEN E'tab\\t \\\\ line\\n' || ({n} % 10) END"),
    ("numeric(9,2)", "(i * {n}) % 1000 / 8.0"),
    ("boolean", "(i + {n}) % 2 = 0"),
    ("date", "CASE WHEN i % 4 = 0 THEN date 'infinity' ELSE date '2026-01-01' + (i + {n})::int END"),
    ("int2", "NULLIF((i + {n}) % 7, 3)"),
    ("float4", "i / ({n} + 1.0)"),
    ("char(1)", "chr(65 + (i + {n})::int % 26)"),
)


def declared(columns: int) -> tuple[str, str]:
    """A table of so many columns, and how its row number i is made."""
    kinds = [KINDS[n % len(KINDS)] for n in range(columns - 1)]
    names = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(kinds))
    values = ", ".join(value.format(n=n) for n, (_, value) in enumerate(kinds))
    return f"CREATE TABLE wide (id int PRIMARY KEY, {names})", values


@pytest.mark.parametrize("columns", [60, 200, 1000])
def test_a_wide_row_is_the_same_by_snapshot_by_stream_and_by_sql(database: Database, columns: int) -> None:
    table, values = declared(columns)
    source = Source(database, table, tables=("wide",))
    start = source.head()
    source.sql(f"INSERT INTO wide SELECT i, {values} FROM generate_series(1, 40) i")
    streamed = [change.after for change in source.changes(start) if change.op == "c"]
    parts = read_all(PostgresConfig.from_url(database.url()), "wide", rows_per_chunk=15)
    snapshotted = sorted((row for part in parts for row in part), key=lambda row: int(row["id"]))
    assert [len(part) for part in parts] == [15, 15, 10]
    assert snapshotted == streamed
    assert {len(row) for row in snapshotted} == {columns}
    plain = database.rows("SELECT id, c0, c1, c2, c3 FROM wide ORDER BY id")
    assert [tuple(row[name] for name in ("id", "c0", "c1", "c2", "c3")) for row in snapshotted] == plain


@pytest.mark.parametrize("columns", [60, 200, 1000])
def test_a_change_of_one_column_of_a_wide_row_leaves_what_a_snapshot_reads(
    database: Database, columns: int
) -> None:
    table, values = declared(columns)
    source = Source(database, table, "ALTER TABLE wide REPLICA IDENTITY FULL", tables=("wide",))
    source.sql(f"INSERT INTO wide SELECT i, {values} FROM generate_series(1, 5) i")
    start = source.head()
    source.sql("UPDATE wide SET c1 = 'new' WHERE id > 2")
    streamed = [change.after for change in source.changes(start)]
    (part,) = read_all(PostgresConfig.from_url(database.url()), "wide")
    assert sorted((row for row in part if row["id"] > 2), key=lambda row: int(row["id"])) == streamed
