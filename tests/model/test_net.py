"""Net changes equal a naive replay into a dict, whatever the order and repetition of the batches."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.change import ChangeBatch, marker
from tailrace.model.errors import ConfigError, DataError, SchemaDrift, UsageError
from tailrace.model.net import NetChanges, net
from tailrace.model.table import TableSchema
from tests.model.changes import batch_of, table_of

TABLE = table_of({"a": "long", "name": "string", "b": "string", "n": "integer"}, key=("b", "a"))
SIMPLE = table_of({"id": "long", "name": "string", "big": "string"})
Change = dict[str, Any]


def upserts(found: NetChanges) -> list[dict[str, Any]]:
    return list(found.upserts.to_pylist())


def replay(table: TableSchema, changes: list[Change]) -> tuple[bool, dict[Any, Any], set[Any]]:
    """The oracle: one change after the other into a dict. Absent columns are missing from the row."""
    reset = False
    rows: dict[Any, Any] = {}
    gone: set[Any] = set()
    names = [column.name for column in table.columns]

    def key_of(image: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(image[name] for name in table.identity)

    for change in sorted(changes, key=lambda c: (c["position"], c["seq"])):
        op, before, after = change["op"], change.get("before"), change.get("after")
        if op in "ts":
            reset, rows, gone = True, {}, set()
            continue
        base: dict[str, Any] = {}
        if before is not None:
            base = rows.pop(key_of(before), {})
            gone.add(key_of(before))
        elif after is not None:
            base = rows.get(key_of(after), {})
        if after is not None:
            absent = change.get("after_absent") or []
            row = {n: after[n] for n in names if n not in absent}
            if before is not None:
                row |= {n: before[n] for n in absent if n not in (change.get("before_absent") or [])}
            row |= {n: base[n] for n in absent if n in base and n not in row}
            rows[key_of(after)] = row
            gone.discard(key_of(after))
    return reset, rows, gone


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """A history that a table could have, with key changes, truncates and snapshots."""
    keys = st.tuples(st.integers(-2, 2) | st.just(2**62), st.sampled_from(["", "x", "yé"]))
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    changes: list[Change] = []
    position = 0
    for _ in range(draw(st.integers(1, 25))):
        position += draw(st.integers(0, 1))
        meta = {"position": position, "seq": len(changes)}
        key = draw(keys)
        image: dict[str, Any] = {
            "a": key[0],
            "b": key[1],
            "name": draw(st.none() | st.text(max_size=2, alphabet="ab")),
            "n": draw(st.none() | st.integers(0, 3)),
        }
        op = draw(st.sampled_from("cccuuuudddrrts"))
        if op in "ts":
            rows = {} if op == "t" else rows
            changes.append({"op": op, **meta})
        elif op == "r" or (op == "c" and key not in rows):
            rows[key] = image
            changes.append({"op": op, **meta, "after": image})
        elif rows:
            old = draw(st.sampled_from(sorted(rows)))
            before = rows.pop(old)
            if op == "d":
                changes.append({"op": "d", **meta, "before": before})
            else:
                image = image if key not in rows else {**image, "a": old[0], "b": old[1]}
                rows[image["a"], image["b"]] = image
                changes.append({"op": "u", **meta, "before": before, "after": image})
    return changes


def cut(table: TableSchema, changes: list[Change], rng: random.Random) -> list[ChangeBatch]:
    """The changes in batches of random size, some of them twice, shuffled."""
    batches, i = [], 0
    while i < len(changes):
        size = rng.randint(1, 4)
        part = changes[i : i + size]
        batches += [batch_of(table, part)] * rng.choice([1, 1, 2])
        i += size
    rng.shuffle(batches)
    return batches


@settings(max_examples=200, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_net_changes_equal_a_naive_replay(changes: list[Change], rng: random.Random) -> None:
    if not changes:
        return
    reset, rows, gone = replay(TABLE, changes)
    found = net(cut(TABLE, changes, rng))
    assert found.reset == reset
    assert {(r["b"], r["a"]): r for r in upserts(found)} == rows
    assert found.upserts.num_rows == len(rows)
    assert {(r["b"], r["a"]) for r in found.deletes.to_pylist()} == gone
    assert found.deletes.num_rows == len(gone)
    assert found.position == max(c["position"] for c in changes)
    assert found.rows_in == len(changes)
    assert found.upserts.schema.names == ["a", "name", "b", "n"]
    assert found.deletes.schema.names == ["b", "a"]
    assert found.absent is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_partial_images_are_completed_from_earlier_images_of_the_set(data: st.DataObject) -> None:
    changes: list[Change] = []
    for seq in range(data.draw(st.integers(1, 8))):
        key = data.draw(st.integers(1, 2))
        image = {"id": key, "name": data.draw(st.sampled_from("ab")), "big": f"v{seq}"}
        absent = data.draw(st.none() | st.lists(st.sampled_from(["name", "big"]), unique=True))
        image |= dict.fromkeys(absent or [])
        change = {"op": "u", "position": 1, "seq": seq, "after": image, "after_absent": absent}
        if data.draw(st.booleans()):
            gone = data.draw(st.lists(st.sampled_from(["name", "big"]), unique=True))
            change |= {
                "before": {"id": key, "name": f"old{seq}", "big": None} | dict.fromkeys(gone),
                "before_absent": gone,
            }
        changes.append(change)
    _, rows, _ = replay(SIMPLE, changes)
    found = net(cut(SIMPLE, changes, data.draw(st.randoms(use_true_random=False))))
    lists = found.absent.to_pylist() if found.absent is not None else [None] * len(rows)
    complete = {
        row["id"]: {n: v for n, v in row.items() if n not in (absent or [])}
        for row, absent in zip(upserts(found), lists, strict=True)
    }
    assert {(key,): row for key, row in complete.items()} == rows


def change(op: str, seq: int, before: Any = None, after: Any = None, **more: Any) -> Change:
    return {"op": op, "position": 1, "seq": seq, "before": before, "after": after, **more}


def test_a_key_change_without_a_large_value_takes_it_from_the_row_it_moved() -> None:
    rows = [
        change("c", 0, None, {"id": 1, "name": "a", "big": "BIG"}),
        change(
            "u",
            1,
            {"id": 1, "name": None, "big": None},
            {"id": 2, "name": "b", "big": None},
            after_absent=["big"],
            before_absent=["name", "big"],
        ),
    ]
    found = net([batch_of(SIMPLE, rows)] * 2)
    assert upserts(found) == [{"id": 2, "name": "b", "big": "BIG"}]
    assert found.deletes.to_pylist() == [{"id": 1}]


def test_a_moved_row_that_nothing_completes_is_refused_rather_than_taken_from_another_row() -> None:
    rows = [
        change("d", 0, {"id": 2, "name": "other", "big": "OTHER"}),
        change(
            "u",
            1,
            {"id": 1, "name": None, "big": None},
            {"id": 2, "name": "b", "big": None},
            after_absent=["big"],
            before_absent=["name", "big"],
        ),
    ]
    with pytest.raises(DataError, match="column big"):
        net([batch_of(SIMPLE, rows)])


def test_a_null_in_a_key_names_table_and_column_and_no_value() -> None:
    rows = [change("c", 0, None, {"a": 1, "b": None, "name": "secret-value", "n": 1})]
    with pytest.raises(DataError, match=r"main\.orders.*key column b") as caught:
        net([batch_of(TABLE, rows)])
    assert "secret-value" not in str(caught.value)


def test_a_table_without_identity_is_refused_with_the_remedy() -> None:
    table = table_of({"x": "long"}, key=())
    with pytest.raises(ConfigError) as caught:
        net([batch_of(table, [change("c", 0, None, {"x": 1})])])
    assert caught.value.remedy == "declare a primary key"


def test_a_row_id_is_an_identity() -> None:
    table = table_of({"x": "long", "rowid": "long"}, key=(), row_id="rowid")
    found = net(
        [batch_of(table, [change("c", 0, None, {"x": 1, "rowid": 7}), change("d", 1, {"x": 1, "rowid": 7})])]
    )
    assert found.deletes.to_pylist() == [{"rowid": 7}]


def test_after_a_snapshot_begins_the_columns_may_be_others() -> None:
    newer = table_of({"id": "long", "extra": "double"})
    batches = [
        batch_of(newer, [{"op": "r", "position": 3, "seq": 1, "after": {"id": 1, "extra": 0.5}}]),
        marker(newer, 3, 0, 0),
        batch_of(SIMPLE, [change("c", 0, None, {"id": 9, "name": "x", "big": "y"})]),
    ]
    found = net(batches)
    assert found.reset
    assert found.table == newer
    assert upserts(found) == [{"id": 1, "extra": 0.5}]
    assert found.reset_meta is not None
    assert found.reset_meta.column("position").to_pylist() == [3]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": "long", "name": "string", "extra": "double"}, "added extra; dropped big"),
        ({"id": "long", "name": "string", "big": "binary"}, "retyped big"),
        ({"id": "long", "big": "string", "name": "string"}, "added again name"),
    ],
)
def test_columns_that_leave_older_rows_unknown_are_drift(columns: dict[str, str], told: str) -> None:
    newer = table_of(columns)
    with pytest.raises(SchemaDrift, match=told):
        net(
            [
                batch_of(SIMPLE, [change("c", 0, None, {"id": 9, "name": "x", "big": "y"})]),
                batch_of(newer, [change("c", 1, None, dict.fromkeys(columns) | {"id": 1})]),
            ]
        )
    with pytest.raises(SchemaDrift, match="another key"):
        net(
            [
                batch_of(SIMPLE, [change("c", 0, None, {"id": 9, "name": "x", "big": "y"})]),
                batch_of(
                    table_of({"id": "long", "name": "string", "big": "string"}, key=("name",)),
                    [change("c", 1, None, {"id": 1, "name": "k", "big": None})],
                ),
            ]
        )


def test_rows_from_before_a_column_lack_it_and_those_from_before_a_drop_lose_it() -> None:
    wider = table_of({"id": "long", "name": "string", "big": "string", "n": "long"})
    narrow = table_of({"id": "long", "name": "string", "n": "long"})

    def full(number: int) -> dict[str, Any]:
        return {"id": number, "name": "a", "big": "b"}

    found = net(
        [
            batch_of(SIMPLE, [change("c", 0, None, full(1)), change("c", 1, None, full(2))]),
            batch_of(SIMPLE, [change("u", 2, full(3), full(4)), change("d", 3, full(5))]),
            batch_of(wider, [change("u", 4, None, {**full(2), "n": 7}, after_absent=["big"])]),
            batch_of(narrow, [change("c", 5, None, {"id": 6, "name": "c", "n": 8})]),
        ]
    )
    assert found.table == narrow
    assert sorted(upserts(found), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a", "n": None},
        {"id": 2, "name": "a", "n": 7},
        {"id": 4, "name": "a", "n": None},
        {"id": 6, "name": "c", "n": 8},
    ]
    by_id = dict(zip(found.upserts["id"].to_pylist(), (found.absent or pa.nulls(0)).to_pylist(), strict=True))
    assert by_id == {1: ["n"], 2: None, 4: ["n"], 6: None}
    assert sorted(row["id"] for row in found.deletes.to_pylist()) == [3, 5]
    assert found.later == {"n"}
    assert found.dropped == {"big"}


def test_rows_that_lack_columns_already_lack_a_later_one_too() -> None:
    wider = table_of({"id": "long", "name": "string", "big": "string", "n": "long"})
    rows = [
        change("u", 0, None, {"id": 1, "name": "a", "big": None}, after_absent=["big"]),
        change("u", 1, None, {"id": 2, "name": None, "big": None}, after_absent=["name", "big"]),
        change("d", 2, {"id": 3, "name": None, "big": None}, before_absent=["name", "big"]),
        change("u", 3, None, {"id": 4, "name": "a", "big": "b"}, after_absent=[]),
    ]
    newest = batch_of(wider, [change("c", 4, None, {"id": 5, "name": "a", "big": "b", "n": 1})])
    found = net([batch_of(SIMPLE, rows), newest])
    absent = (found.absent or pa.nulls(0)).to_pylist()
    lacks = {i: set(names or ()) for i, names in zip(found.upserts["id"].to_pylist(), absent, strict=True)}
    assert lacks == {1: {"big", "n"}, 2: {"name", "big", "n"}, 4: {"n"}, 5: set()}
    assert found.deletes["id"].to_pylist() == [3]


def test_a_column_that_is_dropped_and_added_again_is_drift() -> None:
    narrow = table_of({"id": "long", "name": "string"})
    with pytest.raises(SchemaDrift, match="added big"):
        net(
            [
                batch_of(SIMPLE, [change("c", 0, None, {"id": 1, "name": "x", "big": "y"})]),
                batch_of(narrow, [change("c", 1, None, {"id": 2, "name": "x"})]),
                batch_of(SIMPLE, [change("c", 2, None, {"id": 3, "name": "x", "big": None})]),
            ]
        )


def test_a_snapshot_may_know_columns_that_the_log_has_not_reached() -> None:
    newer = table_of({"id": "long", "label": "string", "big": "string"})
    found = net(
        [
            batch_of(SIMPLE, [change("c", 0, None, {"id": 1, "name": "x", "big": "y"})]),
            batch_of(newer, [change("r", 1, None, {"id": 2, "label": "z", "big": "w"})]),
        ]
    )
    assert found.later == {"label"}
    assert found.dropped == set()
    assert upserts(found) == [{"id": 1, "label": None, "big": "y"}, {"id": 2, "label": "z", "big": "w"}]


def test_tagged_values_tell_keys_apart_and_stay_beside_their_rows() -> None:
    rows = [
        change("c", 0, None, {"id": None, "name": "a", "big": None}, after_exact={"id": "t:x"}),
        change("c", 1, None, {"id": 1, "name": "b", "big": None}, after_exact={"big": "b:AA=="}),
        change("c", 2, None, {"id": None, "name": "c", "big": None}, after_exact={"id": "t:y"}),
        change("d", 3, {"id": None, "name": "c", "big": None}, before_exact={"id": "t:y"}),
    ]
    found = net([batch_of(SIMPLE, rows)])
    assert found.exact is not None
    assert found.exact.to_pylist() == [{"id": "t:x", "big": None}, {"id": None, "big": "b:AA=="}]
    assert found.deletes_exact is not None
    assert found.deletes_exact.to_pylist() == [{"id": "t:y"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("double", [0.0, -0.0, 1.5]),
        ("binary", [b"", b"\0", b""]),
        ("decimal(10,2)", [1, 1, 2]),
        ("boolean", [True, False, True]),
        ("string", ["a", "A", "a"]),
    ],
)
def test_keys_of_any_type_compare_by_value(kind: str, values: list[Any]) -> None:
    table = table_of({"k": kind}, key=("k",))
    batch = batch_of(table, [change("c", i, None, {"k": value}) for i, value in enumerate(values)])
    assert net([batch]).upserts.num_rows == 2


def test_nothing_is_nothing() -> None:
    found = net([batch_of(SIMPLE, [])])
    assert found.empty
    assert found.upserts.schema == pa.schema(list(SIMPLE.struct))
    with pytest.raises(UsageError):
        net([])
    with pytest.raises(UsageError):
        net([batch_of(SIMPLE, []), batch_of(table_of({"id": "long"}, name="other"), [])])
