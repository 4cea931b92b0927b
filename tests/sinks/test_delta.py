"""Mirrors in real Delta tables: equal to a naive replay, whatever is repeated, reordered or killed."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.model.errors import ConfigError, DataError, NeedsOperator, SchemaDrift, Transient
from tailrace.model.net import NetChanges, net
from tailrace.model.table import Column, ColumnType
from tailrace.sinks.contract import Progress, TableSink
from tailrace.sinks.delta import DeltaConfig, DeltaSink
from tailrace.sinks.memory import MemoryTableSink
from tests.model.changes import batch_of, table_of
from tests.sinks.deltas import TABLE, change, changes, content, log, row, version


def test_a_batch_is_one_commit_with_deletes_updates_and_inserts(sink: DeltaSink, tmp_path: Path) -> None:
    sink.apply("orders", changes(*(change("c", 1, None, row(i)) for i in range(5))), log(0, 1))
    first = version(tmp_path)
    report = sink.apply(
        "orders",
        changes(
            change("u", 2, row(0), row(0, "new")),
            change("d", 2, row(1)),
            change("u", 2, row(2), row(20, "moved")),
            change("c", 2, None, row(9)),
            change("d", 2, row(77)),
        ),
        log(1, 2),
    )
    assert version(tmp_path) == first + 1
    assert content(sink) == sorted(
        [row(0, "new"), row(20, "moved"), row(3), row(4), row(9)], key=lambda r: str(r["id"])
    )
    assert (report.written, report.deleted, report.skipped) == (3, 2, False)


def test_the_same_batch_three_times_is_applied_once(sink: DeltaSink, tmp_path: Path) -> None:
    batch = changes(change("c", 1, None, row(1)))
    assert not sink.apply("orders", batch, log(0, 1)).skipped
    before = version(tmp_path)
    assert sink.apply("orders", batch, log(0, 1)).skipped
    assert DeltaSink(DeltaConfig(str(tmp_path))).apply("orders", batch, log(0, 1)).skipped
    assert version(tmp_path) == before


def test_an_older_batch_after_a_newer_one_changes_nothing(sink: DeltaSink) -> None:
    old = changes(change("c", 1, None, row(1, "old")))
    sink.apply("orders", old, log(0, 1))
    sink.apply("orders", changes(change("u", 2, row(1), row(1, "new"))), log(1, 2))
    assert sink.apply("orders", old, log(0, 1)).skipped
    assert content(sink) == [row(1, "new")]


def test_another_pipelines_progress_is_not_this_ones(sink: DeltaSink) -> None:
    sink.apply("orders", changes(change("c", 9, None, row(1))), Progress("other", 0, 9))
    assert not sink.apply("orders", changes(change("c", 1, None, row(2))), log(0, 1)).skipped
    assert content(sink) == [row(1), row(2)]


def test_chunks_of_a_snapshot_advance_while_the_log_stands_still(sink: DeltaSink) -> None:
    first = changes(change("s", 5), change("r", 5, None, row(1)))
    second = changes(change("r", 5, None, row(2)))
    assert not sink.apply("orders", first, log(5, 5, orders=("plan", 1))).skipped
    assert not sink.apply("orders", second, log(5, 5, orders=("plan", 2))).skipped
    assert sink.apply("orders", first, log(5, 5, orders=("plan", 1))).skipped
    assert sink.apply("orders", second, log(5, 5, orders=("plan", 2))).skipped
    assert content(sink) == [row(1), row(2)]


def test_a_new_plan_replaces_the_mirror_even_where_the_log_began_anew(sink: DeltaSink) -> None:
    sink.apply("orders", changes(change("c", 900, None, row(1))), log(0, 900))
    sink.apply("orders", changes(change("s", 3), change("r", 3, None, row(2))), log(3, 3, orders=("b", 1)))
    assert content(sink) == [row(2)]
    assert not sink.apply("orders", changes(change("c", 4, None, row(3))), log(3, 4)).skipped
    assert content(sink) == [row(2), row(3)]


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[NetChanges, Progress]]:
    """Micro-batches of a table's life with their progress; every second life begins with a snapshot."""
    rows: dict[int, str] = {}
    result = []
    snapshot = draw(st.booleans())
    for end in range(1, draw(st.integers(2, 5))):
        items = [change("s", end)] if snapshot and end == 1 else []
        for _ in range(draw(st.integers(0, 4))):
            key, name = draw(st.integers(1, 4)), draw(st.sampled_from("abc"))
            if key not in rows:
                items.append(change("c", end, None, row(key, name)))
                rows[key] = name
            elif draw(st.booleans()):
                items.append(change("d", end, row(key, rows.pop(key))))
            else:
                items.append(change("u", end, row(key, rows[key]), row(key, name)))
                rows[key] = name
        if not items:
            continue
        progress = log(end - 1, end, orders=("plan", end)) if snapshot else log(end - 1, end)
        result.append((changes(*items), progress))
    return result


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.randoms(use_true_random=False))
def test_replays_after_any_batch_leave_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, life: list[tuple[NetChanges, Progress]], rng: random.Random
) -> None:
    if not life:
        return
    delta: TableSink = DeltaSink(DeltaConfig(str(tmp_path_factory.mktemp("delta"))))
    memory, plain = MemoryTableSink(), MemoryTableSink()
    for i, (batch, progress) in enumerate(life):
        plain.apply("orders", batch, progress)
        for sink in (delta, memory):
            sink.apply("orders", batch, progress)
            for again, its in rng.sample(life[: i + 1], k=rng.randint(0, min(2, i + 1))):
                report = sink.apply("orders", again, its)
                # A merge that matched nothing leaves no commit to recognise it by, and does nothing again.
                assert report.skipped or (report.written, report.deleted) == (0, 0)
    assert content(delta) == content(memory) == content(plain)


