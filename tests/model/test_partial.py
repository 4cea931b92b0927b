"""Images that lack columns are completed as a plain replay completes them, one change after the other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.change import ChangeBatch
from tailrace.model.errors import DataError
from tailrace.model.net import net
from tailrace.model.partial import gather
from tests.model.changes import batch_of, table_of

TABLE = table_of({"id": "long", "name": "string", "big": "string", "n": "long"})
ELSEWHERE, NOWHERE = object(), object()
Change = dict[str, Any]
Row = dict[str, Any]


def value(change: Change, side: str, name: str) -> Any:
    """An image's value, or the tagged text that stands for it."""
    return (change.get(f"{side}_exact") or {}).get(name) or change[side][name]


def reference(changes: list[Change]) -> dict[int, Row]:
    """What the set leaves behind; `ELSEWHERE` and `NOWHERE` stand for values that it does not have."""
    rows: dict[int, Row] = {}
    gone: set[int] = set()
    for change in sorted(changes, key=lambda found: (found["position"], found["seq"])):
        before, after = change.get("before"), change.get("after")
        if change["op"] in "ts":
            rows, gone = {}, set()
            continue
        base, unknown = None, ELSEWHERE
        if before is not None and (after is None or before["id"] != after["id"]):
            base, unknown = rows.pop(before["id"], None), NOWHERE
            gone.add(before["id"])
            base = base and {name: NOWHERE if found is ELSEWHERE else found for name, found in base.items()}
        elif after is not None:
            base = rows.get(after["id"])
            unknown = NOWHERE if after["id"] in gone else ELSEWHERE
        if after is None:
            continue
        row: Row = {}
        for name in (column.name for column in TABLE.columns):
            if name not in (change.get("after_absent") or ()):
                row[name] = value(change, "after", name)
            elif before is not None and name not in (change.get("before_absent") or ()):
                row[name] = value(change, "before", name)
            else:
                row[name] = base[name] if base is not None else unknown
        rows[after["id"]] = row
    return rows


_absent = st.lists(st.sampled_from(["name", "big"]), unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Changes of a few keys: new, partial, moved, gone, and rarely all void."""
    changes: list[Change] = []
    keys = st.integers(1, draw(st.sampled_from([2, 4, 40])))
    for seq in range(draw(st.integers(1, 30))):
        op = draw(st.sampled_from("cuuuuuummmdrt" if seq % 7 == 0 else "cuuuuuummmd"))
        change: Change = {"op": "u" if op == "m" else op, "position": seq // 3, "seq": seq}
        key = draw(keys)
        if op in "cur":
            change["after"] = {"id": key, "name": f"n{seq}", "big": f"b{seq}", "n": seq}
        elif op == "m":
            change["after"] = {"id": draw(keys), "name": f"n{seq}", "big": f"b{seq}", "n": seq}
        if op in "dm" or (op == "u" and draw(st.booleans())):
            change["before"] = {"id": key, "name": f"old n{seq}", "big": f"old b{seq}", "n": -seq}
        for side in ("before", "after"):
            if side not in change:
                continue
            if change["op"] == "u":
                change[f"{side}_absent"] = draw(st.none() | _absent) if side == "after" else draw(_absent)
                change[side] |= dict.fromkeys(change[f"{side}_absent"] or ())
            if change[side]["big"] and draw(st.integers(0, 5)) == 0:
                change[f"{side}_exact"] = {"big": "v:" + change[side]["big"]}
                change[side]["big"] = None
        changes.append(change)
    return changes


def cut(changes: list[Change], rng: random.Random) -> list[ChangeBatch]:
    """The changes in batches of random size, some of them twice, in any order."""
    batches, i = [], 0
    while i < len(changes):
        size = rng.randint(1, 6)
        batches += [batch_of(TABLE, changes[i : i + size])] * rng.choice([1, 1, 2])
        i += size
    rng.shuffle(batches)
    return batches


def completed(batches: list[ChangeBatch]) -> dict[int, Row]:
    found = net(batches)
    count = found.upserts.num_rows
    exact = found.exact.to_pylist() if found.exact is not None else [{}] * count
    absent = found.absent.to_pylist() if found.absent is not None else [None] * count
    rows = {}
    for image, tags, lacks in zip(found.upserts.to_pylist(), exact, absent, strict=True):
        assert all(image[name] is None and tags.get(name) is None for name in lacks or ())
        tagged = {name: tag for name, tag in tags.items() if tag is not None}
        assert all(image[name] is None for name in tagged)
        rows[image["id"]] = image | tagged | dict.fromkeys(lacks or (), ELSEWHERE)
    return rows


@settings(max_examples=100, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_any_history_is_completed_as_a_plain_replay_completes_it(
    changes: list[Change], rng: random.Random
) -> None:
    expected = reference(changes)
    batches = cut(changes, rng)
    if any(found is NOWHERE for row in expected.values() for found in row.values()):
        with pytest.raises(DataError, match="changed their key"):
            net(batches)
    else:
        assert completed(batches) == expected


@pytest.mark.parametrize("steps", [3, 200])
def test_a_row_that_moves_on_and_on_keeps_the_value_it_began_with(steps: int) -> None:
    changes: list[Change] = [
        {"op": "c", "position": 0, "seq": 0, "after": {"id": 0, "name": "a", "big": "BIG", "n": 0}}
    ]
    lacking = {"name": None, "big": None, "n": 0}
    for step in range(1, steps):
        for seq, old in ((0, step - 1), (1, step)):
            change: Change = {"op": "u", "position": step, "seq": seq, "after": {**lacking, "id": step}}
            change["after_absent"] = ["name", "big"]
            if old != step:
                change |= {"before": {**lacking, "id": old}, "before_absent": ["name", "big"]}
            changes.append(change)
    assert completed(cut(changes, random.Random(1))) == {
        steps - 1: {"id": steps - 1, "name": "a", "big": "BIG", "n": 0}
    }


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_gathered_values_are_those_that_were_asked_for(data: st.DataObject) -> None:
    texts = st.none() | st.text(max_size=4)
    chunks = data.draw(st.lists(st.lists(texts, max_size=6), min_size=1, max_size=4))
    flat = [text for chunk in chunks for text in chunk]
    source = data.draw(st.lists(st.integers(-2, len(flat) - 1), max_size=12))
    source = sorted(source) if data.draw(st.booleans()) else source
    arrays = [pa.array(chunk, pa.string()) for chunk in chunks]
    found = gather(arrays, np.array(source, dtype=np.int64), pa.string(), most=data.draw(st.integers(1, 20)))
    assert found.to_pylist() == [None if place < 0 else flat[place] for place in source]


def test_more_text_than_an_array_can_hold_is_gathered_all_the_same() -> None:
    ends = np.array([0, 1 << 30, (1 << 30) + 1], dtype=np.int32)
    text = np.zeros(ends[-1], dtype=np.uint8)
    chunk = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    found = gather([chunk] * 3, np.array([5, 1, -1, 3]), pa.string())
    assert found.to_pylist() == ["\0", "\0", None, "\0"]
