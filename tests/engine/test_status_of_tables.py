"""What a status says of the snapshot of a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.changelog.filesystem import open_filesystem
from tailrace.cli.status import _snapshot
from tailrace.engine.status import Tables
from tailrace.model.position import Position
from tailrace.spark.offsets import UNREAD, Cursor, Offset
from tailrace.spark.orders import Orders
from tailrace.spark.plans import PlanStore


@pytest.mark.parametrize(
    ("cursor", "state", "text"),
    [
        (None, "none", "not begun"),
        (Cursor(UNREAD, 0, 0, "g"), "unneeded", "none needed"),
        (Cursor("plan", 2, 2, "g"), "complete", "complete"),
    ],
)
def test_a_snapshot_that_nobody_needs_does_not_seem_to_be_waited_for(
    tmp_path: Path, cursor: Cursor | None, state: str, text: str
) -> None:
    fs, root = open_filesystem(str(tmp_path))
    offset = Offset(Position("s", 1), {"main.items": cursor} if cursor is not None else {})
    tables = Tables(offset, PlanStore(fs, root), Orders(fs, root), str(tmp_path / "checkpoint"))
    found = tables.named("main.items")
    assert found.snapshot == state
    assert _snapshot(found) == text