def test_a_batch_without_changes_writes_no_commit(sink: DeltaSink, tmp_path: Path) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    before = version(tmp_path)
    report = sink.apply("orders", net([batch_of(TABLE, [])]), log(1, 2))
    assert report.written == 0
    assert version(tmp_path) == before


def test_a_reset_replaces_rows_and_columns(sink: DeltaSink) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1)), change("c", 1, None, row(2))), log(0, 1))
    newer = table_of({"id": "string", "price": "decimal(10,2)"})
    sink.apply(
        "orders",
        changes(change("s", 2), change("r", 2, None, {"id": "k", "price": Decimal("1.50")}), table=newer),
        log(1, 2, orders=("plan", 1)),
    )
    assert content(sink) == [{"id": "k", "price": Decimal("1.50")}]
    sink.apply("orders", changes(change("t", 3), table=newer), log(2, 3))
    assert content(sink) == []
    sink.apply("orders", changes(change("c", 4, None, {"id": "l", "price": None}), table=newer), log(3, 4))
    assert content(sink) == [{"id": "l", "price": None}]


def test_added_columns_are_added_and_retyped_ones_need_a_snapshot(sink: DeltaSink) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    wider = table_of({"id": "long", "name": "string", "n": "integer"})
    sink.apply("orders", changes(change("c", 2, None, {**row(2), "n": 5}), table=wider), log(1, 2))
    assert content(sink) == [{**row(1), "n": None}, {**row(2), "n": 5}]
    other = table_of({"id": "long", "name": "string", "n": "string"})
    with pytest.raises(SchemaDrift, match="column n") as caught:
        sink.apply("orders", changes(change("c", 3, None, {**row(3), "n": "x"}), table=other), log(2, 3))
    assert "snapshot" in (caught.value.remedy or "")
    assert len(content(sink)) == 2


