"""Link state: before images completed, the same after any replay, on a script and by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.capture.scripted import Event, ScriptedCapture, ScriptedSource
from tailrace.changelog.reader import read_windows
from tailrace.model.change import TS, ChangeBatch, Op, Part, schema_of
from tailrace.model.errors import (
    ConfigError,
    Fenced,
    IdentityMismatch,
    NeedsOperator,
    StateUnreadable,
    Transient,
)
from tailrace.model.position import Position
from tailrace.model.table import ColumnType, TableRef, TableSchema
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.filler import Filler
from tailrace.runtime.links import Links, horizon_of
from tests.support.waiting import wait_until

Row = dict[str, Any]


class Bench:
    """A scripted source whose log says of an old row its key at most, and links on it."""

    def __init__(self, path: Path, **columns: str) -> None:
        self.path = path / "links.db"
        self.source = ScriptedSource()
        self.ref = self.source.table("child", **(columns or {"id": "long", "parent": "long", "x": "string"}))
        self.capture = ScriptedCapture(self.source)
        self.links = self.open()
        self.version = 0

    @property
    def table(self) -> TableSchema:
        return self.source.schemas[self.ref]

    def open(self, columns: Sequence[str] = ("parent",), **settings: Any) -> Links:
        return Links(self.path, {self.ref: columns}, **settings)

    def at(self, version: int) -> Position:
        return self.source.at(version)

    def begin(self, version: int | None = None, epoch: int = 1) -> None:
        self.links.begin(self.capture, self.at(self.version if version is None else version), epoch=epoch)

    def again(self, version: int, epoch: int = 1) -> None:
        """Another process goes on from there."""
        self.links.close()
        self.links = self.open()
        self.version = version
        self.begin(epoch=epoch)

    def complete(
        self, *changes: tuple[str, Row | None, Row | None], complete: bool = True
    ) -> list[Row | None]:
        """The completed before images of a transaction, without what they lack."""
        self.version += 1
        batch = changed(self.table, self.version, changes)
        (done,) = self.links.complete(Part((batch,), self.at(self.version), complete)).batches
        done.data.validate(full=True)
        assert done.data.drop_columns(_BEFORE & set(done.data.schema.names)).equals(
            batch.data.drop_columns(_BEFORE & set(batch.data.schema.names))
        )
        return images(done)


_BEFORE = {"before", "before_absent", "before_exact"}


def changed(
    table: TableSchema, version: int, changes: Sequence[tuple[str, Row | None, Row | None]]
) -> ChangeBatch:
    """A batch; an image lacks the columns that its row does not name."""
    count = len(changes)
    columns: list[Any] = [
        pa.array([op for op, _, _ in changes], pa.string()),
        pa.array([version] * count, pa.int64()),
        pa.array(range(count), pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, TS),
        pa.array([before for _, before, _ in changes], table.struct),
        pa.array([after for _, _, after in changes], table.struct),
    ]
    fields = []
    for place, side in ((1, "before_absent"), (2, "after_absent")):
        lists = [
            [c.name for c in table.columns if c.name not in change[place]] or None if change[place] else None  # type: ignore[operator]
            for change in changes
        ]
        if any(lists):
            columns.append(pa.array(lists, pa.list_(pa.string())))
            fields.append(pa.field(side, pa.list_(pa.string())))
    return ChangeBatch(table, pa.RecordBatch.from_arrays(columns, schema=schema_of(table, fields)))


def images(batch: ChangeBatch, side: str = "before") -> list[Row | None]:
    found: list[Row | None] = []
    for row in batch.data.to_pylist():
        absent = row.get(f"{side}_absent") or ()
        image = row[side]
        exact = row.get(f"{side}_exact") or {}
        if image is not None:
            image = {n: exact.get(n) or v for n, v in image.items() if n not in absent}
        found.append(image)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.links.close()


def row(key: int, parent: int | None, x: str = "x") -> Row:
    return {"id": key, "parent": parent, "x": x}


def test_what_the_log_lacks_is_completed_from_seeds_and_from_the_log(bench: Bench) -> None:
    bench.source.commit(
        *(Event(Op.INSERT, bench.ref, None, row(key, 10 * key)) for key in (1, 2, 3)), logged=False
    )
    bench.begin()
    assert bench.complete(("u", None, row(1, 11)), ("d", {"id": 2}, None), ("c", None, row(4, None))) == [
        {"id": 1, "parent": 10},
        {"id": 2, "parent": 20},
        None,
    ]
    assert bench.complete(("u", None, row(1, 12)), ("u", None, row(1, 13)), ("d", {"id": 4}, None)) == [
        {"id": 1, "parent": 11},
        {"id": 1, "parent": 12},
        {"id": 4, "parent": None},
    ]


def test_a_changed_key_takes_its_values_along(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)))
    assert bench.complete(("u", {"id": 1}, row(2, 20)), ("c", None, row(1, 30)), ("d", {"id": 2}, None)) == [
        {"id": 1, "parent": 10},
        None,
        {"id": 2, "parent": 20},
    ]
    assert bench.complete(("d", {"id": 1}, None)) == [{"id": 1, "parent": 30}]


def test_a_whole_before_image_is_left_as_it_is_and_still_remembered(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)))
    assert bench.complete(("u", row(1, 10, "old"), row(1, 11))) == [row(1, 10, "old")]
    assert bench.complete(("d", {"id": 1}, None)) == [{"id": 1, "parent": 11}]


def test_what_is_not_known_stays_absent(bench: Bench) -> None:
    bench.begin()
    assert bench.complete(("u", None, row(1, 10)), ("d", {"id": 7}, None)) == [None, {"id": 7}]
    assert bench.complete(("d", {"id": 1}, None), ("d", {"id": 1}, None)) == [
        {"id": 1, "parent": 10},
        {"id": 1},
    ]


def test_an_unchanged_large_value_is_as_it_was(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)), ("c", None, row(2, 20)))
    lacking = {"id": 1, "x": "n"}
    assert bench.complete(
        ("u", None, lacking),
        ("u", None, lacking),
        ("u", {"id": 1}, {"id": 3, "x": "n"}),
        ("d", {"id": 3}, None),
    ) == [
        {"id": 1, "parent": 10},
        {"id": 1, "parent": 10},
        {"id": 1, "parent": 10},
        {"id": 3, "parent": 10},
    ]


def test_truncate_forgets_and_can_be_gone_back_over(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)), ("c", None, row(2, 20)))
    bench.complete(
        ("u", None, row(1, 11)), ("t", None, None), ("c", None, row(2, 21)), ("u", None, row(1, 99))
    )
    bench.complete(("u", None, row(2, 22)), ("t", None, None), ("c", None, row(5, 5)))
    assert bench.complete(("d", {"id": 1}, None), ("d", {"id": 5}, None)) == [
        {"id": 1},
        {"id": 5, "parent": 5},
    ]
    bench.again(2)
    assert bench.complete(("u", None, row(2, 0)), ("d", {"id": 1}, None)) == [
        {"id": 2, "parent": 21},
        {"id": 1, "parent": 99},
    ]
    bench.again(1)
    assert bench.complete(("d", {"id": 1}, None), ("d", {"id": 2}, None)) == [
        {"id": 1, "parent": 10},
        {"id": 2, "parent": 20},
    ]


def test_a_replay_from_any_position_gives_the_same_answers(bench: Bench) -> None:
    dice = np.random.default_rng(7)
    bench.begin()
    script = []
    for _ in range(40):
        script.append(
            [
                [
                    ("c", None, row(key, parent)),
                    ("u", None, row(key, parent)),
                    ("u", {"id": key}, row(key + 1, parent)),
                    ("d", {"id": key}, None),
                    ("t", None, None) if dice.random() < 0.05 else ("u", None, {"id": key, "x": "n"}),
                ][dice.integers(5)]
                for key, parent in dice.integers(0, 6, (dice.integers(1, 9), 2)).tolist()
            ]
        )
    answers = [bench.complete(*changes) for changes in script]
    for _ in range(6):
        start = int(dice.integers(0, len(script)))
        bench.again(start)
        for at in range(start, min(len(script), start + int(dice.integers(1, 12)))):
            assert bench.complete(*script[at]) == answers[at]
        # Part of the next one, and then a kill.
        if (killed := bench.version) < len(script):
            bench.complete(*script[killed][:2], complete=False)
            bench.again(killed)
        for at in range(killed, len(script)):
            assert bench.complete(*script[at]) == answers[at]


def test_pruning_keeps_the_newest_and_what_may_be_read_again(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)), ("c", None, row(2, 20)))
    bench.complete(("u", None, row(1, 11)), ("t", None, None), ("c", None, row(1, 12)))
    bench.complete(("u", None, row(1, 13)))
    bench.links.prune(2)
    db = sqlite3.connect(bench.path)
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'now%'")}
    assert names == {"now_1_1"}
    assert db.execute("SELECT position FROM undo_1").fetchall() == [(3,)]
    db.close()
    bench.again(2)
    assert bench.complete(("d", {"id": 1}, None)) == [{"id": 1, "parent": 12}]


def test_a_position_that_it_cannot_go_back_to_or_never_saw_reads_the_table_anew(bench: Bench) -> None:
    bench.begin()
    for at in range(3):
        bench.complete(("c", None, row(at, at)))
    bench.links.sync()
    bench.links.prune(2)
    bench.source.insert(bench.ref, row(8, 80))
    horizon = bench.links.horizon
    bench.again(1)
    assert bench.links.horizon > horizon
    assert bench.complete(("d", {"id": 8}, None), ("d", {"id": 2}, None)) == [
        {"id": 8, "parent": 80},
        {"id": 2},
    ]
    for _ in range(9):
        bench.source.commit()
    bench.again(9)
    assert bench.complete(("d", {"id": 8}, None)) == [{"id": 8, "parent": 80}]
    assert horizon_of(bench.path) == bench.links.horizon


def test_seeding_goes_on_where_it_was_ended(bench: Bench) -> None:
    bench.source.commit(*(Event(Op.INSERT, bench.ref, None, row(k, k)) for k in range(10)), logged=False)
    bench.links = bench.open(rows_per_chunk=2)
    read: list[int] = []
    snapshot = bench.capture.snapshot

    def noted(table: Any, chunk: Any, **named: Any) -> Any:
        read.append(chunk.index)
        return snapshot(table, chunk, **named)

    bench.capture.snapshot = noted  # type: ignore[method-assign]
    pauses = iter(range(100))

    def pause() -> None:
        if next(pauses) == 5:
            raise Transient("enough")

    with pytest.raises(Transient):
        bench.links.begin(bench.capture, bench.at(0), pause=pause)
    assert 0 < len(set(read)) < 5
    done = len(read) - 1
    bench.links.close()
    bench.links = bench.open(rows_per_chunk=2)
    bench.begin()
    assert read[done + 1 :] == list(range(done, 5))
    assert done == 2
    found = bench.complete(*(("d", {"id": k}, None) for k in range(10)))
    assert found == [{"id": k, "parent": k} for k in range(10)]


def test_a_table_that_began_anew_is_read_again(bench: Bench) -> None:
    bench.begin()
    bench.complete(("c", None, row(1, 10)))
    bench.source.commit(Event(Op.INSERT, bench.ref, None, row(1, 50)), logged=False)
    bench.source.recreate(bench.ref)
    bench.again(1)
    assert bench.complete(("d", {"id": 1}, None)) == [{"id": 1, "parent": 50}]


def test_changes_from_before_a_table_became_another_pass_and_later_ones_are_refused(bench: Bench) -> None:
    older = bench.table
    bench.source.commit(Event(Op.INSERT, bench.ref, None, row(1, 10)))
    bench.source.commit(Event(Op.UPDATE, bench.ref, row(1, 10), row(1, 11)))
    columns = tuple(replace(c, type=ColumnType("string")) if c.name == "parent" else c for c in older.columns)
    newer = replace(older, columns=columns)
    bench.source.schemas[bench.ref] = newer
    bench.source.rows[bench.ref] = {(1,): {"id": 1, "parent": "11", "x": "x"}}
    bench.begin(0)
    assert bench.links.horizon == 2
    for version, old, new in ((1, None, row(1, 10)), (2, {"id": 1}, row(1, 11))):
        part = Part((changed(older, version, [("u" if old else "c", old, new)]),), bench.at(version))
        assert bench.links.complete(part) == part
    bench.version = 2
    assert bench.complete(("u", None, {"id": 1, "parent": "12", "x": "x"})) == [{"id": 1, "parent": "11"}]
    for table in (older, replace(newer, generation="2")):
        value: Any = 13 if table is older else "13"
        late = Part((changed(table, 4, [("u", None, {"id": 1, "parent": value, "x": "x"})]),), bench.at(4))
        with pytest.raises(NeedsOperator, match="child"):
            bench.links.complete(late)


def test_keys_and_values_of_any_type_are_given_back(tmp_path: Path) -> None:
    import datetime as dt
    from decimal import Decimal

    values: dict[str, tuple[str, list[Any]]] = {
        "t": ("string", ["", "it's", 'a "b" \\', "é😀"]),
        "d": ("date", [dt.date(2026, 1, 2), None]),
        "m": ("timestamp", [dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), None]),
        "l": ("timestamp_ntz", [dt.datetime(2026, 1, 2), None]),
        "n": ("decimal(10,3)", [Decimal("1.500"), None, Decimal("-0.001")]),
        "b": ("binary", [b"\0\xff", b"", None]),
        "o": ("boolean", [True, False, None]),
        "f": ("double", [0.1, float("inf"), 1e300]),
        "i": ("integer", [-(2**31), None]),
    }
    kinds = {name: kind for name, (kind, _) in values.items()}
    bench = Bench(tmp_path, k1="string", k2="date", k3="decimal(5,2)", **kinds)
    schema = bench.table
    keyed = TableSchema(schema.ref, schema.columns, ("k1", "k2", "k3"), generation="1")
    bench.source.schemas[bench.ref] = keyed
    bench.links = bench.open(tuple(values))
    bench.begin()
    rows = [
        {
            "k1": text,
            "k2": dt.date(2026, 1, 1),
            "k3": Decimal("1.50"),
            **{name: some[at % len(some)] for name, (_, some) in values.items()},
        }
        for at, text in enumerate(["a", 'b"', "c\\", "é", "", "1"])
    ]
    bench.complete(*(("c", None, one) for one in rows))
    keys = [{name: one[name] for name in ("k1", "k2", "k3")} for one in rows]
    assert bench.complete(*(("d", key, None) for key in keys)) == rows
    bench.links.close()


def test_a_value_that_its_type_cannot_hold_is_given_back_tagged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, id="long", parent="date", x="string")
    bench.begin()
    batch = changed(bench.table, 1, [("c", None, row(1, None)), ("c", None, row(2, None))])
    tags = pa.StructArray.from_arrays(
        [pa.array(["v:infinity", None])], fields=[pa.field("parent", pa.string())]
    )
    data = batch.data.append_column("after_exact", tags)
    bench.links.complete(Part((ChangeBatch(batch.table, data),), bench.at(1)))
    bench.version = 1
    assert bench.complete(("d", {"id": 1}, None), ("u", None, row(2, None))) == [
        {"id": 1, "parent": "v:infinity"},
        {"id": 2, "parent": None},
    ]
    bench.links.close()


def test_columns_that_an_index_told_are_as_after_the_change(tmp_path: Path) -> None:
    bench = Bench(tmp_path, id="long", parent="long", code="long")
    schema = bench.table
    bench.source.schemas[bench.ref] = TableSchema(
        schema.ref, schema.columns, ("id",), generation="1", unchanged=("parent",)
    )
    bench.links = bench.open(("code", "parent"))
    bench.begin()
    bench.complete(("c", None, {"id": 1, "parent": 5, "code": 7}))
    assert bench.complete(("u", None, {"id": 1, "parent": 5, "code": 8})) == [
        {"id": 1, "parent": 5, "code": 7}
    ]
    bench.links.close()


def test_a_later_owner_fences_an_earlier_one_and_another_source_is_refused(bench: Bench) -> None:
    bench.begin(epoch=1)
    later = bench.open()
    later.begin(bench.capture, bench.at(0), epoch=2)
    with pytest.raises(Fenced):
        bench.complete(("c", None, row(1, 1)))
    with pytest.raises(IdentityMismatch):
        later.begin(bench.capture, Position("another", 0), epoch=3)
    later.close()


def test_a_damaged_file_and_a_table_without_a_key_are_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "links.db").write_bytes(b"not a database" * 1000)
    bench = Bench(tmp_path)
    with pytest.raises(StateUnreadable, match="link state") as found:
        bench.begin()
    assert "rm " in str(found.value)
    (tmp_path / "links.db").unlink()
    bench.source.schemas[bench.ref] = TableSchema(bench.ref, bench.table.columns, (), generation="1")
    with pytest.raises(ConfigError, match="primary key"):
        bench.begin()
    bench.links.close()


def test_the_file_is_for_its_owner_alone(bench: Bench) -> None:
    bench.begin()
    assert bench.path.stat().st_mode & 0o777 == 0o600


def test_a_filler_with_links_writes_whole_before_images_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    source = ScriptedSource()
    ref = source.table("child", id="long", parent="long")
    source.commit(Event(Op.INSERT, ref, None, {"id": 1, "parent": 10}), logged=False)
    other = source.table("other")

    def life(*after: int) -> list[Row | None]:
        links = Links(tmp_path / "links.db", {ref: ("parent",)})
        filler = Filler.open(
            ScriptedCapture(source),
            [ref, other],
            uri=str(tmp_path / "changelog"),
            consumer="c",
            wait=0.01,
            backoff=Backoff(0.01, 0.05),
            links=links,
        )
        ScriptedCapture(source).register("c")
        filler.start()
        try:
            filler.catch_up(timeout=20)
            for parent in after:
                source.commit(Event(Op.UPDATE, ref, None, {"id": 1, "parent": parent}))
                source.insert(other, {"id": parent, "name": "n"})
                filler.catch_up(timeout=20)
            changelog = filler.changelog
            start = changelog.acknowledged
            refs = changelog.plan(start, changelog.end)
            windows = [batch for window in read_windows(changelog.uri, refs) for batch in window]
            found = [image for batch in windows if batch.table.ref == ref for image in images(batch)]
            filler.acknowledge(source.at(changelog.end))
            wait_until(lambda: source.cursors["c"] == changelog.end, what="the acknowledgement")
            return found
        finally:
            filler.close()
            filler.changelog.close()
            links.close()

    assert life(11, 12) == [{"id": 1, "parent": 10}, {"id": 1, "parent": 11}]
    assert life(13) == [{"id": 1, "parent": 12}]
    assert life(14) == [{"id": 1, "parent": 13}]
    assert TableRef("main", "child") == ref
