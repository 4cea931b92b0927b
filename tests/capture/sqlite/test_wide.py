"""Tables of many columns: a row is the same by snapshot and by the log, and by plain SQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.capture.sqlite.support import Source

Make = Callable[..., Source]
KINDS = (
    ("INTEGER", "i * {n}"),
    ("TEXT", "CASE WHEN i % 3 > 0 THEN 'value ' || (i + {n}) END"),
    ("REAL", "i / ({n} + 1.0)"),
    ("BLOB", "CAST(i || 'x' AS BLOB)"),
    ("", "CASE i % 3 WHEN 0 THEN i WHEN 1 THEN 'text' ELSE i * 0.5 END"),
)


@pytest.mark.parametrize("columns", [60, 200, 1000])
def test_a_wide_row_is_the_same_by_snapshot_by_stream_and_by_sql(source: Make, columns: int) -> None:
    kinds = [KINDS[n % len(KINDS)] for n in range(columns - 1)]
    names = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(kinds))
    values = ", ".join(value.format(n=n) for n, (_, value) in enumerate(kinds))
    s = source(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {names})").install()
    s.run(
        "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 40)"
        f" INSERT INTO wide SELECT i, {values} FROM numbers"
    )
    streamed = [change.after for change in s.changes()]
    snapshotted = [change.after for change in s.snapshot("wide", rows_per_chunk=15)]
    assert snapshotted == streamed
    assert snapshotted == s.rows(s.capture.describe(s.ref("wide")))
    assert {len(row) for row in snapshotted if row} == {columns}