def test_a_dropped_column_stays_with_what_it_has_and_must_not_come_back(sink: DeltaSink) -> None:
    wide = table_of({"id": "long", "name": "string", "n": "integer"})
    rows = [change("c", 1, None, {**row(i), "n": i}) for i in (1, 2)]
    sink.apply("orders", changes(*rows, table=wide), log(0, 1))
    gone = changes(change("u", 2, None, row(1, "new")), change("c", 3, None, row(3)))
    sink.apply("orders", replace(gone, dropped=frozenset({"n"})), log(1, 3))
    assert content(sink) == [{**row(1, "new"), "n": 1}, {**row(2), "n": 2}, {**row(3), "n": None}]
    more = table_of({"id": "long", "name": "string", "m": "integer"})
    sink.apply("orders", changes(change("c", 4, None, {**row(4), "m": 4}), table=more), log(3, 4))
    assert content(sink)[-1] == {**row(4), "n": None, "m": 4}
    for name in ("n", "N"):
        again = table_of({"id": "long", "name": "string", name: "integer"})
        with pytest.raises(SchemaDrift, match=f"column {name}"):
            sink.apply("orders", changes(change("c", 5, None, {**row(5), name: 5}), table=again), log(4, 5))
    reset = changes(change("s", 5), change("r", 5, None, {**row(5), "n": 5}), table=wide)
    sink.apply("orders", reset, log(4, 5, orders=("plan", 1)))
    sink.apply("orders", changes(change("c", 6, None, {**row(6), "n": 6}), table=wide), log(5, 6))
    assert content(sink) == [{**row(5), "n": 5}, {**row(6), "n": 6}]


def test_a_column_that_older_rows_were_filled_in_needs_a_snapshot(sink: DeltaSink) -> None:
    plain = table_of({"id": "long", "name": "string"})
    filled = replace(plain, columns=(*plain.columns, Column("n", ColumnType("integer"), filled=True)))
    new = changes(change("c", 2, None, {**row(2), "n": 7}), table=filled)
    sink.apply("orders", changes(change("t", 0)), log(0, 1))
    mixed = net(
        [
            batch_of(plain, [change("c", 1, None, row(1))]),
            batch_of(filled, [change("c", 2, None, {**row(2), "n": 7})]),
        ]
    )
    for batch in (mixed, replace(mixed, reset=True)):
        with pytest.raises(SchemaDrift, match="default"):
            sink.apply("orders", batch, log(1, 2))
    # A mirror without rows has none that could be older.
    sink.apply("orders", new, log(1, 2))
    assert content(sink) == [{**row(2), "n": 7}]
    sink.apply("orders", changes(change("t", 3), change("c", 4, None, row(1))), log(2, 4))
    with pytest.raises(SchemaDrift, match="default"):
        sink.apply("orders", replace(new, position=5), log(4, 5))
    assert content(sink) == [row(1)]


def test_rows_from_before_a_column_keep_what_a_newer_snapshot_has_in_it(sink: DeltaSink) -> None:
    plain = table_of({"id": "long", "name": "string"})
    wide = table_of({"id": "long", "name": "string", "n": "integer"})
    start = changes(change("s", 1), change("r", 1, None, {**row(1), "n": 1}), table=wide)
    sink.apply("orders", start, log(0, 1, orders=("plan", 1)))
    # The log is behind the snapshot, and has not reached the new column.
    sink.apply("orders", changes(change("u", 2, None, row(1, "older")), table=plain), log(1, 2))
    assert content(sink) == [{**row(1, "older"), "n": 1}]
    both = net(
        [
            batch_of(plain, [change("u", 2, None, row(1, "old")), change("c", 3, None, row(2))]),
            batch_of(wide, [change("c", 4, None, {**row(3), "n": 3})]),
        ]
    )
    sink.apply("orders", both, log(2, 4))
    assert content(sink) == [{**row(1, "old"), "n": 1}, {**row(2), "n": None}, {**row(3), "n": 3}]


def test_a_row_that_lacks_columns_keeps_those_of_the_mirror(sink: DeltaSink) -> None:
    wide = table_of({"id": "long", "name": "string", "big": "string"})
    full = [change("c", 1, None, {"id": i, "name": "a", "big": f"B{i}"}) for i in (1, 2, 3)]
    sink.apply("orders", changes(*full, table=wide), log(0, 1))
    partial = [
        change("u", 2, None, {"id": 1, "name": "new", "big": None}, after_absent=["big"]),
        change("u", 2, None, {"id": 2, "name": None, "big": None}, after_absent=[]),
        change("d", 2, {"id": 3, "name": None, "big": None}),
    ]
    sink.apply("orders", changes(*partial, table=wide), log(1, 2))
    assert content(sink) == [{"id": 1, "name": "new", "big": "B1"}, {"id": 2, "name": None, "big": None}]


