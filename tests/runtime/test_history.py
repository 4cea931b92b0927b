"""The schema history under another name of its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs

from tailrace.capture.scripted import Event, ScriptedCapture, ScriptedSource, batch_of
from tailrace.model.change import Op
from tailrace.model.position import Position
from tailrace.runtime.history import FILE, SchemaHistory, carry, read_history
from tests.runtime.support import row


def test_a_source_that_failed_over_keeps_what_is_known_up_to_there(tmp_path: Path) -> None:
    source = ScriptedSource("before")
    items = source.table("items")
    fs, path = pafs.LocalFileSystem(), f"{tmp_path}/{FILE}"
    history = SchemaHistory(fs, path, "before")
    history.begin(ScriptedCapture(source), [items], 1)
    whole = source.schemas[items]
    slim = replace(whole, columns=whole.columns[:1])
    for position, schema in ((5, slim), (9, whole)):
        after = {column.name: row(1)[column.name] for column in schema.columns}
        history.note([batch_of(schema, [Event(Op.INSERT, items, None, after)], position, [0])])

    # What lies beyond the place that both names have comes again, and maybe otherwise.
    for _ in range(2):
        carry(fs, path, "before", Position("after", 6))
        assert read_history(fs, path, "before") == {}
        found = read_history(fs, path, "after")[items]
        assert [(entry.position, len(entry.schema.columns)) for entry in found] == [(1, 2), (5, 1)]
    carry(fs, path, "another", Position("third", 6))
    assert read_history(fs, path, "third") == {}
    assert read_history(fs, path)[items] == found, "whatever the source is called"