def test_a_new_row_that_lacks_columns_is_refused_by_name_and_nothing_is_written(sink: DeltaSink) -> None:
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    batch = changes(
        change("u", 2, None, row(1, None), after_absent=["name"]),
        change("u", 2, None, row(9, None), after_absent=["name"]),
        change("c", 2, None, row(5)),
    )
    with pytest.raises(DataError, match="name"):
        sink.apply("orders", batch, log(1, 2))
    assert content(sink) == [row(1)]


@pytest.mark.parametrize("held", [(), (2,)])
def test_a_row_that_lacks_columns_is_left_out_while_its_chunk_may_bring_it(
    sink: DeltaSink, held: tuple[int, ...]
) -> None:
    sink.ensure("orders", TABLE)
    sink.apply("orders", changes(*(change("c", 1, None, row(i)) for i in (0, *held))), log(0, 1))
    sink.apply("orders", changes(change("d", 2, row(0))), log(1, 2))
    unsettled = replace(log(2, 3), unsettled=frozenset({str(TABLE.ref)}))
    lone = changes(change("u", 3, None, row(9, None), after_absent=["name"]))
    assert sink.apply("orders", lone, unsettled).written == 0
    batch = changes(
        *(change("u", 3, None, row(i, None), after_absent=["name"]) for i in (9, *held)),
        change("c", 3, None, row(5, None)),
    )
    assert sink.apply("orders", batch, unsettled).written == 1 + len(held)
    assert content(sink) == [*(row(i) for i in held), row(5, None)]
    with pytest.raises(DataError, match="name"):
        sink.apply("orders", lone, log(3, 4))


ODD = [
    "order",
    "Upper Case",
    "a.b",
    'quo"te',
    "it's",
    "back`tick",
    "semi;colon, (x)=1",
    ".dot",
    "ünï",
    "source",
    "a\tb",
]


def test_any_column_name_is_merged(sink: DeltaSink) -> None:
    table = table_of({"id": "long"} | dict.fromkeys(ODD, "string"), key=("id", "Upper Case", 'quo"te'))

    def odd(i: int, text: str) -> dict[str, Any]:
        return {"id": i} | {name: ("k" if name in table.key else text) for name in ODD}

    sink.apply(
        "orders", changes(*(change("c", 1, None, odd(i, "a")) for i in (1, 2, 3)), table=table), log(0, 1)
    )
    sink.apply(
        "orders",
        changes(
            change("u", 2, None, odd(1, "b")),
            change("d", 2, odd(2, "a")),
            change("u", 2, None, odd(3, "c") | {".dot": None}, after_absent=[".dot"]),
            table=table,
        ),
        log(1, 2),
    )
    assert content(sink) == [odd(1, "b"), odd(3, "c") | {".dot": "a"}]


def test_columns_that_differ_only_in_case_are_refused_early(sink: DeltaSink) -> None:
    with pytest.raises(ConfigError, match="ID"):
        sink.ensure("orders", table_of({"id": "long", "ID": "long"}))


VALUES: dict[str, list[Any]] = {
    "long": [-(2**63), 2**63 - 1],
    "double": [0.1, float("inf")],
    "string": ["", 'it\'s \\ "q" \0 ü'],
    "binary": [b"", b"\x00\xff"],
    "boolean": [True, False],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
    "timestamp_ntz": [dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 1)],
    "decimal(38,10)": [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001")],
    "short": [-(2**15), 1],
    "integer": [-(2**31), 1],
    "float": [1.5, -0.25],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_round_trip_as_values_and_as_keys(sink: DeltaSink, kind: str) -> None:
    table = table_of({"id": kind, "value": kind})
    first, second = VALUES[kind]
    images = [{"id": first, "value": second}, {"id": second, "value": first}]
    sink.apply("orders", changes(*(change("c", 1, None, image) for image in images), table=table), log(0, 1))
    assert sorted(sink.read("orders").to_pylist(), key=lambda r: r["id"]) == sorted(
        images, key=lambda r: r["id"]
    )
    merge = [change("u", 2, images[0], {"id": first, "value": None}), change("d", 2, images[1])]
    sink.apply("orders", changes(*merge, table=table), log(1, 2))
    assert sink.read("orders").to_pylist() == [{"id": first, "value": None}]


EDGES: dict[str, list[Any]] = {
    "timestamp": [dt.datetime(2024, 1, 1, 0, 0, 0, micro, tzinfo=dt.UTC) for micro in (123, 123456, 123999)],
    "timestamp_ntz": [dt.datetime(1900, 1, 1, 0, 0, 0, micro) for micro in (1, 999, 123456)],
    "string": [
        "a" * 200,
        "a" * 200 + "b",
        "a" * 32 + "z",
        "\U0010ffff" * 40,
        "\U0010ffff" * 40 + "b",
        "",
        "\0",
    ],
    "binary": [b"\xff" * 100, b"\xff" * 100 + b"1", b"", b"\0"],
    "double": [0.1, float("inf"), -0.0, 5e-324, 1.7976931348623157e308],
    "decimal(20,0)": [Decimal(2**63), Decimal(2**63 + 1)],
    "decimal(38,10)": [Decimal("0.1234567891"), Decimal("-1234567890123456789012345678.0123456789")],
    "long": [2**63 - 1, 2**63 - 2, -(2**63), 2**53 + 1, 2**53],
}


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("kind", EDGES)
def test_a_key_at_the_edge_of_a_files_statistics_is_found(
    sink: DeltaSink, kind: str, composite: bool
) -> None:
    """Every key has a file of its own, and a merge that skips the wrong file would add the key again."""
    table = table_of(
        {"id": kind, "part": "long", "value": "string"}, key=("part", "id") if composite else ("id",)
    )
    end = 0
    for value in ("first", "second"):
        for key in EDGES[kind]:
            end += 1
            update = change("u", end, None, {"id": key, "part": 1, "value": value})
            sink.apply("orders", changes(update, table=table), log(end - 1, end))
    assert sink.read("orders").column("value").to_pylist() == ["second"] * len(EDGES[kind])


def test_values_that_do_not_fit_stop_the_batch_with_the_remedy(sink: DeltaSink) -> None:
    batch = changes(
        change("c", 1, None, {"id": None, "name": None}, after_exact={"id": "t:x", "name": "i:5"})
    )
    with pytest.raises(DataError) as caught:
        sink.apply("orders", batch, log(0, 1))
    assert caught.value.remedy == 'types = { "orders.id" = "string" } in [source]'


@pytest.mark.parametrize("target", ["", "..", "a/b", "a%20b", "a\0"])
def test_a_target_that_is_no_directory_name_is_refused(sink: DeltaSink, target: str) -> None:
    with pytest.raises(ConfigError):
        sink.ensure(target, TABLE)


def test_targets_with_spaces_and_umlauts_are_found_again(tmp_path: Path) -> None:
    for target in ("my orders", "größe", "a#b?c"):
        DeltaSink(DeltaConfig(str(tmp_path))).apply(target, changes(change("c", 1, None, row(1))), log(0, 1))
        assert content(DeltaSink(DeltaConfig(str(tmp_path))), target) == [row(1)]


def test_ensure_makes_an_empty_table_and_leaves_a_full_one_alone(sink: DeltaSink) -> None:
    sink.ensure("orders", TABLE)
    assert content(sink) == []
    sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    sink.ensure("orders", TABLE)
    assert content(sink) == [row(1)]


def test_a_damaged_table_is_named_and_not_replaced(sink: DeltaSink, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "orders", pa.table({"id": [1]}))
    log_file = tmp_path / "orders" / "_delta_log" / "00000000000000000000.json"
    log_file.write_text("{ not json")
    with pytest.raises(NeedsOperator, match="orders"):
        sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
    assert log_file.read_text() == "{ not json"


def test_a_path_that_cannot_be_written_is_transient_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = DeltaSink(DeltaConfig(str(tmp_path / "file")))
    with pytest.raises((Transient, NeedsOperator), match="file/orders"):
        sink.apply("orders", changes(change("c", 1, None, row(1))), log(0, 1))
